"""The transaction coordinator: all transactional ids of one partition of ``__transaction_state``, as a replicated machine.

What clients ask is looked up in ``table.py``; here is what is done then. What is durable comes from records, each of which has all of its
transaction. What is volatile: the partitions of prepared transactions that lack their marker, and when open ones started by a clock that
was never set back. After a restart every marker of a prepared transaction is written once more, which does no harm.

Each partition that is added to a transaction writes all of its partitions once more. So a load reads the last record of each id alone.

Time comes in as ``now_ms`` and is written to records: it should be the time of day. It may jump; transactions that started in the future
start now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Any, Final

from msgspec import Struct

from ottla.errors import ErrorCode
from ottla.machine import Decision, Park, StoredRecord, Timer
from ottla.messages.transaction_records import TransactionLogKey, TransactionLogValue
from ottla.transactions import ends
from ottla.transactions.commands import (
    AbortTimedOut,
    AddPartitions,
    AnswerMarkers,
    Asked,
    DescribeResult,
    DescribeTransaction,
    EndResult,
    EndTransaction,
    ExpireIds,
    InitProducerId,
    InitResult,
    ListResult,
    ListTransactions,
    PartitionsResult,
    VerifyPartitions,
    refusal,
)
from ottla.transactions.effects import TakeProducerId
from ottla.transactions.ends import Ended, MarkersAnswered, Superseded
from ottla.transactions.records import fits_record
from ottla.transactions.table import TABLE, Do, row_of
from ottla.transactions.transaction import NO_PRODUCER_ID, NOBODY, Transaction, TransactionState
from ottla.types import NO_EPOCH, TopicPartition

NOTHING: Final = Decision()
FOREVER_MS: Final = 2**63
ABORTED_MAX: Final = 100
"""Transactions that one decision aborts because their time has passed; it takes some milliseconds, and the next one comes at once."""
ABORTED_PARTITIONS_MAX: Final = 1000
"""Their partitions; a transaction that has more is aborted alone."""


class TransactionSettings(Struct, frozen=True):
    """The broker's settings of transactions; the defaults are Kafka's."""

    timeout_ms_max: int = 900_000
    timeout_check_interval_ms: int = 10_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    expiration_check_interval_ms: int = 3_600_000


class LookAgain(Struct, frozen=True):
    """The open transactions are looked at when ``due_ms`` comes."""

    due_ms: int
    now_ms: int | None = None  # they were looked at then: none of them started later


_CONFIRMATION: Final = StoredRecord(TransactionLogKey(""), None)  # no transaction has this id
_FINAL: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
"""Clients end their work after these."""


class TransactionCoordinator:
    """``machine.ReplicatedMachine`` for transactions."""

    def __init__(self, settings: TransactionSettings) -> None:
        self._settings = settings
        self._unread: dict[str, TransactionLogValue | None] | None = {}  # records of the log that is being loaded
        self._transactions: dict[str, Transaction] = {}
        self._began_ms: dict[str, int] = {}  # of open transactions
        self._unmarked: dict[str, dict[TopicPartition, int]] = {}  # of prepared ones, and how often each was tried in vain
        self._in_vain: set[str] = set()  # prepared ones with a partition where a marker was tried in vain
        self._superseded: set[str] = set()
        self._due_ms = FOREVER_MS  # when open transactions are looked at
        self._deciders: dict[type, Callable[[Any, int], Decision]] = {
            InitProducerId: self._init,
            AddPartitions: self._ask,
            VerifyPartitions: self._ask,
            EndTransaction: self._ask,
            DescribeTransaction: self._describe,
            ListTransactions: self._list,
            AnswerMarkers: self._answer_markers,
            AbortTimedOut: self._abort_timed_out,
            ExpireIds: self._expire_ids,
        }
        self._doers: dict[Do, Callable[[Any, Any, int], Decision]] = {
            Do.CREATE: self._create,
            Do.RENEW: self._renew,
            Do.FENCE: self._fence,
            Do.REPEAT: self._repeat,
            Do.BEGIN: self._begin,
            Do.EXTEND: self._extend,
            Do.COMPARE: self._compare,
            Do.COMMIT: self._end,
            Do.ABORT: self._end,
            Do.ABORT_NOTHING: self._end,
            Do.WAIT: self._wait,
        }

    # -- the machine

    def decide(self, command: Any, now_ms: int) -> Decision:
        return self._deciders[type(command)](command, now_ms)

    def apply(self, record: StoredRecord) -> None:
        key, value = record.key, record.value
        assert isinstance(key, TransactionLogKey), "the log holds transactions"
        assert value is None or isinstance(value, TransactionLogValue), "the key type determines the value type"
        if self._unread is None:
            self._take(key.transactional_id, value)
        else:
            self._unread[key.transactional_id] = value

    def _take(self, transactional_id: str, value: TransactionLogValue | None) -> None:
        before, began_ms = self._transactions.get(transactional_id), self._began_ms.pop(transactional_id, None)
        self._unmarked.pop(transactional_id, None)
        self._superseded.discard(transactional_id)
        self._in_vain.discard(transactional_id)
        if value is None or value.transaction_status == TransactionState.DEAD:
            self._transactions.pop(transactional_id, None)
            return
        found = self._transactions[transactional_id] = Transaction.from_value(value)
        if found.state == TransactionState.ONGOING:
            is_same = began_ms is not None and before is not None and before.start_ms == found.start_ms
            self._began_ms[transactional_id] = began_ms if is_same and began_ms is not None else found.start_ms
        elif found.state.is_prepared:
            self._unmarked[transactional_id] = dict.fromkeys(found.partitions, 0)

    def apply_pending(self, producer_id: int, record: StoredRecord) -> None:
        raise AssertionError("the log of transactions is part of none")

    def apply_end(self, producer_id: int, *, is_commit: bool) -> None:
        """Does nothing: nothing ends in the log of transactions."""

    def apply_fact(self, fact: Any) -> None:
        if isinstance(fact, LookAgain):
            self._due_ms = fact.due_ms
            now_ms = fact.now_ms
            if now_ms is not None:
                self._began_ms.update({key: now_ms for key, began_ms in self._began_ms.items() if began_ms > now_ms})
        elif isinstance(fact, MarkersAnswered):
            unmarked = self._unmarked[fact.transactional_id]
            for partition in fact.marked:
                del unmarked[partition]
            for partition in fact.in_vain:
                unmarked[partition] += 1
            if fact.in_vain:
                self._in_vain.add(fact.transactional_id)
        else:
            assert isinstance(fact, Superseded), "nothing else is volatile"
            self._superseded.add(fact.transactional_id)

    def on_loaded(self, now_ms: int) -> Iterator[Decision]:
        """Reads what was loaded, and continues what is prepared; open transactions have the rest of their time."""
        unread = self._unread or {}
        for transactional_id in list(unread):
            self._take(transactional_id, unread.pop(transactional_id))
            yield NOTHING
        self._unread = None
        for transactional_id in list(self._unmarked):  # completing changes it
            yield ends.resumed(transactional_id, self._transactions[transactional_id], now_ms=now_ms)
        yield self._looked_at(frozenset(), now_ms)
        yield Decision(timers=(self._next_expiry(now_ms),))

    def dismantle(self) -> Iterator[None]:
        known: dict[str, Any]
        for known in (self._unread or {}, self._began_ms, self._unmarked, self._transactions):
            while known:
                known.popitem()
                yield

    def snapshot(self) -> Iterator[StoredRecord]:
        for transactional_id, found in self._transactions.items():
            yield StoredRecord(TransactionLogKey(transactional_id), found.to_value())

    # -- what clients and brokers ask

    def _init(self, command: InitProducerId, now_ms: int) -> Decision:
        if (command.producer_id == NO_PRODUCER_ID) != (command.producer_epoch == NO_EPOCH):
            return _answer(command.token, InitResult(ErrorCode.INVALID_REQUEST))
        if command.transactional_id and not 0 < command.timeout_ms <= self._settings.timeout_ms_max:
            return _answer(command.token, InitResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        return self._ask(command, now_ms)

    def _ask(self, command: Asked, now_ms: int) -> Decision:
        if not command.transactional_id or not fits_record(command.transactional_id):
            return _answer(command.token, refusal(command, ErrorCode.INVALID_REQUEST))
        known = self._transactions.get(command.transactional_id)
        cell = TABLE[row_of(command, known)][None if known is None else known.state]
        if isinstance(cell, ErrorCode):
            return Decision(replies=((command.token, refusal(command, cell)),), confirmation=_CONFIRMATION if cell in _FINAL else None)
        return self._doers[cell](command, known, now_ms)

    def _wait(self, command: Asked, known: Transaction, now_ms: int) -> Decision:
        """Parks the command; a broker's is refused where markers take long: what comes after it on its connection is other producers'."""
        is_of_broker = isinstance(command, AddPartitions) and command.transaction_version >= 2
        if is_of_broker and command.transactional_id in self._in_vain:
            return _answer(command.token, refusal(command, ErrorCode.CONCURRENT_TRANSACTIONS))
        return Decision(parks=(_park(command),))

    def _repeat(self, command: InitProducerId | EndTransaction, known: Transaction, now_ms: int) -> Decision:
        result = InitResult if isinstance(command, InitProducerId) else EndResult
        return _answer(command.token, result(ErrorCode.NONE, known.producer_id, known.producer_epoch))

    def _create(self, command: InitProducerId, known: None, now_ms: int) -> Decision:
        if command.fresh_producer_id == NO_PRODUCER_ID:
            return Decision(effects=(TakeProducerId(command),))
        created = Transaction(
            command.fresh_producer_id, 0, command.timeout_ms, TransactionState.EMPTY, now_ms, last_epoch=_last_epoch(command),
            previous_producer_id=command.producer_id,  # the id may have expired under a producer that goes on
        )  # fmt: skip
        return _initialized(command, created)

    def _renew(self, command: InitProducerId, known: Transaction, now_ms: int) -> Decision:
        if known.is_exhausted and command.fresh_producer_id == NO_PRODUCER_ID:
            return Decision(effects=(TakeProducerId(command),))
        renewed = known.renewed(
            now_ms=now_ms, timeout_ms=command.timeout_ms, last_epoch=_last_epoch(command), fresh_producer_id=command.fresh_producer_id
        )
        return _initialized(command, renewed)

    def _fence(self, command: InitProducerId, known: Transaction, now_ms: int) -> Decision:
        if known.is_exhausted and command.fresh_producer_id == NO_PRODUCER_ID:
            return Decision(effects=(TakeProducerId(command),))
        aborted = known.prepared(
            is_commit=False, now_ms=now_ms, version=known.version, raises_epoch=True, last_epoch=_last_epoch(command),
            fresh_producer_id=command.fresh_producer_id,
        )  # fmt: skip
        ended = ends.ended(command.transactional_id, aborted, now_ms=now_ms)
        return Decision(records=ended.records, effects=ended.effects, wakes=ended.wakes, parks=(_park(command),), has_limit=False)

    def _begin(self, command: AddPartitions, known: Transaction, now_ms: int) -> Decision:
        if not command.partitions:
            return _answer(command.token, PartitionsResult(()))
        begun = known.begun(command.partitions, now_ms=now_ms, version=command.transaction_version)
        due_ms = now_ms + begun.timeout_ms
        is_next = due_ms < self._due_ms
        return Decision(
            records=(_record(command.transactional_id, begun),),
            facts=(LookAgain(due_ms),) if is_next else (),
            timers=(_timeouts_at(due_ms),) if is_next else (),
            replies=((command.token, refusal(command, ErrorCode.NONE)),),
        )

    def _extend(self, command: AddPartitions, known: Transaction, now_ms: int) -> Decision:
        if known.partitions.issuperset(command.partitions):
            return _answer(command.token, refusal(command, ErrorCode.NONE))
        extended = known.extended(command.partitions, now_ms=now_ms, version=command.transaction_version)
        records = (_record(command.transactional_id, extended),)
        return Decision(records=records, replies=((command.token, refusal(command, ErrorCode.NONE)),))

    def _compare(self, command: VerifyPartitions, known: Transaction, now_ms: int) -> Decision:
        codes = [ErrorCode.NONE if found in known.partitions else ErrorCode.TRANSACTION_ABORTABLE for found in command.partitions]
        return _answer(command.token, PartitionsResult(tuple(codes)))

    def _end(self, command: EndTransaction, known: Transaction, now_ms: int) -> Decision:
        raises_epoch = command.transaction_version >= 2
        if raises_epoch and known.is_exhausted and command.fresh_producer_id == NO_PRODUCER_ID:
            return Decision(effects=(TakeProducerId(command),))
        prepared = known.prepared(
            is_commit=command.is_commit, now_ms=now_ms, version=command.transaction_version, raises_epoch=raises_epoch,
            last_epoch=command.producer_epoch, fresh_producer_id=command.fresh_producer_id,
        )  # fmt: skip
        next_one = prepared.completed(now_ms=now_ms)
        ended = ends.ended(command.transactional_id, prepared, now_ms=now_ms)
        reply = EndResult(ErrorCode.NONE, next_one.producer_id, next_one.producer_epoch)
        return Decision(records=ended.records, effects=ended.effects, wakes=ended.wakes, replies=((command.token, reply),), has_limit=False)

    def _describe(self, command: DescribeTransaction, now_ms: int) -> Decision:
        return _answer(command.token, DescribeResult(self._shown(command.transactional_id)))

    def _list(self, command: ListTransactions, now_ms: int) -> Decision:
        return _answer(command.token, ListResult(tuple(self._transactions.items())))

    def _shown(self, transactional_id: str) -> Transaction | None:
        found, unmarked = self._transactions.get(transactional_id), self._unmarked.get(transactional_id)
        return found if found is None or unmarked is None else ends.lacking(found, unmarked)

    # -- markers, and time

    def _answer_markers(self, command: AnswerMarkers, now_ms: int) -> Decision:
        known = self._transactions.get(command.transactional_id)
        is_of_now = known is not None and (known.producer_id, known.producer_epoch) == (command.producer_id, command.producer_epoch)
        if known is None or not is_of_now or not known.state.is_prepared or command.transactional_id in self._superseded:
            return NOTHING
        return ends.answered(command, known, self._unmarked[command.transactional_id], now_ms=now_ms)

    def _abort_timed_out(self, command: AbortTimedOut, now_ms: int) -> Decision:
        ended: list[Ended] = []
        lacking_id: list[TakeProducerId] = []
        has_more, partition_count = False, 0
        for transactional_id, began_ms in self._began_ms.items():
            known = self._transactions[transactional_id]
            if command.transactional_id not in (None, transactional_id) or min(began_ms, now_ms) + known.timeout_ms > now_ms:
                continue
            partition_count += len(known.partitions)
            if len(ended) == ABORTED_MAX or (ended and partition_count > ABORTED_PARTITIONS_MAX):
                has_more = True
                break
            if known.is_exhausted and command.fresh_producer_id == NO_PRODUCER_ID:
                lacking_id.append(TakeProducerId(AbortTimedOut(transactional_id)))
                continue
            aborted = known.prepared(
                is_commit=False, now_ms=now_ms, version=known.version, raises_epoch=True, last_epoch=NOBODY,
                fresh_producer_id=command.fresh_producer_id,
            )  # fmt: skip
            ended.append(ends.ended(transactional_id, aborted, now_ms=now_ms))
        if has_more:
            looked_at = Decision(facts=(LookAgain(now_ms),), timers=(_timeouts_at(now_ms),))
        else:
            looked_at = self._looked_at({one.transactional_id for one in (*ended, *(lacks.command for lacks in lacking_id))}, now_ms)
        return Decision(
            records=tuple(record for one in ended for record in one.records),
            facts=looked_at.facts,
            timers=looked_at.timers,
            effects=(*(effect for one in ended for effect in one.effects), *lacking_id),
            wakes=tuple(key for one in ended for key in one.wakes),
            is_atomic=False,
            has_limit=False,
        )

    def _looked_at(self, seen: Set[str], now_ms: int) -> Decision:
        """Sets when open transactions, except these, are looked at: at the first deadline, and soon, for the clock may be set meanwhile."""
        due_ms = now_ms + self._settings.timeout_check_interval_ms
        for transactional_id, began_ms in self._began_ms.items():
            if transactional_id not in seen:
                due_ms = min(due_ms, max(now_ms, min(began_ms, now_ms) + self._transactions[transactional_id].timeout_ms))
        return Decision(facts=(LookAgain(due_ms, now_ms),), timers=(_timeouts_at(due_ms),))

    def _expire_ids(self, command: ExpireIds, now_ms: int) -> Decision:
        unused_since_ms = now_ms - self._settings.id_expiration_ms
        tombstones = [
            StoredRecord(TransactionLogKey(transactional_id), None)
            for transactional_id, found in self._transactions.items()
            if found.updated_ms <= unused_since_ms and found.state != TransactionState.ONGOING and not found.state.is_prepared
        ]
        return Decision(records=tuple(tombstones), timers=(self._next_expiry(now_ms),), is_atomic=False)

    def _next_expiry(self, now_ms: int) -> Timer:
        return Timer(("expiry",), now_ms + self._settings.expiration_check_interval_ms, ExpireIds())


def _answer(token: int, value: Any) -> Decision:
    return Decision(replies=((token, value),))


def _record(transactional_id: str, found: Transaction) -> StoredRecord:
    return StoredRecord(TransactionLogKey(transactional_id), found.to_value())


def _initialized(command: InitProducerId, found: Transaction) -> Decision:
    reply = InitResult(ErrorCode.NONE, found.producer_id, found.producer_epoch)
    return Decision(records=(_record(command.transactional_id, found),), replies=((command.token, reply),))


def _last_epoch(command: InitProducerId) -> int:
    """Returns what the client still has, should it not get the answer; after a fence no client may go on from before."""
    return NOBODY if command.producer_id == NO_PRODUCER_ID else command.producer_epoch


def _park(command: Asked) -> Park:
    return Park(command.transactional_id, command, refusal(command, ErrorCode.CONCURRENT_TRANSACTIONS))


def _timeouts_at(due_ms: int) -> Timer:
    return Timer(("timeouts",), due_ms, AbortTimedOut())
