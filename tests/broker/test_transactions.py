"""Transactions on one broker, request by request, at both levels."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.transactional import TransactionalProducer
from tests.client.simulated import KEY, consumer_of, create, end_of, with_broker
from tests.quiet import silence

from ottla.admin_http.replica_names import replica_families
from ottla.admin_http.transaction_names import transaction_families
from ottla.broker.coordinators.marker_queues import MarkerQueues
from ottla.broker.coordinators.parked import WAIT_MS
from ottla.broker.coordinators.runtime import CoordinatorRuntime
from ottla.broker.coordinators.shard import Shard
from ottla.broker.tasks.slices import Slices
from ottla.client.admin import Admin, Topic
from ottla.errors import ErrorCode
from ottla.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.records.builder import BatchBuilder
from ottla.sim.cluster import SimBroker
from ottla.sim.disk import VOLUME_BYTES
from ottla.types import LATE_TRANSACTION_MS, TRANSACTION_STATE_TOPIC, TopicPartition

OTHER = TopicPartition("t", 1)
BOTH = pytest.mark.parametrize("level", [1, 2])


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


async def read(broker: SimBroker, *keys: TopicPartition, isolation_level: str = "read_committed") -> list[bytes]:
    """All values that a reader gets up to the ends of these partitions."""
    consumer = consumer_of(broker.client("reader"), isolation_level=isolation_level)
    consumer.assign(list(keys))
    ends = await consumer.end_offsets(list(keys))
    values: list[bytes] = []
    for key in keys:
        while await consumer.position(key) < ends[key]:
            values += [record.value or b"" for record in await consumer.poll(1000)]
    await consumer.close()
    return values


async def begun(
    broker: SimBroker, level: int, name: str = "p", *, timeout_ms: int = 60_000, transactional_id: str = "x"
) -> TransactionalProducer:
    producer = TransactionalProducer(broker.client(name), transactional_id, level=level, timeout_ms=timeout_ms)
    assert await producer.init() == 0
    return producer


@BOTH
def test_what_is_committed_is_read_and_what_is_aborted_is_not(level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        producer = await begun(broker, level)
        for number, is_commit in enumerate([True, False, True]):
            for key in (KEY, OTHER):
                assert await producer.write(key, b"%d" % number) == 0
            assert await producer.end(is_commit=is_commit) == 0
        await settled(producer)
        assert sorted(await read(broker, KEY, OTHER)) == [b"0", b"0", b"2", b"2"]
        assert sorted(await read(broker, KEY, OTHER, isolation_level="read_uncommitted")) == [b"0", b"0", b"1", b"1", b"2", b"2"]

    with_broker(body)


async def settled(producer: TransactionalProducer) -> None:
    """The last transaction has ended and is complete: all its partitions have their marker. Within a minute of simulated time."""
    async with asyncio.timeout(60):
        while not (await producer.describe()).transaction_state.startswith("Complete"):
            await asyncio.sleep(0.01)


@BOTH
def test_an_open_transaction_holds_committed_readers_back_until_it_ends(level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level)
        assert await producer.write(KEY, b"open") == 0
        assert await read(broker, KEY) == []
        assert await read(broker, KEY, isolation_level="read_uncommitted") == [b"open"]
        assert await producer.end(is_commit=True) == 0
        await settled(producer)
        assert await read(broker, KEY) == [b"open"]

    with_broker(body)


@BOTH
def test_the_next_transaction_begins_without_a_refusal(level: int) -> None:
    """Kafka answers CONCURRENT_TRANSACTIONS while the markers are written; here the request waits for them."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level)
        for number in range(20):
            assert await producer.write(KEY, b"%d" % number) == 0
            assert await producer.end(is_commit=True) == 0
        await settled(producer)
        assert await read(broker, KEY) == [b"%d" % number for number in range(20)]

    with_broker(body)


@BOTH
def test_a_producer_that_begins_fences_the_one_before_and_aborts_what_it_left(level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        zombie = await begun(broker, level)
        assert await zombie.write(KEY, b"left") == 0
        successor = await begun(broker, level, "q")
        assert (successor.producer_id, successor.epoch) == (zombie.producer_id, zombie.epoch + 2), "one for the fence, one for itself"
        assert await zombie.send(KEY, b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await zombie.add(OTHER) in (ErrorCode.PRODUCER_FENCED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await zombie.end(is_commit=True) == ErrorCode.PRODUCER_FENCED
        assert await successor.write(KEY, b"mine") == 0
        assert await successor.end(is_commit=True) == 0
        await settled(successor)
        assert await read(broker, KEY) == [b"mine"]

    with_broker(body)


@BOTH
def test_a_transaction_whose_time_has_passed_is_aborted(level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level, timeout_ms=5_000)
        assert await producer.write(KEY, b"slow") == 0
        await asyncio.sleep(20)
        assert (await producer.describe()).transaction_state == "CompleteAbort"
        assert await read(broker, KEY) == []
        assert await producer.send(KEY, b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.end(is_commit=True) == ErrorCode.PRODUCER_FENCED

    with_broker(body)


def test_a_coordinator_whose_disk_is_full_is_loaded_again_some_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 2, timeout_ms=5_000)
        assert await producer.write(KEY, b"slow") == 0
        disk, load, count = broker.machine.disk, Shard.load, 0

        async def counted(shard: Shard[Any]) -> None:
            nonlocal count
            count += 1
            assert count < 500, "it would go on without end, in no time"
            await load(shard)

        monkeypatch.setattr(Shard, "load", counted)
        disk.capacity_bytes = disk.used_bytes
        await asyncio.sleep(20)  # simulated: the disk is full for so long, in which loads are counted
        assert 5 < count < 100
        disk.capacity_bytes = VOLUME_BYTES
        async with asyncio.timeout(10):  # simulated
            while (await producer.describe()).transaction_state != "CompleteAbort":
                await asyncio.sleep(0.1)

    with_broker(body)


@BOTH
@pytest.mark.parametrize("is_asked", [True, False])
def test_a_transaction_ends_though_its_record_is_larger_than_its_log_takes(is_asked: bool, level: int) -> None:
    """``max.message.bytes`` was lowered while it was open. Its end keeps no other one open; the next one as large is refused."""
    count = 100
    keys = [TopicPartition("t", partition) for partition in range(count)]

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=count)
        await create(broker, "u")
        large = await begun(broker, level, timeout_ms=5_000)
        for key in keys:
            assert await large.write(key, b"large") == 0
        small = await begun(broker, level, "small", timeout_ms=5_000, transactional_id="y")
        assert await small.write(TopicPartition("u", 0), b"small") == 0
        await Admin(broker.client("admin")).alter_configs({Topic(TRANSACTION_STATE_TOPIC): {"max.message.bytes": 300}})
        if is_asked:
            assert await large.end(is_commit=True) == 0
        for producer in (large, small):
            await settled(producer)
        assert await read(broker, *keys) == ([b"large"] * count if is_asked else [])
        assert await read(broker, TopicPartition("u", 0)) == []
        assert await large.init() == 0
        codes = [await large.write(key, b"again") for key in keys]
        assert codes == sorted(codes, reverse=True)
        assert set(codes) == {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR}
        assert await large.end(is_commit=False) == 0

    with_broker(body, transaction_state_log_num_partitions="1")


@BOTH
@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_whose_answer_was_lost_is_answered_as_before(level: int, is_commit: bool) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level)
        assert await producer.write(KEY, b"once") == 0
        before = producer.producer_id, producer.epoch
        assert await producer.end(is_commit=is_commit) == 0
        after = producer.producer_id, producer.epoch
        producer.producer_id, producer.epoch = before
        assert await producer.end(is_commit=is_commit) == 0
        assert (producer.producer_id, producer.epoch) == after
        assert after == (before[0], before[1] + (1 if level == 2 else 0))
        assert await read(broker, KEY) == ([b"once"] if is_commit else [])

    with_broker(body)


@BOTH
@pytest.mark.parametrize("power_cut", [True, False])
def test_a_broker_that_comes_back_goes_on_with_what_was_open(level: int, power_cut: bool) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, configs={"flush.messages": "1"})
        producer = await begun(broker, level)
        assert await producer.write(KEY, b"open") == 0
        broker.kill(power_cut=power_cut and level == 1)
        await broker.start()
        again = TransactionalProducer(broker.client("again"), level=level)
        again.producer_id, again.epoch, again._sequences = producer.producer_id, producer.epoch, producer._sequences
        assert await read(broker, KEY) == []
        assert (await again.describe()).transaction_state == "Ongoing"
        assert await again.write(KEY, b"more") == 0
        assert await again.end(is_commit=True) == 0
        await settled(again)
        assert await read(broker, KEY) == [b"open", b"more"]

    with_broker(body, log_flush_interval_messages="1")


def test_a_batch_that_comes_after_the_end_is_refused_where_versions_tell() -> None:
    """At level 2 by its epoch, at level 1 by the coordinator."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        for level, code in ((2, ErrorCode.INVALID_PRODUCER_EPOCH), (1, ErrorCode.TRANSACTION_ABORTABLE)):
            producer = await begun(broker, level)
            assert await producer.write(KEY, b"a") == 0
            epoch = producer.epoch
            assert await producer.end(is_commit=True) == 0
            await settled(producer)
            assert await producer.send(KEY, b"late", epoch=epoch, sequence=1) == code
        assert await read(broker, KEY) == [b"a", b"a"]

    with_broker(body)


def test_a_batch_of_a_partition_that_was_not_added_is_refused_at_level_1_and_adds_it_at_level_2() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        old = await begun(broker, 1)
        assert await old.send(KEY, b"a") == ErrorCode.TRANSACTION_ABORTABLE
        new = await begun(broker, 2)
        assert await new.send(KEY, b"a") == 0
        assert [topic.partitions for topic in (await new.describe()).topics] == [[0]]

    with_broker(body)


def test_verification_can_be_switched_off() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 1)
        assert await producer.send(KEY, b"a") == 0

    with_broker(body, transaction_partition_verification_enable="false")


def test_batches_that_do_not_belong_to_their_request_or_transaction() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        producer = await begun(broker, 2)

        def batch(*, is_transactional: bool, producer_id: int = -2, sequence: int = 0) -> bytearray:
            builder = BatchBuilder()
            builder.append(None, b"v", timestamp_ms=1)
            producer_id = producer.producer_id if producer_id == -2 else producer_id
            return builder.build(
                producer_id=producer_id, producer_epoch=producer.epoch, base_sequence=sequence, is_transactional=is_transactional
            )

        transactional = batch(is_transactional=True)
        assert await producer.produce(KEY, transactional, transactional_id=None) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert broker.broker is not None
        for may_lack_some in (False, True):  # as after retention: its coordinator would have added the partition
            broker.broker.partitions.by_name["t"][0].log.producers.may_lack_some = may_lack_some
            assert await producer.produce(KEY, batch(is_transactional=True, sequence=7)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await producer.produce(KEY, transactional, transactional_id="other") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        foreign = batch(is_transactional=True, producer_id=producer.producer_id + 1)
        assert await producer.produce(KEY, foreign) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        other = await begun(broker, 2, "other", transactional_id="y")
        together = {KEY: transactional, OTHER: batch(is_transactional=True, producer_id=other.producer_id)}
        assert ErrorCode.INVALID_PRODUCER_ID_MAPPING in await producer.produce_together(together)
        assert await producer.send(KEY, b"a", sequence=1) == 0
        assert await producer.produce(KEY, batch(is_transactional=False, sequence=2)) == ErrorCode.INVALID_TXN_STATE
        assert await producer.produce(OTHER, batch(is_transactional=False)) == 0, "it has no transaction there"

    with_broker(body)


def test_markers_are_judged_by_their_epochs() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 2)
        assert await producer.init() == 0
        assert await producer.write(KEY, b"a") == 0
        epoch = producer.epoch
        assert await producer.mark(KEY, is_commit=True, epoch=epoch - 1, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.mark(KEY, is_commit=True, epoch=epoch, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.mark(KEY, is_commit=True, epoch=epoch + 1, coordinator_epoch=9, transaction_version=2) == 0
        assert await read(broker, KEY) == [b"a"]
        assert await producer.mark(KEY, is_commit=False, epoch=epoch + 1, coordinator_epoch=8) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await producer.mark(KEY, is_commit=True, epoch=epoch + 1, coordinator_epoch=9) == 0, "repeated"
        assert await producer.mark(TopicPartition("t", 7), is_commit=True, epoch=0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        end = await end_of(broker)
        assert await producer.mark(KEY, is_commit=True, epoch=-1) == ErrorCode.UNKNOWN_SERVER_ERROR
        producer.producer_id = -1
        assert await producer.mark(KEY, is_commit=True, epoch=0) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await end_of(broker) == end, "no marker of no producer is in the log"

    with_broker(body)


def test_epochs_that_are_exhausted_go_on_with_another_producer_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of a coordinator has the true number of epochs (tests/transactions/test_coordinator_laws.py)."""
    for module in ("transaction", "table"):
        monkeypatch.setattr(f"ottla.transactions.{module}.EPOCH_MAX", 300)

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 2)
        assert broker.broker is not None
        first_id = producer.producer_id
        while producer.producer_id == first_id:
            assert producer.epoch <= 300
            assert await producer.end(is_commit=False) == 0, "an abort of nothing raises the epoch"
        assert producer.epoch == 0
        assert await producer.write(KEY, b"a") == 0
        assert await producer.end(is_commit=True) == 0
        await settled(producer)
        assert await read(broker, KEY) == [b"a"]

    with_broker(body)


def test_the_metrics_of_transactions() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 2)
        assert await producer.write(KEY, b"a") == 0
        assert broker.broker is not None
        status = broker.broker.status

        async def metric(name: str, now_ms: int) -> float:
            replicas = await replica_families(status, Slices(broker.machine.clock), now_ms=now_ms)
            [family] = [one for one in (*replicas, *transaction_families(status)) if one.name == name]
            return float(family.samples[0].value)

        now_ms = broker.machine.clock.now_ms()
        assert await metric("kafka_server_addpartitionstotxnmanager_verificationtimems_count", now_ms) >= 1
        late = "kafka_server_replicamanager_partitionswithlatetransactionscount"
        limit_ms = 900_000 + LATE_TRANSACTION_MS
        assert (await metric(late, now_ms + limit_ms - 60_000), await metric(late, now_ms + limit_ms + 60_000)) == (0, 1)
        assert await metric("kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize", now_ms) == 0

    with_broker(body)


def test_the_offsets_of_a_group_wait_for_their_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node makes it, and this one hears of it a moment later."""

    async def nothing_yet(_: object) -> None:
        pass

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 1)
        request = AddOffsetsToTxnRequest("x", producer.producer_id, producer.epoch, "g")
        with monkeypatch.context() as patch:
            patch.setattr(CoordinatorRuntime, "ensure_topic", nothing_yet)
            answer = await producer.ask(request, AddOffsetsToTxnResponse)
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await producer.ask(request, AddOffsetsToTxnResponse)).error_code == 0

    with_broker(body)


@BOTH
def test_a_transaction_ends_though_its_topic_was_made_again_with_fewer_partitions(level: int) -> None:
    """No broker will ever lead the partition: its marker is not waited for."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        producer = await begun(broker, level)
        assert [await producer.write(KEY, b"gone"), await producer.write(OTHER, b"gone")] == [0, 0]
        admin = Admin(broker.client("admin"))
        assert await admin.delete_topics(["t"]) == {"t": None}
        await create(broker, partition_count=1)
        assert await producer.end(is_commit=True) == 0
        async with asyncio.timeout(60):
            await settled(producer)
        assert (await producer.describe()).transaction_state == "CompleteCommit"
        await admin.close()

    with_broker(body)


def test_transactions_of_one_request_wait_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers ask for many at once. One whose markers are on their way waits for a second, and the asking broker for three."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        busy = [await begun(broker, 2, transactional_id=f"busy-{number}") for number in range(5)]
        monkeypatch.setattr(MarkerQueues, "send", lambda *_: None)
        for producer in busy:
            assert (await producer.write(KEY, b"a"), await producer.end(is_commit=True)) == (0, 0)
        free = await begun(broker, 2, transactional_id="free")
        transactions = [
            AddPartitionsToTxnTransaction(
                producer.transactional_id, producer.producer_id, producer.epoch, False, [AddPartitionsToTxnTopic("t", [0])]
            )
            for producer in (*busy, free)
        ]
        before_ms = broker.machine.clock.monotonic_ms()
        answer = await free.ask(AddPartitionsToTxnRequest(transactions), AddPartitionsToTxnResponse)
        assert broker.machine.clock.monotonic_ms() - before_ms < 2 * WAIT_MS
        codes = {
            found.transactional_id: found.topic_results[0].results_by_partition[0].partition_error_code
            for found in answer.results_by_transaction
        }
        assert codes == {producer.transactional_id: ErrorCode.CONCURRENT_TRANSACTIONS for producer in busy} | {"free": ErrorCode.NONE}

    with_broker(body)
