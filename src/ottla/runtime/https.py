"""Small documents over HTTPS, bounded in bytes and time: keys and tokens of issuers. No redirection is followed, and no proxy asked.

The system's authorities are trusted (``SSL_CERT_FILE`` names others, as OpenSSL has it).
"""

from __future__ import annotations

import asyncio
import errno
import http.client
import ssl
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

from ottla.ports import Download

SECONDS_MAX: Final = 10.0
_PIECE_BYTES: Final = 16 << 10
_OK: Final = 200
_REFUSED: Final = (400, 401, 403)


class _Bounded(ssl.SSLSocket):
    """A socket whose reads all end by one deadline, however slowly the bytes come."""

    deadline = 0.0

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        left = self.deadline - monotonic()
        if left <= 0:
            raise TimeoutError(f"it takes longer than {SECONDS_MAX:.0f} seconds")
        self.settimeout(left)
        return super().recv_into(buffer, nbytes, flags)


async def fetch(wanted: Download) -> bytes:
    """Returns the document. OSError when there is none, or it is longer, or comes too slowly."""
    return await asyncio.to_thread(_fetch, wanted)


def _fetch(wanted: Download) -> bytes:
    place, deadline = urlsplit(wanted.url), monotonic() + SECONDS_MAX
    if place.scheme != "https" or place.hostname is None:
        raise OSError("it is not an HTTPS URL")
    context = ssl.create_default_context()
    context.sslsocket_class = _Bounded
    connection = http.client.HTTPSConnection(place.hostname, place.port, timeout=SECONDS_MAX, context=context)
    try:
        connection.connect()
        assert isinstance(connection.sock, _Bounded), "the context makes no other sockets"
        connection.sock.deadline = deadline
        headers = {"Accept": "application/json"}
        if wanted.authorization is not None:
            headers["Authorization"] = wanted.authorization.reveal()
        if wanted.form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        path = (place.path or "/") + (f"?{place.query}" if place.query else "")
        connection.request("GET" if wanted.form is None else "POST", path, wanted.form, headers)
        answer = connection.getresponse()
        if answer.status in _REFUSED:
            raise PermissionError(errno.EACCES, f"the server answers {answer.status}")
        if answer.status != _OK:
            raise OSError(f"the server answers {answer.status}")
        data = bytearray()
        while piece := answer.read1(_PIECE_BYTES):
            data += piece
            if len(data) > wanted.bytes_max:
                raise OSError(f"it has more than {wanted.bytes_max} bytes")
        return bytes(data)
    except ssl.SSLCertVerificationError as error:
        raise OSError(f"its certificate is not trusted ({error.verify_message}); SSL_CERT_FILE may name other authorities") from None
    except http.client.HTTPException as error:
        raise OSError(f"the server does not speak HTTP: {type(error).__name__}") from None
    finally:
        connection.close()
