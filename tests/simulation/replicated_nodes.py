"""Replicated partitions: what clients are told is compared with what was committed in that moment, and with what is there in the end.

At the end everything heals: every replica is in sync, all of them have the same records, those have all that was acknowledged with
acks=all, once and in order, and every decision that the controllers have ever committed was sound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tests.simulation.explorer import Events, Trial
from tests.simulation.quorum_nodes import HEAL_SECONDS, NODES, QuorumNode
from tests.simulation.replicated_work import LOOSE, TRIMMED, Work

from ottla.broker.metadata.replica import MetadataReplica
from ottla.broker.node import Broker
from ottla.client.admin import Admin
from ottla.controller.features import ELR_VERSION
from ottla.metadata.image import EMPTY_IMAGE, PartitionImage
from ottla.metadata.replay import ImageBuilder
from ottla.metadata.transactions import Transactions
from ottla.sim.checkers import acknowledged_are_kept, commits_are_kept, idempotent_producers_store_once_and_in_order, nothing_is_invented
from ottla.sim.cluster import SimClient
from ottla.sim.decisions import unsound
from ottla.storage.log.replay import records_between
from ottla.types import TopicPartition

CONTENT: Final = {"elections": 3, "truncations": 1, "faults": 5, "acknowledged": 500}
"""Without so many of each a run has not looked where mistakes are."""
Records = list[tuple[int, int, bytes]]
"""Offset, leader epoch and value."""


def has_elr(seed: int) -> bool:
    return seed % 2 == 0


def elr(seed: int) -> Mapping[str, int]:
    return {ELR_VERSION: int(has_elr(seed))}


def power_of(trial: Trial, *, may_ever: bool) -> Callable[[], bool]:
    """Fewer machines may lose what was not synced than replicas must have it (KIP-966): one, until all are in sync again.

    Without eligible leader replicas one loss of power may cost records that were acknowledged, as with Kafka: the last replica that the
    controller has heard from stays in sync, whatever it has lost.
    """
    has_lost_power = False  # since all replicas were last in sync

    def may_cut_power() -> bool:
        nonlocal has_lost_power
        if _are_in_sync(trial.nodes):
            has_lost_power = False
        may = may_ever and not has_lost_power
        has_lost_power |= may
        return may

    return may_cut_power


def _are_in_sync(nodes: list[QuorumNode]) -> bool:
    images = [node.broker.image for node in nodes if node.broker is not None]
    partitions = [partition for image in images for topic in image.topics.values() for partition in topic.partitions.values()]
    return len(images) == NODES and all(set(partition.isr) == set(partition.replicas) for partition in partitions)


def work_of(trial: Trial) -> Work:
    work = trial.work
    assert isinstance(work, Work)
    return work


def lacks(trial: Trial) -> Mapping[str, int]:
    """Of what a run needs to say anything, that of which there is too little."""
    had = {
        "elections": work_of(trial).watch.election_count,
        "truncations": sum(event["event"] == "replica_truncated" and event["was"] > event["end_offset"] for event in trial.events),
        "faults": trial.injector.counts["troubles"],
        "acknowledged": len(work_of(trial).history.acknowledged),
    }
    return {name: count for name, count in had.items() if count < CONTENT[name]}


async def replicas_are_one(trial: Trial) -> list[str]:
    """All replicas are in sync, and have the same records; all nodes have the same metadata."""
    deadline = asyncio.get_running_loop().time() + HEAL_SECONDS
    while (problem := await _not_yet(trial.nodes)) is not None:
        if asyncio.get_running_loop().time() > deadline:
            return [problem]
        await asyncio.sleep(0.5)
    return []


async def promises_are_kept(trial: Trial) -> list[str]:
    """What clients were answered, and what readers got, is there."""
    work = work_of(trial)
    brokers = brokers_of(trial)
    records = {key: await _records(brokers[found.leader], key) for key, found in _partitions(brokers[1]).items()}
    logs = {key: [(offset, value) for offset, _, value in found] for key, found in records.items() if key.topic in work.promised}
    trial.states["elections"] = work.watch.election_count
    trial.states["acknowledged records"] = len(work.history.acknowledged)
    findings = acknowledged_are_kept(work.history, logs)
    findings += idempotent_producers_store_once_and_in_order(work.history, logs)
    findings += nothing_is_invented(work.history, logs)
    findings += work.what_was_read_is_there(logs)
    for node, broker in brokers.items():
        start = broker.partitions.by_name[TRIMMED][0].log.log_start_offset
        if start < work.trimmed_to:
            findings.append(
                f"node {node} has records from {start} on again: a client was told that all below {work.trimmed_to} are deleted"
            )
    client = SimClient(trial.simulation, "judge", work.bootstrap, request_timeout_ms=5000)

    async def ask() -> dict[TopicPartition, int]:
        admin = Admin(client.cluster())
        found = await admin.committed_offsets("g")
        await admin.close()
        return {partition: offset.offset for partition, offset in found.items()}

    findings += commits_are_kept(work.history, await client.machine.run(ask()))
    return findings + await work.watch.commits_told_too_early(brokers[1]) + await work.judge(brokers)


def needless_unclean_elections(events: Events) -> list[str]:
    """Unclean elections of partitions whose topic does not allow them."""
    return [
        f"{event['partition']} has {event['leader']} for a leader that may lack {event['lost']}"
        for event in events
        if event["event"] == "unclean_leader_elected" and event["partition"] != f"{LOOSE}-0"
    ]


def brokers_of(trial: Trial) -> dict[int, Broker]:
    return {node.node: node.broker for node in trial.nodes if node.broker is not None}


def _partitions(broker: Broker) -> dict[TopicPartition, PartitionImage]:
    return {
        TopicPartition(name, index): partition
        for name, topic in sorted(broker.image.topics.items())
        for index, partition in sorted(topic.partitions.items())
    }


async def _not_yet(nodes: Sequence[QuorumNode]) -> str | None:
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


async def decisions_are_sound(trial: Trial) -> list[str]:
    """Every committed step of the metadata, from the first one on; where it lies in ZooKeeper there is no log of it to judge."""
    broker = brokers_of(trial)[1]
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
                trial.states["metadata steps"] += 1
    return found[:4]
