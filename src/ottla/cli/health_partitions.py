"""The partitions of a cluster by what is wrong with them, as ``ottla cluster health`` counts them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.cli.partition_states import is_tight

if TYPE_CHECKING:
    from ottla.client.admin import PartitionDescription
    from ottla.types import TopicPartition


@dataclass(slots=True)
class PartitionStates:
    """The partitions in each state."""

    count: int = 0
    offline: list[str] = field(default_factory=list)
    under_min_isr: list[str] = field(default_factory=list)
    at_min_isr: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)  # led by a broker that serves, as the cluster says, and does not answer
    silent_leaders: set[int] = field(default_factory=set)  # of those
    full: list[str] = field(default_factory=list)  # led from a log directory that is full
    full_leaders: set[int] = field(default_factory=set)  # of those
    waiting: list[str] = field(default_factory=list)  # in sync is a broker that does not answer, with a leader that does
    under_replicated: list[str] = field(default_factory=list)
    without_preferred_leader: list[str] = field(default_factory=list)
    eligible_in_use: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)  # by transactions that are open for longer than any may be
    missing: dict[int, int] = field(default_factory=dict)  # replicas out of sync, by broker
    lacking: dict[str, set[int]] = field(default_factory=dict)  # the brokers of replicas out of sync, by partition that has a leader
    immovable: dict[int, int] = field(default_factory=dict)  # replicas that no other broker that serves could take, by broker
    arriving: dict[int, list[str]] = field(default_factory=dict)  # partitions that are moved to the broker, as TOPIC:PARTITION
    tight: list[str] = field(default_factory=list)  # whose min.insync.replicas is not below the number of their replicas
    unopened: dict[int, int] = field(default_factory=dict)  # replicas that a broker that serves has and cannot open, by broker
    sole: list[str] = field(default_factory=list)  # offline ones without another replica
    electable: list[str] = field(default_factory=list)  # offline ones with a replica that serves and was not in sync, as TOPIC:PARTITION
    could_lead: set[int] = field(default_factory=set)  # what is offline, without loss
    silent_owners: set[int] = field(default_factory=set)  # of those, brokers that serve, as the cluster says, and do not answer

    def add(
        self,
        key: TopicPartition,
        partition: PartitionDescription,
        *,
        min_isr: int,
        adding: Collection[int],
        serving: Collection[int],
        silent: Collection[int] = (),
        without_room: Collection[int] = (),
    ) -> None:
        """Counts the partition; ``without_room`` are the brokers that have it in a full directory."""
        name, replicas, in_sync = f"{key.topic}-{key.partition}", partition.replicas, partition.in_sync
        eligible = partition.eligible or ()
        is_offline = partition.leader not in serving
        is_unanswered = partition.leader in silent
        spare = len(in_sync) - min(min_isr, len(replicas))
        absent = [node for node in replicas if node not in in_sync and node not in adding]
        self.count += 1
        for node in absent if not is_offline else set(absent) - set(serving):  # one that serves has no leader to catch up with
            self.missing[node] = self.missing.get(node, 0) + 1
        if absent and not is_offline:
            self.lacking[name] = set(absent)
        for node in adding:
            self.arriving.setdefault(node, []).append(f"{key.topic}:{key.partition}")
        for node in set(replicas) - {*adding} if set(serving) <= set(replicas) else ():
            self.immovable[node] = self.immovable.get(node, 0) + 1
        for node in set(partition.offline) & set(serving):
            self.unopened[node] = self.unopened.get(node, 0) + 1
        if is_tight(min_isr, len(replicas)) and len(replicas) > 1:
            self.tight.append(name)
        if is_unanswered:
            self.silent_leaders.add(partition.leader)
        if partition.leader in without_room:
            self.full_leaders.add(partition.leader)
        if is_offline:
            lagging = set(replicas) & set(serving) - {*in_sync, *eligible, *partition.offline, *silent}
            if lagging:
                self.electable.append(f"{key.topic}:{key.partition}")
            if len(replicas) == 1:
                self.sole.append(name)
            self.could_lead |= {*in_sync, *eligible} - set(serving)
            self.silent_owners |= {*in_sync, *eligible} & set(silent)
        for states, is_so in (
            (self.offline, is_offline),
            (self.under_min_isr, not is_offline and spare < 0),
            (self.at_min_isr, not is_offline and spare == 0),
            (self.unanswered, is_unanswered),
            (self.full, partition.leader in without_room),
            (self.waiting, not is_offline and not is_unanswered and bool(set(in_sync) & set(silent))),
            (self.under_replicated, bool(absent)),
            (self.without_preferred_leader, not is_offline and partition.leader != replicas[0]),
            (self.eligible_in_use, bool(eligible)),
        ):
            if is_so:
                states.append(name)
