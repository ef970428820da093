"""The partitions of each broker, so that no search looks at all of them: part of each image, and kept by what makes the next one.

Like an image an index never changes. What the builder shares with the draft is its own until it is sealed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, Protocol

from msgspec import Struct, field

from ottla.types import NO_LEADER

Places = Mapping[str, Collection[int]]
"""Partitions by topic."""
_NONE: Final[Places] = {}


class Partition(Protocol):
    """The part of a ``PartitionImage`` that the index reads."""

    @property
    def replicas(self) -> tuple[int, ...]: ...

    @property
    def isr(self) -> tuple[int, ...]: ...

    @property
    def elr(self) -> tuple[int, ...]: ...

    @property
    def last_known_elr(self) -> tuple[int, ...]: ...

    @property
    def leader(self) -> int: ...


class Topic(Protocol):
    """And of a ``TopicImage``."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> Mapping[int, Partition]: ...


class PartitionIndex(Struct, frozen=True):
    """An index of one image's partitions by broker, with counts; a broker without any has no entry."""

    hosted: Mapping[int, Places] = field(default_factory=dict)
    """The partitions of which the broker has a replica."""
    led: Mapping[int, int] = field(default_factory=dict)
    in_sync: Mapping[int, int] = field(default_factory=dict)
    """In how many ISRs the broker is."""
    eligible: Mapping[int, int] = field(default_factory=dict)
    """In how many ELRs."""
    displaced: Mapping[int, int] = field(default_factory=dict)
    """How many have no leader, or another one, though this broker is the first of their replicas."""
    leaderless: Places = field(default_factory=dict)
    """Those that have no leader."""
    with_elr: Places = field(default_factory=dict)
    """Those that know an eligible or a last known leader."""

    def of_broker(self, broker_id: int) -> Places:
        """Returns the partitions that the broker has a replica of."""
        return self.hosted.get(broker_id, _NONE)


EMPTY_INDEX: Final = PartitionIndex()


class IndexBuilder:
    """The newest index in the making. A dictionary is copied once between two calls of ``seal``, however many partitions change it."""

    def __init__(self, index: PartitionIndex) -> None:
        self._index = index
        self._is_own = False
        self._hosted: dict[int, dict[str, Collection[int]]] = {}  # those brokers' dictionaries that are copied
        self._sets: list[tuple[dict[str, Collection[int]], str]] = []  # where sets are, which grow
        self._open: dict[tuple[int, str], set[int]] = {}  # the sets in ``hosted``
        self._led: dict[int, int] = {}
        self._in_sync: dict[int, int] = {}
        self._eligible: dict[int, int] = {}
        self._displaced: dict[int, int] = {}
        self._leaderless: dict[str, Collection[int]] = {}
        self._with_elr: dict[str, Collection[int]] = {}

    def draft(self) -> PartitionIndex:
        """Returns the index as it is now, valid until the next partition changes it."""
        if not self._is_own:
            index = self._index
            self._led, self._in_sync, self._eligible = dict(index.led), dict(index.in_sync), dict(index.eligible)
            self._displaced = dict(index.displaced)
            self._leaderless, self._with_elr = dict(index.leaderless), dict(index.with_elr)
            hosted = dict(index.hosted)
            self._index = PartitionIndex(
                hosted, self._led, self._in_sync, self._eligible, self._displaced, self._leaderless, self._with_elr
            )
            self._is_own = True
        return self._index

    def seal(self) -> None:
        """Freezes the draft: it never changes again."""
        for places, name in self._sets:
            found = places.get(name)
            if type(found) is set:
                if found:
                    places[name] = tuple(sorted(found))
                else:
                    del places[name]
        self._sets.clear()
        self._open.clear()
        self._hosted.clear()
        self._is_own = False

    def change(self, topic: str, number: int, old: Partition | None, new: Partition) -> None:
        """Adds a partition, or updates one that has changed. ``draft`` was called since the index was sealed."""
        if old is None:
            self._add(topic, number, new)
            return
        if old.replicas != new.replicas:
            before, after = old.replicas, new.replicas
            for node in after:
                if node not in before:
                    self._places_of(node, topic).add(number)
            for node in before:
                if node not in after:
                    self._places_of(node, topic).discard(number)
        if old.isr != new.isr:
            _count(self._in_sync, old.isr, new.isr)
        if old.elr != new.elr:
            _count(self._eligible, old.elr, new.elr)
        if old.leader != new.leader:
            _count(self._led, (old.leader,), (new.leader,))
        if old.leader != new.leader or old.replicas != new.replicas:
            _count(self._displaced, _displaced(old), _displaced(new))
        was_without = old.leader == NO_LEADER
        if was_without is not (new.leader == NO_LEADER):
            self._put(self._leaderless, topic, number, is_in=not was_without)
        had_elr = bool(old.elr or old.last_known_elr)
        if had_elr is not bool(new.elr or new.last_known_elr):
            self._put(self._with_elr, topic, number, is_in=not had_elr)

    def _add(self, topic: str, number: int, new: Partition) -> None:
        """Adds a new partition. Spelled out, because a topic of thousands of partitions is added in one turn of the loop."""
        places, in_sync, led, leader = self._open, self._in_sync, self._led, new.leader
        for node in new.replicas:
            (places.get((node, topic)) or self._places_of(node, topic)).add(number)
        for node in new.isr:
            in_sync[node] = in_sync.get(node, 0) + 1
        led[leader] = led.get(leader, 0) + 1
        if leader != new.replicas[0]:
            _count(self._displaced, (), _displaced(new))
        if leader == NO_LEADER:
            self._put(self._leaderless, topic, number, is_in=True)
        if new.elr or new.last_known_elr:
            _count(self._eligible, (), new.elr)
            self._put(self._with_elr, topic, number, is_in=True)

    def remove(self, topic: Topic) -> None:
        """Removes a deleted topic and its partitions."""
        partitions = topic.partitions.values()
        for node in set(chain.from_iterable(partition.replicas for partition in partitions)):
            self._own_hosted(node).pop(topic.name, None)
            self._open.pop((node, topic.name), None)
        _subtract(self._in_sync, chain.from_iterable(partition.isr for partition in partitions))
        _subtract(self._eligible, chain.from_iterable(partition.elr for partition in partitions))
        _subtract(self._led, (partition.leader for partition in partitions))
        _subtract(self._displaced, chain.from_iterable(map(_displaced, partitions)))
        self._leaderless.pop(topic.name, None)
        self._with_elr.pop(topic.name, None)

    def _own_hosted(self, node: int) -> dict[str, Collection[int]]:
        places = self._hosted.get(node)
        if places is None:
            hosted = self._index.hosted
            assert isinstance(hosted, dict), "the draft is the builder's own"
            places = self._hosted[node] = hosted[node] = dict(hosted.get(node, _NONE))
        return places

    def _places_of(self, node: int, topic: str) -> set[int]:
        found = self._open[node, topic] = self._set(self._own_hosted(node), topic)
        return found

    def _put(self, places: dict[str, Collection[int]], topic: str, number: int, *, is_in: bool) -> None:
        found = self._set(places, topic)
        if is_in:
            found.add(number)
        else:
            found.discard(number)

    def _set(self, places: dict[str, Collection[int]], topic: str) -> set[int]:
        found = places.get(topic, ())
        if type(found) is not set:
            found = places[topic] = set(found)
            self._sets.append((places, topic))
        return found


def _displaced(partition: Partition) -> Sequence[int]:
    first = partition.replicas[:1]
    return () if first == (partition.leader,) else first


def _count(counts: dict[int, int], old: Collection[int], new: Collection[int]) -> None:
    for node in old:
        if node not in new:
            left = counts[node] - 1
            if left:
                counts[node] = left
            else:
                del counts[node]
    for node in new:
        if node not in old:
            counts[node] = counts.get(node, 0) + 1


def _subtract(counts: dict[int, int], gone: Iterable[int]) -> None:
    for node, count in Counter(gone).items():
        counts[node] -= count
        if not counts[node]:
            del counts[node]


def index_of(topics: Mapping[str, Topic]) -> PartitionIndex:
    """Builds the index of all these topics."""
    builder = IndexBuilder(EMPTY_INDEX)
    made = builder.draft()
    for name, topic in topics.items():
        for number, partition in topic.partitions.items():
            builder.change(name, number, None, partition)
    builder.seal()
    return made
