"""The codecs of record batches; every decompression has a limit that the data cannot talk its way around.

How much a stream may grow is known before it is decompressed: snappy declares it, LZ4 and zstd are made of blocks of
bounded size, which are counted by walking their headers, and zlib stops at a given length. Only that much memory is
taken, and never more than the limit. What declares more than its bytes can hold is refused at once.

What clients write, and what is read here:

========  ==========================================================================================================
gzip      members, one or more
snappy    xerial frames (Java, Python clients) or one raw block (librdkafka). Distinguished by the 8-byte magic alone: the
          version words after it come in both byte orders. Written: xerial.
lz4       frames, one or more. Written with independent blocks: Java's reader knows no others.
zstd      frames, one or more, with or without their content size
========  ==========================================================================================================

Source: RFC 1952, the LZ4 frame format 1.6, RFC 8878, google/snappy's format description, xerial's snappy-java.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Any, Final

import cramjam

from ottla.errors import DecodeError
from ottla.ports import Buffer

DECOMPRESSED_BYTES_MAX: Final = 64 << 20
"""The default limit: a producer's batch has at most a few megabytes."""
SPARE_BYTES_MAX: Final = 2 << 20
SPARE_STEP_BYTES: Final = 64 << 10
SPARES_MAX: Final = 4


class Codec(IntEnum):
    """The numbers of the attribute bits."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES: Final = {"none": 0, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The values of compression.type; the topic key says "uncompressed", the producer key "none"."""

ZSTD_LEVEL: Final = 3

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK: Final = 32 << 10
_SNAPPY_RATIO_MAX: Final = 64  # a copy element of three bytes writes 64
_LZ4_RATIO_MAX: Final = 255  # each further length byte adds at most 255
_LZ4_MAGIC: Final = 0x184D2204
_ZSTD_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50  # to ...5F: user data between frames, in both formats
_ZSTD_BLOCK_MAX: Final = 128 << 10


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Compresses ``data`` for clients of every make. ``level`` is the codec's own; None for its usual one, and snappy has none."""
    if codec == Codec.GZIP:
        compressor = zlib.compressobj(-1 if level is None else level, wbits=31)
        return compressor.compress(data) + compressor.flush()
    if codec == Codec.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == Codec.LZ4:
        chosen = {} if level is None else {"level": level}
        stream = cramjam.lz4.Compressor(content_checksum=False, block_linked=False, **chosen)
        stream.compress(bytes(data))  # it takes nothing else
        return memoryview(stream.finish())
    if codec == Codec.ZSTD:
        return memoryview(cramjam.zstd.compress(data, level=ZSTD_LEVEL if level is None else level))
    assert codec == Codec.NONE, f"codec {codec} is checked before data is compressed"
    return data


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Returns the bytes that were compressed. DecodeError when they are malformed, or more than ``limit``."""
    if codec == Codec.NONE:
        return bytes(data)
    view = memoryview(data)
    if codec == Codec.GZIP:
        return _decompress_gzip(view, limit)
    if codec == Codec.SNAPPY:
        return _decompress_xerial(view, limit) if bytes(view[:8]) == _XERIAL_MAGIC else _decompress_snappy(view, limit)
    if codec == Codec.LZ4:
        return _decompress_lz4(view, limit)
    if codec == Codec.ZSTD:
        return _into("zstd", cramjam.zstd.decompress_into, view, _zstd_bound(view), limit)
    raise DecodeError(f"compression codec {codec} is unknown")


def _too_large(codec: str, limit: int) -> DecodeError:
    return DecodeError(f"{codec} data grows beyond {limit} bytes")


class _Spares:
    """Memory that is used again: a new bytearray is set to zero first, which took a fifth of the time of all this.

    Several threads may ask at once: no two of them get the same one.
    """

    def __init__(self) -> None:
        self._spares: list[bytearray] = []

    def lend(self, size: int) -> bytearray:
        """Lends at least so many bytes with any content, until they are given back."""
        try:
            spare = self._spares.pop()
        except IndexError:
            spare = bytearray()
        return spare if len(spare) >= size else bytearray(-(-size // SPARE_STEP_BYTES) * SPARE_STEP_BYTES)

    def take_back(self, memory: bytearray) -> None:
        if len(memory) <= SPARE_BYTES_MAX and len(self._spares) < SPARES_MAX:
            self._spares.append(memory)


_spares: Final = _Spares()


def _into(codec: str, function: Any, data: memoryview, bound: int, limit: int) -> bytes:
    """Runs a cramjam ``decompress_into`` on a buffer that the data cannot outgrow, or that ends at the limit."""
    size = min(bound, limit)
    memory = _spares.lend(size)
    try:
        written: int = function(data, memoryview(memory)[:size])
        return bytes(memoryview(memory)[:written])
    except cramjam.DecompressionError as error:
        # Only a stream that does not fit the limit has a buffer smaller than its bound.
        reason = f"is malformed ({error})" if bound <= limit else f"is malformed or grows beyond {limit} bytes"
        raise DecodeError(f"{codec} data {reason}") from None
    finally:
        _spares.take_back(memory)


def _decompress_gzip(data: memoryview, limit: int) -> bytes:
    output = bytearray()
    rest: Buffer = data
    while True:
        member = zlib.decompressobj(wbits=31)
        try:
            output += member.decompress(rest, limit - len(output) + 1)
        except zlib.error as error:
            raise DecodeError(f"gzip data is malformed ({error})") from None
        if len(output) > limit:
            raise _too_large("gzip", limit)
        if not member.eof:
            raise DecodeError("gzip data ends inside a member")
        rest = member.unused_data
        if not rest:
            return bytes(output)


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_xerial(data: memoryview, limit: int) -> bytes:
    output = bytearray()
    position, end = 0, len(data)
    while position < end:
        if bytes(data[position : position + 8]) == _XERIAL_MAGIC:  # also between blocks, where streams were joined
            position += len(_XERIAL_HEADER)
            if position > end:
                raise DecodeError("snappy data ends inside a stream header")
            continue
        size = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if size > end - position:
            raise DecodeError(f"a snappy block has {size} bytes, {max(end - position, 0)} are left")
        output += _decompress_snappy(data[position : position + size], limit - len(output))
        position += size
    return bytes(output)


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    declared, shift = 0, 0
    for byte in data[:5]:
        declared |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise DecodeError("a snappy block does not begin with its length")
    if declared > len(data) * _SNAPPY_RATIO_MAX:
        raise DecodeError(f"a snappy block of {len(data)} bytes cannot hold the {declared} that it declares")
    if declared > limit:
        raise _too_large("snappy", limit)
    if declared == 0:
        if len(data) != 1:
            raise DecodeError("an empty snappy block has bytes after its length")
        return b""
    output = _into("snappy", cramjam.snappy.decompress_raw_into, data, declared, limit)
    if len(output) != declared:
        raise DecodeError(f"a snappy block declares {declared} bytes and holds {len(output)}")
    return output


def _word(data: memoryview, position: int, size: int = 4) -> int:
    """Returns a little-endian number; DecodeError where the data ends before it does."""
    if position + size > len(data):
        raise DecodeError(f"compressed data ends at byte {len(data)}, inside a frame")
    return int.from_bytes(data[position : position + size], "little")


def _decompress_lz4(data: memoryview, limit: int) -> bytes:
    output = b""
    position = 0
    while position < len(data):
        end, bound = _lz4_frame(data, position)
        if bound:
            frame = data[position:end]
            part = _into("lz4", cramjam.lz4.decompress_into, frame, min(bound, len(frame) * _LZ4_RATIO_MAX), limit - len(output))
            output = output + part if output else part
        position = end
    if position == 0:
        raise DecodeError("lz4 data is empty")
    return output


def _lz4_frame(data: memoryview, position: int) -> tuple[int, int]:
    """Returns where the frame ends, and the most bytes that its blocks can hold; 0 for an empty or a skippable one."""
    magic = _word(data, position)
    if magic & ~0xF == _SKIPPABLE_MAGIC:
        return _skip(data, position), 0
    if magic != _LZ4_MAGIC:
        raise DecodeError(f"lz4 data begins with {magic:#010x}, not with the frame magic")
    flags = _word(data, position + 4, 1)
    descriptor = _word(data, position + 5, 1)
    size_code = descriptor >> 4 & 7
    if flags >> 6 != 1 or size_code < 4:
        raise DecodeError(f"an lz4 frame has flags {flags:#04x} and block descriptor {descriptor:#04x}, of no known version")
    block_max = 1 << (8 + 2 * size_code)  # codes 4-7: 64 KiB to 4 MiB
    block_trailer = 4 if flags & 0x10 else 0
    position += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    blocks = 0
    while (size := _word(data, position)) != 0:
        position += 4 + (size & 0x7FFFFFFF) + block_trailer
        blocks += 1
    end = position + 4 + (4 if flags & 0x04 else 0)
    if end > len(data):
        raise DecodeError("an lz4 frame ends before its checksum")
    return end, blocks * block_max


def _zstd_bound(data: memoryview) -> int:
    """Returns the most bytes that the blocks of all frames can hold."""
    position, bound = 0, 0
    if not data:
        raise DecodeError("zstd data is empty")
    while position < len(data):
        magic = _word(data, position)
        if magic & ~0xF == _SKIPPABLE_MAGIC:
            position = _skip(data, position)
            continue
        if magic != _ZSTD_MAGIC:
            raise DecodeError(f"zstd data begins with {magic:#010x}, not with the frame magic")
        position, size = _zstd_frame(data, position + 4)
        bound += size
    return bound


def _zstd_frame(data: memoryview, position: int) -> tuple[int, int]:
    descriptor = _word(data, position, 1)
    is_single_segment = descriptor & 0x20 != 0
    position += 1 + (0 if is_single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    position += size_bytes
    bound, is_last = 0, False
    while not is_last:
        block = _word(data, position, 3)
        is_last, kind, size = block & 1 == 1, block >> 1 & 3, block >> 3
        # A raw block holds its size, a run one byte repeated that often, a compressed one at most 128 KiB.
        bound += _ZSTD_BLOCK_MAX if kind == 2 else min(size, _ZSTD_BLOCK_MAX)
        position += 3 + (1 if kind == 1 else size)
    position += 4 if descriptor & 4 else 0
    if position > len(data):
        raise DecodeError("a zstd frame ends before its last block")
    return position, bound


def _skip(data: memoryview, position: int) -> int:
    end = position + 8 + _word(data, position + 4)
    if end > len(data):
        raise DecodeError("a skippable frame is longer than the data")
    return end
