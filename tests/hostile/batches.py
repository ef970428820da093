"""Bad record batches and what wraps them."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator

from tests.hostile import wire_bytes as by
from tests.hostile.case import INT_MAX, LONG_MAX, LONG_MIN, MIB, Case
from tests.hostile.wire_bytes import COMPACTED, GZIP, LZ4, SNAPPY, TOPIC, ZSTD, batch, of_api, produce, record

from ottla.messages.api_keys import ApiKey


def record_batches() -> Iterator[Case]:
    good = batch(b"a", b"b")
    header_cases = {
        "wrong CRC": batch(crc=0),
        "magic 0": batch(magic=0), "magic 1": batch(magic=1), "magic 3": batch(magic=3), "magic -1": batch(magic=-1),
        "count -1": batch(count=-1), "count 0": batch(count=0), "count 2**31-1": batch(count=INT_MAX),
        "count above content": batch(count=5),
        "count below content": batch(b"a", b"b", count=1), "last offset delta wrong": batch(last_offset_delta=7),
        "last offset delta -1": batch(last_offset_delta=-1), "last offset delta 2**31-1": batch(last_offset_delta=INT_MAX, count=INT_MAX),
        "base offset 5": batch(base_offset=5), "base offset -1": batch(base_offset=-1), "base offset 2**63-1": batch(base_offset=LONG_MAX),
        "codec 5": batch(attributes=5), "codec 6": batch(attributes=6), "codec 7": batch(attributes=7),
        "control bit": batch(attributes=0x20), "transactional bit without id": batch(attributes=0x10),
        "transactional and control": batch(attributes=0x30), "unknown attributes": batch(attributes=0x7F80),
        "time -1": batch(base_timestamp=-1, max_timestamp=-1), "time 2**63-1": batch(base_timestamp=LONG_MAX, max_timestamp=LONG_MAX),
        "time -2**63": batch(base_timestamp=LONG_MIN, max_timestamp=LONG_MIN), "max time below base": batch(max_timestamp=0),
        "producer id -2": batch(producer_id=-2, producer_epoch=0, base_sequence=0),
        "producer id without epoch": batch(producer_id=7, producer_epoch=-1, base_sequence=0),
        "producer id without sequence": batch(producer_id=7, producer_epoch=0, base_sequence=-1),
        "sequence without producer id": batch(base_sequence=5),
        "sequence 2**31-1": batch(producer_id=7, producer_epoch=0, base_sequence=INT_MAX),
        "sequence -5": batch(producer_id=7, producer_epoch=0, base_sequence=-5),
        "unassigned producer id": batch(producer_id=LONG_MAX, producer_epoch=32767, base_sequence=100),
        "length 0": batch(length=0), "length -1": batch(length=-1), "length 2**31-1": batch(length=INT_MAX), "length 48": batch(length=48),
        "length one more": batch(length=len(good) - 11), "length one less": good[:8] + struct.pack(">i", len(good) - 13) + good[12:],
        "leader epoch 2**31-1": batch(leader_epoch=INT_MAX),
    }  # fmt: skip
    for name, data in header_cases.items():
        yield Case(name, produce(data))
    yield Case("no batch", produce(b""))
    yield Case("12 bytes", produce(good[:12]))
    yield Case("a header alone", produce(good[:61]))
    for cut in (1, 20, 60):
        yield Case(f"{cut} bytes missing", produce(good[:-cut]))
    yield Case("two batches", produce(good + good))
    yield Case("a batch and rubbish", produce(good + b"rubbish"))
    yield Case("rubbish", produce(b"\xa5" * 500))
    yield Case("old message set", produce(bytes(8) + struct.pack(">iIbb", 14, 0, 0, 0) + bytes(8)))


def records_inside(topic: str = COMPACTED) -> Iterator[Case]:
    """Into a compacted topic, where the broker opens the batch to look for keys."""
    for name, payload in {
        "key length -2": record(key_length=-2),
        "key length beyond the end": record(key_length=1 << 30),
        "key length negative and large": record(key_length=-(2**31)),
        "record length 0": b"\x00",
        "record length -1": b"\x01",
        "record length beyond the end": record(key=b"k", length=1 << 30),
        "record length one less": record(key=b"k", length=7),
        "header count -1": record(key=b"k", header_count=-1),
        "header count 2**31-1": record(key=b"k", header_count=INT_MAX),
        "header key length -1": record(key=b"k", header_count=1, headers=b"\x01\x01"),
        "header key that is not UTF-8": record(key=b"k", header_count=1, headers=b"\x04\xff\xfe\x01"),
        "endless varint": b"\xff" * 50,
        "varint of 10 bytes": b"\x80" * 9 + b"\x01" + bytes(20),
        "offset delta 5": record(key=b"k", offset_delta=b"\x0a"),
        "offset delta negative": record(key=b"k", offset_delta=b"\x01"),
        "attributes set": record(key=b"k", attributes=0xFF),
        "no key": record(),
        "empty payload": b"",
        "bytes after the last record": record(key=b"k") + b"more",
    }.items():
        yield Case(name, produce(batch(payload=payload), topic=topic))


@functools.cache
def _gzipped_records(count: int) -> bytes:
    """The smallest records: the cases of each topic have them, in every process that collects tests."""
    return by.gzipped(record(key=b"") * count)


def compression(topic: str = COMPACTED) -> Iterator[Case]:
    """Into a topic for which the broker unpacks."""
    bombs: dict[str, tuple[int, Callable[[int], bytes]]] = {
        "gzip": (GZIP, by.gzip_bomb), "snappy": (SNAPPY, by.snappy_bomb), "lz4": (LZ4, by.lz4_bomb), "zstd": (ZSTD, by.zstd_bomb)
    }  # fmt: skip

    def packed(codec: int, payload: bytes) -> bytes:
        return produce(batch(payload=payload, attributes=codec), topic=topic)

    for name, (codec, make) in bombs.items():
        yield Case(f"{name} bomb of 1 GiB", lambda codec=codec, make=make: packed(codec, make(1 << 30)[: 7 * MIB]))  # type: ignore[misc]
        yield Case(f"{name} bomb that is cut", lambda codec=codec, make=make: packed(codec, make(64 * MIB)[:-5]))  # type: ignore[misc]
        yield Case(f"{name} of nothing", packed(codec, b""))
        yield Case(f"{name} that is rubbish", packed(codec, b"\xa5" * 300))
        yield Case(f"{name} that is a header alone", packed(codec, make(MIB)[:6]))
    for count, size in ((500_000, 8), (1_000_000, 8), (4_000_000, 8)):
        many = batch(payload=_gzipped_records(count), attributes=GZIP, count=count, last_offset_delta=count - 1)
        yield Case(f"gzip of {count} records of {size} bytes", produce(many, topic=topic))
    one = record(key=b"k")
    yield Case("gzip twice over", packed(GZIP, by.gzipped(by.gzipped(one))))
    yield Case("gzip streams one after the other", packed(GZIP, by.gzipped(one) + by.gzipped(one)))
    yield Case("gzip with a wrong checksum", packed(GZIP, by.gzipped(one)[:-8] + bytes(8)))
    yield Case("gzip without deflate", packed(GZIP, b"\x1f\x8b\x08\x00" + bytes(6)))
    yield Case("snappy that says 2**32-1 bytes", packed(SNAPPY, by.uvarint(2**32 - 1) + bytes(20)))
    yield Case("snappy that says 2**63 bytes", packed(SNAPPY, by.uvarint(2**63) + bytes(20)))
    xerial = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for length in (-1, INT_MAX, 0, 100):
        yield Case(f"snappy block of length {length}", packed(SNAPPY, xerial + struct.pack(">i", length) + b"abc"))
    yield Case("lz4 with a wrong header checksum", packed(LZ4, b"\x04\x22\x4d\x18\x60\x40\x00" + bytes(30)))
    yield Case("lz4 with a block of 2**31 bytes", packed(LZ4, b"\x04\x22\x4d\x18\x60\x40\x82\xff\xff\xff\x7f" + bytes(30)))
    yield Case("lz4 with a dictionary", packed(LZ4, b"\x04\x22\x4d\x18\x61\x40\x01\x02\x03\x04\x00" + bytes(30)))
    yield Case("zstd with a window of 2 GiB", packed(ZSTD, b"\x28\xb5\x2f\xfd\x00\xa8" + bytes(30)))
    yield Case("zstd with a dictionary id", packed(ZSTD, b"\x28\xb5\x2f\xfd\x23\xff\xff\xff\xff\x05" + bytes(30)))
    yield Case("zstd that says 2**63 bytes", packed(ZSTD, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x7f" + bytes(30)))
    yield Case("zstd of skippable frames", packed(ZSTD, (b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + bytes(4)) * 1000))


def produces() -> Iterator[Case]:
    good = batch(b"a")
    for acks in (2, -2, 32767, -32768):
        yield Case(f"acks {acks}", produce(good, acks=acks))
    yield Case("unknown topic", produce(good, topic="nobody-made-this"))
    yield Case("a topic that cannot be", produce(good, topic="../../etc"))
    yield Case("internal topic", produce(good, topic="__consumer_offsets"))
    yield Case("metadata log", produce(good, topic="__cluster_metadata"))
    for index in (-1, 1000, INT_MAX):
        body = struct.pack(">hhiih", -1, -1, 1000, 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">iii", 1, index, len(good)) + good
        yield Case(f"partition {index}", of_api(ApiKey.PRODUCE, 8, body))
    yield Case("negative timeout", of_api(ApiKey.PRODUCE, 8, struct.pack(">hhii", -1, -1, -5, 0)))
    name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    one = struct.pack(">ii", 0, len(good)) + good
    yield Case(
        "the same partition twice", of_api(ApiKey.PRODUCE, 8, struct.pack(">hhii", -1, -1, 9, 1) + name + struct.pack(">i", 2) + one + one)
    )
    null = struct.pack(">hhii", -1, -1, 9, 1) + name + struct.pack(">iii", 1, 0, -1)
    yield Case("null records", of_api(ApiKey.PRODUCE, 8, null))
    yield Case("records of length -2", of_api(ApiKey.PRODUCE, 8, null[:-4] + struct.pack(">i", -2)))
    yield Case("records beyond the end", of_api(ApiKey.PRODUCE, 8, null[:-4] + struct.pack(">i", INT_MAX) + b"x"))
    yield Case("a transactional id", of_api(ApiKey.PRODUCE, 8, b"\x00\x03txn" + struct.pack(">hii", -1, 9, 0)))
    yield Case("larger than the topic allows", lambda: produce(batch(b"v" * (2 * MIB))))
    unknown_id = (
        struct.pack(">hi", -1, 9) + b"\x02" + b"\x17" * 16 + b"\x02" + bytes(4) + by.uvarint(len(good) + 1) + good + b"\x00\x00\x00"
    )
    yield Case("unknown topic id", of_api(ApiKey.PRODUCE, 13, b"\x00" + unknown_id))
