"""Leaders of a transaction's partitions that are lost beside its end marker, replicas that are built meanwhile, and too few in sync."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.broker.transactional import TransactionalProducer
from tests.cluster.in_simulation import SimNodes, play
from tests.cluster.test_transactions import ends_of, patiently, states
from tests.races.gates import gate_before

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.transactions.transaction import TransactionState
from ottla.types import TRANSACTION_STATE_TOPIC, TopicPartition

KEY = TopicPartition("t", 0)
COORDINATOR = 4
Body = Callable[[SimNodes, TransactionalProducer, Cluster], Awaitable[None]]


def with_producer(body: Body, *replicas: int, min_isr: int = 2, level: int = 2) -> None:
    """One partition with these replicas, and a transaction that is open in it; the coordinator is elsewhere."""

    async def main(nodes: SimNodes) -> None:
        await nodes.create(TRANSACTION_STATE_TOPIC, [COORDINATOR], min_insync_replicas="1", cleanup_policy="compact")
        await nodes.create("t", list(replicas), min_insync_replicas=str(min_isr))

        async def act(cluster: Cluster) -> None:
            producer = TransactionalProducer(cluster, level=level)
            assert await patiently(producer.init) == 0
            assert await patiently(lambda: producer.write(KEY, b"a")) == 0
            await body(nodes, producer, cluster)

        await nodes.act(act)

    features = {"transaction.version": level}
    play(main, broker_ids=(4, 5, 6, 7), transaction_state_log_num_partitions="1", features=features)


def clog(nodes: SimNodes, sources: list[int], targets: list[int]) -> None:
    for source in sources:
        for target in targets:
            nodes.simulation.fabric.clog_link(nodes.brokers[source].machine.name, nodes.brokers[target].machine.name, 3_000)


async def completed(nodes: SimNodes, *, is_commit: bool) -> None:
    wanted = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    await nodes.until(lambda: states(nodes, COORDINATOR) == {"x": wanted})


async def ended_once(nodes: SimNodes, *replicas: int, is_commit: bool) -> None:
    """Every replica has one marker, and nothing is open."""
    for node in replicas:
        await nodes.until(lambda n=node: nodes.has(n, "t"))  # type: ignore[misc]
        partition = nodes.partition(node, "t")
        await nodes.until(lambda p=partition: p.last_stable_offset == p.log.log_end_offset == 2)  # type: ignore[misc]
        assert [outcome for _, outcome in await ends_of(nodes, node, KEY)] == [is_commit]
        aborted = [(found.first_offset, found.last_offset) for found in await partition.log.aborted.between(0, 2)]
        assert aborted == ([] if is_commit else [(0, 1)])


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_leader_that_is_lost_with_a_marker_that_others_have(is_commit: bool, level: int) -> None:
    """It was not known to be committed. The next leader has it, and does not write it again."""

    async def body(nodes: SimNodes, producer: TransactionalProducer, cluster: Cluster) -> None:
        clog(nodes, [6, 7], [5])  # what they fetch next is on its way
        assert await producer.end(is_commit=is_commit) == 0
        await nodes.until(lambda: all(nodes.partition(node, "t").log.log_end_offset == 2 for node in (6, 7)))
        assert nodes.partition(5, "t").last_stable_offset == 0
        nodes.brokers[5].kill(power_cut=False)
        await nodes.until(lambda: nodes.partition(6, "t").led_epoch > 0)
        await completed(nodes, is_commit=is_commit)
        await nodes.brokers[5].start()
        await ended_once(nodes, 5, 6, 7, is_commit=is_commit)

    with_producer(body, 5, 6, 7, level=level)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_leader_that_is_lost_with_a_marker_that_nobody_else_has(is_commit: bool, level: int) -> None:
    """It is written again by the next leader, and the first one's is cut off: until then that has the transaction as ended, or as open."""

    async def body(nodes: SimNodes, producer: TransactionalProducer, cluster: Cluster) -> None:
        clog(nodes, [5], [6, 7])
        assert await producer.end(is_commit=is_commit) == 0
        await nodes.until(lambda: nodes.partition(5, "t").log.log_end_offset == 2)
        first = nodes.partition(5, "t")
        assert (first.last_stable_offset, len(first.log.aborted)) == (0, 0 if is_commit else 1)
        nodes.brokers[5].kill(power_cut=True)
        await nodes.until(lambda: nodes.partition(6, "t").led_epoch > 0)
        assert nodes.partition(6, "t").log.log_end_offset == 1
        await completed(nodes, is_commit=is_commit)
        await nodes.brokers[5].start()
        await ended_once(nodes, 5, 6, 7, is_commit=is_commit)

    with_producer(body, 5, 6, 7, level=level)


def test_a_leader_that_goes_on_as_a_follower_takes_its_marker_back() -> None:
    """In the same process: its log is cut below the marker, where the transaction is open again, until the next leader's comes."""

    async def body(nodes: SimNodes, producer: TransactionalProducer, cluster: Cluster) -> None:
        with gate_before(_markers(nodes, 6), "write") as repeated:
            clog(nodes, [5], [6, 7])
            machine = nodes.brokers[5].machine.name
            assert await producer.end(is_commit=False) == 0
            await nodes.until(lambda: nodes.partition(5, "t").log.log_end_offset == 2)
            nodes.simulation.fabric.darken(machine)
            await nodes.until(lambda: nodes.partition(6, "t").led_epoch > 0)
            await nodes.send("t", b"other")
            nodes.simulation.fabric.lighten(machine)
            await nodes.until(lambda: nodes.partition(5, "t").leader_epoch == nodes.partition(6, "t").led_epoch)
            follower = nodes.partition(5, "t").log
            await nodes.until(lambda: nodes.partition(5, "t").high_watermark == 2)
            assert (len(follower.aborted), nodes.partition(5, "t").last_stable_offset) == (0, 0), "it is open there"
            await repeated.open()
        await completed(nodes, is_commit=False)
        for node in (5, 6, 7):
            partition = nodes.partition(node, "t")
            await nodes.until(lambda p=partition: p.last_stable_offset == p.log.log_end_offset == 3)  # type: ignore[misc]
            [found] = await partition.log.aborted.between(0, 3)
            assert (found.first_offset, found.last_offset) == (0, 2)

    with_producer(body, 5, 6, 7)


def _markers(nodes: SimNodes, node: int) -> object:
    broker = nodes.broker(node)
    assert broker is not None
    return broker.parts.end_markers


async def reassign(cluster: Cluster, *replicas: int) -> None:
    assert await Admin(cluster).alter_partition_reassignments({KEY: list(replicas)}) == {KEY: None}


@pytest.mark.parametrize("when", ["before", "meanwhile", "after"])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_replica_that_is_built_beside_the_end_of_a_transaction(is_commit: bool, when: str) -> None:
    """It has the transaction open, or its end; and leads then."""

    async def body(nodes: SimNodes, producer: TransactionalProducer, cluster: Cluster) -> None:
        if when == "before":
            assert await producer.end(is_commit=is_commit) == 0
            await completed(nodes, is_commit=is_commit)
        await reassign(cluster, 6, 7)
        if when == "meanwhile":
            assert await producer.end(is_commit=is_commit) == 0
        await nodes.until(lambda: nodes.has(6, "t") and nodes.partition(6, "t").led_epoch > 0)
        if when == "after":
            assert nodes.partition(6, "t").last_stable_offset == 0
            assert await patiently(lambda: producer.end(is_commit=is_commit)) == 0
        await completed(nodes, is_commit=is_commit)
        await ended_once(nodes, 6, 7, is_commit=is_commit)

    with_producer(body, 5, min_isr=1)


@pytest.mark.parametrize("when", ["before the marker", "after the marker"])
@pytest.mark.parametrize("is_commit", [True, False])
def test_replicas_that_are_too_few_when_the_marker_comes_and_enough_again(is_commit: bool, when: str) -> None:
    """A marker is written all the same, and holds the stable offset until it is committed; it is asked for until then."""

    async def body(nodes: SimNodes, producer: TransactionalProducer, cluster: Cluster) -> None:
        with gate_before(_markers(nodes, 5), "write") as arriving:
            if when == "before the marker":
                assert await producer.end(is_commit=is_commit) == 0
                await arriving.reached()
                nodes.brokers[6].kill(power_cut=False)
                await nodes.until(lambda: nodes.in_sync(5, "t") == {5})
                await arriving.open()
            else:
                await arriving.open()
                clog(nodes, [5], [6])
                assert await producer.end(is_commit=is_commit) == 0
                await nodes.until(lambda: nodes.partition(5, "t").log.log_end_offset == 2)
                nodes.brokers[6].kill(power_cut=False)
                await nodes.until(lambda: nodes.in_sync(5, "t") == {5})
            await asyncio.sleep(5)
            assert nodes.partition(5, "t").last_stable_offset == 0
            assert states(nodes, COORDINATOR)["x"].is_prepared
            await nodes.brokers[6].start()
        await completed(nodes, is_commit=is_commit)
        await ended_once(nodes, 5, 6, is_commit=is_commit)

    with_producer(body, 5, 6)
