"""The watch over transactions finds what nodes do wrong: each wrong is done to one broker, by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from unittest import mock

import pytest
from tests.broker.test_log_care import create
from tests.broker.transactional import TransactionalProducer
from tests.quiet import silence
from tests.simulation.transactional_watch import TransactionWatch

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_role import ReplicaRole
from ottla.machine import StoredRecord
from ottla.messages.transaction_records import TransactionLogKey
from ottla.records.builder import BatchBuilder
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run
from ottla.transactions.effects import WriteMarkers
from ottla.transactions.records import encode_record
from ottla.transactions.transaction import Transaction, TransactionState
from ottla.types import TRANSACTION_STATE_TOPIC, TopicPartition

KEY = TopicPartition("t", 0)
Wrong = Callable[[SimBroker, TransactionalProducer], Awaitable[None]]


def found_when(wrong: Wrong) -> list[str]:
    """What the watch says of one committed transaction, another that is open, and the wrong."""
    silence()
    findings: list[str] = []

    async def main() -> None:
        broker = SimBroker(Simulation(1), {"transaction.state.log.num.partitions": "1"})
        await broker.start()
        await create(broker, KEY.topic)
        await create(broker, "other")
        producer = TransactionalProducer(broker.client("client"))
        assert await producer.init() == 0
        assert await producer.write(KEY, b"one") == 0
        assert await producer.end(is_commit=True) == 0
        assert await producer.write(KEY, b"two") == 0
        assert findings == []
        await wrong(broker, producer)
        await producer.cluster.close()
        await broker.stop()

    with TransactionWatch(findings, Counter()).watching():
        run(main())
    return findings


def partition(broker: SimBroker, topic: str) -> Partition:
    assert broker.broker is not None
    return broker.broker.partitions.by_name[topic][0]


async def write(found: Partition, producer: TransactionalProducer, epoch: int) -> None:
    builder = BatchBuilder()
    builder.append(None, b"x", timestamp_ms=0)
    batch = builder.build(producer_id=producer.producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
    found.stage(memoryview(batch), now_ms=0, is_permitted=True)
    await found.flush()


async def _nothing(broker: SimBroker, producer: TransactionalProducer) -> None:
    assert await producer.end(is_commit=False) == 0


async def _marker_before_its_decision(broker: SimBroker, producer: TransactionalProducer) -> None:
    assert broker.broker is not None
    [shard] = broker.broker.parts.transactions._shards.values()
    early = WriteMarkers("x", producer.producer_id, producer.epoch + 1, True, 2, frozenset({KEY}))
    broker.broker.parts.transactions.markers.send(shard, early)


async def _partition_that_was_not_added(broker: SimBroker, producer: TransactionalProducer) -> None:
    await write(partition(broker, "other"), producer, producer.epoch)


async def _epoch_that_was_fenced(broker: SimBroker, producer: TransactionalProducer) -> None:
    before = producer.epoch
    assert await producer.end(is_commit=False) == 0
    assert await producer.init() == 0
    await write(partition(broker, "other"), producer, before)


async def _decision_in_an_epoch_that_was_fenced(broker: SimBroker, producer: TransactionalProducer, *, is_deposed: bool = False) -> None:
    """As a coordinator does that has been paused: what it has loaded is old."""
    before = producer.epoch
    assert await producer.end(is_commit=False) == 0
    assert await producer.init() == 0
    found = partition(broker, TRANSACTION_STATE_TOPIC)
    if is_deposed:
        image = found.role._image
        assert image is not None
        with mock.patch.object(ReplicaRole, "take", return_value=False):
            found.take_role(replace(image, leader_epoch=image.leader_epoch + 1))
    late = Transaction(producer.producer_id, before, 1, TransactionState.PREPARE_ABORT, 1, frozenset({KEY}))
    key, value = encode_record(StoredRecord(TransactionLogKey("x"), late.to_value()), transaction_version=2)
    builder = BatchBuilder()
    builder.append(key, value, timestamp_ms=0)
    found.stage_own(memoryview(builder.build()), leader_epoch=found.led_epoch, now_ms=0)
    await found.flush()


async def _stable_over_an_open_one(broker: SimBroker, producer: TransactionalProducer) -> None:
    states = partition(broker, KEY.topic).log.producers
    states._open.clear()
    await write(partition(broker, "other"), producer, producer.epoch)
    partition(broker, KEY.topic).wake(0)


@pytest.mark.parametrize(
    ("wrong", "invariant"),
    [
        (_marker_before_its_decision, "V1"),
        (_partition_that_was_not_added, "V6"),
        (_epoch_that_was_fenced, "V7"),
        (_decision_in_an_epoch_that_was_fenced, "V7"),
        (_stable_over_an_open_one, "V8"),
    ],
)
def test_each_wrong_is_found(wrong: Wrong, invariant: str) -> None:
    assert any(finding.startswith(invariant) for finding in found_when(wrong))


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert found_when(_nothing) == []


def test_what_a_coordinator_decides_that_does_not_know_it_was_replaced_decides_nothing() -> None:
    """It is never committed: crash-points 502, where the coordinator was paused over the next one's first decisions."""
    assert found_when(partial(_decision_in_an_epoch_that_was_fenced, is_deposed=True)) == []
