"""Batches with a right CRC and contents that are not what they say, and what Apache Kafka 4.3.0 answers to each.

``tests/interop/test_lying_batches.py`` holds the table against a running Kafka.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import cramjam
from tests.foreign_clients.wire import RawClient, batch_of
from tests.hostile.wire_bytes import GZIP, ZSTD, batch, gzipped, record

from ottla.errors import ErrorCode
from ottla.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData

INVALID, UNKNOWN = ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR
INT_MAX: Final = 2**31 - 1


class Lie(NamedTuple):
    name: str
    batch: bytes
    kafka: ErrorCode
    ottla: ErrorCode | None = None
    """Where it differs on purpose."""

    @property
    def expected(self) -> ErrorCode:
        return self.kafka if self.ottla is None else self.ottla


LIES: Final = (
    Lie("count of 1,000,000", batch(count=1_000_000), INVALID),
    Lie("count and last delta of 1,000,000", batch(count=1_000_000, last_offset_delta=999_999), INVALID),
    Lie("count of 5", batch(count=5, last_offset_delta=4), INVALID),
    Lie("count below what is there", batch(b"a", b"b", count=1, last_offset_delta=0), INVALID),
    Lie("count of 0", batch(count=0), INVALID),
    Lie("count of -1", batch(count=-1), INVALID),
    Lie("count of 2^31-1", batch(count=INT_MAX, last_offset_delta=INT_MAX - 1), INVALID),
    Lie("last delta of 5 for one record", batch(last_offset_delta=5), INVALID),
    Lie("control batch", batch(attributes=0x20), INVALID),
    Lie("2^31-1 headers", batch(payload=record(header_count=INT_MAX)), INVALID),
    Lie("garbage", batch(payload=b"\xa5" * 40), UNKNOWN),
    Lie("garbage said to be zstd", batch(payload=b"\xa5" * 40, attributes=ZSTD), UNKNOWN),
    Lie("garbage said to be gzip", batch(payload=b"\xa5" * 40, attributes=GZIP), UNKNOWN),
    Lie("garbage in zstd", batch(payload=bytes(cramjam.zstd.compress(b"\xa5" * 40)), attributes=ZSTD), INVALID),
    Lie("codec 7", batch(attributes=7), UNKNOWN),
    Lie("transactional bit without an id", batch(attributes=0x10), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    Lie("key length of -5", batch(payload=record(key_length=-5)), ErrorCode.NONE, INVALID),
    Lie("attributes without a meaning", batch(attributes=-0x8000), ErrorCode.NONE, INVALID),
    Lie("gzip of two records that counts three", batch(payload=gzipped(record() + record(offset_delta=b"\x02")), attributes=GZIP, count=3,
        last_offset_delta=2), INVALID),
)  # fmt: skip


def produced(client: RawClient, topic: str, data: bytes, *, version: int = 9) -> PartitionProduceResponse:
    """What one batch for partition 0 is answered."""
    wanted = TopicProduceData(topic, partition_data=[PartitionProduceData(0, memoryview(data))])
    response = client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[wanted]), version)
    found: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return found


def timed(*times_ms: int, key: bytes | None = b"k") -> bytes:
    """A batch of records with these times."""
    from ottla.records.builder import BatchBuilder

    builder = BatchBuilder()
    for time_ms in times_ms:
        builder.append(key, b"v", timestamp_ms=time_ms)
    return bytes(builder.build())


__all__ = ["LIES", "Lie", "batch_of", "produced", "timed"]
