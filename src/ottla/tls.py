"""TLS as values: what a listener needs, what one who connects needs, and who is at the other end. Worlds make contexts of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from ottla.types import Secret


class TlsError(OSError):
    """A TLS handshake that has failed, or a stream that is no TLS: ``str`` says why, without anything that the peer sent."""


class TlsUntrustedError(TlsError):
    """No trusted authority has signed the peer's certificate."""


class TlsEndedError(TlsError):
    """The connection ended in the handshake, and nothing says why: it may be tried again."""


class ClientAuth(StrEnum):
    """The demand for clients' certificates."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class TlsKeys(Struct, frozen=True):
    """A private key with its certificate and those up to its authority, in PEM form."""

    chain: str
    key: Secret
    password: Secret | None = None


TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


class TlsServer(Struct, frozen=True):
    """The settings that a listener needs.

    ``trusted`` are certificates in PEM form; ``ciphers`` are OpenSSL's names for TLS 1.2, its own when empty.
    """

    keys: TlsKeys
    trusted: str | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    versions: Sequence[str] = TLS_VERSIONS
    ciphers: Sequence[str] = ()


class TlsClient(Struct, frozen=True):
    """The settings that a connecting client needs.

    Without ``trusted`` the system's authorities are; ``keys`` are presented where they are asked for.
    """

    trusted: str | None = None
    keys: TlsKeys | None = None
    checks_host: bool = True
    versions: Sequence[str] = TLS_VERSIONS
    ciphers: Sequence[str] = ()


class TlsPeer(Struct, frozen=True):
    """The identity at the other end. ``subject`` is that of the verified certificate, as Java prints it (RFC 2253)."""

    subject: str | None
    version: str
    cipher: str
