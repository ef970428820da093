"""The client's promises against Apache Kafka 4.3.0, and by the same tests against ottla."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from bench.peers import Ottla, Peer

from ottla.aio import Admin, Consumer, DeliveryError, KafkaError, NewTopic, Producer, SubscriptionPattern, TopicPartition
from ottla.client.consumer_group.membership import ConsumerMembership
from ottla.errors import ErrorCode

WAIT_SECONDS_MAX = 90.0
_numbers = itertools.count()


@pytest.fixture(scope="module")
def ottla() -> Iterator[Peer]:
    with Ottla() as started:
        yield started


@pytest.fixture(params=["kafka", "ottla"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    peer: Peer = request.getfixturevalue(request.param)
    return peer.bootstrap


def run(body: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await body

    asyncio.run(bounded())


async def create(bootstrap: str, partition_count: int = 1, **configs: str) -> str:
    name = f"topic-{next(_numbers)}"
    async with Admin(bootstrap) as admin:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        assert await admin.create_topics([NewTopic(name, partition_count, 1, configs=named)]) == {name: None}
    return name


async def fill(bootstrap: str, topic: str, count: int, *, first: int = 0) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send_many((topic, b"%d" % number) for number in range(first, first + count))


async def take(consumer: Consumer, count: int, **limits: int) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        records += await consumer.poll(1000, **limits)
    return records


async def values_of(bootstrap: str, topic: str, count: int, **settings: Any) -> list[bytes]:
    async with Consumer(bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [record.value for record in await take(consumer, count)]


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_are_stored_and_where_they_were_said_to_be(bootstrap: str, acks: Any) -> None:
    async def body() -> None:
        topic = await create(bootstrap)
        async with Producer(bootstrap, acks=acks, compression_type="lz4") as producer:
            futures = [await producer.send(topic, b"%d" % number, headers={"n": b"%d" % number}) for number in range(100)]
            await producer.flush()
            assert [future.result().offset for future in futures] == ([-1] * 100 if acks == "0" else list(range(100)))
        assert await values_of(bootstrap, topic, 100) == [b"%d" % number for number in range(100)]

    run(body())


def test_order_survives_batches_that_are_given_up(bootstrap: str) -> None:
    async def body() -> None:
        topic = await create(bootstrap, max_message_bytes="1000")
        producer = Producer(bootstrap, linger_ms=0, batch_size=1)
        futures = []
        for number in range(2000):
            futures.append(await producer.send(topic, b"%d" % number + bytes(2000 if number % 40 == 20 else 0)))
            await asyncio.sleep(0)
        with pytest.raises(DeliveryError, match="MESSAGE_TOO_LARGE"):
            await producer.close()
        assert [number for number, future in enumerate(futures) if future.exception() is not None] == list(range(20, 2000, 40))
        assert await values_of(bootstrap, topic, 1950) == [b"%d" % number for number in range(2000) if number % 40 != 20]

    run(body())


def test_a_topic_that_is_deleted_under_a_producer_ends_flush_and_not_the_producer(bootstrap: str) -> None:
    async def body() -> None:
        doomed, kept = await create(bootstrap), await create(bootstrap)
        async with Producer(bootstrap, linger_ms=0, batch_size=1, delivery_timeout_ms=3000) as producer, Admin(bootstrap) as admin:
            await producer.send_and_wait(doomed, b"x")
            futures = [await producer.send(doomed, b"%d" % number) for number in range(200)]
            assert await admin.delete_topics([doomed]) == {doomed: None}
            futures += [
                await producer.send(doomed, b"%d" % number, partition=0) for number in range(20) if doomed in producer._cluster.topics
            ]
            try:
                await producer.flush()
            except DeliveryError as failures:
                assert all(partition.topic == doomed for partition, _ in failures.failures)  # noqa: PT017 - none may have failed
            assert all(future.done() for future in futures)
            assert (await producer.send_and_wait(kept, b"y")).offset == 0

    run(body())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_slow_member_does_not_make_the_group_rebalance_for_ever(bootstrap: str, strategy: str) -> None:
    """It takes 1 s for each poll, with heartbeats every 100 ms; joining it costs what joining costs, and then the group rests."""

    async def body() -> None:
        topic = await create(bootstrap, 6)
        settings: dict[str, Any] = {"group_id": f"g-{topic}", "heartbeat_interval_ms": 100, "partition_assignment_strategy": [strategy]}
        members = [Consumer(bootstrap, **settings) for _ in range(3)]
        for member in members:
            member.subscribe([topic])
        is_over = False

        async def poll(member: Consumer) -> None:
            while not is_over:
                await member.poll(50)

        fast = [asyncio.create_task(poll(member)) for member in members[:2]]
        await until(lambda: sorted(len(member.assignment()) for member in members[:2]) == [3, 3])
        before = members[0].generation_id
        while sorted(len(member.assignment()) for member in members) != [2, 2, 2]:
            await members[2].poll(50)
            await asyncio.sleep(1)
        settled = members[0].generation_id
        for _ in range(6):
            await members[2].poll(50)
            await asyncio.sleep(1)
        assert members[0].generation_id == settled, "the group rests while its slow member is slow"
        assert settled - before <= 4
        is_over = True
        await asyncio.gather(*fast)
        for member in members:
            await member.close()

    run(body())


def test_a_consumer_that_has_lost_its_membership_commits_nothing(bootstrap: str) -> None:
    async def body() -> None:
        topic = await create(bootstrap)
        here = TopicPartition(topic, 0)
        await fill(bootstrap, topic, 1000)
        settings: dict[str, Any] = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with Consumer(bootstrap, max_poll_interval_ms=500, heartbeat_interval_ms=100, **settings) as stalled:
            stalled.subscribe([topic])
            await take(stalled, 100, max_records=100)
            await until(lambda: stalled.generation_id < 0)
            async with Consumer(bootstrap, **settings) as successor:
                successor.subscribe([topic])
                await take(successor, 1000)
                await successor.commit()
            with pytest.raises(KafkaError) as refused:
                await stalled.commit()
            assert refused.value.code == ErrorCode.ILLEGAL_GENERATION
            assert await stalled.committed([here]) == {here: 1000}

    run(body())


def test_an_iteration_commits_what_it_has_handed_out(bootstrap: str) -> None:
    async def body() -> None:
        topic = await create(bootstrap)
        await fill(bootstrap, topic, 100)
        settings: dict[str, Any] = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest"}
        async with Consumer(bootstrap, **settings) as consumer:
            consumer.subscribe([topic])
            async for record in consumer:
                if record.offset == 10:
                    break
        async with Consumer(bootstrap, **settings) as consumer:
            consumer.subscribe([topic])
            assert (await take(consumer, 1))[0].offset == 11

    run(body())


def test_records_fetched_before_a_seek_are_not_handed_out(bootstrap: str) -> None:
    async def body() -> None:
        topic = await create(bootstrap)
        here = TopicPartition(topic, 0)
        await fill(bootstrap, topic, 1000)
        async with Consumer(bootstrap, auto_offset_reset="earliest", max_partition_fetch_bytes=2000) as consumer:
            consumer.assign([here])
            await take(consumer, 1, max_records=1)
            for offset in (500, 20, 999, 0):
                consumer.seek(here, offset)
                assert (await take(consumer, 1, max_records=1))[0].offset == offset
            consumer.seek_to_end()
            assert await consumer.position(here) == 1000

    run(body())


def test_topics_and_partitions_that_come_later_are_found(bootstrap: str) -> None:
    async def body() -> None:
        first, later = await create(bootstrap), f"topic-{next(_numbers)}"
        settings: dict[str, Any] = {"allow_auto_create_topics": False, "metadata_max_age_ms": 1000, "heartbeat_interval_ms": 200}
        async with Consumer(bootstrap, group_id=f"g-{first}", **settings) as consumer, Admin(bootstrap) as admin:
            consumer.subscribe([first, later])
            while consumer.assignment() != [TopicPartition(first, 0)]:
                await consumer.poll(100)
            assert await admin.create_topics([NewTopic(later, 1, 1)]) == {later: None}
            assert await admin.create_partitions({first: 2}) == {first: None}
            while len(consumer.assignment()) != 3:
                await consumer.poll(100)

    run(body())


def test_read_committed_drops_what_a_transactional_producer_aborted(kafka: Peer) -> None:
    """ottla's broker has no transactions yet; the transactions are librdkafka's."""

    async def body() -> None:
        topic = await create(kafka.bootstrap)
        here = TopicPartition(topic, 0)
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
        await asyncio.to_thread(producer.init_transactions, WAIT_SECONDS_MAX)
        for number in range(10):
            producer.begin_transaction()
            for part in range(10):
                producer.produce(topic, b"%d-%d" % (number, part), partition=0)
            end = producer.abort_transaction if number % 3 == 0 else producer.commit_transaction
            await asyncio.to_thread(producer.flush, WAIT_SECONDS_MAX)
            await asyncio.to_thread(end, WAIT_SECONDS_MAX)
        committed = [b"%d-%d" % (number, part) for number in range(10) for part in range(10) if number % 3]
        assert await values_of(kafka.bootstrap, topic, 60, isolation_level="read_committed") == committed
        assert len(await values_of(kafka.bootstrap, topic, 100)) == 100

        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        await asyncio.to_thread(producer.flush, WAIT_SECONDS_MAX)
        async with Consumer(kafka.bootstrap, isolation_level="read_committed") as consumer:
            stable = (await consumer.end_offsets([here]))[here]
            consumer.assign([here])
            consumer.seek_to_end()
            assert await consumer.position(here) == stable
        async with Consumer(kafka.bootstrap) as consumer:
            assert (await consumer.end_offsets([here]))[here] == stable + 1
        await asyncio.to_thread(producer.abort_transaction, WAIT_SECONDS_MAX)

    run(body())


# Members of the consumer protocol (KIP-848)

BY_HEARTBEATS: dict[str, Any] = {"group_protocol": "consumer", "auto_offset_reset": "earliest"}


async def poll_until(members: list[Consumer], is_so: Callable[[], bool]) -> list[Any]:
    """Polls the members in turn; returns what they read."""
    records: list[Any] = []
    while not is_so():
        for member in members:
            records += await member.poll(50)
    return records


def test_members_of_the_consumer_protocol_hand_partitions_over_without_a_second_reading(bootstrap: str) -> None:
    async def body() -> None:
        topic = await create(bootstrap, 4)
        await fill(bootstrap, topic, 100)
        settings = BY_HEARTBEATS | {"group_id": topic, "auto_commit_interval_ms": 3_600_000}
        async with Consumer(bootstrap, **settings) as first, Consumer(bootstrap, **settings) as second:
            first.subscribe([topic])
            assert len(await take(first, 100)) == 100
            second.subscribe([topic])
            again = await poll_until([first, second], lambda: [len(one.assignment()) for one in (first, second)] == [2, 2])
            assert again == []
            await second.commit()
            await second.unsubscribe()
            again = await poll_until([first], lambda: len(first.assignment()) == 4)
            assert again == []
            committed = await first.committed(first.assignment())
            assert sum(committed.values()) == 100

    run(body())


def test_a_member_that_an_administrator_removes_loses_its_partitions_and_joins_again(bootstrap: str) -> None:
    """It leaves in the member's name, as another client could."""

    async def body() -> None:
        topic = await create(bootstrap)
        seen: list[str] = []
        async with Consumer(bootstrap, group_id=topic, **BY_HEARTBEATS) as consumer:
            consumer.subscribe(
                [topic],
                on_assigned=lambda found: seen.append(f"assigned {len(found)}"),
                on_revoked=lambda found: seen.append(f"revoked {len(found)}"),
                on_lost=lambda found: seen.append(f"lost {len(found)}"),
            )
            await poll_until([consumer], lambda: "assigned 1" in seen)
            assert isinstance(consumer._membership, ConsumerMembership)
            await consumer._membership._send_leave()
            await poll_until([consumer], lambda: seen.count("assigned 1") == 2)
            await consumer.commit({TopicPartition(topic, 0): 0})
        counted = [word for word in seen if word != "assigned 0"]  # Kafka may answer a join before it has divided the partitions
        assert counted == ["assigned 1", "lost 1", "assigned 1", "revoked 1"]

    run(body())


def test_a_static_member_comes_back_and_a_second_one_waits_for_the_first_to_leave(bootstrap: str) -> None:
    async def body() -> None:
        topic = await create(bootstrap, 2)
        settings = BY_HEARTBEATS | {"group_id": topic, "group_instance_id": "i"}
        first, second = Consumer(bootstrap, **settings), Consumer(bootstrap, **settings)
        first.subscribe([topic])
        await poll_until([first], lambda: len(first.assignment()) == 2)
        second.subscribe([topic])
        with pytest.raises(KafkaError) as refused:
            await second.poll(10_000)
        assert refused.value.code == ErrorCode.UNRELEASED_INSTANCE_ID
        await first.close()
        await poll_until([second], lambda: len(second.assignment()) == 2)
        await second.close()

    run(body())


def test_the_brokers_match_a_pattern_and_refuse_one_that_is_none(bootstrap: str) -> None:
    async def body() -> None:
        topic = await create(bootstrap)
        await fill(bootstrap, topic, 3)
        async with Consumer(bootstrap, group_id=topic, **BY_HEARTBEATS) as consumer:
            consumer.subscribe(pattern=SubscriptionPattern(f"{topic[:-1]}[{topic[-1]}]"))
            assert [record.topic for record in await take(consumer, 3)] == [topic] * 3
            assert consumer.subscription() == [topic]
            consumer.subscribe(pattern=SubscriptionPattern("("))
            with pytest.raises(KafkaError) as refused:
                await poll_until([consumer], lambda: False)
            assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
            consumer.subscribe([topic])
            await poll_until([consumer], lambda: bool(consumer.assignment()))

    run(body())


def test_a_transaction_has_the_offsets_of_a_member_of_the_consumer_protocol(bootstrap: str) -> None:
    async def body() -> None:
        topic = await create(bootstrap)
        await fill(bootstrap, topic, 5)
        key = TopicPartition(topic, 0)
        async with (
            Consumer(bootstrap, group_id=topic, enable_auto_commit=False, **BY_HEARTBEATS) as consumer,
            Producer(bootstrap, transactional_id=topic) as producer,
        ):
            await producer.init_transactions()
            consumer.subscribe([topic])
            await take(consumer, 5)
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({key: 5}, consumer.group_metadata())
            await producer.commit_transaction()
            assert await consumer.committed([key]) == {key: 5}

    run(body())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_is_moved_to_the_consumer_protocol_and_back(bootstrap: str, strategy: str) -> None:
    async def body() -> None:
        topic = await create(bootstrap, 4)
        classic: Any = {"group_id": topic, "partition_assignment_strategy": [strategy], "heartbeat_interval_ms": 100}
        async with Consumer(bootstrap, **classic) as old, Consumer(bootstrap, group_id=topic, **BY_HEARTBEATS) as new:
            old.subscribe([topic])
            await poll_until([old], lambda: len(old.assignment()) == 4)
            new.subscribe([topic])
            await poll_until([old, new], lambda: [len(one.assignment()) for one in (old, new)] == [2, 2])
            await old.unsubscribe()
            await poll_until([new], lambda: len(new.assignment()) == 4)
            old.subscribe([topic])
            await poll_until([old, new], lambda: [len(one.assignment()) for one in (old, new)] == [2, 2])
            await new.unsubscribe()
            await poll_until([old], lambda: len(old.assignment()) == 4)

    run(body())
