"""Certificates for tests: an authority, and what it has signed, as PEM files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key


@dataclass(frozen=True)
class Certificate:
    """``store`` has the key and the chain, as ``ssl.keystore.location`` takes them."""

    store: Path
    key: str
    chain: str


class Authority:
    """``trust`` is its certificate, as ``ssl.truststore.location`` takes it."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._ca = trustme.CA(organization_name=name)
        self.pem = self._ca.cert_pem.bytes().decode()
        self.key: Any = load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        self.trust = directory / f"{name}.pem"
        self.trust.write_text(self.pem)

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = ("127.0.0.1", "localhost"),
        *,
        directory: Path | None = None,
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> Certificate:
        """For these hosts, with the subject ``OU=...,O=name,CN=...``; another one of that name belongs into another ``directory``."""
        made = self._ca.issue_cert(
            *hosts, common_name=name, organization_name=name, organization_unit_name="tests", not_before=not_before, not_after=not_after
        )
        read = load_pem_private_key(made.private_key_pem.bytes(), None)
        key = read.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()  # the only form that Java reads
        chain = "".join(part.bytes().decode() for part in made.cert_chain_pems)
        place = self._directory if directory is None else directory
        place.mkdir(parents=True, exist_ok=True)
        store = place / f"{name}.pem"
        store.write_text(key + chain)
        return Certificate(store, key, chain)
