"""What ``ottla broker drain`` would change: leaders that go to other brokers, and with ``--replicas`` the broker's replicas, too.

Kafka elects preferred leaders only, and the preferred one is the first replica of a partition. So a replica in sync is put first, and the
broker last where it was first; then the first one is elected. Another order of the same replicas copies nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.client.cluster_metadata import PartitionMetadata

COLUMNS: Final = ("topic", "partition", "leader", "leader_afterwards", "replicas", "replicas_afterwards", "problem")
ONLY_REPLICA: Final = "the only replica"
NONE_IN_SYNC: Final = "no other replica is in sync"
NO_BROKER: Final = "every other broker that serves has a replica"
NO_LEADER: Final = "has no leader to copy from"
MOVING: Final = "is being moved"
TOO_FEW: Final = "stopping it leaves {} in sync, of min.insync.replicas={}"


class Step(Struct, frozen=True):
    """A partition. ``leader`` is None where none leads, ``leader_afterwards`` where it is not known; a problem is why it stays as it is."""

    key: TopicPartition
    leader: int | None
    leader_afterwards: int | None
    replicas: Sequence[int]
    replicas_afterwards: Sequence[int]
    problem: str | None = None
    elects: bool = False
    is_needed: bool = False  # the broker: without it acks=all would be refused

    @property
    def row(self) -> tuple[Any, ...]:
        """The cells of ``COLUMNS``."""
        before, after = list(self.replicas), list(self.replicas_afterwards)
        return (self.key.topic, self.key.partition, self.leader, self.leader_afterwards, before, after, self.problem)

    def failed(self, problem: str) -> Step:
        """Returns the step that was tried, and has failed."""
        return replace(self, leader_afterwards=self.leader, replicas_afterwards=self.replicas, problem=problem, elects=False)

    @property
    def is_idle(self) -> bool:
        """True when nothing is to be changed, and nothing is wrong."""
        return not self.elects and list(self.replicas) == list(self.replicas_afterwards) and self.problem is None


class DrainPlan:
    """Plans for one broker.

    ``serving`` are the brokers that serve, with their racks; ``moving`` the partitions whose replicas move now; ``min_isrs`` has
    ``min.insync.replicas`` of topics, as far as it is known.
    """

    def __init__(
        self,
        broker: int,
        partitions: Mapping[TopicPartition, PartitionMetadata],
        serving: Mapping[int, str | None],
        moving: Collection[TopicPartition] = (),
        min_isrs: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._min_isrs = min_isrs
        self._broker = broker
        self._partitions = {key: found for key, found in sorted(partitions.items()) if broker in found.replicas}
        self._serving = serving
        self._moving = moving
        self._leads = Counter(found.leader for found in partitions.values())
        self._holds = Counter(node for found in partitions.values() for node in found.replicas)

    def leaders(self) -> list[Step]:
        """Returns the partitions whose leader goes elsewhere, and those that need the broker in sync."""
        steps = [self._kept_in_sync(self._led_elsewhere(key, found), found) for key, found in self._partitions.items()]
        return [step for step in steps if not step.is_idle]

    def _kept_in_sync(self, step: Step, found: PartitionMetadata) -> Step:
        """Returns the step, with a problem where too few replicas in sync would be left. It is carried out all the same."""
        least = min(self._min_isrs.get(step.key.topic, 1), len(found.replicas))
        left = sum(node != self._broker and node in self._serving for node in found.in_sync)
        if step.problem is not None or found.leader < 0 or self._broker not in found.in_sync or left >= least:
            return step
        return replace(step, problem=TOO_FEW.format(left, least), is_needed=True)

    def replicas(self) -> list[Step]:
        """Returns every partition of the broker's, with another broker in its place."""
        return list(self._moved_away())

    def _moved_away(self) -> Iterator[Step]:
        for key, found in self._partitions.items():
            step = self._led_elsewhere(key, found)
            if step.problem == MOVING:
                yield step
                continue
            if step.leader is None:
                yield replace(step, replicas_afterwards=found.replicas, problem=NO_LEADER, elects=False)
                continue
            heir = self._heir(found)
            if heir is None:
                yield replace(step, problem=NO_BROKER)
                continue
            after = [heir if node == self._broker else node for node in step.replicas_afterwards]
            leader = heir if step.problem == ONLY_REPLICA else step.leader_afterwards
            yield Step(key, step.leader, leader, found.replicas, after, None, step.elects)

    def _led_elsewhere(self, key: TopicPartition, found: PartitionMetadata) -> Step:
        leader = found.leader if found.leader >= 0 else None
        first = found.replicas[0]
        if key in self._moving:
            return Step(key, leader, leader, found.replicas, found.replicas, MOVING)
        if self._broker not in (leader, first):
            return Step(key, leader, leader, found.replicas, found.replicas)
        others = [node for node in found.replicas if node != self._broker]
        ready = [node for node in others if node in found.in_sync and node in self._serving]
        if not ready:
            problem = NONE_IN_SYNC if others else ONLY_REPLICA
            return Step(key, leader, None if others else leader, found.replicas, found.replicas, problem)
        chosen = first if first in ready else leader if leader in ready else min(ready, key=lambda node: self._leads[node])
        self._leads[chosen] += chosen != leader
        order = found.replicas if chosen == first else [chosen, *(node for node in others if node != chosen), self._broker]
        return Step(key, leader, chosen, found.replicas, order, elects=chosen != leader)

    def _heir(self, found: PartitionMetadata) -> int | None:
        """Returns who takes the broker's replica: in a rack of its own if there is such a broker, then who has the fewest replicas."""
        free = [node for node in self._serving if node not in found.replicas]
        if not free:
            return None
        racks = {self._serving[node] for node in found.replicas if node != self._broker and self._serving.get(node) is not None}
        heir = min(free, key=lambda node: (self._serving[node] in racks, self._holds[node], node))
        self._holds[heir] += 1
        return heir


def undone(items: Sequence[Mapping[str, Any]], partitions: Mapping[TopicPartition, PartitionMetadata]) -> list[Step]:
    """Returns the way back from what a drain has printed as JSON, for partitions whose replicas are as it left them."""
    steps = []
    for item in items:
        key = TopicPartition(item["topic"], item["partition"])
        found = partitions.get(key)
        is_untouched = item["problem"] is not None and item["replicas"] == item["replicas_afterwards"]
        if found is None or is_untouched or sorted(found.replicas) != sorted(item["replicas_afterwards"]):
            continue
        before = item["replicas"]
        leader = before[0] if before[0] in found.in_sync else None
        elects = leader is not None and leader != found.leader
        step = Step(key, found.leader, leader if elects else found.leader, found.replicas, before, elects=elects)
        if not step.is_idle:
            steps.append(step)
    return steps
