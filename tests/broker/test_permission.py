"""What a coordinator has permitted is judged again when it is appended: a marker, or another leader epoch, may have come between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from tests.broker.test_transactions import begun, read, settled
from tests.broker.transactional import TransactionalProducer
from tests.client.simulated import KEY, create, with_broker
from tests.quiet import silence

from ottla.broker.coordinators.permits import TransactionPermits
from ottla.broker.coordinators.transactions import TransactionShards
from ottla.broker.handlers import transactional_produce
from ottla.broker.replicas.partition import Partition
from ottla.errors import ErrorCode
from ottla.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.records.builder import BatchBuilder
from ottla.sim.cluster import SimBroker
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

Between = Callable[[TransactionalProducer, Partition], Awaitable[None]]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def partition_of(broker: SimBroker) -> Partition:
    assert broker.broker is not None
    return broker.broker.partitions.by_name["t"][0]


def permit_then(broker: SimBroker, producer: TransactionalProducer, between: Between) -> list[int]:
    """The coordinator permits once, and something happens before the leader of the partition hears of it; the answers that were given."""
    assert broker.broker is not None
    answers: list[int] = []
    other = TransactionalProducer(broker.client("coordinator"))  # the producer's own connection is held
    other.producer_id, other.epoch = producer.producer_id, producer.epoch

    async def permit(
        transactional_id: str, producer_id: int, producer_epoch: int, partitions: list[TopicPartition], *, adds: bool
    ) -> dict[TopicPartition, int]:
        if not answers:
            answers.append(ErrorCode.NONE)
            await between(other, partition_of(broker))
        else:
            answers.append(ErrorCode.TRANSACTION_ABORTABLE)
        return dict.fromkeys(partitions, answers[-1])

    broker.broker.parts.permits.permit = permit  # type: ignore[method-assign]
    return answers


async def end(producer: TransactionalProducer, partition: Partition) -> None:
    """A marker of the epoch that the batch has, as below transaction.version 2."""
    assert await producer.mark(KEY, is_commit=True, epoch=producer.epoch, coordinator_epoch=0) == 0


async def lead_again(producer: TransactionalProducer, partition: Partition) -> None:
    image = partition.role._image
    assert image is not None
    partition.take_role(replace(image, leader_epoch=image.leader_epoch + 1))


async def begin_again(producer: TransactionalProducer, partition: Partition) -> None:
    """The next process of the id has written here; nothing was open, and no marker came."""
    zombie = producer.epoch
    assert await producer.init() == 0
    assert producer.epoch > zombie
    batch = transactional(producer)
    partition.stage(memoryview(batch), now_ms=1, is_permitted=True)
    await partition.flush()


def transactional(producer: TransactionalProducer) -> bytearray:
    builder = BatchBuilder()
    builder.append(None, b"next", timestamp_ms=1)
    return builder.build(producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=0, is_transactional=True)


def test_a_permission_is_void_after_a_batch_of_the_next_epoch() -> None:
    """A zombie's batch, whose partition its coordinator had just added, is not part of its successor's transaction."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 2)
        permit_then(broker, producer, begin_again)
        assert await producer.send(KEY, b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert partition_of(broker).log.log_end_offset == 1

    with_broker(body)


@pytest.mark.parametrize("has_written", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("between", [end, lead_again], ids=["marker", "leader epoch"])
def test_a_permission_is_void_after_a_marker_or_a_new_leader_epoch(between: Between, has_written: bool) -> None:
    """A marker after which the log says nothing new is not written, and ends the transaction all the same."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 1)
        if has_written:
            assert await producer.write(KEY, b"before") == 0
            assert await producer.end(is_commit=True) == 0
            await settled(producer)
        before = partition_of(broker).log.log_end_offset
        answers = permit_then(broker, producer, between)
        assert await producer.send(KEY, b"late") == ErrorCode.TRANSACTION_ABORTABLE
        assert answers == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
        partition = partition_of(broker)
        assert partition.last_stable_offset == partition.log.log_end_offset, "nothing is open"
        assert partition.log.log_end_offset == before + (between is end and not has_written), "the marker alone"

    with_broker(body)


def test_a_batch_of_the_next_transaction_waits_for_the_marker_of_the_last_one() -> None:
    """Sent at once after the commit, at level 2: the coordinator permits it when the marker is there, which is asked about once more."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 2)
        for number in range(10):
            assert await producer.write(KEY, b"%d" % number) == 0
            ending = asyncio.get_running_loop().create_task(producer.end(is_commit=True))
            assert await ending == 0
        await settled(producer)
        assert await read(broker, KEY) == [b"%d" % number for number in range(10)]

    with_broker(body)


def test_requests_that_came_behind_a_batch_that_waits_are_begun_after_it() -> None:
    """The connection is held: what a producer sends next is not out of order."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 2)
        await producer.cluster.refresh(["t"])
        loop = asyncio.get_running_loop()
        sending = [loop.create_task(producer.send(KEY, b"%d" % number, sequence=number)) for number in range(5)]
        assert [await sent for sent in sending] == [0] * 5
        assert await producer.end(is_commit=True) == 0
        await settled(producer)
        assert await read(broker, KEY) == [b"%d" % number for number in range(5)]

    with_broker(body)


@pytest.mark.parametrize(
    ("version", "code", "answered", "text"),
    [
        (
            12,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            "the transaction coordinator says CONCURRENT_TRANSACTIONS",
        ),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction coordinator says CONCURRENT_TRANSACTIONS"),
        (12, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE, "the partition is not part of the transaction"),
        (
            12,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "the transaction coordinator says CLUSTER_AUTHORIZATION_FAILED",
        ),
    ],
)
def test_a_producer_is_told_what_the_coordinator_said(version: int, code: ErrorCode, answered: ErrorCode, text: str) -> None:
    error = transactional_produce._error(version, code)
    assert error is not None
    assert (error.code, error.message) == (answered, text)


def test_a_coordinator_that_refuses_the_whole_request_has_refused_each_partition() -> None:
    """A broker that has lost its rights is told so; a connection that fails is something else."""

    def send(_: int, request: Request, on_answer: Callable[[Response | None], None]) -> None:
        on_answer(AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))

    async def body(broker: SimBroker) -> None:
        assert broker.broker is not None
        shards = SimpleNamespace(leader_of=lambda key: 2, peers=SimpleNamespace(send=send))
        permits = TransactionPermits(broker.broker.world, broker.broker.parts.config, cast(TransactionShards, shards))
        for adds in (True, False):
            assert await permits.permit("x", 7, 0, [KEY], adds=adds) == {KEY: ErrorCode.CLUSTER_AUTHORIZATION_FAILED}

    with_broker(body)
