"""The watch over transactions finds what nodes do wrong: each wrong is done to one broker, by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from tests.broker.test_log_care import create
from tests.broker.transactional import TransactionalProducer
from tests.quiet import silence
from tests.simulation.transactional_watch import TransactionWatch

from ottla.broker.replicas.partition import Partition
from ottla.records.builder import BatchBuilder
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run
from ottla.transactions.effects import WriteMarkers
from ottla.types import TopicPartition

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
        (_stable_over_an_open_one, "V8"),
    ],
)
def test_each_wrong_is_found(wrong: Wrong, invariant: str) -> None:
    assert any(finding.startswith(invariant) for finding in found_when(wrong))


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert found_when(_nothing) == []
