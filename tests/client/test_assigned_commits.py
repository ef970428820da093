"""A consumer of a group whose partitions are assigned by hand commits by itself what it has read, as members do.

The clock is simulated: that an interval has passed is said by letting it pass.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, take, with_broker

from ottla.client.admin import Admin
from ottla.client.consumer import Consumer
from ottla.errors import ErrorCode
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Interference
from ottla.types import TopicPartition

OTHER = TopicPartition("t", 1)
INTERVAL_MS = 5_000


async def interval_passes() -> None:
    """Nothing polls meanwhile, and so nothing is committed."""
    await asyncio.sleep((INTERVAL_MS + 1) / 1000)


async def committed(broker: SimBroker) -> dict[TopicPartition, int]:
    cluster = broker.client("admin")
    try:
        return {partition: found.offset for partition, found in (await Admin(cluster).committed_offsets("g")).items()}
    finally:
        await cluster.close()


def assigned(broker: SimBroker, *partitions: TopicPartition, **settings: Any) -> Consumer:
    consumer = consumer_of(broker.client("c"), **{"group_id": "g", "auto_commit_interval_ms": INTERVAL_MS, **settings})
    consumer.assign(partitions or [KEY])
    return consumer


async def filled(broker: SimBroker) -> None:
    await create(broker)
    await fill(broker, 10)


def test_it_commits_each_interval_and_at_its_end() -> None:
    """Nothing was committed, ever: after a restart all was read again."""

    async def body(broker: SimBroker) -> None:
        await filled(broker)
        consumer = assigned(broker)
        await take(consumer, 4, max_records=4)
        assert await committed(broker) == {}, "not due yet"
        await interval_passes()
        await take(consumer, 2, max_records=2)
        assert await committed(broker) == {KEY: 4}, "what was handed out before that poll"
        await consumer.close()
        assert await committed(broker) == {KEY: 6}
        again = assigned(broker)
        assert (await take(again, 4))[0].offset == 6
        await again.unsubscribe()
        assert await committed(broker) == {KEY: 10}
        await again.close()

    with_broker(body)


def test_an_iteration_commits_too() -> None:
    async def body(broker: SimBroker) -> None:
        await filled(broker)
        consumer = assigned(broker)
        offset = -1
        while offset < 7:
            while (record := consumer._next_record()) is None:
                await consumer._fetch(1000)
            offset = record.offset
            if offset == 4:
                await interval_passes()
        assert await committed(broker) == {KEY: 5}
        await consumer.close()
        assert await committed(broker) == {KEY: 8}

    with_broker(body)


@pytest.mark.parametrize("settings", [{"enable_auto_commit": False}, {"group_id": None}], ids=str)
def test_it_commits_nothing_where_that_is_not_asked_for(settings: dict[str, Any]) -> None:
    async def body(broker: SimBroker) -> None:
        await filled(broker)
        consumer = assigned(broker, **settings)
        await take(consumer, 4)
        await interval_passes()
        await consumer.poll(0)
        consumer.assign([])
        await consumer.close()
        assert await committed(broker) == {}

    with_broker(body)


def test_what_was_read_of_partitions_that_are_given_up_is_committed() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        await fill(broker, 10)
        consumer = assigned(broker, auto_commit_interval_ms=3_600_000)
        await take(consumer, 4, max_records=4)
        consumer.assign([OTHER])
        await consumer.poll(0)
        assert await committed(broker) == {KEY: 4}, "with the next poll"
        consumer.assign([KEY])
        assert (await take(consumer, 2, max_records=2))[0].offset == 4
        consumer.assign([])
        await consumer.close()
        assert await committed(broker) == {KEY: 6}, "or the end"

    with_broker(body)


def test_what_was_stored_as_processed_is_committed() -> None:
    async def body(broker: SimBroker) -> None:
        await filled(broker)
        consumer = assigned(broker, enable_auto_offset_store=False)
        consumer.store_offsets((await take(consumer, 10))[2])
        await consumer.close()
        assert await committed(broker) == {KEY: 3}

    with_broker(body)


def test_a_commit_that_is_refused_is_a_warning_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """As where members of the group read, too."""

    async def body(broker: SimBroker) -> None:
        await filled(broker)
        cluster = broker.client("c")
        network = Interference(cluster)

        def refuse(request: object, response: object) -> object:
            if isinstance(request, OffsetCommitRequest) and isinstance(response, OffsetCommitResponse):
                response.topics[0].partitions[0].error_code = ErrorCode.UNKNOWN_MEMBER_ID
                return response
            return None

        network.alter = refuse  # type: ignore[assignment]
        consumer = consumer_of(cluster, group_id="g", auto_commit_interval_ms=INTERVAL_MS)
        consumer.assign([KEY])
        await take(consumer, 4, max_records=4)
        await interval_passes()
        await take(consumer, 2, max_records=2)
        await consumer.close()

    with_broker(body)
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [
        "an automatic commit of assigned partitions was refused, or not answered"
    ] * 2


def test_without_anything_read_no_coordinator_is_asked() -> None:
    async def body(broker: SimBroker) -> None:
        await filled(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g")
        consumer.assign([KEY])
        await consumer.close()
        assert network.of(FindCoordinatorRequest) == []

    with_broker(body)
