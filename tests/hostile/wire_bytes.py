"""Requests by hand: bytes that no encoder of ours would make."""

from __future__ import annotations

import functools
import gzip
import struct
import zlib
from typing import Any

import cramjam
from tests.foreign_clients.wire import batch_of

from ottla.messages.api_keys import ApiKey
from ottla.messages.headers import RequestHeader, encode_request_header
from ottla.messages.registry import APIS
from ottla.records.batch import HEADER, LENGTH_OVERHEAD, write_crc
from ottla.wire.compiler import encode
from ottla.wire.schema import Request

TOPIC, COMPACTED, RECOMPRESSED = "plain", "compacted", "recompressed"


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int, client_id: bytes = b"\x00\x03bad", tags: bytes = b"") -> bytes:
    """``client_id`` with its length in front; ``tags`` for a flexible header, empty for the older one."""
    return struct.pack(">hhi", api_key, version, 7) + client_id + tags


def of_api(key: int, version: int, body: bytes) -> bytes:
    """A well-formed header of the API and whatever body."""
    tags = b"\x00" if APIS[key].is_flexible(version) else b""
    return frame(header(key, version, tags=tags) + body)


def request(message: Request, version: int) -> bytes:
    api = next(api for api in APIS.values() if api.request is type(message))
    head = encode_request_header(RequestHeader(api.key, version, 7, "bad"), is_flexible=api.is_flexible(version))
    return frame(head + encode(message, version))


def with_long_string(framed: bytes, placeholder: str, text: bytes) -> bytes:
    """The framed request with ``text`` in the place of a string that a flexible version holds once."""
    assert framed.count(compact_string(placeholder.encode())) == 1
    return frame(framed[4:].replace(compact_string(placeholder.encode()), compact_string(text)))


def compact_string(text: bytes) -> bytes:
    return uvarint(len(text) + 1) + text


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63) if value < 0 else value << 1)


def produce(batches: bytes, *, topic: str = TOPIC, acks: int = -1, version: int = 8) -> bytes:
    """One partition's records as they are, in an old version where everything can be written by hand."""
    name = topic.encode()
    body = struct.pack(">hhi", -1, acks, 1000) + struct.pack(">i", 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">i", 1) + struct.pack(">i", 0) + struct.pack(">i", len(batches)) + batches
    return of_api(ApiKey.PRODUCE, version, body)


FIELDS = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp", "max_timestamp",
    "producer_id", "producer_epoch", "base_sequence", "count",
)  # fmt: skip


def batch(*values: bytes, payload: bytes | None = None, **fields: Any) -> bytes:
    """A good batch of these values, with other header fields or another payload; the CRC is right again unless one is given."""
    data = bytearray(batch_of(*(values or (b"value",))))
    if payload is not None:
        data[HEADER.size :] = payload
    now = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True)) | {"length": len(data) - LENGTH_OVERHEAD} | fields
    HEADER.pack_into(data, 0, *now.values())
    if "crc" not in fields:
        write_crc(data)
    return bytes(data)


def record(
    *, length: int | None = None, key: bytes | None = None, key_length: int | None = None, value: bytes = b"v", header_count: int = 0,
    headers: bytes = b"", attributes: int = 0, offset_delta: bytes = b"\x00",
) -> bytes:  # fmt: skip
    """One record by hand; ``length`` and ``key_length`` may lie."""
    shown_key_length = (-1 if key is None else len(key)) if key_length is None else key_length
    body = bytes([attributes]) + b"\x00" + offset_delta + zigzag(shown_key_length) + (key or b"") + zigzag(len(value)) + value
    body += zigzag(header_count) + headers
    return zigzag(len(body) if length is None else length) + body


GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


@functools.cache
def gzip_bomb(size: int) -> bytes:
    """``size`` zeros, some MiB; a thousandth of it travels."""
    zeros, crc = bytes(1 << 20), 0
    for _ in range(size >> 20):
        crc = zlib.crc32(zeros, crc)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)  # it may be repeated: each begins without a history
    return gzipped(b"")[:10] + block * (size >> 20) + packer.flush() + struct.pack("<II", crc, size)


def zstd_bomb(size: int) -> bytes:
    """Frames of zeros, one after the other, without content sizes that would warn."""
    packer = cramjam.zstd.Compressor(1)
    for _ in range(size >> 20):
        packer.compress(bytes(1 << 20))
    return bytes(packer.finish())


def lz4_bomb(size: int) -> bytes:
    packer = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    for _ in range(size >> 20):
        packer.compress(bytes(1 << 20))
    return bytes(packer.finish())


def snappy_bomb(size: int) -> bytes:
    """Xerial frames: a header, then blocks of zeros."""
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * (size >> 20)


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, 6)
