"""Partitions without new records hold none of the others back, which the same broker leads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, take, with_broker

from ottla.client.consumer import Consumer
from ottla.client.flights import BRIEF_MS, HELD_MS
from ottla.client.late_answers import LATE_MS
from ottla.errors import ErrorCode
from ottla.messages.fetch import FetchRequest, FetchResponse
from ottla.messages.metadata import MetadataResponse, MetadataResponseBroker
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

QUIET = TopicPartition("t", 1)
ELSEWHERE = 7
LONG_MS = 60_000
SOON = 1.0
"""Seconds on the virtual clock: much less than a fetch of the quiet partition waits."""


def now() -> float:
    return asyncio.get_running_loop().time()


def reader(broker: SimBroker, **settings: Any) -> tuple[Interference, Consumer]:
    """A consumer whose fetches wait for long, and its network."""
    cluster = broker.client("c")
    return Interference(cluster), consumer_of(cluster, fetch_max_wait_ms=LONG_MS, **settings)


def asked(network: Interference) -> list[list[int]]:
    """The partitions of each fetch, in order."""
    return [[partition.partition for topic in request.topics for partition in topic.partitions] for request in network.of(FetchRequest)]


@pytest.mark.parametrize("at_once", [1, 10, 500])
def test_a_partition_that_is_handed_out_in_several_polls_is_fetched_again_at_once(at_once: int) -> None:
    """What is left of it is in the buffer; a fetch of the quiet one alone would wait, and the next fetch for that one."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        network, consumer = reader(broker)
        consumer.assign([KEY, QUIET])
        for turn in range(3):
            await fill(broker, 501, first=501 * turn)
            started = now()
            await take(consumer, 501, max_records=at_once)
            assert now() - started < SOON
        assert all(partitions == [0, 1] for partitions in asked(network))
        await consumer.close()

    with_broker(body)


def test_a_partition_that_has_more_is_fetched_while_records_of_another_one_are_handed_out() -> None:
    """By a fetch that does not wait, and without the quiet one."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=3)
        for partition in (0, 2):
            for first in (0, 10):  # each is a batch of some 150 bytes, and a fetch brings one
                await fill(broker, 10, partition=partition, first=first)
        network, consumer = reader(broker, max_partition_fetch_bytes=200)
        consumer.assign([KEY, QUIET, TopicPartition("t", 2)])
        offsets: dict[int, list[int]] = {0: [], 2: []}
        for record in [record for _ in range(4) for record in await take(consumer, 10, max_records=10)]:
            offsets[record.partition].append(record.offset)
        assert offsets == {0: [*range(20)], 2: [*range(20)]}
        assert asked(network)[:2] in ([[0, 1, 2], [0]], [[0, 1, 2], [2]])
        assert [request.max_wait_ms for request in network.of(FetchRequest)[:2]] == [LONG_MS, 0]
        assert asked(network)[-1] == [0, 1, 2]
        await consumer.close()

    with_broker(body)


def test_the_next_fetch_is_on_its_way_while_the_last_records_are_handed_out() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        await fill(broker, 20)
        network, consumer = reader(broker)
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


def test_a_partition_that_comes_to_a_broker_waits_for_no_fetch_that_waits_there() -> None:
    """A leader that changes, an assignment and a seek are alike: they find another partition's fetch under way."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        network, consumer = reader(broker)
        consumer.assign([QUIET])
        assert await consumer.poll(2_000) == []
        consumer.assign([KEY, QUIET])
        consumer.seek(KEY, 0)
        for offset in range(3):
            await fill(broker, 1, first=offset)
            started = now()
            assert [record.offset for record in await take(consumer, 1)] == [offset]
            assert now() - started < SOON
        assert asked(network) == [[1], [0], [0], [0]]
        assert {request.max_wait_ms for request in network.of(FetchRequest)[1:]} == {BRIEF_MS}
        await consumer.close()

    with_broker(body)


def test_one_fetch_is_for_all_partitions_again_once_the_first_one_has_ended() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        network, consumer = reader(broker)
        consumer.assign([QUIET])
        assert await consumer.poll(100) == []
        consumer.assign([KEY, QUIET])
        consumer.seek(KEY, 0)
        assert await consumer.poll(HELD_MS // 2) == []
        assert asked(network) == [[1]]  # which may be answered soon
        assert await consumer.poll(HELD_MS) == []
        assert asked(network) == [[1], [0], [0]]
        await fill(broker, 1, partition=1)
        assert [record.partition for record in await take(consumer, 1)] == [1]
        assert await consumer.poll(LONG_MS // 2) == []
        assert asked(network)[-1] == [0, 1]
        assert network.of(FetchRequest)[-1].max_wait_ms == LONG_MS
        await consumer.close()

    with_broker(body)


def test_a_partition_whose_fetch_has_failed_holds_none_of_the_others_back() -> None:
    """The metadata that it waits for is asked of a broker that does not answer."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        network, consumer = reader(broker)
        consumer.assign([KEY, QUIET])
        await fill(broker, 1)
        await take(consumer, 1)

        def alter(request: Request, response: Any) -> Response | Held | None:
            if isinstance(response, MetadataResponse):
                return Held(20_000)
            if isinstance(response, FetchResponse):
                for topic in response.responses:
                    for data in topic.partitions:
                        if data.partition_index == KEY.partition:
                            data.error_code, data.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, None
                return response
            return None

        network.alter = alter
        await fill(broker, 1, first=1)
        assert await consumer.poll(100) == []
        await fill(broker, 1, partition=1)
        started = now()
        assert [record.partition for record in await take(consumer, 1)] == [QUIET.partition]
        assert now() - started < SOON
        network.alter = lambda request, response: None
        assert [record.offset for record in await take(consumer, 1)] == [1]
        await consumer.close()

    with_broker(body)


def test_another_leader_is_asked_for_when_a_broker_leaves_a_fetch_unanswered() -> None:
    """Its request_timeout_ms would be half a minute, and brokers that hang lose their partitions earlier."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster)
        fetches = 0

        def alter(request: Request, response: Any) -> Response | Held | None:
            nonlocal fetches
            fetches += isinstance(response, FetchResponse)
            if isinstance(response, FetchResponse):
                return Held(25_000) if fetches == 1 else None
            if isinstance(response, MetadataResponse) and fetches:
                [own] = response.brokers
                response.brokers.append(MetadataResponseBroker(ELSEWHERE, own.host, own.port))
                response.topics[0].partitions[0].leader_id = ELSEWHERE
                return response
            return None

        network.alter = alter
        consumer.assign([KEY])
        started = now()
        assert [record.offset for record in await take(consumer, 1)] == [0]
        assert now() - started < (LATE_MS + BRIEF_MS) / 1000 + SOON
        assert await consumer.poll(30_000) == []  # the same record, from the one that has hung
        await consumer.close()

    with_broker(body)


def test_the_leader_is_read_from_when_the_replica_that_it_named_does_not_answer() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster)
        fetches = 0

        def alter(request: Request, response: Any) -> Response | Held | None:
            nonlocal fetches
            if isinstance(response, MetadataResponse):
                [own] = response.brokers
                response.brokers.append(MetadataResponseBroker(ELSEWHERE, own.host, own.port))
                return response
            if not isinstance(response, FetchResponse):
                return None
            fetches += 1
            if fetches == 1:
                response.responses[0].partitions[0].preferred_read_replica = ELSEWHERE
                return response
            return Held(25_000) if fetches == 2 else None

        network.alter = alter
        consumer.assign([KEY])
        started = now()
        assert [record.offset for record in await take(consumer, 1)] == [0]
        assert fetches == 3
        assert now() - started < (LATE_MS + BRIEF_MS) / 1000 + SOON
        await consumer.close()

    with_broker(body)
