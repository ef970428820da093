"""What must hold of replicated partitions at each moment, and of what clients are told in the moment in which they are."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from tests.simulation.explorer import Run
from tests.simulation.quorum_nodes import QuorumNode

from ottla.broker.node import Broker
from ottla.broker.replicas.partition import Partition
from ottla.groups.records import decode_record
from ottla.messages.group_records import OffsetCommitKey, OffsetCommitValue
from ottla.sim.workload import Acknowledged, History
from ottla.storage.log.replay import records_between
from ottla.types import GROUP_METADATA_TOPIC, TopicPartition

Place = tuple[TopicPartition, bytes]
"""A partition, and the id of its topic."""
OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, 0)
LOOK_SECONDS = 0.01


class Watch:
    """One leader of an epoch, which enters it at once; no high watermark that goes back; nothing told before it is committed."""

    def __init__(self, nodes: list[QuorumNode], history: History, result: Run) -> None:
        self._nodes = nodes
        self._result = result
        self._leaders: dict[tuple[Place, int], int] = {}
        self._high_watermarks: dict[tuple[Place, int, int], int] = {}
        self._committed: dict[TopicPartition, int] = {}  # the highest that any replica has had
        self._seen: dict[Partition, tuple[int, int, int]] = {}  # what was looked at, as it was then
        self._commits: dict[int, int] = {}  # what was committed of the offsets' topic when a client was told of a commit
        history.on_acknowledged, history.on_commit = self._acknowledged, self._commit
        for node in nodes:
            node.on_kill = self._look

    async def run(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        for node in self._nodes:
            for partition in [] if node.present is None else node.present.partitions.all():
                state = partition.high_watermark, partition.led_epoch, partition.log.epochs.latest_epoch
                if self._seen.get(partition) != state:
                    self._look_at(node.node, partition)
                    self._seen[partition] = state

    def _look_at(self, node: int, partition: Partition) -> None:
        self._note(partition)
        if partition not in self._seen:
            partition.role.on_change = partial(self._on_role, partition.role.on_change)
        epoch, key, high_watermark = partition.led_epoch, partition.key, partition.high_watermark
        if epoch < 0:
            return
        place = key, partition.topic_id  # a topic that was deleted may be made again under its name
        leader = self._leaders.setdefault((place, epoch), node)
        if leader != node:
            self._find(f"{key} has two leaders in epoch {epoch}: {leader} and {node}")
        if partition.log.epochs.latest_epoch != epoch:
            self._find(f"{key}: its leader has not entered epoch {epoch}")
        before = self._high_watermarks.get((place, epoch, node), 0)
        if high_watermark < before:
            self._find(f"{key}: the high watermark goes back from {before} to {high_watermark}")
        self._high_watermarks[place, epoch, node] = high_watermark

    @property
    def election_count(self) -> int:
        """How often another replica led than in the epoch before."""
        epochs = sorted(self._leaders, key=lambda led: (str(led[0]), led[1]))
        return sum(one[0] == other[0] and self._leaders[one] != self._leaders[other] for one, other in itertools.pairwise(epochs))

    def _on_role(self, then: Callable[[Partition], None], partition: Partition) -> None:
        """What a leader has committed when it has just ceased to lead."""
        self._note(partition)
        then(partition)

    def _note(self, partition: Partition) -> None:
        self._committed[partition.key] = max(partition.high_watermark, self._committed.get(partition.key, 0))

    def _find(self, problem: str) -> None:
        if problem not in self._result.findings:
            self._result.findings.append(problem)

    def _acknowledged(self, acknowledged: Acknowledged) -> None:
        self._look()
        committed = self._committed.get(acknowledged.partition, 0)
        if acknowledged.offset >= committed:
            self._find(f"{acknowledged.partition}: {acknowledged.offset} was acknowledged when only {committed} were committed")

    def _commit(self, partition: TopicPartition, offset: int) -> None:
        self._look()
        self._commits[offset] = self._committed.get(OFFSETS, 0)

    async def commits_told_too_early(self, broker: Broker) -> list[str]:
        """Commits that were not yet committed when a client was told of them; ``broker`` has them all now."""
        log = broker.partitions.by_name[OFFSETS.topic][OFFSETS.partition].log
        places: dict[int, int] = {}
        async for found in records_between(log, log.log_start_offset, log.log_end_offset, check_crc=True):
            for stored in found:
                record = decode_record(stored.key or b"", stored.value)
                if record is not None and isinstance(record.key, OffsetCommitKey) and isinstance(record.value, OffsetCommitValue):
                    places.setdefault(record.value.offset, stored.offset)
        self._result.states["commits"] += len(self._commits)
        return [
            f"commit {offset}, which lies at {places[offset]}, was told when only {committed} were committed"
            for offset, committed in self._commits.items()
            if places.get(offset, -1) >= committed
        ][:3]
