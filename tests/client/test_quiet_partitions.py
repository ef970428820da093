"""Partitions without new records hold none of the others back, which the same broker leads."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, take, with_broker

from ottla.messages.fetch import FetchRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Interference
from ottla.types import TopicPartition

QUIET = TopicPartition("t", 1)
LONG_MS = 60_000
SOON = 1.0
"""Seconds on the virtual clock: much less than a fetch of the quiet partition waits."""


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("at_once", [1, 10, 500])
def test_a_partition_that_is_handed_out_in_several_polls_is_fetched_again_at_once(at_once: int) -> None:
    """What is left of it is in the buffer; a fetch of the quiet one alone would wait, and the next fetch for that one."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        consumer = consumer_of(broker.client("c"), fetch_max_wait_ms=LONG_MS)
        consumer.assign([KEY, QUIET])
        for turn in range(3):
            await fill(broker, 501, first=501 * turn)
            started = now()
            await take(consumer, 501, max_records=at_once)
            assert now() - started < SOON
        await consumer.close()

    with_broker(body)


def test_the_next_fetch_is_on_its_way_while_the_last_records_are_handed_out() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        await fill(broker, 20)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, fetch_max_wait_ms=LONG_MS)
        consumer.assign([KEY, QUIET])
        await take(consumer, 10, max_records=10)
        sent = len(network.of(FetchRequest))
        assert len(await consumer.poll(0, max_records=10)) == 10
        await fill(broker, 1, first=20)  # the clock goes on, and no poll is under way
        assert len(network.of(FetchRequest)) == sent + 1
        assert [record.offset for record in await take(consumer, 1)] == [20]
        await consumer.close()

    with_broker(body)


def test_a_paused_partition_with_records_in_the_buffer_holds_none_of_the_others_back() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        await fill(broker, 20)
        consumer = consumer_of(broker.client("c"), fetch_max_wait_ms=LONG_MS)
        consumer.assign([KEY, QUIET])
        await take(consumer, 10, max_records=10)
        consumer.pause([KEY])
        await fill(broker, 1, partition=1)
        [record] = await take(consumer, 1)
        assert record.partition == QUIET.partition
        consumer.resume([KEY])
        assert [record.offset for record in await take(consumer, 10)] == list(range(10, 20))
        await consumer.close()

    with_broker(body)
