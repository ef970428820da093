"""Offsets that are part of a transaction: they count when it is committed, and are dropped when it is aborted.

Of two commits of one partition the newer one counts, in the order of the log, whenever it is decided: what is committed later over a
pending offset, plainly or by another transaction, leaves nothing of it but that it is pending. Source: KIP-98, KIP-447.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from ottla.messages.group_records import OffsetCommitKey, OffsetCommitValue

TopicAndIndex = tuple[str, int]
"""Topic and partition."""


class PendingOffsets:
    """The pending offsets of all groups of a coordinator, in order of arrival."""

    def __init__(self) -> None:
        self._of_producer: dict[int, dict[tuple[str, TopicAndIndex], None]] = {}
        self._of_group: dict[str, dict[TopicAndIndex, dict[int, OffsetCommitValue | None]]] = {}
        """By producer, the newest last; None for what no longer counts, whatever becomes of the transaction."""

    def add(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        place = key.topic, key.partition
        self._of_producer.setdefault(producer_id, {})[key.group, place] = None
        at_place = self._of_group.setdefault(key.group, {}).setdefault(place, {})
        at_place.pop(producer_id, None)
        at_place[producer_id] = value

    def supersede(self, group_id: str, place: TopicAndIndex) -> None:
        """Notes that something newer was committed for the partition."""
        at_place = self._of_group.get(group_id, {}).get(place)
        if at_place is not None:
            for producer_id in at_place:
                at_place[producer_id] = None

    def drop(self, group_id: str, place: TopicAndIndex) -> None:
        """Drops what is pending for the partition, which was deleted."""
        at_place = self._of_group.get(group_id, {}).get(place)
        for producer_id in list(at_place or ()):
            self._remove(producer_id, group_id, place)

    def end(self, producer_id: int, *, is_commit: bool) -> list[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """Ends the producer's transaction; returns what counts of it. What is older at these partitions no longer counts."""
        counting = []
        for group_id, place in list(self._of_producer.get(producer_id, ())):
            at_place = self._of_group[group_id][place]
            value = at_place[producer_id]
            if is_commit and value is not None:
                counting.append((OffsetCommitKey(group_id, *place), value))
                for older in takewhile(lambda other: other != producer_id, list(at_place)):
                    at_place[older] = None
            self._remove(producer_id, group_id, place)
        return counting

    def _remove(self, producer_id: int, group_id: str, place: TopicAndIndex) -> None:
        places = self._of_producer[producer_id]
        del places[group_id, place]
        if not places:
            del self._of_producer[producer_id]
        of_group = self._of_group[group_id]
        del of_group[place][producer_id]
        if not of_group[place]:
            del of_group[place]
        if not of_group:
            del self._of_group[group_id]

    def places(self, group_id: str) -> list[TopicAndIndex]:
        """Returns where the group has something pending."""
        return list(self._of_group.get(group_id, ()))

    def groups(self) -> list[str]:
        """Returns groups that have something pending."""
        return list(self._of_group)

    def dismantle(self) -> Iterator[None]:
        """Gives up all, a small piece at a time."""
        while self._of_producer:
            _, places = self._of_producer.popitem()
            while places:
                places.popitem()
                yield
        while self._of_group:
            self._of_group.popitem()
            yield
