"""What tests ask of a cluster on their loop, and send to it, as clients of our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.cluster.one_loop import LoopCluster
from tests.waiting import WAIT_SECONDS_MAX

from ottla.aio import Admin, Consumer, Producer, TopicPartition


@asynccontextmanager
async def asking(cluster: LoopCluster, node_id: int) -> AsyncIterator[Admin]:
    admin = Admin(cluster.bootstrap_of(node_id))
    try:
        yield admin
    finally:
        await admin.close()


async def send(cluster: LoopCluster, value: bytes) -> None:
    producer = Producer(cluster.bootstrap)
    await (await producer.send("t", value, partition=0))
    await producer.close()


async def values(cluster: LoopCluster) -> list[bytes | None]:
    """Those of partition 0: two records."""
    consumer = Consumer(cluster.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", 0)])
    found: list[bytes | None] = []
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while len(found) < 2:
            found += [record.value for record in await consumer.poll(10_000)]
    await consumer.close()
    return found
