"""A private authority, and what it signs, as PEM files that listeners and clients take: of ``ottla certs``, ``ottla dev`` and tests.

The authority's key is kept beside the rest, unencrypted, in files of mode 0600. It needs ``ottla[security]``.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, CertificateBuilder

AUTHORITY, KEY = "authority.pem", "authority.key"
HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_HOST: Final = re.compile(r"[A-Za-z0-9_*.-]+")
EARLIER: Final = timedelta(minutes=5)
"""So much the clocks of machines may differ."""


def new_authority(directory: Path, *, name: str, days: int) -> Certificate:
    """Makes what ``certs authority`` makes. INVALID_REQUEST where an authority exists already."""
    from cryptography.x509 import BasicConstraints, KeyUsage

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in (AUTHORITY, KEY):
        if (directory / file).exists():
            raise _refused(f"{directory / file} is there already: an authority is not replaced, since all that it has signed would be lost")
    key = _new_key()
    usage = KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = _builder(name, key, days).issuer_name(_name(name))
    builder = builder.add_extension(BasicConstraints(ca=True, path_length=0), critical=True).add_extension(usage, critical=True)
    made = _signed(builder, key, key)
    _write(directory / KEY, _pem_of(key))
    _write(directory / AUTHORITY, _pem(made), mode=0o644)
    return made


def new_certificates(
    directory: Path, names: Sequence[str], *, hosts: Sequence[str], days: int, replaces: bool
) -> list[tuple[Path, Certificate]]:
    """Makes what ``certs issue`` makes: the files, and their certificates. INVALID_REQUEST where none can be made."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import BasicConstraints, SubjectAlternativeName, load_pem_x509_certificate

    try:
        signer: Any = load_pem_private_key((directory / KEY).read_bytes(), None)
        root = load_pem_x509_certificate((directory / AUTHORITY).read_bytes())
    except (OSError, ValueError):
        raise _refused(f"there is no authority in {directory}: make one by ottla certs authority {directory}") from None
    for name in names:
        path = directory / f"{name}.pem"
        if path.parent != directory or path.name == AUTHORITY:
            raise _refused(f"{name!r} is not the name of a file")
        if path.exists() and not replaces:
            raise _refused(f"{path} is there already: give --replace to have another one")
    made = []
    for name in names:
        key = _new_key()
        builder = _builder(name, key, days).issuer_name(root.subject)
        builder = builder.add_extension(BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        certificate = _signed(builder, signer, key)
        path = directory / f"{name}.pem"
        _write(path, _pem_of(key) + _pem(certificate))
        made.append((path, certificate))
    return made


def check_extra(command: str) -> None:
    """Raises INVALID_CONFIG where certificates cannot be made."""
    try:
        import cryptography  # noqa: F401 - whether it is there
    except ImportError:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{command} needs the extra ottla[security]: pip install 'ottla[security]'") from None


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(text: str) -> Any:
    from cryptography.x509 import Name, NameAttribute
    from cryptography.x509.oid import NameOID

    try:
        return Name([NameAttribute(NameOID.COMMON_NAME, text)])
    except ValueError:
        raise _refused(f"{text!r} is no common name: 1 to 64 characters are expected") from None


def _host(text: str) -> Any:
    from cryptography.x509 import DNSName, IPAddress

    try:
        return IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    try:
        name = text.encode("idna").decode()
        if _HOST.fullmatch(name) is None:
            raise ValueError
    except (UnicodeError, ValueError):
        raise _refused(f"{text!r} is neither the name of a host nor an address, without a port") from None
    return DNSName(name)


def _builder(name: str, key: Any, days: int) -> CertificateBuilder:
    from cryptography.x509 import CertificateBuilder, random_serial_number

    now = datetime.now(UTC)
    return (
        CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _signed(builder: CertificateBuilder, signer: Any, key: Any) -> Certificate:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509 import AuthorityKeyIdentifier, SubjectKeyIdentifier

    builder = builder.add_extension(SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    return builder.sign(signer, SHA256())


def _pem_of(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    data: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return data


def _pem(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _write(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Writes the file: it never has less than this content, and is never more readable than its mode allows."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _refused(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
