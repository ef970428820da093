"""Records that were fetched and are not handed out yet, by partition and in order.

What was taken last can be given back in part: an iteration takes many records at once and hands them out one by one, and those that
it has not come to are not consumed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from ottla.client.positions import Positions
from ottla.errors import ErrorCode, KafkaError
from ottla.types import NO_EPOCH, Headers, TopicPartition

Deserializer = Callable[[bytes | None], Any]
"""Makes what the application reads of a key's or a value's bytes; None is a key or value that is not there."""
K = TypeVar("K")
V = TypeVar("V")
K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)


class ConsumerRecord(msgspec.Struct, Generic[K_co, V_co], frozen=True, gc=False):
    """One record as handed to the application. ``timestamp_ms`` is since 1970; ``timestamp_type`` is 0 for CreateTime, 1 for LogAppendTime.

    ``key`` and ``value`` are bytes or None, or what the deserializers make of them; a type checker knows which. ``headers`` are pairs of
    name and value, in order: a name may occur twice.
    """

    topic: str
    """The topic that it was read from."""
    partition: int
    """The number of the partition in the topic, from 0."""
    offset: int
    """The record's place in the partition. Offsets grow, and may have gaps: of transactions' ends, and of compaction."""
    timestamp_ms: int
    """Milliseconds since 1970 (UTC), as ``timestamp_type`` says; -1 where the producer set none."""
    timestamp_type: int
    """0 (CreateTime): the producer set the time. 1 (LogAppendTime): the broker did, when it stored the record."""
    key: K_co
    """What ``key_deserializer`` returned; without one the key's bytes, or None where the record has no key."""
    value: V_co
    """What ``value_deserializer`` returned; without one the value's bytes, or None: in a compacted topic that deletes the key."""
    headers: Headers
    """Pairs of a name and bytes or None, in the producer's order; ``()`` if none. ``dict(record.headers)`` has the last of each name."""
    leader_epoch: int
    """The epoch of the partition's leader when the record was stored; a commit stores it with the offset. -1 where it is unknown."""


AnyRecord = ConsumerRecord[Any, Any]
Bytes = bytes | None  # what a consumer without a deserializer hands out


class DeserializationError(KafkaError):
    """A deserializer failed for the record at ``offset``, where the position stays: ``seek`` past it to go on.

    ``record`` is as the broker has it, with bytes, and ``__cause__`` is what the deserializer raised.
    """

    def __init__(self, record: AnyRecord, problem: Exception) -> None:
        self.partition: Final[TopicPartition] = TopicPartition(record.topic, record.partition)
        """Where the record is."""
        self.offset: Final[int] = record.offset
        """Its offset; ``seek`` to the next one continues."""
        self.record: Final[ConsumerRecord[bytes | None, bytes | None]] = record
        """The record itself, key and value as bytes."""
        text = f"record {record.offset} of {self.partition}: {type(problem).__name__}: {problem}; seek to {record.offset + 1} to continue"
        super().__init__(ErrorCode.INVALID_RECORD, text)
        self.__cause__ = problem


class Fetched:
    """The records that one fetch brought of one partition."""

    __slots__ = ("at", "last_epoch", "next_offset", "partition", "records", "version")

    def __init__(self, partition: TopicPartition, version: int, records: list[AnyRecord], next_offset: int, last_epoch: int) -> None:
        self.partition = partition
        self.version = version  # of the position it was fetched for
        self.records = records
        self.at = 0  # of the next record to hand out
        self.last_epoch = last_epoch  # of the last batch
        self.next_offset = next_offset  # after the last batch, also where its last records were removed


class FetchBuffer:
    def __init__(
        self, positions: Positions, *, key_deserializer: Deserializer | None = None, value_deserializer: Deserializer | None = None
    ) -> None:
        self._positions = positions
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._fetched: deque[Fetched] = deque()
        self._counts: Counter[TopicPartition] = Counter()  # of what is in _fetched
        self._last: list[tuple[Fetched, int]] = []  # how many records of each the last take has

    def __contains__(self, partition: TopicPartition) -> bool:
        return self._counts[partition] > 0

    def add(self, fetched: Fetched) -> None:
        self._fetched.append(fetched)
        self._counts[fetched.partition] += 1

    def has_some(self) -> bool:
        """True when ``take`` would get something now."""
        return any(self._is_current(fetched) and not self._positions.of(fetched.partition).is_paused for fetched in self._fetched)

    def take(self, count_max: int) -> list[AnyRecord]:
        """Takes up to ``count_max`` records, and moves the positions after them. DeserializationError when the first cannot be read."""
        taken: list[AnyRecord] = []
        paused: list[Fetched] = []
        self._last = []
        while self._fetched and len(taken) < count_max:
            fetched = self._fetched.popleft()
            self._counts[fetched.partition] -= 1
            if not self._is_current(fetched):
                continue
            state = self._positions.of(fetched.partition)
            if state.is_paused:
                paused.append(fetched)
                continue
            piece = fetched.records[fetched.at : fetched.at + count_max - len(taken)]
            problem = None
            if self._key_deserializer is not None or self._value_deserializer is not None:
                piece, problem = self._deserialized(piece)
            if piece:
                taken += piece
                fetched.at += len(piece)
                self._last.append((fetched, len(piece)))
                state.position, state.leader_epoch, state.fetched_epoch = piece[-1].offset + 1, piece[-1].leader_epoch, NO_EPOCH
            if fetched.at < len(fetched.records):
                self._put_first(fetched)
            else:
                state.position, state.fetched_epoch = fetched.next_offset, fetched.last_epoch
            if problem is not None:
                if not taken:
                    raise problem
                break
        for fetched in reversed(paused):
            self._put_first(fetched)
        return taken

    def give_back(self, count: int) -> None:
        """Takes back the last ``count`` records of the last ``take``; it returns them again where their positions have not moved since."""
        rewound: set[TopicPartition] = set()  # several pieces may be of one partition
        while count and self._last:
            fetched, size = self._last.pop()
            returned = min(count, size)
            count -= returned
            state = self._positions.get(fetched.partition)
            if state is None or (state.version != fetched.version and fetched.partition not in rewound):
                continue
            rewound.add(fetched.partition)
            is_here = fetched in self._fetched
            fetched.at -= returned
            state.rewind(fetched.records[fetched.at].offset)
            fetched.version = state.version
            if not is_here:
                self._put_first(fetched)
        self._last = []

    def forget(self) -> None:
        """Drops what was fetched for partitions that are no longer assigned, or before a seek."""
        self._fetched = deque(filter(self._is_current, self._fetched))
        self._counts = Counter(fetched.partition for fetched in self._fetched)

    def _is_current(self, fetched: Fetched) -> bool:
        """True when the partition is assigned, and its position has not changed since this was fetched."""
        state = self._positions.get(fetched.partition)
        return state is not None and state.version == fetched.version

    def _put_first(self, fetched: Fetched) -> None:
        self._fetched.appendleft(fetched)
        self._counts[fetched.partition] += 1

    def _deserialized(self, records: list[AnyRecord]) -> tuple[list[AnyRecord], DeserializationError | None]:
        """Returns the records up to the first that cannot be read, and why that cannot."""
        keys, values = self._key_deserializer, self._value_deserializer
        done: list[AnyRecord] = []
        for record in records:
            try:
                key = record.key if keys is None else keys(record.key)
                value = record.value if values is None else values(record.value)
            except Exception as error:  # noqa: BLE001 - the application's code, and its error to see
                return done, DeserializationError(record, error)
            done.append(msgspec.structs.replace(record, key=key, value=value))
        return done, None
