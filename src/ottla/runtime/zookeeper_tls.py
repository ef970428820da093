"""TLS to ZooKeeper: kazoo's connections, made under an ``ssl`` context of ours.

kazoo's own would trust what the system trusts beside the given certificates, and would wait for bytes that are decrypted already.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from ottla.coordination import Tls
from ottla.errors import ErrorCode, KafkaError

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class _Socket(ssl.SSLSocket):
    """A socket of kazoo's. In TLS 1.3 only its first read learns that the server has refused the client's certificate."""

    on_problem: Callable[[OSError], None]

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except ssl.SSLError as error:
            if not isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError):
                self.on_problem(error)
            raise


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Makes the context. INVALID_CONFIG, with the file's name, when a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _Socket
    context.minimum_version, context.maximum_version = (_VERSIONS[version] for version in tls.versions)
    context.check_hostname = tls.checks_host
    if tls.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        try:
            context.load_verify_locations(tls.trusted)
        except OSError as error:  # an SSLError is one
            raise _refused("zookeeper.ssl.truststore.location", tls.trusted, "the certificates that are trusted", error) from None
    if tls.own is not None:
        try:
            context.load_cert_chain(tls.own, password=lambda: tls.own_password)
        except (OSError, ValueError) as error:
            what = "a private key, readable by zookeeper.ssl.keystore.password, and its certificates"
            raise _refused("zookeeper.ssl.keystore.location", tls.own, what, error) from None
    return context


def tls_handler(context: ssl.SSLContext, on_problem: Callable[[str], None]) -> Any:
    """Returns a handler for one client of kazoo. ``on_problem`` is called in kazoo's thread with why a connection could not be made."""
    from kazoo.handlers.threading import SequentialThreadingHandler

    class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
        def create_connection(self, address: tuple[str, int], hostname: str, timeout: float | None = None, **_: object) -> ssl.SSLSocket:
            plain = socket.create_connection(address, timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name = f"TLS with {hostname}:{address[1]}"
            try:
                made = context.wrap_socket(plain, server_hostname=hostname.removesuffix("."))
            except OSError as error:
                plain.close()
                on_problem(f"{name}: {_reason(error)}")
                raise
            assert isinstance(made, _Socket), "the context makes them"
            made.on_problem = lambda error: on_problem(f"{name}: {_reason(error)}")
            return made

        def select(self, rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None) -> Any:
            """Selects, and adds what is decrypted already, though nothing more may come on the socket."""
            ready = [found for found in rlist if isinstance(found, ssl.SSLSocket) and found.pending()]
            if not ready:
                return super().select(rlist, wlist, xlist, timeout)
            others = super().select([found for found in rlist if found not in ready], wlist, xlist, 0)
            return ([*ready, *others[0]], *others[1:])

    return TlsHandler()


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return error.reason if isinstance(error, ssl.SSLError) and error.reason else str(error)


def _refused(key: str, path: str, what: str, error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"{key}={path} cannot be used as {what}: {error}")
