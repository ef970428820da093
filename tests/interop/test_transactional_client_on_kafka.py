"""The transactional producer against Apache Kafka 4.3.0 at each level of transaction.version, and over a network that loses answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest
from bench.peers import Kafka, Peer
from tests.interop.conftest import until_served

from ottla import sync
from ottla.aio import (
    Admin,
    Consumer,
    GroupMetadata,
    KafkaError,
    NewTopic,
    Producer,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortableError,
    TransactionFatalError,
)
from ottla.errors import ErrorCode
from ottla.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.messages.end_txn import EndTxnRequest
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.produce import ProduceRequest
from ottla.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.sim.interference import Interference, Lost
from ottla.wire.schema import Request

WAIT_SECONDS_MAX = 120.0
PARTITION_COUNT = 3
ASKED = [InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, ProduceRequest, EndTxnRequest]
_numbers = itertools.count()


@pytest.fixture(scope="module", params=[2, 1, 0])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    with Kafka(transaction_version=request.param) as started:
        asyncio.run(until_served(started.bootstrap))
        yield started


@pytest.fixture
def level(request: pytest.FixtureRequest, peer: Peer) -> int:
    assert isinstance(peer, Kafka)
    return peer.features["transaction.version"]


def run(body: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await body

    asyncio.run(bounded())


async def create(peer: Peer, **configs: str) -> str:
    name = f"transactional-{next(_numbers)}"
    async with Admin(peer.bootstrap) as admin:
        assert await admin.create_topics([NewTopic(name, PARTITION_COUNT, 1, configs=configs)]) == {name: None}
    return name


async def values_of(peer: Peer, topic: str, level: Any = "read_committed") -> list[bytes]:
    """What a consumer gets up to the log's end, once no transaction is open any more below it."""
    partitions = [TopicPartition(topic, index) for index in range(PARTITION_COUNT)]
    async with Consumer(peer.bootstrap) as consumer:
        ends = await consumer.end_offsets(partitions)
    async with Consumer(peer.bootstrap, isolation_level=level, auto_offset_reset="earliest") as consumer:
        while min(end - ends[partition] for partition, end in (await consumer.end_offsets(partitions)).items()) < 0:
            await asyncio.sleep(0.02)
        consumer.assign(partitions)
        values: list[bytes] = []
        while [partition for partition in partitions if await consumer.position(partition) < ends[partition]]:
            values += [record.value or b"" for record in await consumer.poll(100)]
    return sorted(values)


async def offsets_of(peer: Peer, group_id: str) -> dict[TopicPartition, int]:
    async with Admin(peer.bootstrap) as admin:
        while await admin.pending_offsets(group_id):
            await asyncio.sleep(0.02)
        return {key: found.offset for key, found in (await admin.committed_offsets(group_id)).items()}


def transactional(peer: Peer, name: str) -> Producer:
    return Producer(peer.bootstrap, transactional_id=name)


def level_of(producer: Producer) -> int:
    assert producer._transactions is not None
    return producer._transactions._enlistment.level


def test_transactions_are_seen_entirely_or_not_at_all(peer: Peer, level: int) -> None:
    async def body() -> None:
        topic = await create(peer)
        key = TopicPartition(topic, 0)
        expected = []
        async with Producer(peer.bootstrap, transactional_id=topic) as producer:
            await producer.init_transactions()
            for number in range(30):
                await producer.begin_transaction()
                assert level_of(producer) == max(level, 1)
                values = [b"%02d-%d" % (number, part) for part in range(10)]
                for value in values:
                    await producer.send(topic, value, key=value)
                await producer.send_offsets_to_transaction({key: number}, GroupMetadata(topic))
                if number % 3 == 1:
                    await producer.flush()
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                    expected += values
        assert await values_of(peer, topic) == sorted(expected)
        assert await offsets_of(peer, topic) == {key: 29}

    run(body())


@pytest.mark.parametrize("kind", ASKED, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_an_answer_that_is_lost_changes_nothing(peer: Peer, kind: type[Request], is_commit: bool) -> None:
    """Twice in a row, in each second of six transactions."""

    async def body() -> None:
        topic = await create(peer)
        key = TopicPartition(topic, 0)
        async with Producer(peer.bootstrap, transactional_id=topic, linger_ms=0) as producer:
            network = Interference(producer._cluster)
            left = 0

            def alter(request: Request, response: Any) -> Lost | None:
                nonlocal left
                if left and isinstance(request, kind):
                    left -= 1
                    return Lost()
                return None

            network.alter = alter
            await producer.init_transactions()
            for number in range(6):
                left = number % 2 * 2
                await producer.begin_transaction()
                for part in range(PARTITION_COUNT):
                    await producer.send(topic, b"%d-%d" % (number, part), partition=part)
                await producer.send_offsets_to_transaction({key: number}, GroupMetadata(topic))
                await producer.flush()
                await (producer.commit_transaction() if is_commit else producer.abort_transaction())
        everything = sorted(b"%d-%d" % (number, part) for number in range(6) for part in range(PARTITION_COUNT))
        assert await values_of(peer, topic, "read_uncommitted") == everything, "and each once"
        assert await values_of(peer, topic) == (everything if is_commit else [])
        assert await offsets_of(peer, topic) == ({key: 5} if is_commit else {})

    run(body())


def test_a_new_epoch_whose_answer_is_lost_is_asked_for_again(peer: Peer) -> None:
    """Below level 2 one is needed after the answer to an EndTxn was lost."""

    async def body() -> None:
        topic = await create(peer)
        async with transactional(peer, topic) as producer:
            network, lost = Interference(producer._cluster), [EndTxnRequest, InitProducerIdRequest, InitProducerIdRequest]
            await producer.init_transactions()

            def alter(request: Request, response: Any) -> Lost | None:
                if lost and isinstance(request, lost[0]):
                    lost.pop(0)
                    return Lost()
                return None

            network.alter = alter
            for number in range(4):
                async with producer.transaction():
                    await producer.send(topic, b"%d" % number, partition=0)
        assert await values_of(peer, topic, "read_uncommitted") == await values_of(peer, topic) == [b"0", b"1", b"2", b"3"]

    run(body())


def test_a_record_that_the_topic_refuses_is_aborted_with_its_transaction(peer: Peer) -> None:
    async def body() -> None:
        topic = await create(peer, **{"max.message.bytes": "1000"})
        async with transactional(peer, topic) as producer:
            await producer.init_transactions()
            for values in ([b"small", bytes(2000)], [bytes(2000)], [bytes(2000), b"small"]):
                with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE"):  # noqa: PT012
                    async with producer.transaction():
                        for part, value in enumerate(values):
                            await producer.send(topic, value, partition=part)
                async with producer.transaction():
                    await producer.send(topic, b"good", partition=0)
        assert await values_of(peer, topic) == [b"good"] * 3

    run(body())


def test_a_zombie_is_fenced(peer: Peer) -> None:
    async def body() -> None:
        topic = await create(peer)
        async with (
            Producer(peer.bootstrap, transactional_id=topic) as zombie,
            Producer(peer.bootstrap, transactional_id=topic) as successor,
        ):
            await zombie.init_transactions()
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic, b"zombie")
            await successor.init_transactions()
            late = await zombie.send(topic, b"late")
            with pytest.raises((ProducerFencedError, TransactionAbortableError)):
                await zombie.commit_transaction()
            assert isinstance(late.exception(), KafkaError)
            with pytest.raises(ProducerFencedError):
                await zombie.abort_transaction()
            async with successor.transaction():
                await successor.send(topic, b"successor")
        assert await values_of(peer, topic) == [b"successor"]

    run(body())


def test_a_commit_of_a_zombie_is_fenced(peer: Peer) -> None:
    async def body() -> None:
        topic = await create(peer)
        async with (
            Producer(peer.bootstrap, transactional_id=topic) as zombie,
            Producer(peer.bootstrap, transactional_id=topic) as successor,
        ):
            await zombie.init_transactions()
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic, b"zombie")
            await successor.init_transactions()
            with pytest.raises(ProducerFencedError):
                await zombie.commit_transaction()
        assert await values_of(peer, topic) == []

    run(body())


def test_the_commit_of_a_transaction_past_its_time_is_refused(peer: Peer) -> None:
    async def body() -> None:
        topic = await create(peer)
        async with Producer(peer.bootstrap, transactional_id=topic, transaction_timeout_ms=1000) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"late")
            assert await values_of(peer, topic) == [], "which waits until the coordinator has aborted it"
            with pytest.raises(TransactionFatalError):  # at level 2 Kafka 4.3 answers INVALID_TXN_STATE (KAFKA-20785), below it fences
                await producer.commit_transaction()

    run(body())


def test_at_level_2_a_producer_goes_on_after_the_coordinators_abort(peer: Peer, level: int) -> None:
    async def body() -> None:
        topic = await create(peer)
        async with Producer(peer.bootstrap, transactional_id=topic, transaction_timeout_ms=1000) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"early", partition=0)
            assert await values_of(peer, topic) == []
            late = await producer.send(topic, b"late", partition=0)
            with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_EPOCH"):
                await producer.commit_transaction()
            assert isinstance(late.exception(), KafkaError)
            if level < 2:
                with pytest.raises(ProducerFencedError):
                    await producer.abort_transaction()
                return
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"next", partition=0)
        assert await values_of(peer, topic) == [b"next"]

    run(body())


def test_records_and_the_offsets_of_what_they_were_made_from_go_together(peer: Peer) -> None:
    """Read, transform, write; every third transaction is aborted and its input read again."""

    async def body() -> None:
        source, target = await create(peer), await create(peer)
        async with Producer(peer.bootstrap) as filler:
            await filler.send_many((source, b"%03d" % number) for number in range(200))
        done = 0
        settings: dict[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with (
            Consumer(peer.bootstrap, group_id=source, **settings) as consumer,
            Producer(peer.bootstrap, transactional_id=source) as producer,
        ):
            consumer.subscribe([source])
            await producer.init_transactions()
            for attempt in itertools.count():
                records = await consumer.poll(500, max_records=20)
                if not records:
                    if done == 200:
                        break
                    continue
                await producer.begin_transaction()
                for record in records:
                    await producer.send(target, b"of " + record.value)
                ends = {TopicPartition(source, record.partition): record.offset + 1 for record in records}
                metadata = consumer.group_metadata()
                assert metadata.generation_id > 0
                await producer.send_offsets_to_transaction(ends, metadata)
                if attempt % 3:
                    await producer.commit_transaction()
                    done += len(records)
                    continue
                await producer.abort_transaction()
                for partition, offset in {TopicPartition(source, r.partition): r.offset for r in reversed(records)}.items():
                    consumer.seek(partition, offset)
        assert await values_of(peer, target) == [b"of %03d" % number for number in range(200)]

    run(body())


def test_offsets_of_a_former_member_are_refused(peer: Peer) -> None:
    async def body() -> None:
        topic = await create(peer)
        key = TopicPartition(topic, 0)
        async with (
            Consumer(peer.bootstrap, group_id=topic, enable_auto_commit=False) as consumer,
            transactional(peer, topic) as producer,
        ):
            consumer.subscribe([topic])
            with pytest.raises(KafkaError, match="ILLEGAL_GENERATION"):
                consumer.group_metadata()
            while not consumer.assignment():
                await consumer.poll(100)
            metadata = consumer.group_metadata()
            await producer.init_transactions()
            for wrong in (
                GroupMetadata(topic, metadata.generation_id - 1, metadata.member_id),
                GroupMetadata(topic, metadata.generation_id, "another"),
            ):
                await producer.begin_transaction()
                with pytest.raises(TransactionAbortableError) as caught:
                    await producer.send_offsets_to_transaction({key: 1}, wrong)
                assert caught.value.code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
                await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_offsets_to_transaction({key: 2}, metadata)
        assert await offsets_of(peer, topic) == {key: 2}

    run(body())


def test_the_blocking_producer_has_transactions(peer: Peer) -> None:
    topic = asyncio.run(create(peer))
    with sync.Producer(peer.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            for number in range(1000):
                producer.send(topic, b"%03d" % number)
        with pytest.raises(ZeroDivisionError), producer.transaction():  # noqa: PT012
            producer.send(topic, b"aborted")
            raise ZeroDivisionError
        producer.begin_transaction()
        producer.send_many([(topic, b"also aborted")] * 10)
        producer.flush()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"last")
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): 3}, sync.GroupMetadata(topic))
        producer.commit_transaction()
    assert asyncio.run(values_of(peer, topic)) == [*(b"%03d" % number for number in range(1000)), b"last"]
    assert asyncio.run(offsets_of(peer, topic)) == {TopicPartition(topic, 0): 3}
