"""Waiting at the ends of logs: one Fetch to each leader, which it answers when a record comes.

So an idle query asks its brokers twice a second, and sees a record as soon as it is there. Fetches have connections of their own: a
broker answers the requests of one connection in their order. Source: KIP-74 (the smallest request returns one batch).
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.client.cluster import FETCH_LANE, Cluster
from ottla.client.fetch_request import by_partition, fetch_topics
from ottla.errors import KafkaError
from ottla.messages.fetch import FetchRequest, FetchResponse
from ottla.spark.offsets import Offsets

BYTES_MAX: Final = 1


async def news_after(cluster: Cluster, ends: Offsets, *, wait_ms: int, isolation_level: int) -> bool:
    """True when a log has something after its end, or says that this is not its end; False when ``wait_ms`` have passed."""
    by_leader: dict[int, Offsets] = {}
    for partition, offset in ends.items():
        leader = cluster.leader(partition)
        if leader is not None:
            by_leader.setdefault(leader, {})[partition] = offset
    asking = [asyncio.ensure_future(_has_news(cluster, leader, offsets, wait_ms, isolation_level)) for leader, offsets in by_leader.items()]
    try:
        for answer in asyncio.as_completed(asking):
            if await answer:
                return True
    finally:
        for task in asking:
            task.cancel()
    if not asking:
        await asyncio.sleep(wait_ms / 1000)
    return False


async def _has_news(cluster: Cluster, leader: int, ends: Offsets, wait_ms: int, isolation_level: int) -> bool:
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=BYTES_MAX,
        isolation_level=isolation_level,
        topics=fetch_topics(cluster, ends, partition_bytes_max=BYTES_MAX),
    )
    try:
        connection = await cluster.connection(leader, FETCH_LANE)
        response = await connection.ask(request, FetchResponse, timeout_ms=cluster.request_timeout_ms + wait_ms)
    except KafkaError:
        is_error, is_news = True, True
    else:
        found = [data for _, data in by_partition(request, response)]
        is_error = bool(response.error_code) or any(data.error_code for data in found)
        is_news = is_error or any(data.records for data in found)
    if is_error:
        await asyncio.sleep(wait_ms / 1000)  # what is wrong is looked up then, by requests that are repeated; not without a pause
    return is_news
