"""Coordinators that are lost between any two steps from a decision to its end, and what they had sent arrives before or after."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import pytest
from tests.broker.transactional import TransactionalProducer
from tests.cluster.in_simulation import SimNodes, play
from tests.cluster.test_transactions import ends_of, patiently, states, with_a_decision_that_is_not_committed
from tests.races.gates import gate_after, gate_before

from ottla.broker.coordinators.end_markers import EndMarkers
from ottla.client.cluster import Cluster
from ottla.transactions.transaction import TransactionState
from ottla.types import TRANSACTION_STATE_TOPIC, TopicPartition

KEYS = [TopicPartition("t", index) for index in range(3)]
LEADERS = [5, 6, 7]
"""Of the three partitions. 4 coordinates, and then 5."""
COMPLETE = {"x": TransactionState.COMPLETE_COMMIT}
Body = Callable[[SimNodes, TransactionalProducer, Cluster], Awaitable[None]]


def with_producer(body: Body, *, level: int = 2, **configs: str) -> None:
    """Three partitions of one replica each, on three brokers, and a transaction that is open in all of them."""

    async def main(nodes: SimNodes) -> None:
        await nodes.create(TRANSACTION_STATE_TOPIC, [4, 5, 6], min_insync_replicas="2", cleanup_policy="compact")
        await nodes.create("t", *([leader] for leader in LEADERS), min_insync_replicas="1")

        async def act(cluster: Cluster) -> None:
            producer = TransactionalProducer(cluster, level=level)
            assert await patiently(producer.init) == 0
            for key in KEYS:
                assert await patiently(lambda k=key: producer.write(k, b"a")) == 0  # type: ignore[misc]
            await body(nodes, producer, cluster)

        await nodes.act(act)

    play(main, broker_ids=(4, 5, 6, 7), transaction_state_log_num_partitions="1", features={"transaction.version": level})


def markers_of(nodes: SimNodes, node: int) -> EndMarkers:
    broker = nodes.broker(node)
    assert broker is not None
    return broker.parts.end_markers


async def lose_the_coordinator(nodes: SimNodes) -> None:
    nodes.brokers[4].kill(power_cut=False)
    await nodes.until(lambda: nodes.partition(5, TRANSACTION_STATE_TOPIC).led_epoch > 0)


async def outcomes(nodes: SimNodes, index: int) -> list[bool]:
    return [is_commit for _, is_commit in await ends_of(nodes, LEADERS[index], KEYS[index])]


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("marked", range(4))
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_coordinator_that_is_lost_with_some_markers_written(is_commit: bool, marked: int, level: int) -> None:
    """None, some, or all; it does not know of any that it is written. What it sent arrives when the next one is at work."""

    async def body(nodes: SimNodes, producer: TransactionalProducer, cluster: Cluster) -> None:
        with ExitStack() as stack:
            requests = [stack.enter_context(gate_before(markers_of(nodes, node), "write")) for node in LEADERS]
            answers = [stack.enter_context(gate_after(markers_of(nodes, node), "write")) for node in LEADERS]
            assert await producer.end(is_commit=is_commit) == 0
            for request in requests:
                await request.reached()
            for index in range(marked):
                await requests[index].open(0)
                await answers[index].reached()
                assert await outcomes(nodes, index) == [is_commit]
            assert states(nodes, 4)["x"].is_prepared
            await lose_the_coordinator(nodes)
            for gate in (*requests, *answers):
                await gate.open()
            wanted = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
            await nodes.until(lambda: states(nodes, 5) == {"x": wanted})
        for index, leader in enumerate(LEADERS):
            assert set(await outcomes(nodes, index)) == {is_commit}
            partition = nodes.partition(leader, "t", index)
            assert partition.last_stable_offset == partition.log.log_end_offset

    with_producer(body, level=level)


def test_a_coordinator_that_is_lost_after_the_last_record_of_a_transaction_leaves_nothing_to_do() -> None:
    async def body(nodes: SimNodes, producer: TransactionalProducer, cluster: Cluster) -> None:
        assert await producer.end(is_commit=True) == 0
        await nodes.until(lambda: states(nodes, 4) == COMPLETE)
        end = nodes.partition(4, TRANSACTION_STATE_TOPIC).log.log_end_offset
        await nodes.until(lambda: nodes.partition(5, TRANSACTION_STATE_TOPIC).log.log_end_offset == end)
        await lose_the_coordinator(nodes)
        await nodes.until(lambda: states(nodes, 5) == COMPLETE)
        await asyncio.sleep(5)
        assert [await outcomes(nodes, index) for index in range(3)] == [[True]] * 3
        assert nodes.partition(5, TRANSACTION_STATE_TOPIC).log.log_end_offset == end

    with_producer(body)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("is_late", [True, False])
def test_a_marker_of_the_coordinator_before_arrives_beside_that_of_the_next_one(is_late: bool, level: int) -> None:
    """Late, it comes within the next transaction, which has the same epoch at level 1: it is fenced by its coordinator's epoch."""

    async def body(nodes: SimNodes, producer: TransactionalProducer, cluster: Cluster) -> None:
        with gate_before(markers_of(nodes, 7), "write") as arriving:
            assert await producer.end(is_commit=False) == 0
            await arriving.reached(1)
            await lose_the_coordinator(nodes)
            await arriving.reached(2)
            if is_late:
                await arriving.open(1)
                await nodes.until(lambda: states(nodes, 5) == {"x": TransactionState.COMPLETE_ABORT})
                assert await patiently(lambda: producer.write(KEYS[2], b"b")) == 0
            await arriving.open(0)
            if not is_late:
                await nodes.until(lambda: nodes.partition(7, "t", 2).last_stable_offset == 2)
                await arriving.open(1)
                await nodes.until(lambda: states(nodes, 5) == {"x": TransactionState.COMPLETE_ABORT})
                assert await patiently(lambda: producer.write(KEYS[2], b"b")) == 0
            await asyncio.sleep(2)
            assert set(await outcomes(nodes, 2)) == {False}
            partition = nodes.partition(7, "t", 2)
            assert partition.last_stable_offset == partition.log.log_end_offset - 1, "the next transaction is open"
            await arriving.open()
            assert await patiently(lambda: producer.end(is_commit=True)) == 0
            await nodes.until(lambda: states(nodes, 5) == COMPLETE)
            assert (await outcomes(nodes, 2))[-1]

    with_producer(body, level=level)


@pytest.mark.parametrize("is_first", [True, False])
def test_the_next_coordinator_leads_a_partition_itself_before_or_after_it_has_loaded(is_first: bool) -> None:
    """What it leads it writes without a request. When it loads before it leads, it asks a broker that is away, and then itself."""

    async def main(nodes: SimNodes) -> None:
        await nodes.create(TRANSACTION_STATE_TOPIC, [4, 5, 6], min_insync_replicas="2", cleanup_policy="compact")
        await nodes.create("t", [7, 5], min_insync_replicas="1")

        async def act(cluster: Cluster) -> None:
            producer = TransactionalProducer(cluster)
            assert await patiently(producer.init) == 0
            assert await patiently(lambda: producer.write(KEYS[0], b"a")) == 0
            with gate_before(markers_of(nodes, 7), "write") as arriving:
                assert await producer.end(is_commit=True) == 0
                await arriving.reached()
                if is_first:
                    nodes.brokers[7].kill(power_cut=False)
                    await nodes.until(lambda: nodes.partition(5, "t").led_epoch > 0)
                    await lose_the_coordinator(nodes)
                else:
                    await lose_the_coordinator(nodes)
                    await arriving.reached(2)
                    nodes.brokers[7].kill(power_cut=False)
                await nodes.until(lambda: nodes.partition(5, "t").led_epoch > 0)
                await nodes.until(lambda: states(nodes, 5) == COMPLETE)
            assert {is_commit for _, is_commit in await ends_of(nodes, 5, KEYS[0])} == {True}
            await nodes.until(lambda: nodes.partition(5, "t").last_stable_offset == nodes.partition(5, "t").log.log_end_offset)

        await nodes.act(act)

    play(main, broker_ids=(4, 5, 6, 7), transaction_state_log_num_partitions="1")


def test_a_decision_that_no_other_replica_has_is_lost_with_its_coordinator() -> None:
    """Nobody was told of it: the next coordinator may decide otherwise, and the first one's record is cut off when it comes back."""

    async def main(nodes: SimNodes) -> None:
        async def body(end: int, producer: TransactionalProducer) -> None:
            nodes.simulation.fabric.clog_link(nodes.brokers[4].machine.name, nodes.brokers[5].machine.name, 3_000)
            ending = asyncio.get_running_loop().create_task(producer.end(is_commit=True))
            await nodes.until(lambda: nodes.partition(4, TRANSACTION_STATE_TOPIC).log.log_end_offset > end)
            nodes.brokers[4].kill(power_cut=True)
            await nodes.until(lambda: nodes.partition(5, TRANSACTION_STATE_TOPIC).led_epoch > 0)
            assert nodes.partition(5, TRANSACTION_STATE_TOPIC).log.log_end_offset == end
            assert not ending.done() or ending.exception() is not None
            ending.cancel()
            await nodes.brokers[6].start()
            assert await patiently(lambda: producer.end(is_commit=False)) == 0
            await nodes.brokers[4].start()
            await nodes.until(lambda: states(nodes, 5) == {"x": TransactionState.COMPLETE_ABORT})
            for index, node in enumerate((4, 5)):
                await nodes.until(lambda n=node, i=index: nodes.has(n, "own", i))  # type: ignore[misc]
                assert await ends_of(nodes, node, TopicPartition("own", index)) == [(1, False)]
            ours, others = (nodes.partition(node, TRANSACTION_STATE_TOPIC).log for node in (4, 5))
            await nodes.until(lambda: ours.log_end_offset == others.log_end_offset)

        await with_a_decision_that_is_not_committed(nodes, body)

    play(main, broker_ids=(4, 5, 6), transaction_state_log_num_partitions="1")
