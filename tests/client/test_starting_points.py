"""Where a consumer starts while that cannot be looked up: a poll ends in its time, and an answer for an earlier assignment is dropped."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, take, with_broker

from ottla.client.admin import Admin
from ottla.client.consumer import Consumer
from ottla.errors import KafkaError
from ottla.messages.offset_fetch import OffsetFetchRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference


async def held(broker: SimBroker, count: int, *, delay_ms: float) -> tuple[Interference, Consumer]:
    """Returns a consumer of so many records, whose group's commits are answered late, and what it has asked."""
    await create(broker)
    await fill(broker, count)
    cluster = broker.client("c")
    network = Interference(cluster)
    network.alter = lambda request, response: Held(delay_ms) if isinstance(request, OffsetFetchRequest) else None
    consumer = consumer_of(cluster, group_id="g")
    consumer.assign([KEY])
    return network, consumer


def test_a_poll_ends_in_its_time_while_the_coordinator_does_not_answer_and_the_next_ones_wait_for_the_same_answer() -> None:
    async def body(broker: SimBroker) -> None:
        network, consumer = await held(broker, 3, delay_ms=20_000)
        began = asyncio.get_running_loop().time()
        for timeout_ms in (0, 1000, 1000):
            assert await consumer.poll(timeout_ms) == []
        assert round(asyncio.get_running_loop().time() - began, 3) == 2
        assert [record.offset for record in await take(consumer, 3)] == [0, 1, 2]
        assert len(network.of(OffsetFetchRequest)) == 1
        await consumer.close()

    with_broker(body)


def test_an_answer_for_a_partition_that_was_given_up_does_not_count_when_it_is_assigned_again() -> None:
    async def body(broker: SimBroker) -> None:
        _, consumer = await held(broker, 4, delay_ms=5_000)
        assert await consumer.poll(1000) == []
        consumer.assign([])
        admin = Admin(broker.client("admin"))
        await admin.set_offsets("g", {KEY: 2})  # as the next owner of the partition does
        await admin.close()
        consumer.assign([KEY])
        began = asyncio.get_running_loop().time()
        assert [record.offset for record in await consumer.poll(60_000)] == [2, 3]
        assert round(asyncio.get_running_loop().time() - began) == 4 + 5, "the rest of the first answer's time, and the second answer's"
        await consumer.close()

    with_broker(body)


def test_a_consumer_that_is_closed_while_it_looks_for_its_start_leaves_no_task() -> None:
    async def body(broker: SimBroker) -> None:
        before = asyncio.all_tasks()
        _, consumer = await held(broker, 1, delay_ms=5_000)
        assert await consumer.poll(1000) == []
        await consumer.close()
        assert not asyncio.all_tasks() - before

    with_broker(body)


def test_a_poll_that_looks_for_its_start_ends_with_its_consumer_and_begins_no_search() -> None:
    async def body(broker: SimBroker) -> None:
        before = asyncio.all_tasks()
        network, consumer = await held(broker, 1, delay_ms=5_000)
        polling = asyncio.ensure_future(consumer.poll(60_000))
        while not network.of(OffsetFetchRequest):
            await asyncio.sleep(0.01)
        await consumer.close()
        with pytest.raises(KafkaError, match="this client is closed"):
            await polling
        assert not asyncio.all_tasks() - before
        assert len(network.of(OffsetFetchRequest)) == 1

    with_broker(body)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_an_assigned_consumer_waits_for_a_broker_that_cannot_be_reached_yet(group_id: str | None) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        network = broker._simulation.fabric
        network.refuse("c", "broker")
        consumer = consumer_of(broker.client("c"), group_id=group_id)
        consumer.assign([KEY])
        for _ in range(100):  # longer than a request may take
            assert await consumer.poll(1000) == []
        network.refuse("c", "broker", refuses=False)
        assert [record.offset for record in await take(consumer, 1)] == [0]
        await consumer.close()

    with_broker(body)
