"""How far groups have read: what was committed, and until when it is kept.

An offset is kept for the retention. For a group with a past the retention counts from the moment in which it became
Empty; for one that never had members, from the commit. While a group of consumers is Stable, only offsets of topics
that none of its members reads expire; other groups with members keep all. Source: KIP-211.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from ottla.errors import ErrorCode
from ottla.groups.commands import CommittedOffset, OffsetToCommit
from ottla.groups.pending import PendingOffsets
from ottla.machine import StoredRecord
from ottla.messages.group_records import OffsetCommitKey, OffsetCommitValue

LONG_MAX: Final = 2**63 - 1


class RetainedGroup(Protocol):
    """The facts about a group, of any kind, that decide how long its offsets are kept."""

    group_id: str

    @property
    def empty_since_ms(self) -> int | None:
        """When its last member left; None while it has members, and of a group that never had any."""
        ...

    def read_topics(self) -> frozenset[str] | None:
        """Returns the topics that members read, whose offsets do not grow old; None when all are kept."""
        ...


class CommittedOffsets:
    """The offsets of all groups of this coordinator, and those that are pending."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[tuple[str, int], OffsetCommitValue]] = {}
        self.pending = PendingOffsets()

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Applies the offset, which counts at once, over what is pending."""
        if value is not None:
            self._by_group.setdefault(key.group, {})[key.topic, key.partition] = value
            self.pending.supersede(key.group, (key.topic, key.partition))
            return
        self.pending.drop(key.group, (key.topic, key.partition))
        offsets = self._by_group.get(key.group, {})
        offsets.pop((key.topic, key.partition), None)
        if not offsets:
            self._by_group.pop(key.group, None)

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        """Ends the producer's transaction."""
        for key, value in self.pending.end(producer_id, is_commit=is_commit):
            self._by_group.setdefault(key.group, {})[key.topic, key.partition] = value

    def dismantle(self) -> Iterator[None]:
        """Gives up all, one offset at a time."""
        yield from self.pending.dismantle()
        while self._by_group:
            _, offsets = self._by_group.popitem()
            while offsets:
                offsets.popitem()
                yield

    def groups(self) -> Iterable[str]:
        """Returns groups that have committed something, or are about to."""
        return self._by_group.keys() | set(self.pending.groups())

    def fetch(
        self, group_id: str, topics: tuple[tuple[str, int], ...] | None, *, require_stable: bool = False
    ) -> tuple[CommittedOffset, ...]:
        """Returns the offsets; with ``require_stable``, UNSTABLE_OFFSET_COMMIT for each that an open transaction may change.

        Without topics those are listed, too, for which nothing was committed before; Kafka lists what has a committed offset alone.
        """
        offsets = self._by_group.get(group_id, {})
        unstable = dict.fromkeys(self.pending.places(group_id)) if require_stable else {}
        wanted = tuple(dict.fromkeys(offsets) | unstable) if topics is None else topics
        return tuple(
            CommittedOffset(*place, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if place in unstable
            else _committed(*place, offsets.get(place))
            for place in wanted
        )

    def records(self) -> Iterator[StoredRecord]:
        for group_id, offsets in self._by_group.items():
            for (topic, partition), value in offsets.items():
                yield StoredRecord(OffsetCommitKey(group_id, topic, partition), value)

    def tombstones_of_group(self, group_id: str) -> list[StoredRecord]:
        """Returns tombstones of everything that the group has committed, or is about to."""
        return [_tombstone(group_id, *place) for place in self._places(group_id)]

    def _places(self, group_id: str) -> dict[tuple[str, int], None]:
        return dict.fromkeys(self._by_group.get(group_id, ())) | dict.fromkeys(self.pending.places(group_id))

    def tombstones_of_partitions(self, group_id: str, partitions: set[tuple[str, int]]) -> list[StoredRecord]:
        """Returns tombstones of what the group has committed for the partitions, or is about to."""
        return [_tombstone(group_id, *place) for place in self._places(group_id) if place in partitions]

    def tombstones_of_topics(self, topics: frozenset[str]) -> list[StoredRecord]:
        """Returns tombstones of everything that was committed for the topics, or is about to be."""
        return [
            _tombstone(group_id, topic, partition)
            for group_id in self.groups()
            for topic, partition in self._places(group_id)
            if topic in topics
        ]

    def tombstones_of_expired(self, group: RetainedGroup, *, now_ms: int, retention_ms: int) -> list[StoredRecord]:
        """Returns tombstones of what the group has committed too long ago, except where something is pending."""
        read = group.read_topics()
        if read is None:
            return []
        pending = frozenset(self.pending.places(group.group_id))
        return [
            _tombstone(group.group_id, topic, partition)
            for (topic, partition), value in self._by_group.get(group.group_id, {}).items()
            if topic not in read
            and (topic, partition) not in pending
            and _is_expired(group.empty_since_ms, value, now_ms=now_ms, retention_ms=retention_ms)
        ]

    def count(self, group_id: str) -> int:
        """Returns how many partitions the group has committed something for, or is about to."""
        return len(self._places(group_id))


def commit_record(group_id: str, offset: OffsetToCommit, now_ms: int, *, retention_ms: int = -1) -> StoredRecord:
    key = OffsetCommitKey(group_id, offset.topic, offset.partition)
    expire_timestamp = -1 if retention_ms == -1 else min(now_ms + retention_ms, LONG_MAX)
    return StoredRecord(key, OffsetCommitValue(offset.offset, offset.leader_epoch, offset.metadata, now_ms, expire_timestamp))


def _committed(topic: str, partition: int, value: OffsetCommitValue | None) -> CommittedOffset:
    if value is None:
        return CommittedOffset(topic, partition)
    return CommittedOffset(topic, partition, value.offset, value.leader_epoch, value.metadata)


def _tombstone(group_id: str, topic: str, partition: int) -> StoredRecord:
    return StoredRecord(OffsetCommitKey(group_id, topic, partition), None)


def _is_expired(empty_since_ms: int | None, value: OffsetCommitValue, *, now_ms: int, retention_ms: int) -> bool:
    if value.expire_timestamp >= 0:  # old clients could choose the time themselves
        return now_ms >= value.expire_timestamp
    return now_ms - (value.commit_timestamp if empty_since_ms is None else empty_since_ms) >= retention_ms
