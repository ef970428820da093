"""TLS of the simulated network: certificates are names, and a handshake compares them. Nothing is encrypted; the rules are the real ones.

A certificate is PEM whose body is its subject, in place of base64; an authority is trusted that is itself in a chain.
"""

from __future__ import annotations

import re
from typing import Final

from ottla.tls import ClientAuth, TlsClient, TlsError, TlsPeer, TlsServer

VERSION, CIPHER = "TLSv1.3", "simulated"
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----\s*(.*?)\s*-----END CERTIFICATE-----", re.DOTALL)


def handshake(server: TlsServer | None, client: TlsClient | None) -> TlsPeer | None:
    """Returns who the client is, to the server; None without TLS at both ends. TlsError when they do not agree."""
    if server is None and client is None:
        return None
    if server is None or client is None:
        raise TlsError("one end of the connection does not speak TLS")
    if not set(server.versions) & set(client.versions):
        raise TlsError("no TLS version that both ends have")
    if not _is_trusted(server.keys.chain, client.trusted):
        raise TlsError(f"the certificate {_names(server.keys.chain)[0]} is not trusted")
    if client.keys is None or server.client_auth is ClientAuth.NONE:
        if server.client_auth is ClientAuth.REQUIRED:
            raise TlsError("a certificate is required, and none was presented")
        return TlsPeer(None, VERSION, CIPHER)
    if not _is_trusted(client.keys.chain, server.trusted):
        raise TlsError(f"the certificate {_names(client.keys.chain)[0]} is not trusted")
    return TlsPeer(_names(client.keys.chain)[0], VERSION, CIPHER)


def certificate(*names: str) -> str:
    """Returns the PEM text of a chain: its subject first, then its authorities."""
    return "".join(f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n" for name in names)


def _is_trusted(chain: str, trusted: str | None) -> bool:
    return trusted is None or not set(_names(chain)).isdisjoint(_names(trusted))


def _names(chain: str) -> list[str]:
    return _CERTIFICATE.findall(chain)
