"""Transactions whose coordinator, partitions and client are on different nodes, one of which dies at the worst moment."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest
from tests.broker.transactional import TransactionalProducer
from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.coordinators.end_markers import ANSWERED_WITHIN_MS
from ottla.broker.coordinators.runtime import partition_of
from ottla.client.cluster import Cluster
from ottla.controller.features import ELR_VERSION, TRANSACTION_VERSION
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import iterate_batches
from ottla.records.control import end_marker_of
from ottla.records.iteration import iterate_records
from ottla.transactions.transaction import TransactionState
from ottla.types import TRANSACTION_STATE_TOPIC, TopicPartition

KEYS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)]
Body = Callable[[SimNodes, Cluster, TransactionalProducer], Awaitable[None]]
EACH = pytest.mark.parametrize("level", [0, 1, 2])
PARTITIONS = 3


def with_producer(body: Body, level: int) -> None:
    """Three partitions of three replicas, each led by another node, and a producer that has begun."""

    async def main(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])

        async def act(cluster: Cluster) -> None:
            producer = TransactionalProducer(cluster, level=level)
            assert await patiently(producer.init) == 0
            await body(nodes, cluster, producer)

        await nodes.act(act)

    features = {TRANSACTION_VERSION: level}
    play(main, features=features, transaction_state_log_num_partitions=str(PARTITIONS), min_insync_replicas="2")


async def patiently(ask: Callable[[], Awaitable[int]]) -> int:
    """The first code after which a client would not ask again."""
    async with asyncio.timeout(120):
        while True:
            try:
                code = await ask()
            except KafkaError:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if not KafkaError(ErrorCode(code)).is_retriable:
                return code
            await asyncio.sleep(0.1)


def coordinator_of(nodes: SimNodes, transactional_id: str = "x") -> int:
    """The node that leads its partition, as one of those that run knows."""
    broker = next(found for node in nodes.nodes if (found := nodes.broker(node)) is not None)
    return broker.image.topics[TRANSACTION_STATE_TOPIC].partitions[partition_of(transactional_id, PARTITIONS)].leader


async def ends_of(nodes: SimNodes, node: int, key: TopicPartition) -> list[tuple[int, bool]]:
    """Producer epoch and outcome of each end marker that the node's replica has."""
    log = nodes.partition(node, key.topic, key.partition).log
    found: list[tuple[int, bool]] = []
    offset = log.log_start_offset
    while (part := await log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset)) is not None:
        data = part.region.read()
        for at, header in iterate_batches(data):
            marker = end_marker_of(iterate_records(data, at)[0]) if header.is_control and header.producer_id >= 0 else None
            if marker is not None:
                found.append((header.producer_epoch, marker.is_commit))
            offset = header.last_offset + 1
    return found


async def ended_everywhere(nodes: SimNodes, outcomes: list[bool], *, may_repeat: bool = False) -> None:
    """All replicas have these outcomes in this order, each once unless it may repeat, and no transaction is open."""

    async def found(node: int, key: TopicPartition) -> list[bool]:
        ended = [is_commit for _, is_commit in await ends_of(nodes, node, key)]
        return [is_commit for is_commit, _ in itertools.groupby(ended)] if may_repeat else ended

    for key in KEYS:
        for node in nodes.nodes:
            partition = nodes.partition(node, key.topic, key.partition)
            async with asyncio.timeout(120):
                while await found(node, key) != outcomes:
                    await asyncio.sleep(0.1)
            await nodes.until(lambda p=partition: p.last_stable_offset == p.log.log_end_offset == p.high_watermark)  # type: ignore[misc]


@EACH
def test_transactions_over_partitions_of_three_nodes(level: int) -> None:
    async def body(nodes: SimNodes, cluster: Cluster, producer: TransactionalProducer) -> None:
        for number, is_commit in enumerate([True, False, True]):
            for key in KEYS:
                assert await patiently(lambda k=key, n=number: producer.write(k, b"%d" % n)) == 0  # type: ignore[misc]
            assert await producer.end(is_commit=is_commit) == 0
        await ended_everywhere(nodes, [True, False, True])

    with_producer(body, level)


@EACH
@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("when", ["open", "decided"])
def test_a_transaction_outlives_its_coordinator(level: int, is_commit: bool, when: str) -> None:
    async def body(nodes: SimNodes, cluster: Cluster, producer: TransactionalProducer) -> None:
        for key in KEYS:
            assert await patiently(lambda k=key: producer.write(k, b"a")) == 0  # type: ignore[misc]
        first = coordinator_of(nodes)
        if when == "decided":
            assert await producer.end(is_commit=is_commit) == 0
        nodes.nodes[first].kill(power_cut=False)
        await nodes.until(lambda: coordinator_of(nodes) not in (first, -1))
        if when == "open":
            assert await patiently(lambda: producer.end(is_commit=is_commit)) == 0
        nodes.nodes[first].begin()
        await nodes.until(lambda: nodes.has(first, "t"))
        await ended_everywhere(nodes, [is_commit], may_repeat=when == "decided")  # the first one may have sent some markers

    with_producer(body, level)


@EACH
def test_a_decided_transaction_ends_in_a_partition_whose_leader_died(level: int) -> None:
    async def body(nodes: SimNodes, cluster: Cluster, producer: TransactionalProducer) -> None:
        for key in KEYS:
            assert await patiently(lambda k=key: producer.write(k, b"a")) == 0  # type: ignore[misc]
        coordinator = coordinator_of(nodes)
        victim = next(node for node in nodes.nodes if node != coordinator)
        nodes.nodes[victim].kill(power_cut=False)
        assert await patiently(lambda: producer.end(is_commit=True)) == 0
        await nodes.until(lambda: states(nodes, coordinator) == {"x": TransactionState.COMPLETE_COMMIT})
        nodes.nodes[victim].begin()
        await nodes.until(lambda: nodes.has(victim, "t"))
        await ended_everywhere(nodes, [True])

    with_producer(body, level)


def states(nodes: SimNodes, node: int) -> dict[str, TransactionState]:
    """Of the transactions that the node coordinates."""
    broker = nodes.broker(node)
    assert broker is not None
    return {
        name: found.state for shard in broker.parts.transactions._shards.values() for name, found in shard._machine._transactions.items()
    }


def test_a_marker_that_is_not_committed_holds_no_other_one() -> None:
    """It is asked for again; what else is due to that broker goes in a second request meanwhile."""

    async def main(nodes: SimNodes) -> None:
        await nodes.create(TRANSACTION_STATE_TOPIC, [4], min_insync_replicas="1", cleanup_policy="compact")
        await nodes.create("stuck", [5, 6], min_insync_replicas="2")
        await nodes.create("free", [5], min_insync_replicas="1")
        loop = asyncio.get_running_loop()

        async def act(cluster: Cluster) -> None:
            first, second = (TransactionalProducer(cluster, name, level=2) for name in ("x", "y"))
            for producer, topic in ((first, "stuck"), (second, "free")):
                assert await patiently(producer.init) == 0
                assert await patiently(lambda p=producer, t=topic: p.write(TopicPartition(t, 0), b"a")) == 0  # type: ignore[misc]
            nodes.simulation.fabric.clog_link(nodes.brokers[6].machine.name, nodes.brokers[5].machine.name, 5_000)
            assert await first.end(is_commit=True) == 0
            began = loop.time()
            assert await second.end(is_commit=True) == 0
            await nodes.until(lambda: nodes.partition(5, "free").last_stable_offset == 2)
            assert loop.time() - began < ANSWERED_WITHIN_MS / 2000, "it has not waited for the answer to the first request"
            assert (await first.describe()).transaction_state == "PrepareCommit"
            assert [topic.topic for topic in (await first.describe()).topics] == ["stuck"]
            nodes.simulation.fabric.heal()
            await nodes.until(lambda: states(nodes, 4)["x"] == TransactionState.COMPLETE_COMMIT)

        await nodes.act(act)

    play(main, broker_ids=(4, 5, 6), transaction_state_log_num_partitions="1")


def test_a_marker_that_is_not_committed_holds_no_producer() -> None:
    """Its broker coordinates other producers: what is asked for them is not answered after it."""

    async def main(nodes: SimNodes) -> None:
        await nodes.create(TRANSACTION_STATE_TOPIC, [4], [5], min_insync_replicas="1", cleanup_policy="compact")
        await nodes.create("stuck", [5, 6], min_insync_replicas="2")
        await nodes.create("free", [4], min_insync_replicas="1")
        names = {partition_of(name, 2): name for name in "abcdef"}
        loop = asyncio.get_running_loop()

        async def act(cluster: Cluster) -> None:
            first, second = (TransactionalProducer(cluster, names[index], level=2) for index in (0, 1))
            for producer, topic in ((first, "stuck"), (second, "free")):
                assert await patiently(producer.init) == 0
                assert await patiently(lambda p=producer, t=topic: p.write(TopicPartition(t, 0), b"a")) == 0  # type: ignore[misc]
            assert await second.end(is_commit=True) == 0
            await nodes.until(lambda: states(nodes, 5)[second.transactional_id] == TransactionState.COMPLETE_COMMIT)
            nodes.simulation.fabric.clog_link(nodes.brokers[6].machine.name, nodes.brokers[5].machine.name, 5_000)
            assert await first.end(is_commit=True) == 0
            began = loop.time()
            assert await second.write(TopicPartition("free", 0), b"b") == 0
            assert loop.time() - began < ANSWERED_WITHIN_MS / 2000
            assert (await first.describe()).transaction_state == "PrepareCommit"
            nodes.simulation.fabric.heal()

        await nodes.act(act)

    play(main, broker_ids=(4, 5, 6), transaction_state_log_num_partitions="2")


async def with_a_decision_that_is_not_committed(nodes: SimNodes, body: Callable[[int, TransactionalProducer], Awaitable[None]]) -> None:
    """Brokers 4 to 6 coordinate, 4 first. 6 is down, 5 has the decision to commit, and 4 cannot know: what 5 fetches next is on its way.

    The transaction is in partitions that 4 and 5 have alone.
    """
    await nodes.create(TRANSACTION_STATE_TOPIC, [4, 5, 6], min_insync_replicas="2", cleanup_policy="compact")
    await nodes.create("own", [4], [5], min_insync_replicas="1")

    async def act(cluster: Cluster) -> None:
        producer = TransactionalProducer(cluster, level=2)
        assert await patiently(producer.init) == 0
        for index in range(2):
            assert await patiently(lambda i=index: producer.write(TopicPartition("own", i), b"a")) == 0  # type: ignore[misc]
        nodes.brokers[6].kill(power_cut=False)
        await nodes.until(lambda: nodes.in_sync(4, TRANSACTION_STATE_TOPIC) == {4, 5})
        await body(nodes.partition(5, TRANSACTION_STATE_TOPIC).log.log_end_offset, producer)

    await nodes.act(act)


def test_no_marker_is_written_before_the_decision_is_committed() -> None:
    async def main(nodes: SimNodes) -> None:
        async def body(end: int, producer: TransactionalProducer) -> None:
            nodes.simulation.fabric.clog_link(nodes.brokers[5].machine.name, nodes.brokers[4].machine.name, 3_000)
            ending = asyncio.get_running_loop().create_task(producer.end(is_commit=True))
            await nodes.until(lambda: nodes.partition(4, TRANSACTION_STATE_TOPIC).log.log_end_offset > end)
            await asyncio.sleep(0.5)
            assert nodes.partition(4, TRANSACTION_STATE_TOPIC).high_watermark == end
            assert await ends_of(nodes, 4, TopicPartition("own", 0)) == []
            assert not ending.done(), "nor is the answer given"
            nodes.simulation.fabric.heal()
            assert await ending == 0
            await nodes.until(lambda: nodes.partition(4, "own").last_stable_offset == 2)

        await with_a_decision_that_is_not_committed(nodes, body)

    play(main, broker_ids=(4, 5, 6), transaction_state_log_num_partitions="1")


def test_partitions_are_added_when_that_is_committed() -> None:
    """A record of a partition that the coordinator may forget would have no end."""

    async def main(nodes: SimNodes) -> None:
        await nodes.create("more", [4], min_insync_replicas="1")

        async def body(end: int, producer: TransactionalProducer) -> None:
            nodes.simulation.fabric.clog_link(nodes.brokers[5].machine.name, nodes.brokers[4].machine.name, 3_000)
            writing = asyncio.get_running_loop().create_task(producer.write(TopicPartition("more", 0), b"a"))
            await nodes.until(lambda: nodes.partition(4, TRANSACTION_STATE_TOPIC).log.log_end_offset > end)
            await asyncio.sleep(0.5)
            assert nodes.partition(4, "more").log.log_end_offset == 0
            nodes.simulation.fabric.heal()
            assert await writing == 0

        await with_a_decision_that_is_not_committed(nodes, body)

    play(main, broker_ids=(4, 5, 6), transaction_state_log_num_partitions="1")


@pytest.mark.parametrize("has_elr", [0, 1])
def test_a_coordinator_that_has_loaded_a_decision_waits_until_it_is_committed(has_elr: int) -> None:
    """No other replica may have it: this one may be replaced by one that has not, which would decide otherwise."""

    async def main(nodes: SimNodes) -> None:
        async def body(end: int, producer: TransactionalProducer) -> None:
            nodes.simulation.fabric.clog_link(nodes.brokers[5].machine.name, nodes.brokers[4].machine.name, 3_000)
            ending = asyncio.get_running_loop().create_task(producer.end(is_commit=True))
            await nodes.until(lambda: nodes.partition(5, TRANSACTION_STATE_TOPIC).log.log_end_offset > end)
            nodes.brokers[4].kill(power_cut=False)
            await nodes.until(lambda: nodes.partition(5, TRANSACTION_STATE_TOPIC).led_epoch > 0)
            await asyncio.sleep(5)
            assert nodes.in_sync(5, TRANSACTION_STATE_TOPIC) == {5}, "too few"
            assert await ends_of(nodes, 5, TopicPartition("own", 1)) == []
            await nodes.brokers[6].start()
            await nodes.until(lambda: nodes.partition(5, "own", 1).last_stable_offset == 2)
            assert await ends_of(nodes, 5, TopicPartition("own", 1)) == [(1, True)]
            ending.cancel()

        await with_a_decision_that_is_not_committed(nodes, body)

    play(main, features={ELR_VERSION: has_elr}, broker_ids=(4, 5, 6), transaction_state_log_num_partitions="1")


@pytest.mark.parametrize("has_elr", [0, 1])
def test_markers_go_on_when_there_are_enough_replicas_again(has_elr: int) -> None:
    """They are asked for again and again while their partition's broker is down, and so is another replica of the coordinator's log."""

    async def main(nodes: SimNodes) -> None:
        await nodes.create(TRANSACTION_STATE_TOPIC, [4, 5, 6], min_insync_replicas="2", cleanup_policy="compact")
        await nodes.create("own", [5], min_insync_replicas="1")

        async def act(cluster: Cluster) -> None:
            producer = TransactionalProducer(cluster, level=2)
            assert await patiently(producer.init) == 0
            assert await patiently(lambda: producer.write(TopicPartition("own", 0), b"a")) == 0
            nodes.brokers[5].kill(power_cut=False)
            assert await patiently(lambda: producer.end(is_commit=True)) == 0
            nodes.brokers[6].kill(power_cut=False)
            await nodes.until(lambda: nodes.in_sync(4, TRANSACTION_STATE_TOPIC) == {4})
            await asyncio.sleep(10)
            await nodes.brokers[5].start()
            await nodes.until(lambda: states(nodes, 4) == {"x": TransactionState.COMPLETE_COMMIT})
            assert await ends_of(nodes, 5, TopicPartition("own", 0)) == [(1, True)]

        await nodes.act(act)

    play(main, features={ELR_VERSION: has_elr}, broker_ids=(4, 5, 6), transaction_state_log_num_partitions="1")


def test_a_marker_whose_request_was_lost_is_sent_again() -> None:
    async def main(nodes: SimNodes) -> None:
        await nodes.create(TRANSACTION_STATE_TOPIC, [4], min_insync_replicas="1", cleanup_policy="compact")
        await nodes.create("own", [5], min_insync_replicas="1")
        coordinator, leader = (nodes.brokers[node].machine.name for node in (4, 5))

        async def act(cluster: Cluster) -> None:
            producer = TransactionalProducer(cluster, level=2)
            assert await patiently(producer.init) == 0
            assert await patiently(lambda: producer.write(TopicPartition("own", 0), b"a")) == 0
            nodes.simulation.fabric.cut_link(coordinator, leader)
            assert await producer.end(is_commit=True) == 0
            await asyncio.sleep(20)
            assert states(nodes, 4) == {"x": TransactionState.PREPARE_COMMIT}
            nodes.simulation.fabric.join_link(coordinator, leader)
            await nodes.until(lambda: states(nodes, 4) == {"x": TransactionState.COMPLETE_COMMIT})
            assert await ends_of(nodes, 5, TopicPartition("own", 0)) == [(1, True)]

        await nodes.act(act)

    play(main, broker_ids=(4, 5), transaction_state_log_num_partitions="1")
