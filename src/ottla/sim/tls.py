"""TLS of the simulated network: certificates are names, and a handshake compares them. Nothing is encrypted; the rules are the real ones.

A certificate's "chain" is its subject, and what is trusted is a list of subjects, one a line.
"""

from __future__ import annotations

from ottla.tls import ClientAuth, TlsClient, TlsError, TlsPeer, TlsServer

VERSION, CIPHER = "TLSv1.3", "simulated"


def handshake(server: TlsServer | None, client: TlsClient | None) -> TlsPeer | None:
    """Who the client is, to the server; None without TLS at both ends. TlsError when they do not agree."""
    if server is None and client is None:
        return None
    if server is None or client is None:
        raise TlsError("one end of the connection does not speak TLS")
    if not set(server.versions) & set(client.versions):
        raise TlsError("no TLS version that both ends have")
    if not _is_trusted(server.keys.chain, client.trusted):
        raise TlsError(f"the certificate {server.keys.chain} is not trusted")
    if client.keys is None or server.client_auth is ClientAuth.NONE:
        if server.client_auth is ClientAuth.REQUIRED:
            raise TlsError("a certificate is required, and none was presented")
        return TlsPeer(None, VERSION, CIPHER)
    if not _is_trusted(client.keys.chain, server.trusted):
        raise TlsError(f"the certificate {client.keys.chain} is not trusted")
    return TlsPeer(client.keys.chain, VERSION, CIPHER)


def _is_trusted(subject: str, trusted: str | None) -> bool:
    return trusted is None or subject in trusted.splitlines()
