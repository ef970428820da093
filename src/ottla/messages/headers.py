"""What precedes every request and response.

Request header v1 is the old form, v2 the flexible one; the client id is never compact. Response header v0 or, flexible,
v1; ApiVersions always answers with v0, so that a client of any age can read it. Source: KIP-482, KIP-511.

Written by hand, not declared: every request passes here, and v2 mixes the two encodings.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from ottla.errors import DecodeError, EncodeError
from ottla.wire.primitives import STRING_BYTES_MAX, skip_tags

_REQUEST: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")


class RequestHeader(msgspec.Struct, gc=False):
    """``client_id`` is None when the client sent null."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


_client_ids: dict[bytes, str] = {}  # decoding the same few ids for every request is wasted


def decode_request_header_start(frame: memoryview) -> tuple[int, int, int]:
    """Returns API key, version and correlation id: all that an answer to an unknown version needs."""
    if len(frame) < 8:
        raise DecodeError(f"a request of {len(frame)} bytes has no header")
    api_key, api_version, correlation_id = struct.unpack_from(">hhi", frame)
    return api_key, api_version, correlation_id


def decode_request_header(frame: memoryview, *, is_flexible: bool) -> tuple[RequestHeader, int]:
    """Returns the header and the position of the body."""
    try:
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(frame)
        position = 10
        if length < 0:
            if length != -1:
                raise DecodeError(f"the client id has length {length}")
            client_id = None
        else:
            raw = bytes(frame[10 : 10 + length])
            position += length
            if len(raw) != length:
                raise DecodeError(f"the client id has length {length}, {len(raw)} bytes are left")
            client_id = _client_ids.get(raw) or _remember(raw)
        if is_flexible:
            if frame[position]:
                position = skip_tags(frame, position, len(frame))
            else:
                position += 1
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def _remember(raw: bytes) -> str:
    client_id = raw.decode()
    if len(_client_ids) >= 1024:  # a client that makes up ids must not make us keep them
        _client_ids.clear()
    if len(raw) <= 256:
        _client_ids[raw] = client_id
    return client_id


def encode_request_header(header: RequestHeader, *, is_flexible: bool) -> bytes:
    raw = b"" if header.client_id is None else header.client_id.encode()
    if len(raw) > STRING_BYTES_MAX:
        raise EncodeError(f"the client id has {len(raw)} bytes, the limit is {STRING_BYTES_MAX}")
    length = -1 if header.client_id is None else len(raw)
    start = _REQUEST.pack(header.api_key, header.api_version, header.correlation_id, length)
    return start + raw + b"\0" if is_flexible else start + raw


def encode_response_header(correlation_id: int, *, is_flexible: bool) -> bytes:
    start = _CORRELATION_ID.pack(correlation_id)
    return start + b"\0" if is_flexible else start


def decode_response_header(frame: memoryview, *, is_flexible: bool) -> tuple[int, int]:
    """Returns the correlation id and the position of the body."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        return correlation_id, skip_tags(frame, 4, len(frame)) if is_flexible else 4
    except (struct.error, IndexError) as error:
        raise DecodeError(f"response header: {error}") from error
