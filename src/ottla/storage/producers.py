"""Idempotent producers: the last five batches of each, so that a retry is known and a gap is refused.

A producer id writes under an epoch, and numbers its records from 0 in each partition. The next batch must start one after
the last one ended (2**31 - 1 is followed by 0). One of the last five batches, sent again, is a duplicate and gets the offsets
that it already has; five, because a producer keeps at most five requests in flight.

=============================================  =====================================================
batch                                          answer
=============================================  =====================================================
id not known here                              taken at sequence 0, else OUT_OF_ORDER_SEQUENCE_NUMBER
the same, where ``may_lack_some``              taken, at any sequence: its past may have been deleted
the same, while an earlier batch waits for     OUT_OF_ORDER_SEQUENCE_NUMBER
its coordinator's permission
plain, while the producer's transaction is     INVALID_TXN_STATE
open
transactional, and its transaction is not      NotPermitted: only its coordinator knows
open here
epoch below the known one                      INVALID_PRODUCER_EPOCH
epoch above the known one                      taken at sequence 0, else OUT_OF_ORDER_SEQUENCE_NUMBER
same epoch, first and last of one of five      duplicate
same epoch, next sequence                      taken
same epoch, anything else                      OUT_OF_ORDER_SEQUENCE_NUMBER
=============================================  =====================================================

Batches that brokers write for a producer (offsets of its transaction) have no sequences: their epoch alone is judged.

=============================================  =====================================================
end marker                                     answer
=============================================  =====================================================
producer epoch below the known one             INVALID_PRODUCER_EPOCH
coordinator epoch below the known one          TRANSACTION_COORDINATOR_FENCED
its transaction is open                        taken; at transaction.version 2 with a higher producer epoch
                                               only, else INVALID_PRODUCER_EPOCH
none is open, either epoch is raised           taken: from now on it fences
none is open, nothing is raised                repeated: not written once more
=============================================  =====================================================

An unknown producer that starts later has sent an earlier batch that was refused, by a broker that did not lead yet: were this one taken,
clients would count that one as acknowledged (librdkafka does). Kafka takes any first sequence.

A transaction of a producer is open from its first transactional batch in this partition to the end marker. Up to the first offset of those
that are open, or whose marker is not committed yet, everything is decided: the last stable offset, where read_committed readers stop.

Two layers: what is in the log, and over it what is staged to be written, end markers too: until a marker is written, a late batch of the
epoch that it ends would be taken otherwise, and start a transaction that nothing ends. Snapshots hold the first only: a batch that a crash
swallowed must not be taken for a duplicate when it is sent again.

Source: KIP-98, KIP-360, KIP-890, KIP-1228, KAFKA-5494 (the five).
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

import msgspec

from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.records.batch import SEQUENCE_MAX
from ottla.records.control import EndMarker
from ottla.records.crc import crc32c
from ottla.storage.segment.transaction_index import Transaction

WINDOW_BATCHES: Final = 5
SNAPSHOT_SUFFIX: Final = ".snapshot"

Batch = tuple[int, int, int, int, int]
"""First sequence, last sequence, base offset, last offset, append time (-1 for CreateTime)."""

_VERSION_WITHOUT_FLAG: Final = 1
_VERSION: Final = 2
_HEAD: Final = struct.Struct(">hI")  # version, CRC-32C of what follows
_COUNT: Final = struct.Struct(">i")
_PRODUCER: Final = struct.Struct(">qhqiqb")  # id, epoch, last used, coordinator epoch, first offset of transaction, batches
_BATCH: Final = struct.Struct(">iiqqq")
_FLAG: Final = struct.Struct(">?")  # since version 2: whether there may have been others
_NEXT_EPOCH_VERSION: Final = 2
"""The first transaction.version whose markers have an epoch above that of the transaction's records."""


class NotPermitted(Exception):
    """The batch starts a transaction here, or comes after its end: its coordinator is to be asked."""

    def __init__(self, producer_id: int, producer_epoch: int, first_sequence: int) -> None:
        super().__init__(f"the transaction of producer {producer_id}, epoch {producer_epoch}, is not open here")
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.first_sequence = first_sequence


class ProducerState(msgspec.Struct, gc=False):
    """One producer in one partition."""

    epoch: int
    batches: list[Batch]  # the newest last, at most five
    last_used_ms: int
    coordinator_epoch: int = -1  # of the newest end marker
    transaction_first_offset: int = -1  # of the open transaction
    marker_count: int = 0  # of end markers, since the log was opened

    def push(self, epoch: int, batch: Batch, now_ms: int, *, is_transactional: bool) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = [batch]
        else:
            self.batches.append(batch)
            if len(self.batches) > WINDOW_BATCHES:
                del self.batches[0]
        self.last_used_ms = now_ms
        if is_transactional and self.transaction_first_offset < 0:
            self.transaction_first_offset = batch[2]

    def end_transaction(self, epoch: int, marker: EndMarker, now_ms: int) -> None:
        if epoch > self.epoch:
            self.epoch = epoch
            self.batches = []
        self.coordinator_epoch = marker.coordinator_epoch
        self.transaction_first_offset = -1
        self.marker_count += 1
        self.last_used_ms = now_ms


class ProducerStates:
    """All producers of one log."""

    __slots__ = ("_ended", "_forgotten_count", "_open", "_repeats", "_staged", "_states", "_waiting", "may_lack_some")

    def __init__(self) -> None:
        self.may_lack_some = False
        """Producers may have written here that have been forgotten: with their records, by their age, by an unclean election, or with an
        earlier topic of this name."""
        self._repeats: dict[int, int] = {}  # end markers that were not written once more, by producer
        self._forgotten_count = 0  # of producers, and of their end markers
        self._states: dict[int, ProducerState] = {}
        self._waiting: dict[int, list[tuple[int, int]]] = {}  # epochs and first sequences of batches that wait for permission
        self._staged: dict[int, ProducerState] = {}
        self._open: dict[int, int] = {}  # first offsets of open transactions by producer, rising
        self._ended: deque[Transaction] = deque()  # whose marker may not be committed: both first and last offsets rise

    def __len__(self) -> int:
        return len(self._states)

    @property
    def states(self) -> dict[int, ProducerState]:
        """By producer id, of what is in the log. Not to be changed."""
        return self._states

    def admit(
        self, producer_id: int, epoch: int, first_sequence: int, last_offset_delta: int, *, is_transactional: bool = False
    ) -> Batch | None:
        """Returns None when the batch is next, or the batch that it repeats when it is a duplicate. KafkaError otherwise."""
        state = self._staged.get(producer_id) or self._states.get(producer_id)
        if state is None:
            if first_sequence and not self.may_lack_some:
                text = f"producer {producer_id} begins with sequence {first_sequence}, and nothing was ever deleted here: 0 is next"
                raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
            if any(waits < first_sequence for waits_in, waits in self._waiting.get(producer_id, ()) if waits_in == epoch):
                text = f"producer {producer_id} sent sequence {first_sequence}, and an earlier one waits for its transaction's coordinator"
                raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
            return None
        if state.transaction_first_offset >= 0 and not is_transactional and epoch >= state.epoch:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} sent a plain batch while its transaction is open")
        batches = state.batches
        last_sequence = batches[-1][1] if batches else -1
        if epoch == state.epoch:
            if first_sequence == (last_sequence + 1) & SEQUENCE_MAX:
                return None
            end_sequence = (first_sequence + last_offset_delta) & SEQUENCE_MAX
            for batch in batches:
                if batch[0] == first_sequence and batch[1] == end_sequence:
                    return batch
        elif epoch < state.epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {state.epoch}, this batch {epoch}")
        elif first_sequence == 0:
            return None
        expected = (last_sequence + 1) & SEQUENCE_MAX if epoch == state.epoch else 0
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} epoch {epoch} sent sequence {first_sequence}, {expected} is next",
        )

    def check_is_part(self, producer_id: int, epoch: int, first_sequence: int, *, begins_at_zero: bool) -> None:
        """Raises NotPermitted unless the producer's transaction is open here under this epoch.

        With ``begins_at_zero`` a producer that is not known here starts with sequence 0, whatever was deleted: its coordinator would not
        have added the partition otherwise. OUT_OF_ORDER_SEQUENCE_NUMBER when it does not.
        """
        state = self._staged.get(producer_id) or self._states.get(producer_id)
        if state is None and begins_at_zero and first_sequence:
            text = f"producer {producer_id} begins with sequence {first_sequence} in this partition, 0 is next"
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        if state is None or state.epoch != epoch or state.transaction_first_offset < 0:
            raise NotPermitted(producer_id, epoch, first_sequence)

    def wait(self, asked: NotPermitted) -> None:
        """Notes that the batch waits for permission: no later one of a producer that is not known here may overtake it (KIP-890).

        One connection keeps them in order; a client that gives a connection up may send the next one over another.
        """
        self._waiting.setdefault(asked.producer_id, []).append((asked.producer_epoch, asked.first_sequence))

    def waits_no_longer(self, asked: NotPermitted) -> None:
        """Notes that the batch was appended or refused."""
        waiting = self._waiting[asked.producer_id]
        waiting.remove((asked.producer_epoch, asked.first_sequence))
        if not waiting:
            del self._waiting[asked.producer_id]

    def marker_count(self, producer_id: int) -> int:
        """Returns how many of its transactions have ended here. A coordinator's permission holds as long as that stays the same.

        A marker that is not written counts, too: it may end a transaction whose first batch is still waiting. Markers of producers that
        were forgotten go on to count, of whichever producer: else the next markers would bring the count back to what it was.
        """
        state = self._staged.get(producer_id) or self._states.get(producer_id)
        return (0 if state is None else state.marker_count) + self._repeats.get(producer_id, 0) + self._forgotten_count

    def admit_epoch(self, producer_id: int, epoch: int) -> None:
        """Raises INVALID_PRODUCER_EPOCH when a later epoch is known: of a batch that a broker writes for the producer."""
        state = self._staged.get(producer_id) or self._states.get(producer_id)
        if state is not None and epoch < state.epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {state.epoch}, this batch {epoch}")

    def admit_end_marker(self, producer_id: int, epoch: int, marker: EndMarker, *, transaction_version: int) -> bool:
        """True when the marker is to be written; False when it says only what is known. KafkaError as the table says."""
        state = self._staged.get(producer_id) or self._states.get(producer_id)
        if state is None:
            return True
        is_open = state.transaction_first_offset >= 0
        if marker.coordinator_epoch < state.coordinator_epoch:  # first: a coordinator that was replaced has nothing to report
            text = f"producer {producer_id} has coordinator epoch {state.coordinator_epoch}, this end marker {marker.coordinator_epoch}"
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, text)
        if epoch < state.epoch or (epoch == state.epoch and is_open and transaction_version >= _NEXT_EPOCH_VERSION):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {state.epoch}, this end marker {epoch}")
        is_written = is_open or epoch > state.epoch or marker.coordinator_epoch > state.coordinator_epoch
        if not is_written:
            self._repeats[producer_id] = self._repeats.get(producer_id, 0) + 1
        return is_written

    def stage(self, producer_id: int, epoch: int, batch: Batch, now_ms: int, *, is_transactional: bool = False) -> None:
        """Stages the batch, which is about to be written; ``admit`` knows it from now on."""
        self._overlaid(producer_id, epoch, now_ms).push(epoch, batch, now_ms, is_transactional=is_transactional)

    def stage_end_marker(self, producer_id: int, epoch: int, marker: EndMarker, now_ms: int) -> None:
        """Stages the marker, which is about to be written; nothing of an earlier epoch is admitted from now on."""
        self._overlaid(producer_id, epoch, now_ms).end_transaction(epoch, marker, now_ms)

    def _overlaid(self, producer_id: int, epoch: int, now_ms: int) -> ProducerState:
        state = self._staged.get(producer_id)
        if state is None:
            known = self._states.get(producer_id)
            if known is None:
                state = ProducerState(epoch, [], now_ms)
            else:
                batches, first_offset = known.batches.copy(), known.transaction_first_offset
                state = ProducerState(known.epoch, batches, now_ms, known.coordinator_epoch, first_offset, known.marker_count)
            self._staged[producer_id] = state
        return state

    def clear_staged(self) -> None:
        """Clears what was staged: it is in the log, or will never be."""
        self._staged.clear()

    def apply(self, producer_id: int, epoch: int, batch: Batch, now_ms: int, *, is_transactional: bool = False) -> None:
        """Takes a batch that is in the log."""
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = ProducerState(epoch, [], now_ms)
        state.push(epoch, batch, now_ms, is_transactional=is_transactional)
        if is_transactional:
            self._open.setdefault(producer_id, batch[2])

    def apply_end_marker(self, producer_id: int, epoch: int, marker: EndMarker, offset: int, now_ms: int) -> Transaction | None:
        """Ends the producer's transaction, whose marker is in the log at ``offset``. Returns it; None when there was none."""
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = ProducerState(epoch, [], now_ms)
        state.end_transaction(epoch, marker, now_ms)
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        return Transaction(producer_id, first_offset, offset, next(iter(self._open.values()), offset + 1))

    def commit_is_awaited(self, ended: Transaction, committed_end: int) -> None:
        """Holds the transaction back from the stable offset until its marker is committed, as all below ``committed_end`` is."""
        awaited = self._ended
        while awaited and awaited[0].last_offset < committed_end:
            awaited.popleft()
        while awaited and awaited[-1].first_offset >= ended.first_offset:  # this one is awaited longer, and holds back as much
            awaited.pop()
        awaited.append(ended)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the offset up to which everything is committed, and every transaction has ended; ``high_watermark`` never falls between
        two calls.

        Of a transaction whose marker was there at a start, or before the log was cut, only the end counts.
        """
        awaited = self._ended
        while awaited and awaited[0].last_offset < high_watermark:
            awaited.popleft()
        if awaited:
            high_watermark = min(high_watermark, awaited[0].first_offset)
        return min(high_watermark, next(iter(self._open.values()))) if self._open else high_watermark

    def has_open_since(self, before_ms: int) -> bool:
        """True when a producer has a transaction open, and has written nothing since."""
        return bool(self._open) and any(self._states[producer_id].last_used_ms < before_ms for producer_id in self._open)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers silent for that long, unless a transaction is open or a batch is staged. Returns how many."""
        expired = [
            producer_id
            for producer_id, state in self._states.items()
            if now_ms - state.last_used_ms >= expiration_ms and state.transaction_first_offset < 0 and producer_id not in self._staged
        ]
        for producer_id in expired:
            self._forgotten_count += 1 + self._states.pop(producer_id).marker_count + self._repeats.pop(producer_id, 0)
        self.may_lack_some |= bool(expired)
        return len(expired)

    def clock_was_set(self, by_ms: int) -> None:
        """Moves all producers' times by so much, for the clock by which they grow old was set: they are as old as before."""
        for state in self._states.values():
            state.last_used_ms += by_ms

    def to_snapshot(self) -> bytes:
        parts = [_COUNT.pack(len(self._states))]
        for producer_id, state in self._states.items():
            parts.append(
                _PRODUCER.pack(
                    producer_id,
                    state.epoch,
                    state.last_used_ms,
                    state.coordinator_epoch,
                    state.transaction_first_offset,
                    len(state.batches),
                )
            )
            parts += [_BATCH.pack(*batch) for batch in state.batches]
        parts.append(_FLAG.pack(self.may_lack_some))
        body = b"".join(parts)
        return _HEAD.pack(_VERSION, crc32c(body)) + body

    @classmethod
    def from_snapshot(cls, data: bytes) -> ProducerStates:
        """Reads a snapshot. DecodeError when it is damaged."""
        producers = cls()
        try:
            version, crc = _HEAD.unpack_from(data)
            if version not in (_VERSION_WITHOUT_FLAG, _VERSION) or crc != crc32c(memoryview(data)[_HEAD.size :]):
                raise DecodeError(f"a producer snapshot of version {version} fails its CRC or is not known")
            (count,) = _COUNT.unpack_from(data, _HEAD.size)
            position = _HEAD.size + _COUNT.size
            for _ in range(count):
                producer_id, epoch, last_used, coordinator_epoch, first_offset, batch_count = _PRODUCER.unpack_from(data, position)
                position += _PRODUCER.size
                batches: list[Batch] = []
                for _ in range(batch_count):
                    batches.append(_BATCH.unpack_from(data, position))
                    position += _BATCH.size
                producers._states[producer_id] = ProducerState(epoch, batches, last_used, coordinator_epoch, first_offset)
            producers.may_lack_some = True
            if version == _VERSION:
                (producers.may_lack_some,) = _FLAG.unpack_from(data, position)
                position += _FLAG.size
        except struct.error:
            raise DecodeError("a producer snapshot ends too early") from None
        open_states = [
            (state.transaction_first_offset, found) for found, state in producers._states.items() if state.transaction_first_offset >= 0
        ]
        producers._open = {found: offset for offset, found in sorted(open_states)}
        if position != len(data):
            raise DecodeError("a producer snapshot has bytes after its last producer")
        return producers
