"""Three shipped nodes with replicated partitions in the simulated world: clients at work, and nodes that are killed, cut off and paused.

At the end everything heals. Then every replica is in sync, all of them have the same records, and those have all that was acknowledged
with acks=all, once and in order.
"""

from __future__ import annotations

import asyncio

import structlog
from tests.simulation.quorum_nodes import HEAL_SECONDS, NODES, QuorumNode, Run, needless_fences, trouble, with_time

from ottla.client.admin import Admin, NewTopic
from ottla.client.producer import ProducerSettings
from ottla.errors import KafkaError
from ottla.sim.checkers import acknowledged_are_kept, commits_are_kept, idempotent_producers_store_once_and_in_order, nothing_is_invented
from ottla.sim.cluster import SimClient, Simulation
from ottla.sim.loop import run
from ottla.sim.workload import History, commit_up, count_while
from ottla.storage.log.replay import records_between
from ottla.types import TopicPartition

TOPIC, PARTITIONS = "replicated", 3
REPLICATION = {"offsets.topic.replication.factor": "3", "min.insync.replicas": "2", "offsets.topic.num.partitions": "1"}
COMMITS = 60

Records = list[tuple[int, int, bytes]]
"""Offset, leader epoch and value."""


def explore_replication(seed: int) -> Run:
    """One run. ``findings`` is empty when every promise of acks=all was kept."""
    result, history = Run(), History()
    simulation = Simulation(seed)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        nodes = [QuorumNode(simulation, node, REPLICATION) for node in range(1, NODES + 1)]
        for node in nodes:
            await node.format()
            node.begin()
        bootstrap = ",".join(node.bootstrap for node in nodes)
        is_over = asyncio.Event()
        admin = SimClient(simulation, "admin", bootstrap, request_timeout_ms=5000)
        await admin.machine.run(_create(admin))
        working = [loop.create_task(_produce(simulation, bootstrap, history, name, is_over)) for name in ("all-a", "all-b")]
        committing = SimClient(simulation, "committing", bootstrap, request_timeout_ms=5000)
        group = commit_up(history, committing.cluster(), "g", TopicPartition(TOPIC, 0), commits=COMMITS)
        working.append(loop.create_task(committing.machine.run(group)))
        watching = loop.create_task(_watch(nodes, result))
        await trouble(simulation, nodes, result.states, may_cut_power=lambda: _are_in_sync(nodes))
        is_over.set()
        async with asyncio.timeout(HEAL_SECONDS):
            await asyncio.gather(*working)
            for node in nodes:
                if node.starting is not None:
                    await node.starting
        watching.cancel()
        await _judge(simulation, nodes, history, result, bootstrap)

    with structlog.testing.capture_logs(processors=[with_time]) as events:
        run(main())
    result.findings += needless_fences(events)
    for event in events:
        if event["log_level"] in ("error", "critical"):
            result.findings.append(f"{event['event']}: {event.get('reason') or event.get('exc_info')!r}")
        result.states[event["event"]] += 1
    result.states["acknowledged records"] = len(history.acknowledged)
    result.digest = simulation.trace.digest
    return result


async def _create(client: SimClient) -> None:
    admin = Admin(client.cluster())
    while True:
        try:
            [outcome] = (await admin.create_topics([NewTopic(TOPIC, PARTITIONS, NODES)])).values()
        except KafkaError as error:
            outcome = error
        if outcome is None:
            break
        await asyncio.sleep(0.2)  # not all brokers are there yet
    await admin.close()


async def _produce(simulation: Simulation, bootstrap: str, history: History, name: str, is_over: asyncio.Event) -> None:
    client = SimClient(simulation, name, bootstrap, request_timeout_ms=3000)
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    settings = ProducerSettings(acks="all", linger_ms=0, delivery_timeout_ms=600_000)
    producing = count_while(
        history, client.cluster(), name, partitions, goes_on=lambda _: not is_over.is_set(), settings=settings, pause_seconds_max=0.4
    )
    await client.machine.run(producing)


async def _watch(nodes: list[QuorumNode], result: Run) -> None:
    """What must hold at each moment: one leader of an epoch, and no high watermark that goes back while it leads."""
    leaders: dict[tuple[TopicPartition, int], int] = {}
    high_watermarks: dict[tuple[TopicPartition, int, int], int] = {}
    while True:
        for node in nodes:
            for partition in [] if node.broker is None else node.broker.partitions.all():
                epoch = partition.led_epoch
                if epoch < 0:
                    continue
                leader = leaders.setdefault((partition.key, epoch), node.node)
                if leader != node.node:
                    result.findings.append(f"{partition.key} has two leaders in epoch {epoch}: {leader} and {node.node}")
                before = high_watermarks.get((partition.key, epoch, node.node), 0)
                if partition.high_watermark < before:
                    result.findings.append(f"{partition.key}: the high watermark goes back from {before} to {partition.high_watermark}")
                high_watermarks[partition.key, epoch, node.node] = partition.high_watermark
        result.states["leader epochs of partitions"] = len(leaders)
        await asyncio.sleep(0.01)


async def _judge(simulation: Simulation, nodes: list[QuorumNode], history: History, result: Run, bootstrap: str) -> None:
    deadline = asyncio.get_running_loop().time() + HEAL_SECONDS
    while (problem := await _not_yet(nodes)) is not None:
        if asyncio.get_running_loop().time() > deadline:
            result.findings.append(problem)
            return
        await asyncio.sleep(0.5)
    broker = nodes[0].broker
    assert broker is not None, "all nodes are there"
    logs = {
        partition.key: [(offset, value) for offset, _, value in await _records(nodes[0], partition.key)]
        for partition in broker.partitions.all()
        if partition.topic == TOPIC
    }
    result.findings += acknowledged_are_kept(history, logs)
    result.findings += idempotent_producers_store_once_and_in_order(history, logs)
    result.findings += nothing_is_invented(history, logs)
    client = SimClient(simulation, "judge", bootstrap, request_timeout_ms=5000)

    async def ask() -> dict[TopicPartition, int]:
        admin = Admin(client.cluster())
        found = await admin.committed_offsets("g")
        await admin.close()
        return {partition: offset.offset for partition, offset in found.items()}

    result.findings += commits_are_kept(history, await client.machine.run(ask()))


def _are_in_sync(nodes: list[QuorumNode]) -> bool:
    """Whether all replicas have what was acknowledged: with fewer, cutting off the power of another one may lose it, and may do so."""
    images = [node.broker.image for node in nodes if node.broker is not None]
    partitions = [partition for image in images for topic in image.topics.values() for partition in topic.partitions.values()]
    return len(images) == NODES and all(len(partition.isr) == NODES for partition in partitions)


async def _not_yet(nodes: list[QuorumNode]) -> str | None:
    """Why the replicas are not yet one."""
    brokers = [node.broker for node in nodes]
    for node, broker in zip(nodes, brokers, strict=True):
        if broker is None:
            return f"node {node.node} did not come back"
        for name, topic in broker.image.topics.items():
            for index, partition in topic.partitions.items():
                if len(partition.isr) < NODES:
                    return f"{name}-{index} of node {node.node}'s image has the ISR {partition.isr}"
    keys = [partition.key for partition in brokers[0].partitions.all()] if brokers[0] is not None else []
    for key in keys:
        found = [await _records(node, key) for node in nodes]
        if not found[0] == found[1] == found[2]:
            first = next((sides for sides in zip(*found, strict=False) if len(set(sides)) > 1), None)
            return f"the replicas of {key} differ: {[len(records) for records in found]} records, first at {first}"
    return None


async def _records(node: QuorumNode, key: TopicPartition) -> Records:
    assert node.broker is not None, "the node runs"
    log = node.broker.partitions.by_name[key.topic][key.partition].log
    reading = records_between(log, log.log_start_offset, log.log_end_offset, check_crc=True)
    return [(record.offset, log.epochs.epoch_at(record.offset), record.value or b"") async for found in reading for record in found]
