"""How far a stream lags, in offsets and in time.

In time it is the age of the oldest record that has not been processed. The header of the batch at a position says when its records were
written: of the first of them when the batch starts there, else of the last. A batch is asked for of few partitions, those with most left;
a leader that does not answer leaves its partition out. Source: KIP-74 (the smallest request returns one batch).
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import Mapping
from typing import Any, Final

from ottla.client.cluster import Cluster
from ottla.client.fetch_request import by_partition, fetch_topics
from ottla.errors import DecodeError, KafkaError
from ottla.messages.fetch import FetchRequest, FetchResponse
from ottla.records.batch import HEADER_SIZE, read_header
from ottla.spark.checkpoint import ends_of
from ottla.spark.offsets import Offsets
from ottla.types import TopicPartition

PARTITIONS_MAX: Final = 16
_ONE_BATCH: Final = 1
"""In bytes: the first partition of a response has one batch however large it is."""


def backlog_of(progress: Mapping[str, Any]) -> dict[TopicPartition, tuple[int, int]] | None:
    """Returns the partitions where a query's progress is not at the end: the position, and how many offsets are left.

    None where Spark does not say how far a topic goes: a batch that was planned before the query started has no latest offsets.
    """
    left: dict[TopicPartition, tuple[int, int]] = {}
    for source in progress.get("sources", ()):
        newest, end = as_text(source["latestOffset"]), ends_of([as_text(source["endOffset"])])
        if end and newest is None:
            return None
        latest = ends_of([newest])
        for partition, offset in latest.items():
            position = end.get(partition, 0)
            if offset > position:
                left[partition] = position, offset - position
    return left


def as_text(offset: Any) -> str | None:
    """Returns a source's offset as text; progress has it as text or as an object, and the word null where there is none."""
    if offset is None or offset == "null":
        return None
    return offset if isinstance(offset, str) else json.dumps(offset)


async def oldest_ms(cluster: Cluster, backlog: Mapping[TopicPartition, tuple[int, int]]) -> int | None:
    """Returns when the oldest record of the backlog was written; None where no broker says."""
    longest = heapq.nlargest(PARTITIONS_MAX, backlog, key=lambda partition: backlog[partition][1])
    found = await asyncio.gather(*(_time_at(cluster, partition, backlog[partition][0]) for partition in longest))
    return min((time_ms for time_ms in found if time_ms is not None and time_ms >= 0), default=None)


async def _time_at(cluster: Cluster, partition: TopicPartition, position: int) -> int | None:
    starts: Offsets = {partition: position}
    try:
        if cluster.topics.get(partition.topic) is None:
            await cluster.refresh({partition.topic})
        leader = cluster.leader(partition)
        if leader is None:
            return None
        topics = fetch_topics(cluster, starts, partition_bytes_max=_ONE_BATCH)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=_ONE_BATCH, topics=topics)
        response = await cluster.ask(leader, request, FetchResponse)
        for _, data in by_partition(request, response):
            records = data.records
            if isinstance(records, (bytes, memoryview)) and len(records) >= HEADER_SIZE:
                header = read_header(records)
                return header.base_timestamp if header.base_offset >= position else header.max_timestamp
    except (KafkaError, DecodeError):
        pass
    return None
