"""What a consumer hands out, and what counts as consumed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, take, with_broker

from ottla.client.admin import Admin
from ottla.client.buffer import DeserializationError
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.fetch import FetchRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference
from ottla.types import TopicPartition

OTHER = TopicPartition("t", 1)


def hold_fetches(network: Interference, delay_ms: float) -> None:
    network.alter = lambda request, response: Held(delay_ms) if isinstance(request, FetchRequest) else None


def test_records_fetched_before_a_seek_are_never_handed_out() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1000)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, max_partition_fetch_bytes=2000)
        consumer.assign([KEY])
        assert (await take(consumer, 1, max_records=1))[0].offset == 0
        consumer.seek(KEY, 500)  # the buffer holds the records after 0
        assert (await take(consumer, 1, max_records=1))[0].offset == 500
        hold_fetches(network, 2000)
        consumer.seek(KEY, 700)
        assert await consumer.poll(0) == []  # a fetch from 700 is out now
        consumer.seek(KEY, 100)
        consumer.seek_to_beginning()
        assert [record.offset for record in await take(consumer, 3, max_records=3)] == [0, 1, 2]
        consumer.seek_to_end()
        assert await consumer.position(KEY) == 1000
        await fill(broker, 1, first=1000)
        assert (await take(consumer, 1))[0].offset == 1000
        await consumer.close()

    with_broker(body)


def test_a_position_that_is_not_known_is_not_waited_for_without_time() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 3)
        consumer = consumer_of(broker.client("c"), auto_offset_reset="latest")
        consumer.assign([KEY])
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await consumer.position(KEY, timeout_ms=0)
        assert await consumer.position(KEY) == 3
        assert await consumer.position(KEY, timeout_ms=0) == 3
        await consumer.close()

    with_broker(body)


def test_a_fetch_of_an_earlier_assignment_does_not_count_for_the_next_one() -> None:
    """Both assignments would come to the same number of seeks."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        for first in (0, 500):  # a batch each: a fetch from 500 does not bring the records before
            await fill(broker, 500, first=first)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster)
        hold_fetches(network, 2000)
        consumer.assign([KEY])
        consumer.seek(KEY, 500)
        assert await consumer.poll(1000) == []
        assert network.of(FetchRequest), "a fetch from 500 is out"
        consumer.assign([])
        consumer.assign([KEY])
        consumer.seek(KEY, 300)
        assert (await take(consumer, 1))[0].offset == 300
        await consumer.close()

    with_broker(body)


async def iterate(consumer: Any, count: int) -> list[int]:
    """The offsets of the next records, as an iteration that ends then."""
    offsets: list[int] = []
    while len(offsets) < count:
        record = consumer._next_record()
        if record is None:
            await consumer._fetch(1000)
        else:
            offsets.append(record.offset)
    return offsets


@pytest.mark.parametrize("enable_auto_commit", [True, False])
def test_records_that_the_iteration_has_not_reached_are_not_committed(enable_auto_commit: bool) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 600)
        settings: dict[str, Any] = {"group_id": "g", "enable_auto_commit": enable_auto_commit}
        consumer = consumer_of(broker.client("c"), **settings)
        consumer.subscribe(["t"])
        assert await iterate(consumer, 11) == list(range(11))
        assert await consumer.position(KEY) == 11
        if not enable_auto_commit:
            await consumer.commit()
        await consumer.close()
        again = consumer_of(broker.client("c"), **settings)
        again.subscribe(["t"])
        assert await again.committed([KEY]) == {KEY: 11}
        assert (await take(again, 1))[0].offset == 11
        await again.close()

    with_broker(body)


def test_an_iteration_is_left_and_taken_up_again_without_a_gap() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        for partition in (0, 1):
            await fill(broker, 300, partition=partition)
        consumer = consumer_of(broker.client("c"), max_partition_fetch_bytes=1500)
        consumer.assign([KEY, OTHER])
        seen: list[tuple[int, int]] = []

        async def some(count: int) -> None:
            for _ in range(count):
                while (record := consumer._next_record()) is None:
                    await consumer._fetch(1000)
                seen.append((record.partition, record.offset))

        await some(7)
        seen.extend((record.partition, record.offset) for record in await take(consumer, 5, max_records=5))
        await some(200)
        consumer.pause([OTHER])
        assert consumer.paused() == [OTHER]
        await some(20)
        assert {partition for partition, _ in seen[-20:]} == {0}
        consumer.resume([OTHER])
        while len(seen) < 600:
            await some(1)
            seen.extend((record.partition, record.offset) for record in await consumer.poll(100, max_records=3))
        for partition in (0, 1):
            assert [offset for found, offset in seen if found == partition] == list(range(300))
        consumer.seek(KEY, 10)
        await some(1)
        assert seen[-1] == (0, 10)
        consumer.seek(KEY, 40)
        await some(1)
        assert seen[-1] == (0, 40), "what the iteration still held was fetched before the seek"
        await consumer.close()

    with_broker(body)


def test_one_poll_at_a_time() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c"))
        consumer.assign([KEY])
        first = asyncio.create_task(consumer.poll(1000))
        await asyncio.sleep(0.1)
        with pytest.raises(KafkaError, match="another poll"):
            await consumer.poll(0)
        assert await first == []
        await consumer.close()

    with_broker(body)


def test_a_poll_that_is_cancelled_loses_nothing() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c"), group_id="g")
        consumer.subscribe(["t"])
        seen: list[int] = []
        filling = asyncio.create_task(fill(broker, 300))
        while len(seen) < 300:
            polling = asyncio.create_task(consumer.poll(1000))
            await asyncio.sleep(0.003)
            polling.cancel()
            if (outcome := (await asyncio.gather(polling, return_exceptions=True))[0]) and not isinstance(outcome, BaseException):
                seen.extend(record.offset for record in outcome)
        assert seen == list(range(300))
        await filling
        await consumer.close()

    with_broker(body)


def test_a_record_that_cannot_be_deserialized_stays_until_it_is_passed() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 10)

        def number_but_7(value: bytes | None) -> int:
            return 1 // (7 - int(value or b"")) * 0 + int(value or b"")

        consumer = consumer_of(broker.client("c"), value_deserializer=number_but_7)
        consumer.assign([KEY])
        assert [record.value for record in await take(consumer, 7)] == list(range(7))
        with pytest.raises(DeserializationError):
            await consumer.poll(1000)
        with pytest.raises(DeserializationError, match=r"record 7 of t-0: ZeroDivisionError.*seek to 8") as caught:
            await consumer.poll(1000)
        assert (caught.value.partition, caught.value.offset, caught.value.code) == (KEY, 7, ErrorCode.INVALID_RECORD)
        assert (caught.value.record.offset, caught.value.record.value) == (7, b"7")  # as a topic of dead letters gets it
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert caught.value.__cause__.__traceback__ is not None
        consumer.seek(KEY, 8)
        assert [record.value for record in await take(consumer, 2)] == [8, 9]
        await consumer.close()

    with_broker(body)


def test_a_topic_that_is_deleted_under_a_consumer_fails_nothing_else() -> None:
    async def body(broker: SimBroker) -> None:
        for name in ("t", "u"):
            await create(broker, name)
            await fill(broker, 5, topic=name)
        consumer = consumer_of(broker.client("c", metadata_max_age_ms=2000))
        consumer.assign([KEY, TopicPartition("u", 0)])
        await take(consumer, 10)
        admin = Admin(broker.client("a"))
        assert await admin.delete_topics(["t"]) == {"t": None}
        await admin.close()
        for number in range(5, 15):
            await fill(broker, 1, topic="u", first=number)
            assert [record.value for record in await take(consumer, 1)] == [b"%d" % number]
        await consumer.close()

    with_broker(body, auto_create_topics_enable="false")
