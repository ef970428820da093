"""Every codec both ways, the forms that clients write, and streams that lie."""

import gzip
import random
import struct
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import DecodeError
from ottla.records.compression import SPARE_BYTES_MAX, Codec, compress, decompress

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 1 << 20
MAGIC = {
    Codec.GZIP: b"\x1f\x8b\x08\x00",
    Codec.SNAPPY: b"\x82SNAPPY\x00",
    Codec.LZ4: b"\x04\x22\x4d\x18",
    Codec.ZSTD: b"\x28\xb5\x2f\xfd",
}

texts = st.one_of(
    st.binary(max_size=2000), st.builds(lambda part, count: part * count, st.binary(min_size=1, max_size=40), st.integers(1, 4000))
)


@given(texts, st.sampled_from([Codec.NONE, *CODECS]))
def test_what_is_compressed_is_decompressed(data: bytes, codec: Codec) -> None:
    assert bytes(decompress(codec, compress(codec, data))) == data
    assert bytes(decompress(codec, memoryview(bytes(compress(codec, data))), limit=max(len(data), 1))) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, 64 * 1024, 64 * 1024 + 1, 300_000, 5 * MIB])
def test_sizes_around_the_block_borders_survive(codec: Codec, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert bytes(decompress(codec, compress(codec, data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_joined_streams_are_read_as_one(codec: Codec) -> None:
    joined = bytes(compress(codec, b"one ")) + bytes(compress(codec, b"")) + bytes(compress(codec, b"two"))
    assert bytes(decompress(codec, joined)) == b"one two"


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_above_the_limit_is_refused(codec: Codec) -> None:
    data = compress(codec, bytes(100_000))
    assert len(bytes(decompress(codec, data, limit=100_000))) == 100_000
    with pytest.raises(DecodeError):
        decompress(codec, data, limit=99_999)


def snappy_claim(declared: int) -> bytes:
    out = bytearray()
    while declared >= 0x80:
        out.append(declared & 0x7F | 0x80)
        declared >>= 7
    return bytes(out) + bytes([declared]) + b"\x00a"


def zstd_blocks(blocks: int, size: int) -> bytes:
    """A frame of run blocks: four bytes of input for each ``size`` bytes of output."""
    body = b"".join((size << 3 | 1 << 1 | (index == blocks - 1)).to_bytes(3, "little") + b"a" for index in range(blocks))
    return bytes.fromhex("28b52ffd") + b"\x00\x58" + body


BOMBS = {
    "gzip": (Codec.GZIP, lambda: gzip.compress(bytes(256 * MIB), 9)),
    "snappy raw": (Codec.SNAPPY, lambda: snappy_claim(2**31)),
    "snappy raw, within the ratio": (Codec.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(bytes(64 * MIB)))),
    "snappy xerial": (Codec.SNAPPY, lambda: bytes(compress(Codec.SNAPPY, bytes(64 * MIB)))),
    "lz4": (Codec.LZ4, lambda: bytes(compress(Codec.LZ4, bytes(256 * MIB)))),
    "lz4, many frames": (Codec.LZ4, lambda: bytes(compress(Codec.LZ4, bytes(MIB))) * 256),
    "zstd": (Codec.ZSTD, lambda: bytes(compress(Codec.ZSTD, bytes(256 * MIB)))),
    "zstd of runs": (Codec.ZSTD, lambda: zstd_blocks(4096, 128 * 1024)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_stops_at_the_limit(name: str) -> None:
    codec, packed = BOMBS[name]
    data = packed()
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decompress(codec, data, limit=MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB


def test_raw_snappy_is_read_as_librdkafka_writes_it() -> None:
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"raw" * 100)))) == b"raw" * 100


def test_xerial_is_recognised_by_its_magic_alone() -> None:
    data = bytearray(compress(Codec.SNAPPY, b"framed"))
    data[8:16] = struct.pack("<II", 1, 1)  # little-endian version words, as Redpanda writes them
    assert bytes(decompress(Codec.SNAPPY, data)) == b"framed"


def test_lz4_blocks_are_written_independent_of_each_other() -> None:
    frame = bytes(compress(Codec.LZ4, bytes(200_000)))
    assert frame[4] & 0x20  # the independence flag; Java's reader refuses frames without it
    assert not frame[4] & 0x04  # no content checksum


def test_lz4_frames_with_linked_blocks_and_checksums_are_read() -> None:
    data = bytes(range(256)) * 2000
    for content_checksum in (False, True):
        stream = cramjam.lz4.Compressor(content_checksum=content_checksum, block_linked=True)
        stream.compress(data)
        assert bytes(decompress(Codec.LZ4, bytes(stream.finish()))) == data


def test_zstd_frames_without_a_content_size_are_read() -> None:
    stream = cramjam.zstd.Compressor()
    stream.compress(b"streamed " * 50_000)
    frame = bytes(stream.finish())
    assert frame[4] >> 6 == 0  # no content size
    assert frame[4] & 0x20 == 0
    assert bytes(decompress(Codec.ZSTD, frame)) == b"streamed " * 50_000


def test_skippable_frames_are_skipped() -> None:
    user_data = bytes.fromhex("502a4d18") + (3).to_bytes(4, "little") + b"abc"
    for codec in (Codec.LZ4, Codec.ZSTD):
        frame = bytes(compress(codec, b"data"))
        assert bytes(decompress(codec, user_data + frame + user_data)) == b"data"


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_cut_anywhere_is_malformed(codec: Codec) -> None:
    data = bytes(compress(codec, b"some text that is cut " * 20))
    whole = {16} if codec == Codec.SNAPPY else set()  # a xerial header without blocks is an empty stream
    for end in set(range(1, len(data))) - whole:
        with pytest.raises(DecodeError):
            decompress(codec, data[:end])


@given(st.binary(max_size=200), st.sampled_from(CODECS), st.booleans())
def test_random_bytes_raise_only_decode_errors(data: bytes, codec: Codec, with_magic: bool) -> None:
    magic = {
        Codec.GZIP: b"\x1f\x8b\x08\x00",
        Codec.SNAPPY: b"\x82SNAPPY\x00",
        Codec.LZ4: b"\x04\x22\x4d\x18",
        Codec.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    try:
        decompress(codec, (magic[codec] if with_magic else b"") + data, limit=MIB)
    except DecodeError:
        pass


@given(st.sampled_from(CODECS), st.data())
def test_damaged_streams_raise_only_decode_errors(codec: Codec, data: st.DataObject) -> None:
    stream = bytearray(compress(codec, b"a text to be damaged, twice: a text to be damaged" * 3))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(decompress(codec, stream, limit=MIB)) <= MIB
    except DecodeError:
        pass


def test_an_unknown_codec_is_a_decode_error() -> None:
    with pytest.raises(DecodeError):
        decompress(6, b"")


def test_gzip_with_bytes_after_it_is_malformed() -> None:
    with pytest.raises(DecodeError):
        decompress(Codec.GZIP, zlib.compress(b"x", wbits=31) + b"garbage")


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_was_decompressed_stays_as_it_is_whatever_comes_next(codec: Codec) -> None:
    """The memory that it passed through is used again, by one at a time."""
    contents = [random.Random(size).randbytes(size // 2) * 2 for size in (100_000, 4, SPARE_BYTES_MAX + 2, 70_000, 200_000)]
    packed = [bytes(compress(codec, content)) for content in contents]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: decompress(codec, packed[number % len(packed)]), range(200)))
    assert all(found[number] == contents[number % len(contents)] for number in range(200))
