"""What every client is made to do, and what must hold afterwards, whichever client it was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.foreign_clients.stored import stored_batches

from ottla.client.partitioner import partition_for_key

RECORD_COUNT = 10_000
KEY_COUNT = 100
PARTITION_COUNT = 3
SHRINKING_COUNT = 16  # this many records like these are shorter in every codec
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Record(NamedTuple):
    """One record as a client sent or got it."""

    partition: int
    offset: int
    key: bytes
    value: bytes


def key_of(index: int) -> bytes:
    return b"key-%d" % (index % KEY_COUNT)


def value_of(index: int) -> bytes:
    return b"value-%06d" % index


def assert_sent(sent: Iterable[Record], *, count: int = RECORD_COUNT) -> None:
    """Acknowledged offsets are dense in each partition; each key is where murmur2 says; a key's records are in the order of sending."""
    by_partition: dict[int, list[Record]] = defaultdict(list)
    for record in sent:
        by_partition[record.partition].append(record)
        assert record.partition == partition_for_key(record.key, PARTITION_COUNT)
    assert sorted(by_partition) == list(range(PARTITION_COUNT)), "keys reach every partition"
    assert sum(map(len, by_partition.values())) == count
    for records in by_partition.values():
        records.sort(key=lambda record: record.offset)
        assert [record.offset for record in records] == list(range(len(records)))
        assert_keys_in_order(records)


def assert_received(sent: Iterable[Record], first: list[Record], rest: list[Record], committed: Mapping[int, int]) -> None:
    """Two consumers, one after the other in one group: the second began where the first had committed, and together they got all, once."""
    for partition in range(PARTITION_COUNT):
        before = [record for record in first if record.partition == partition]
        after = [record for record in rest if record.partition == partition]
        assert [record.offset for record in before] == list(range(len(before)))
        assert committed[partition] == len(before)
        assert [record.offset for record in after] == list(range(len(before), len(before) + len(after)))
    assert first, "the first consumer got something"
    assert rest, "and left something"
    assert sorted(first + rest) == sorted(sent)


def assert_keys_in_order(records: Iterable[Record]) -> None:
    """Values carry the order of sending."""
    last: dict[bytes, bytes] = {}
    for record in records:
        assert record.value > last.get(record.key, b"")
        last[record.key] = record.value


def assert_stored_as(codec: str, data: Path, topic: str) -> None:
    """Every batch lies on disk as its producer built it: complete, many records in one, in the codec that was configured.

    A client leaves a batch plain where its codec would make it longer (kafka-python, librdkafka), so a small one may be either.
    """
    batches = [batch for index in range(PARTITION_COUNT) for batch in stored_batches(data / f"{topic}-{index}")]
    assert {batch.codec for batch in batches if batch.record_count >= SHRINKING_COUNT} == {codec}
    assert {batch.codec for batch in batches} <= {codec, "none"}
    assert sum(batch.record_count for batch in batches) == RECORD_COUNT
    assert max(batch.record_count for batch in batches) > 1
