"""OpenSSL's contexts, made of the values of ``ports``.

TLS 1.2 at least, without renegotiation, compression or tickets: connections are long, and a resumed session would outlive a changed trust
store. A certificate that is trusted need not be a root. Keys go to OpenSSL through memory that has a file's name and is on no disk.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from ottla.security.key_stores import has_old_cipher
from ottla.tls import ClientAuth, TlsClient, TlsError, TlsKeys, TlsServer, TlsUntrustedError

_UNTRUSTED: Final = frozenset({2, 18, 19, 20, 21})
"""What OpenSSL says of a chain that ends at no trusted certificate (X509_V_ERR_*: no issuer is found, or it is self-signed)."""
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
FLIGHTS_MAX: Final = 8
_AUTH: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def server_context(tls: TlsServer) -> ssl.SSLContext:
    """Makes a server's context. ValueError for what OpenSSL does not take."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, tls)
    context.num_tickets = 0
    _load_keys(context, tls.keys)
    context.verify_mode = _AUTH[tls.client_auth]
    if tls.trusted is not None:
        _load_trusted(context, tls.trusted)
    return context


def client_context(tls: TlsClient) -> ssl.SSLContext:
    """Makes a client's context. ValueError for what OpenSSL does not take."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, tls)
    context.check_hostname = tls.checks_host
    if tls.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_trusted(context, tls.trusted)
    if tls.keys is not None:
        _load_keys(context, tls.keys)
    return context


def try_handshake(server: TlsServer, client: TlsClient) -> None:
    """Raises ValueError with the reason why the two would not agree; the server's host is not looked at."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client_context(replace(client, checks_host=False)).wrap_bio(to_client, to_server),
        server_context(server).wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(FLIGHTS_MAX):
        done = 0
        for side in sides:
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue
            except (ssl.SSLError, ssl.CertificateError) as error:
                raise ValueError(str(problem_of(error))) from None
        if done == len(sides):
            break
    else:
        raise ValueError("the TLS handshake does not end")


def problem_of(error: Exception) -> TlsError:
    """Returns what went wrong in a handshake, for logs and for the peer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        kind = TlsUntrustedError if error.verify_code in _UNTRUSTED else TlsError
        return kind(f"the peer's certificate is refused: {error.verify_message}")
    reason = (error.reason if isinstance(error, ssl.SSLError) else None) or str(error)
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"):
        return TlsError("the peer does not speak TLS on this port")
    return TlsError(f"the TLS handshake has failed: {reason.replace('_', ' ').lower()}")


def _context(side: int, tls: TlsServer | TlsClient) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    versions = [version for name, version in _VERSIONS.items() if name in tls.versions]
    if not versions:
        raise ValueError(f"none of the TLS versions {', '.join(tls.versions)} is supported; {' and '.join(_VERSIONS)} are")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if tls.ciphers:
        try:
            context.set_ciphers(":".join(tls.ciphers))
        except ssl.SSLError:
            raise ValueError(f"OpenSSL has none of the cipher suites {', '.join(tls.ciphers)}") from None
    return context


def _load_trusted(context: ssl.SSLContext, text: str) -> None:
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ValueError("what is trusted is not a list of certificates in PEM form") from None
    if not context.cert_store_stats()["x509"]:
        raise ValueError("there is no certificate in what is trusted")


_TOO_SHORT: Final = "a key of the certificate's chain is shorter than this system's OpenSSL accepts: RSA keys have 2,048 bits"
_REFUSED_KEYS: Final = {
    "KEY_VALUES_MISMATCH": "the private key is not that of the certificate",
    "EE_KEY_TOO_SMALL": _TOO_SHORT,
    "CA_KEY_TOO_SMALL": _TOO_SHORT,
    "CA_MD_TOO_WEAK": "a certificate of the chain is signed by SHA-1 or MD5, which this system's OpenSSL refuses: issue it with SHA-256",
}
"""What is wrong with keys that can be read, by OpenSSL's name for it."""


_OLD_CIPHER: Final = (
    "the private key is encrypted by DES, RC2 or RC4, or its password is wrong; this system's OpenSSL may not have these ciphers: "
    "encrypt the key by AES, with openssl pkcs8 -provider legacy -provider default -topk8 -v2 aes-256-cbc"
)


def _load_keys(context: ssl.SSLContext, keys: TlsKeys) -> None:
    password = "" if keys.password is None else keys.password.reveal()
    with _in_memory(keys.chain) as chain, _in_memory(keys.key.reveal()) as key:
        try:
            context.load_cert_chain(chain, key, password=lambda: password)  # without one OpenSSL would ask at the terminal
        except ssl.SSLError as error:
            if error.reason in _REFUSED_KEYS:
                raise ValueError(_REFUSED_KEYS[error.reason]) from None
            if has_old_cipher(keys.key.reveal()):
                raise ValueError(_OLD_CIPHER) from None
            what = "the private key or the certificate cannot be read"
            raise ValueError(f"{what}, or the key's password is wrong" if keys.password is not None else what) from None
        except (OSError, ValueError):
            raise ValueError("the private key or the certificate cannot be read: both are expected in PEM form") from None


@contextlib.contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Yields the name of a file that is on no disk."""
    if not hasattr(os, "memfd_create"):
        raise ValueError("keys of TLS need Linux: this system has no files in memory")
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        data = text.encode()
        while data:
            data = data[os.write(descriptor, data) :]
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
