"""How large records are, before any is read: the header of the batch at an offset says how many bytes its records take together.

It is a sample, for planning alone. A leader that does not answer leaves its partitions without one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.client.cluster import Cluster
from ottla.client.fetch_request import by_partition, fetch_topics
from ottla.errors import DecodeError, KafkaError
from ottla.messages.fetch import FetchRequest, FetchResponse
from ottla.records.batch import HEADER_SIZE, read_header
from ottla.spark.offsets import Offsets
from ottla.types import TopicPartition

RESPONSE_BYTES_MAX: Final = 1 << 20


async def bytes_per_offset(cluster: Cluster, starts: Offsets) -> dict[TopicPartition, float]:
    """Returns the stored bytes per offset of the first batch at or after each start; without a batch, or an answer, none."""
    by_leader: dict[int, Offsets] = {}
    for partition, offset in starts.items():
        leader = cluster.leader(partition)
        if leader is not None:
            by_leader.setdefault(leader, {})[partition] = offset
    found: dict[TopicPartition, float] = {}
    for weights in await asyncio.gather(*(_ask(cluster, leader, offsets) for leader, offsets in by_leader.items())):
        found |= weights
    return found


async def _ask(cluster: Cluster, leader: int, starts: Offsets) -> dict[TopicPartition, float]:
    topics = fetch_topics(cluster, starts, partition_bytes_max=HEADER_SIZE)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=RESPONSE_BYTES_MAX, topics=topics)
    try:
        response = await cluster.ask(leader, request, FetchResponse)
    except KafkaError:
        return {}
    found: dict[TopicPartition, float] = {}
    for partition, data in by_partition(request, response):
        records = data.records
        if not isinstance(records, (bytes, memoryview)) or len(records) < HEADER_SIZE:
            continue
        try:
            header = read_header(records)
        except DecodeError:
            continue  # reading it says so
        found[partition] = header.size_bytes / (header.last_offset_delta + 1)
    return found
