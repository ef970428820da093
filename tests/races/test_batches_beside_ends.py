"""A transactional batch beside the end of its transaction: while it waits for a coordinator or a worker, and while it is written."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager

import pytest
from tests.broker.test_transactions import BOTH, begun, read, settled
from tests.broker.transactional import TransactionalProducer
from tests.client.simulated import KEY, create, with_broker
from tests.quiet import silence
from tests.races.gates import Gate, gate_after, gate_before
from tests.races.one_broker import nothing_is_open, partition_of, parts_of, twin_of

from ottla.broker.handlers import produce
from ottla.errors import ErrorCode
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Codec
from ottla.sim.cluster import SimBroker
from ottla.storage.log.batch_rules import INLINE_BYTES_MAX

ABORTABLE, OLD_EPOCH = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def appends_of(broker: SimBroker) -> AbstractContextManager[Gate]:
    """The gate before what is staged for the partition is written."""
    directory = partition_of(broker, KEY).log.directory

    def is_append(operation: str, path: str, *_: object) -> bool:
        return operation == "append" and path.startswith(directory)

    return gate_before(broker.machine.disk, "step", is_append)


async def after_one(broker: SimBroker, level: int, value: bytes = b"before") -> TransactionalProducer:
    """A producer whose first transaction is complete."""
    producer = await begun(broker, level)
    assert await producer.write(KEY, value) == 0
    assert await producer.end(is_commit=True) == 0
    await settled(producer)
    return producer


def ended_by(twin: TransactionalProducer, *, is_commit: bool) -> asyncio.Task[int]:
    """The marker that the transaction's coordinator sends, whatever the producer is waiting for."""
    epoch = twin.epoch + (1 if twin.level == 2 else 0)
    version = 2 if twin.level == 2 else 0
    marking = twin.mark(KEY, is_commit=is_commit, epoch=epoch, transaction_version=version)
    return asyncio.get_running_loop().create_task(marking)


@BOTH
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_batch_that_was_permitted_before_the_marker_came_is_part_of_what_that_ends(level: int, is_commit: bool) -> None:
    """It is staged and not written when the marker comes; at level 1 the transaction before has had the same epoch."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await after_one(broker, level)
        twin = twin_of(broker, producer)
        await twin.cluster.refresh(["t"])
        with appends_of(broker) as appends:
            writing = asyncio.get_running_loop().create_task(producer.write(KEY, b"a"))
            await appends.reached()
            ending = ended_by(twin, is_commit=is_commit)
            await asyncio.sleep(0.5)
            assert not writing.done()
            await appends.open()
            assert (await writing, await ending) == (0, 0)
        assert nothing_is_open(broker, KEY)
        assert await read(broker, KEY) == ([b"before", b"a"] if is_commit else [b"before"])

    with_broker(body)


def heavy(producer: TransactionalProducer, *, sequence: int) -> bytearray:
    builder = BatchBuilder()
    builder.append(None, bytes(INLINE_BYTES_MAX + 1), timestamp_ms=1)
    return builder.build(
        Codec.GZIP, producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=sequence, is_transactional=True
    )  # fmt: skip


@BOTH
@pytest.mark.parametrize("is_known", [True, False], ids=["open", "begun by it"])
def test_a_batch_that_a_worker_examines_while_its_transaction_ends_is_refused(level: int, is_known: bool) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level)
        if is_known:
            assert await producer.write(KEY, b"a") == 0
        elif level == 1:
            assert await producer.add(KEY) == 0
        log = partition_of(broker, KEY).log
        end = log.log_end_offset + 1  # the marker
        batch = heavy(producer, sequence=int(is_known))
        twin = twin_of(broker, producer)
        with gate_before(produce, "prepare_away") as worker:
            writing = asyncio.get_running_loop().create_task(producer.produce(KEY, batch))
            await worker.reached()
            assert await twin.end(is_commit=False) == 0
            await settled(twin)
            assert log.log_end_offset == end
            await worker.open()
            assert await writing in (ABORTABLE, OLD_EPOCH)
        assert log.log_end_offset == end
        assert nothing_is_open(broker, KEY)

    with_broker(body)


@BOTH
def test_a_batch_that_a_worker_has_examined_before_its_transaction_ends_is_part_of_it(level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await after_one(broker, level, b"a")
        if level == 1:
            assert await producer.add(KEY) == 0
        batch, twin = heavy(producer, sequence=2 - level), twin_of(broker, producer)
        await twin.cluster.refresh(["t"])
        with appends_of(broker) as appends:
            writing = asyncio.get_running_loop().create_task(producer.produce(KEY, batch))
            await appends.reached()
            ending = ended_by(twin, is_commit=True)
            await asyncio.sleep(0.5)
            assert not writing.done()
            await appends.open()
            assert (await writing, await ending) == (0, 0)
        assert nothing_is_open(broker, KEY)
        assert await read(broker, KEY) == [b"a", bytes(INLINE_BYTES_MAX + 1)]

    with_broker(body)


def expire(broker: SimBroker) -> int:
    """Producers that are forgotten, as though a day had passed."""
    return partition_of(broker, KEY).log.producers.expire(2**60, 1000)


@BOTH
@pytest.mark.parametrize("then", ["marker", "nothing"])
def test_a_producer_that_expires_while_it_is_verified(level: int, then: str) -> None:
    """It was silent for long, as far as the partition knows. A marker that came since has ended its transaction all the same."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await after_one(broker, level)
        assert await producer.init() == 0
        if level == 1:
            assert await producer.add(KEY) == 0
        twin = twin_of(broker, producer)
        with gate_after(parts_of(broker).permits, "permit") as verified:
            writing = asyncio.get_running_loop().create_task(producer.send(KEY, b"late"))
            await verified.reached()
            assert expire(broker) == 1
            if then == "marker":
                assert await twin.end(is_commit=False) == 0
                await settled(twin)
            await verified.open()
            code = await writing
        if then == "marker":
            assert code in (ABORTABLE, OLD_EPOCH)
            assert nothing_is_open(broker, KEY), "nothing ends what began after its end"
        else:
            assert code == 0
            assert await twin.end(is_commit=True) == 0
            await settled(twin)
            assert await read(broker, KEY) == [b"before", b"late"]

    with_broker(body)


@BOTH
def test_a_producer_whose_batch_is_staged_does_not_expire(level: int) -> None:
    """It was verified before; what expires is what is known of its past in the log."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await after_one(broker, level)
        with appends_of(broker) as appends:
            writing = asyncio.get_running_loop().create_task(producer.write(KEY, b"a"))
            await appends.reached()
            assert expire(broker) == 0
            await appends.open()
            assert await writing == 0
        assert expire(broker) == 0, "nor does one whose transaction is open"
        assert await producer.end(is_commit=True) == 0
        await settled(producer)
        assert await read(broker, KEY) == [b"before", b"a"]

    with_broker(body)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_later_batch_over_another_connection_does_not_overtake_one_that_is_verified(is_known: bool) -> None:
    """Below Produce 12 a producer that is not known begins with any sequence, where its past may have been deleted."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 1)
        twin = twin_of(broker, producer)
        await twin.cluster.refresh(["t"])
        assert await producer.add(KEY) == 0
        first = 0
        if is_known:
            assert await producer.send(KEY, b"before") == 0
            assert await producer.end(is_commit=True) == 0
            await settled(producer)
            assert await producer.add(KEY) == 0
            first = 1
        partition_of(broker, KEY).log.producers.may_lack_some = True
        with gate_after(parts_of(broker).permits, "permit") as verified:
            writing = asyncio.get_running_loop().create_task(producer.send(KEY, b"first"))
            await verified.reached()
            await verified.open(1)
            assert await twin.send(KEY, b"second", sequence=first + 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            await verified.open()
            assert await writing == 0
        assert await twin.send(KEY, b"second", sequence=first + 1) == 0
        assert partition_of(broker, KEY).log.producers._waiting == {}
        assert await producer.end(is_commit=True) == 0
        await settled(producer)
        assert (await read(broker, KEY))[-2:] == [b"first", b"second"]

    with_broker(body)


def test_a_batch_that_was_refused_holds_no_later_one_back() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 1)
        partition_of(broker, KEY).log.producers.may_lack_some = True
        assert await producer.send(KEY, b"not added") == ABORTABLE
        assert await producer.add(KEY) == 0
        assert await producer.send(KEY, b"later", sequence=7) == 0
        assert partition_of(broker, KEY).log.producers._waiting == {}

    with_broker(body)
