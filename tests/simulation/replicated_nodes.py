"""Three shipped nodes with replicated partitions in the simulated world: clients at work, and nodes that are killed, cut off and paused.

What a client is told is compared with what was committed in that moment. At the end everything heals: every replica is in sync, all of
them have the same records, those have all that was acknowledged with acks=all, once and in order, and every decision that the
controllers have ever committed was sound.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import structlog
from tests.simulation.quorum_nodes import HEAL_SECONDS, NODES, QuorumNode, Run, needless_fences, slow_stops, trouble, with_time
from tests.simulation.replicated_trouble import Trouble
from tests.simulation.replicated_watch import Watch
from tests.simulation.replicated_work import TRIMMED, Work

from ottla.broker.metadata.replica import MetadataReplica
from ottla.broker.node import Broker
from ottla.client.admin import Admin
from ottla.controller.features import ELR_VERSION
from ottla.metadata.image import EMPTY_IMAGE, PartitionImage
from ottla.metadata.replay import ImageBuilder
from ottla.metadata.transactions import Transactions
from ottla.sim.checkers import acknowledged_are_kept, commits_are_kept, idempotent_producers_store_once_and_in_order, nothing_is_invented
from ottla.sim.cluster import SimClient, Simulation
from ottla.sim.decisions import unsound
from ottla.sim.loop import run
from ottla.sim.workload import History
from ottla.storage.log.replay import records_between
from ottla.types import TopicPartition

STATE_PARTITIONS: Final = 3
REPLICATION = {
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),  # so few, as the watch looks at all of them all the time
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "metadata.log.max.record.bytes.between.snapshots": "100000000",  # so that the whole log is there to be judged
}
CONTENT = {"elections": 3, "truncations": 1, "faults": 5, "acknowledged": 500}
"""Without so many of each a run has not looked where mistakes are."""
Records = list[tuple[int, int, bytes]]
"""Offset, leader epoch and value."""
NodesOf = Callable[[Simulation], Sequence[QuorumNode]]
Beside = Callable[[Simulation, list[QuorumNode], Run], Coroutine[Any, Any, None]]
Kinds = Mapping[str, Callable[[QuorumNode], Awaitable[None]]]
WorkOf = Callable[[Simulation, str, asyncio.Event, Counter[str]], Work]
KindsOf = Callable[[Simulation, list[QuorumNode], Run], Kinds]
Events = Sequence[Mapping[str, Any]]


def _in_a_quorum(simulation: Simulation) -> list[QuorumNode]:
    return [QuorumNode(simulation, node, REPLICATION) for node in range(1, NODES + 1)]


async def _nothing(simulation: Simulation, nodes: list[QuorumNode], result: Run) -> None:
    pass


def _no_more(simulation: Simulation, nodes: list[QuorumNode], result: Run) -> Kinds:
    return {}


def all_errors(events: Events) -> list[str]:
    """What nodes have logged as errors."""
    errors = [event for event in events if event["log_level"] in ("error", "critical")]
    return [f"{event['event']}: {event.get('reason') or event.get('error') or event.get('exc_info')!r}" for event in errors]


def explore_replication(
    seed: int,
    nodes_of: NodesOf = _in_a_quorum,
    beside: Beside = _nothing,
    more_kinds: KindsOf = _no_more,
    *,
    may_have_elr: bool = True,
    may_cut_power: bool = True,
    errors_of: Callable[[Events], list[str]] = all_errors,
    work_of: WorkOf = Work,
    features: Mapping[str, int] = {},
) -> Run:
    """One run. ``findings`` is empty when every promise of acks=all was kept.

    ``beside`` is more trouble, which ends by itself, ``more_kinds`` are more of that which befalls one node at a time. ``errors_of`` finds
    the errors that nodes should not have logged. ``work_of`` is what clients do.
    """
    result = Run()
    simulation = Simulation(seed)
    has_elr = may_have_elr and seed % 2 == 0

    async def main() -> None:
        loop = asyncio.get_running_loop()
        nodes = list(nodes_of(simulation))
        for node in nodes:
            await node.format({ELR_VERSION: int(has_elr), **features})
            node.begin()
        bootstrap = ",".join(node.bootstrap for node in nodes)
        is_over = asyncio.Event()
        work = work_of(simulation, bootstrap, is_over, result.states)
        watch = Watch(nodes, work.history, result)
        await work.create_topics()
        working = [loop.create_task(task) for task in work.tasks()]
        watching = loop.create_task(watch.run())
        troubled = Trouble(simulation, nodes, result.states, has_elr=has_elr and may_cut_power)
        await asyncio.gather(
            trouble(
                simulation,
                nodes,
                result.states,
                may_cut_power=troubled.may_cut_power,
                more={**troubled.kinds, **more_kinds(simulation, nodes, result)},
                is_enough=lambda: not _lacks(result, watch, work.history, events),
            ),
            beside(simulation, nodes, result),
        )
        is_over.set()
        async with asyncio.timeout(HEAL_SECONDS):
            await asyncio.gather(*working)
            for node in nodes:
                if node.starting is not None:
                    await node.starting
        watching.cancel()
        result.states["elections"] = watch.election_count
        result.states["with content"] = int(not _lacks(result, watch, work.history, events))
        await _judge(simulation, nodes, work, watch, result)

    with structlog.testing.capture_logs(processors=[with_time]) as events:
        run(main())
    result.events = events
    result.findings += needless_fences(events)
    result.findings += slow_stops(events)
    result.findings += errors_of(events)
    for event in events:
        result.states[event["event"]] += 1
    result.digest = simulation.trace.digest
    return result


def _lacks(result: Run, watch: Watch, history: History, events: Events) -> dict[str, int]:
    """Of what a run needs to say anything, that of which there is too little."""
    had = {
        "elections": watch.election_count,
        "truncations": sum(event["event"] == "replica_truncated" and event["was"] > event["end_offset"] for event in events),
        "faults": sum(count for state, count in result.states.items() if state.startswith("trouble: ")),
        "acknowledged": len(history.acknowledged),
    }
    return {name: count for name, count in had.items() if count < CONTENT[name]}


async def _judge(simulation: Simulation, nodes: list[QuorumNode], work: Work, watch: Watch, result: Run) -> None:
    deadline = asyncio.get_running_loop().time() + HEAL_SECONDS
    while (problem := await _not_yet(nodes)) is not None:
        if asyncio.get_running_loop().time() > deadline:
            result.findings.append(problem)
            return
        await asyncio.sleep(0.5)
    brokers = {node.node: node.broker for node in nodes if node.broker is not None}
    records = {key: await _records(brokers[found.leader], key) for key, found in _partitions(brokers[1]).items()}
    logs = {key: [(offset, value) for offset, _, value in found] for key, found in records.items() if key.topic in work.promised}
    result.states["acknowledged records"] = len(work.history.acknowledged)
    result.findings += acknowledged_are_kept(work.history, logs)
    result.findings += idempotent_producers_store_once_and_in_order(work.history, logs)
    result.findings += nothing_is_invented(work.history, logs)
    result.findings += work.what_was_read_is_there(logs)
    for node, broker in brokers.items():
        start = broker.partitions.by_name[TRIMMED][0].log.log_start_offset
        if start < work.trimmed_to:
            result.findings.append(
                f"node {node} has records from {start} on again: a client was told that all below {work.trimmed_to} are deleted"
            )
    client = SimClient(simulation, "judge", work.bootstrap, request_timeout_ms=5000)

    async def ask() -> dict[TopicPartition, int]:
        admin = Admin(client.cluster())
        found = await admin.committed_offsets("g")
        await admin.close()
        return {partition: offset.offset for partition, offset in found.items()}

    result.findings += commits_are_kept(work.history, await client.machine.run(ask()))
    result.findings += await watch.commits_told_too_early(brokers[1])
    result.findings += await _unsound_decisions(brokers[1], result)
    result.findings += await work.judge(brokers)


def _partitions(broker: Broker) -> dict[TopicPartition, PartitionImage]:
    return {
        TopicPartition(name, index): partition
        for name, topic in sorted(broker.image.topics.items())
        for index, partition in sorted(topic.partitions.items())
    }


async def _not_yet(nodes: list[QuorumNode]) -> str | None:
    """Why the replicas are not yet one."""
    brokers = {node.node: node.broker for node in nodes if node.broker is not None}
    if len(brokers) < NODES:
        return f"only nodes {sorted(brokers)} are there"
    for node, broker in brokers.items():
        for key, partition in _partitions(broker).items():
            if set(partition.isr) != set(partition.replicas) or partition.adding or partition.removing:
                return f"{key} of node {node}'s image is not whole: {partition}"
    if len({broker.image.end_offset for broker in brokers.values()}) > 1:
        return "the nodes' images differ"
    for key, partition in _partitions(brokers[1]).items():
        start = max(broker.partitions.by_name[key.topic][key.partition].log.log_start_offset for broker in _having(brokers, key))
        found = {  # a replica may begin later than its leader: it led when records were deleted, and nobody was told that they are
            node: [record for record in await _records(brokers[node], key) if record[0] >= start]
            for node in partition.replicas
            if brokers[node].partitions.find(key.topic, key.partition)
        }
        if len(found) < len(partition.replicas):
            return f"{key} is not open on all of {partition.replicas}"
        first, *others = found.values()
        if any(other != first for other in others):
            where = next((sides for sides in zip(*found.values(), strict=False) if len(set(sides)) > 1), None)
            counts = {node: len(records) for node, records in found.items()}
            return f"the replicas of {key} differ: {counts} records, first at {where}"
    return None


def _having(brokers: dict[int, Broker], key: TopicPartition) -> list[Broker]:
    return [broker for broker in brokers.values() if broker.partitions.find(key.topic, key.partition)]


async def _records(broker: Broker, key: TopicPartition) -> Records:
    log = broker.partitions.by_name[key.topic][key.partition].log
    reading = records_between(log, log.log_start_offset, log.log_end_offset, check_crc=True)
    return [(record.offset, log.epochs.epoch_at(record.offset), record.value or b"") async for found in reading for record in found]


async def _unsound_decisions(broker: Broker, result: Run) -> list[str]:
    """Every committed step of the metadata, from the first one on; where it lies in ZooKeeper there is no log of it to judge."""
    replica, transactions, builder, before = broker.controller.replica, Transactions(), ImageBuilder(EMPTY_IMAGE), EMPTY_IMAGE
    if not isinstance(replica, MetadataReplica):
        return []
    assert replica.log.start_offset == 0, "the whole log is there"
    found: list[str] = []
    async for batches in replica.log.records(0, replica.image.end_offset):
        for batch in batches:
            for record in transactions.counting(batch.records):
                builder.add(record)
            if not transactions.is_open:
                builder.move_to(batch.end_offset, batch.epoch)
                after = builder.image()
                found += unsound(before, after)
                before = after
                result.states["metadata steps"] += 1
    return found[:4]
