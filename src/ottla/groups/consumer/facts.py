"""What is volatile of consumer groups, as facts: who is alive, which topics were seen, which classic members are to take a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from ottla.groups.consumer.commands import ExpireStep
from ottla.machine import StoredRecord, Timer
from ottla.messages.consumer_group_records import ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue
from ottla.metadata.image import ClusterImage


class ConsumerSeen(Struct, frozen=True):
    """The fact that a member lives until then, unless it is heard of again, and that its group has seen these topics."""

    group_id: str
    member_id: str
    deadline_ms: int
    image: ClusterImage


class RegexesSeen(Struct, frozen=True):
    """The fact that the group's regular expressions were matched against the topics of that image, at that time."""

    group_id: str
    image: ClusterImage
    at_ms: int


class StepDue(Struct, frozen=True):
    """The fact that a classic member has to join, or to sync after it has joined, by then; None when it has done so."""

    group_id: str
    member_id: str
    deadline_ms: int | None
    is_sync: bool = False

    def timers(self) -> Iterator[Timer]:
        if self.deadline_ms is not None:
            command = ExpireStep(self.group_id, self.member_id)
            yield Timer(("step", self.group_id, self.member_id), self.deadline_ms, command)


class GroupAssigned(Struct, frozen=True):
    """The effect that a new target, which is committed, is worth a line of the broker's log."""

    group_id: str
    epoch: int

    @classmethod
    def of(cls, records: Iterable[StoredRecord]) -> tuple[GroupAssigned, ...]:
        """Returns what the records that make a new target have done."""
        made = [(record.key, record.value) for record in records]
        return tuple(
            cls(key.group_id, value.assignment_epoch)
            for key, value in made
            if isinstance(key, ConsumerGroupTargetAssignmentMetadataKey) and isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
        )


ConsumerFact = ConsumerSeen | RegexesSeen | StepDue
