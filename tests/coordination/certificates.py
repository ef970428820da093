"""Certificates for tests, made by them: an authority, and PEM files of those whom it knows."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate


class Certificates:
    """``authority`` is the file of those who trust it."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._authority = trustme.CA(organization_name=name)
        self.authority = directory / f"{name}.pem"
        self._authority.cert_pem.write_to_path(str(self.authority))

    def store(self, name: str, *hosts: str, password: str = "") -> Path:
        """A private key, in the form that Java reads, and its certificates."""
        issued = self._authority.issue_cert(*(hosts or (name,)), common_name=name)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        protection: KeySerializationEncryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        path = self._directory / f"{name}.pem"
        chain = b"".join(certificate.bytes() for certificate in issued.cert_chain_pems)
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection) + chain)
        return path

    def pkcs12_store(self, name: str, password: str) -> Path:
        """The same in another form."""
        issued = self._authority.issue_cert(name)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        certificate = load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
        path = self._directory / f"{name}.p12"
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, None, BestAvailableEncryption(password.encode()))  # type: ignore[arg-type]
        )
        return path
