"""What a consumer reads: its partitions, and how far it is in each.

A partition's ``position`` is the offset of the next record to hand out; None until it is known (from a commit, a seek or
the reset policy).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.types import NO_EPOCH, TopicPartition

PartitionLike = TopicPartition | tuple[str, int]
"""A partition as an application may give it: ``("orders", 0)``, or a ``TopicPartition``."""
INDEX_MAX: Final = 2**31 - 1
NOWHERE: Final = (-1, 0)
T = TypeVar("T")
P = TypeVar("P", bound=PartitionLike)
ByPartition = Mapping[TopicPartition, T] | Mapping[tuple[str, int], T]
"""A dict by partition: ``{("orders", 0): 7}``; ``ByPartition[int]`` has a number for each."""


def partition_of(given: PartitionLike) -> TopicPartition:
    """Returns the partition as a ``TopicPartition``. TypeError for what is none, INVALID_REQUEST for a number that no partition has."""
    match given:
        case TopicPartition(topic=str(), partition=int()):
            found = given
        case (str() as topic, int() as index):
            found = TopicPartition(topic, index)
        case _:
            raise TypeError(f'{given!r} is no partition: give (topic, number), such as ("orders", 0), or a TopicPartition')
    if not 0 <= found.partition <= INDEX_MAX:
        text = f"partition {found.partition} of topic {found.topic!r}: partitions have numbers from 0 to {INDEX_MAX}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return found


def partitions_of(given: Iterable[PartitionLike]) -> list[TopicPartition]:
    """Returns the partitions as ``TopicPartition``. TypeError for what is no list of them, such as a name, or one partition alone."""
    wrong: object = given
    if isinstance(wrong, str | TopicPartition) or (isinstance(wrong, tuple) and wrong and isinstance(wrong[0], str)):
        raise TypeError(f'a list of partitions is expected, such as [("orders", 0)], and not {given!r}')
    return list(map(partition_of, given))


def keyed(given: ByPartition[T]) -> dict[TopicPartition, T]:
    """Returns the values by ``TopicPartition``. TypeError for what is no dict by partition."""
    if not isinstance(given, Mapping):
        raise TypeError(f'a dict by partition is expected, such as {{("orders", 0): 7}}, and not a {type(given).__name__}')
    return {partition_of(partition): value for partition, value in given.items()}


class PartitionPosition:
    __slots__ = (
        "_nearby", "_versions", "failures", "fetched_epoch", "high_watermark", "is_paused", "known_end", "leader_epoch", "position",
        "retry_ms", "seek_timestamp", "version",
    )  # fmt: skip

    def __init__(self, versions: Iterator[int]) -> None:
        self._versions = versions
        self.position: int | None = None
        self.leader_epoch = NO_EPOCH  # of the last record handed out
        self.fetched_epoch = NO_EPOCH  # of the batch that ends before the position, where that is known
        self.failures = 0  # fetches of it that failed, one after the other
        self.retry_ms = 0  # on the monotonic clock: it is not fetched before, nor is its position looked for
        self.is_paused = False
        self.high_watermark = -1  # as the broker last said
        self.known_end = -1  # up to there it had records that may be read
        self.seek_timestamp: int | None = None  # a special timestamp (-1 end, -2 start) still to be looked up
        self.version = next(versions)  # what was fetched for another version is thrown away
        self._nearby = NOWHERE

    @property
    def has_more(self) -> bool:
        """True when a fetch from the position on is known to find records."""
        return self.position is not None and self.position < self.known_end

    def seek(self, offset: int) -> None:
        self.position, self.seek_timestamp = offset, None
        self._moved()

    def seek_to(self, timestamp: int) -> None:
        self.position, self.seek_timestamp = None, timestamp
        self._moved()

    def rewind(self, offset: int) -> None:
        """Goes back to ``offset``: its records were not handed out after all. Fetches under way started after them, and do not count."""
        self.position, self.fetched_epoch = offset, NO_EPOCH
        self.version = next(self._versions)

    def read_from(self, node: int, until_ms: int) -> None:
        """Reads from the replica that the leader has named; asks the leader again from ``until_ms`` on (KIP-392)."""
        self._nearby = node, until_ms

    def read_from_leader(self) -> None:
        """Reads from the leader, until it names another replica."""
        self._nearby = NOWHERE

    def nearby(self, now_ms: int) -> int | None:
        """Returns the replica to be fetched from in place of the leader."""
        node, until_ms = self._nearby
        return node if now_ms < until_ms else None

    def ask_later(self, now_ms: int, delay_ms: float) -> None:
        """Has the position looked up again after ``delay_ms``: the group's offset is not decided yet."""
        self.failures += 1
        self.retry_ms = now_ms + int(delay_ms)

    def _moved(self) -> None:
        self.leader_epoch = self.fetched_epoch = NO_EPOCH
        self.version = next(self._versions)


class Positions:
    """Assigned partitions in the order of their assignment."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionPosition] = {}
        # One counter for all: a partition that is assigned again must not come to a version that an answer still out was asked with.
        self._versions = itertools.count(1)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._states

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._states))

    def __len__(self) -> int:
        return len(self._states)

    def get(self, partition: TopicPartition) -> PartitionPosition | None:
        return self._states.get(partition)

    def of(self, partition: TopicPartition) -> PartitionPosition:
        """Returns the partition's position. KeyError when it is not assigned."""
        return self._states[partition]

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns exactly these partitions; the ones that stay keep their positions."""
        old = self._states
        self._states = {partition: old.get(partition) or PartitionPosition(self._versions) for partition in partitions}

    def unknown(self, now_ms: int) -> list[TopicPartition]:
        """Returns the partitions whose position has to be looked up now."""
        return [
            partition
            for partition, state in self._states.items()
            if state.position is None and state.seek_timestamp is None and state.retry_ms <= now_ms
        ]

    def consumed(self) -> dict[TopicPartition, tuple[int, int]]:
        """Returns position and leader epoch of every partition that has a position."""
        return {partition: (state.position, state.leader_epoch) for partition, state in self._states.items() if state.position is not None}
