"""What must hold of transactions at each moment: in what is about to be written, in what is committed, and in what is answered.

The watch knows what leaders have staged, by partition, offset and leader epoch, and follows ``__transaction_state`` up to the highest high
watermark that any replica has had. It asks the nodes' machines nothing: what it compares with is bytes.

V1: a coordinator has a marker written only of a decision that is committed. V6: no record of a transaction comes to a partition that the
coordinator's committed record lacks. V7: nothing of an epoch below one that InitProducerId has answered is written, or decided. V8: the
stable offset is never above a transaction that is open, or whose marker is not committed, and never goes back under one leader. Of a marker
that was there when the log was opened, or last cut, the leader does not know that it is not committed; nothing can come of that, because
its decision is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from ottla.broker.coordinators.marker_queues import MarkerQueues
from ottla.broker.handlers import init_producer_id
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_role import ReplicaRole
from ottla.messages.transaction_records import TransactionLogKey, TransactionLogValue
from ottla.metadata.image import PartitionImage
from ottla.records.batch import BatchHeader, read_header
from ottla.records.control import end_marker_of
from ottla.records.iteration import iterate_records
from ottla.storage.log.tail import Appended
from ottla.transactions.effects import WriteMarkers
from ottla.transactions.records import decode_record
from ottla.transactions.transaction import Transaction, TransactionState
from ottla.types import TRANSACTION_STATE_TOPIC, TopicPartition

Place = tuple[TopicPartition, int, int]
"""A partition, an offset there, and the epoch of the leader that has staged it."""


class _Transactions:
    """The transactions of one partition under one leader: where they are open, and which markers are not committed."""

    def __init__(self, dropped: int, certain_from: int) -> None:
        self.dropped = dropped  # the log's drop count: what was staged before may not be there
        self.certain_from = certain_from  # of earlier markers the leader does not know whether they are committed
        self.open: dict[int, int] = {}
        self.ended: list[tuple[int, int]] = []  # where it began, and its marker's offset
        self.highest_stable = 0

    def add(self, header: BatchHeader, offset: int, *, is_marker: bool) -> None:
        if not is_marker:
            self.open.setdefault(header.producer_id, offset)
        elif (began := self.open.pop(header.producer_id, None)) is not None and offset >= self.certain_from:
            self.ended.append((began, offset))

    def bound(self, high_watermark: int) -> int:
        self.ended = [(began, ended) for began, ended in self.ended if ended >= high_watermark]
        return min([high_watermark, *self.open.values(), *(began for began, _ in self.ended)])


class TransactionWatch:
    """The watch over one run. Findings and what was met go to the two that it is given."""

    def __init__(self, findings: list[str], states: Counter[str]) -> None:
        self._findings = findings
        self._states = states
        self._stated: dict[Place, tuple[str, Transaction | None]] = {}
        self._staged: dict[tuple[TopicPartition, bytes], dict[tuple[int, int], BatchHeader]] = {}  # of transactions, by offset and epoch
        self._state_partitions: dict[Partition, None] = {}
        self._committed_to: dict[TopicPartition, int] = {}
        self._latest: dict[str, tuple[TopicPartition, Transaction]] = {}
        self._by_producer: dict[int, Transaction] = {}
        self._decisions: set[tuple[int, int, bool]] = set()
        self._fenced_below: dict[int, int] = {}
        self._led: dict[tuple[Partition, int], _Transactions] = {}
        self._certain_from: dict[Partition, int] = {}
        self._newest_epochs: dict[tuple[TopicPartition, bytes], int] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Every node of the world is watched."""
        begin = init_producer_id._begin

        async def begun(parts: Any, context: Any, request: Any, transactional_id: str) -> Any:
            answer = await begin(parts, context, request, transactional_id)
            if answer.error_code == 0:
                self._answered(answer.producer_id, answer.producer_epoch)
            return answer

        with (
            mock.patch.object(init_producer_id, "_begin", begun),
            _after(Partition, "stage", self._on_staged),
            _after(Partition, "stage_own", self._on_staged),
            _after(Partition, "take_role", self._on_role),
            _after(ReplicaRole, "end_cut", lambda role, _: self._on_cut(role._partition)),
            _after(Partition, "wake", lambda partition, *_: self._look_at(partition)),
            _after(Partition, "tell_followers", lambda partition, *_: self._look_at(partition)),
            _before(MarkerQueues, "send", self._on_markers),
        ):
            yield

    # -- what is seen

    def _on_cut(self, partition: Partition) -> None:
        self._certain_from[partition] = partition.log.log_end_offset

    def _on_role(self, partition: Partition, _: bool, image: PartitionImage) -> None:
        place = _identity(partition)
        self._newest_epochs[place] = max(image.leader_epoch, self._newest_epochs.get(place, -1))
        if partition not in self._certain_from:
            self._on_cut(partition)
        if partition.topic != TRANSACTION_STATE_TOPIC:
            return
        self._state_partitions[partition] = None
        if partition.led_epoch >= 0:
            decided = [key for key, found in self._latest.values() if key == partition.key and found.state.is_prepared]
            self._states["coordinators changed over a decision"] += bool(decided)

    def _on_staged(self, partition: Partition, appended: Appended, view: memoryview, **_: Any) -> None:
        if appended.is_duplicate:
            return
        header = read_header(view)
        is_deposed = partition.led_epoch < self._newest_epochs[_identity(partition)]  # and does not know: this will be cut
        if partition.topic == TRANSACTION_STATE_TOPIC:
            self._on_stated(partition, appended, view, is_deposed=is_deposed)
        if header.producer_id < 0 or not (header.is_transactional or header.is_control):
            return
        is_marker = header.is_control and end_marker_of(iterate_records(view)[0]) is not None
        if header.is_control and not is_marker:
            return
        self._staged.setdefault(_identity(partition), {})[appended.base_offset, partition.led_epoch] = header
        known = self._transactions(partition)
        known.add(header, appended.base_offset, is_marker=is_marker)
        if not is_marker and not is_deposed:
            self._check_data(partition, header, appended.base_offset)

    def _on_stated(self, partition: Partition, appended: Appended, view: memoryview, *, is_deposed: bool) -> None:
        for record in iterate_records(view):
            decoded = decode_record(record.key or b"", record.value)
            assert decoded is not None, "a record of this topic is of a transactional id"
            assert isinstance(decoded.key, TransactionLogKey), "and has it as its key"
            value = decoded.value
            found = Transaction.from_value(value) if isinstance(value, TransactionLogValue) else None
            at = appended.base_offset + record.offset - read_header(view).base_offset
            self._stated[partition.key, at, partition.led_epoch] = decoded.key.transactional_id, found
            if found is None or not found.state.is_prepared or is_deposed:
                continue
            if found.producer_epoch < self._fenced_below.get(found.producer_id, -1):
                self._find(f"V7: {decoded.key.transactional_id} is decided in epoch {found.producer_epoch} of producer {found.producer_id}")

    def _on_markers(self, queues: MarkerQueues, shard: Any, wanted: WriteMarkers) -> None:
        self._follow()
        decision = wanted.producer_id, wanted.producer_epoch, wanted.is_commit
        self._states["markers sent"] += 1
        if decision not in self._decisions:
            self._find(f"V1: markers of {decision} are sent before that is committed in {shard.partition.key}, epoch {shard.leader_epoch}")

    def _answered(self, producer_id: int, epoch: int) -> None:
        self._fenced_below[producer_id] = max(epoch, self._fenced_below.get(producer_id, -1))

    # -- what is compared

    def _check_data(self, partition: Partition, header: BatchHeader, offset: int) -> None:
        self._follow()
        self._states["transactional batches"] += 1
        producer_id, epoch = header.producer_id, header.producer_epoch
        if epoch < self._fenced_below.get(producer_id, -1):
            self._find(f"V7: {partition.key} takes epoch {epoch} of producer {producer_id}, whose next one was answered")
        known = self._by_producer.get(producer_id)
        if known is None or partition.key not in known.partitions or known.state not in _WITH_RECORDS:
            self._find(f"V6: {partition.key} takes offset {offset} of producer {producer_id}, and what is committed of it is {known}")

    def _follow(self) -> None:
        """What is committed in ``__transaction_state`` by now."""
        for partition in self._state_partitions:
            key, epochs = partition.key, partition.log.epochs
            at, end = self._committed_to.get(key, 0), partition.high_watermark
            while at < end and (epoch := epochs.epoch_at(at)) >= 0:
                stated = self._stated.get((key, at, epoch))
                if stated is not None:
                    self._commit(key, *stated)
                at += 1
            self._committed_to[key] = at

    def _commit(self, key: TopicPartition, transactional_id: str, found: Transaction | None) -> None:
        if found is None:
            self._latest.pop(transactional_id, None)
            return
        self._latest[transactional_id] = key, found
        self._by_producer[found.producer_id] = found
        if found.state.is_prepared:
            self._decisions.add((found.producer_id, found.producer_epoch, found.state.is_commit))
            self._states["decisions committed"] += found.state.is_commit
            self._states["decisions to abort"] += not found.state.is_commit
            is_late = found.updated_ms - found.start_ms >= found.timeout_ms
            self._states["decisions for want of time"] += is_late and not found.state.is_commit

    def _transactions(self, partition: Partition) -> _Transactions:
        """What the partition's log has under its present leader, that is this broker; read again where something was dropped."""
        place, dropped = (partition, partition.led_epoch), partition.log.tail.drop_count
        known = self._led.get(place)
        if known is None or known.dropped != dropped:
            highest = 0 if known is None else known.highest_stable
            known = self._led[place] = _Transactions(dropped, self._certain_from.get(partition, 0))
            known.highest_stable = highest
            epochs, end = partition.log.epochs, partition.log.log_end_offset
            for (offset, epoch), header in sorted(self._staged.get(_identity(partition), {}).items(), key=lambda staged: staged[0]):
                if offset < end and epochs.epoch_at(offset) == epoch:
                    known.add(header, offset, is_marker=header.is_control)
        return known

    def _look_at(self, partition: Partition) -> None:
        if partition.led_epoch < 0 or _identity(partition) not in self._staged:
            return
        known, stable, high_watermark = self._transactions(partition), partition.last_stable_offset, partition.high_watermark
        start = partition.log.log_start_offset
        self._states["stable offsets looked at"] += 1
        if stable > max(start, known.bound(high_watermark)):
            self._find(f"V8: {partition.key} is stable to {stable}, and a transaction holds it at {known.bound(high_watermark)}")
        if stable < start or stable < known.highest_stable:
            self._find(f"V8: {partition.key} is stable to {stable}, was to {known.highest_stable}, and starts at {start}")
        known.highest_stable = max(stable, known.highest_stable)

    def _find(self, problem: str) -> None:
        if problem not in self._findings:
            self._findings.append(problem)


def _identity(partition: Partition) -> tuple[TopicPartition, bytes]:
    """A topic that was deleted may be made again under its name."""
    return partition.key, partition.topic_id


_WITH_RECORDS: Final = frozenset({TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})


@contextmanager
def _after(owner: type, name: str, see: Callable[..., None]) -> Iterator[None]:
    """``see`` is called with the object, what its method has returned, and the method's arguments."""
    method = getattr(owner, name)

    def watched(self: Any, *given: Any, **named: Any) -> Any:
        result = method(self, *given, **named)
        see(self, result, *given, **named)
        return result

    with mock.patch.object(owner, name, watched):
        yield


@contextmanager
def _before(owner: type, name: str, see: Callable[..., None]) -> Iterator[None]:
    method = getattr(owner, name)

    def watched(self: Any, *given: Any, **named: Any) -> Any:
        see(self, *given, **named)
        return method(self, *given, **named)

    with mock.patch.object(owner, name, watched):
        yield
