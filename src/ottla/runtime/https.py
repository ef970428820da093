"""Small documents over HTTPS, bounded in bytes and time: keys of issuers. No redirection is followed, and no proxy asked.

The system's authorities are trusted (``SSL_CERT_FILE`` names others, as OpenSSL has it).
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
import time
from typing import Final
from urllib.parse import urlsplit

SECONDS_MAX: Final = 10.0
_PIECE_BYTES: Final = 16 << 10
_OK: Final = 200


async def fetch(url: str, bytes_max: int) -> bytes:
    """The document. OSError when there is none, or it is longer, or comes too slowly."""
    return await asyncio.to_thread(_fetch, url, bytes_max)


def _fetch(url: str, bytes_max: int) -> bytes:
    place, deadline = urlsplit(url), time.monotonic() + SECONDS_MAX
    if place.scheme != "https" or place.hostname is None:
        raise OSError("it is not an HTTPS URL")
    connection = http.client.HTTPSConnection(place.hostname, place.port, timeout=SECONDS_MAX, context=ssl.create_default_context())
    try:
        connection.request("GET", (place.path or "/") + (f"?{place.query}" if place.query else ""), headers={"Accept": "application/json"})
        answer = connection.getresponse()
        if answer.status != _OK:
            raise OSError(f"the server answers {answer.status}")
        data = bytearray()
        while piece := answer.read1(_PIECE_BYTES):
            data += piece
            if len(data) > bytes_max:
                raise OSError(f"it has more than {bytes_max} bytes")
            if time.monotonic() > deadline:
                raise OSError(f"it takes longer than {SECONDS_MAX:.0f} seconds")
        return bytes(data)
    except http.client.HTTPException as error:
        raise OSError(f"the server does not speak HTTP: {type(error).__name__}") from None
    finally:
        connection.close()
