"""Runs one transaction coordinator on a clock that tests turn by hand, as the broker's shards do on a real one.

It holds the machine to its contract on the way: deciding changes nothing, a token is answered once, every record survives the way through
bytes. Brokers that write markers are the test: ``due_markers`` are those that they are asked for now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ottla.errors import ErrorCode
from ottla.machine import Decision, Park, StoredRecord, Timer
from ottla.messages.transaction_records import TransactionLogKey, TransactionLogValue
from ottla.transactions.commands import (
    AddPartitions,
    AnswerMarkers,
    DescribeTransaction,
    EndResult,
    EndTransaction,
    InitProducerId,
    InitResult,
    PartitionsResult,
    VerifyPartitions,
)
from ottla.transactions.coordinator import TransactionCoordinator, TransactionSettings
from ottla.transactions.effects import ReportMarker, TakeProducerId, WriteMarkers
from ottla.transactions.records import decode_record, encode_record
from ottla.transactions.transaction import Transaction, TransactionState
from ottla.types import TopicPartition

PARK_MS = 1_000
TIMEOUT_MS = 60_000
ID = "payments"
NONE = ErrorCode.NONE


def partitions(*names: str) -> tuple[TopicPartition, ...]:
    """Written as ``topic-index``."""
    return tuple(TopicPartition(topic, int(index)) for topic, _, index in (name.rpartition("-") for name in names))


@dataclass
class _Asked:
    """Markers that brokers have not answered for."""

    due_ms: int
    markers: WriteMarkers


class Runner:
    def __init__(self, settings: TransactionSettings | None = None, *, level: int = 2, first_producer_id: int = 1000) -> None:
        self.settings = settings or TransactionSettings()
        self.level = level  # of transaction.version, as finalized
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[int, Any] = {}
        self.waiting: set[int] = set()
        self.failed: set[int] = set()  # waiting when the coordinator was lost
        self.parked: list[tuple[int, Park]] = []  # and until when
        self.timers: dict[tuple[str, ...], Timer] = {}
        self.asked: list[_Asked] = []
        self.reports: list[ReportMarker] = []
        self.next_producer_id = first_producer_id
        self._first_asked_ms: dict[int, int] = {}
        self.last_token = 0
        self.restart()

    # -- the runner

    def restart(self) -> None:
        """The coordinator is lost with all that is volatile; another one takes over from the log."""
        self.failed |= self.waiting
        self.waiting, self.parked, self.timers, self.asked = set(), [], {}, []
        self.machine = TransactionCoordinator(self.settings)
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            self.machine.apply(record)
        for decision in self.machine.on_loaded(self.now_ms):
            self._carry_out(decision)

    def token(self) -> int:
        self.last_token += 1
        self.waiting.add(self.last_token)
        self._first_asked_ms[self.last_token] = self.now_ms
        return self.last_token

    def ask(self, command: Any) -> Any:
        """The answer, or None while the command is parked."""
        self.decide(command)
        return self.answers.get(command.token)

    def decide(self, command: Any) -> None:
        machine = self.machine
        before = (dict(machine._transactions), dict(machine._began_ms), {key: dict(found) for key, found in machine._unmarked.items()})
        decision = machine.decide(command, self.now_ms)
        assert (machine._transactions, machine._began_ms, machine._unmarked) == before, "deciding changes nothing"
        self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        for record in decision.records:
            key, value = encode_record(record, transaction_version=self.level)
            assert self.level == 0 or decode_record(key, value) == record
            self.log.append((key, value))
            self.machine.apply(record)
        for fact in decision.facts:
            self.machine.apply_fact(fact)
        for park in decision.parks:
            assert park.command.token in self.waiting, "what is parked is not answered yet"
            self.parked.append((self._first_asked_ms[park.command.token] + PARK_MS, park))
        for timer in decision.timers:
            assert timer.deadline_ms >= self.now_ms
            self.timers[timer.name] = timer
        for token, value in decision.replies:
            assert token in self.waiting, "a token is answered once"
            self.waiting.remove(token)
            self.answers[token] = value
        for effect in decision.effects:
            self._carry_out_effect(effect)
        if decision.wakes:
            woken = [park for _, park in self.parked if park.key in decision.wakes]
            self.parked = [(until_ms, park) for until_ms, park in self.parked if park.key not in decision.wakes]
            for park in woken:
                self.decide(park.command)

    def _carry_out_effect(self, effect: Any) -> None:
        if isinstance(effect, WriteMarkers):
            self.asked.append(_Asked(self.now_ms + effect.delay_ms, effect))
        elif isinstance(effect, TakeProducerId):
            self.next_producer_id += 1
            self.decide(replace(effect.command, fresh_producer_id=self.next_producer_id - 1))
        else:
            assert isinstance(effect, ReportMarker), "there are no other effects"
            self.reports.append(effect)

    def advance(self, ms: int) -> None:
        """Time passes; deadlines that come up on the way are met in their order."""
        end_ms = self.now_ms + ms
        while True:
            due = [timer for timer in self.timers.values() if timer.deadline_ms <= end_ms]
            timer = min(due, key=lambda timer: (timer.deadline_ms, timer.name), default=None)
            late = min(self.parked, key=lambda parked: parked[0], default=None)
            if late is not None and late[0] <= end_ms and (timer is None or late[0] < timer.deadline_ms):
                self.now_ms = max(self.now_ms, late[0])
                self.parked.remove(late)
                self.waiting.remove(late[1].command.token)
                self.answers[late[1].command.token] = late[1].late
            elif timer is not None:
                del self.timers[timer.name]
                self.now_ms = max(self.now_ms, timer.deadline_ms)
                self.decide(timer.command)
            else:
                break
        self.now_ms = end_ms

    # -- brokers that write markers

    @property
    def due_markers(self) -> list[WriteMarkers]:
        """What brokers are asked for by now."""
        return [asked.markers for asked in self.asked if asked.due_ms <= self.now_ms]

    def answer(self, markers: WriteMarkers, *codes: ErrorCode, deleted: tuple[TopicPartition, ...] = ()) -> None:
        """For its partitions in their order, NONE for those without a code; an answer that comes twice is one of these, too."""
        self.asked = [asked for asked in self.asked if asked.markers is not markers]
        found = [partition for partition in sorted(markers.partitions) if partition not in deleted]
        codes += (NONE,) * (len(found) - len(codes))
        answers = tuple(zip(found, map(int, codes)))
        self.decide(AnswerMarkers(markers.transactional_id, markers.producer_id, markers.producer_epoch, answers, frozenset(deleted)))

    def answer_all(self) -> None:
        """Every marker is written, as often as it takes."""
        while self.asked:
            self.answer(self.asked[0].markers)

    # -- what clients and brokers ask

    def init(self, producer_id: int = -1, epoch: int = -1, *, name: str = ID, timeout_ms: int = TIMEOUT_MS) -> InitResult | None:
        found: InitResult | None = self.ask(InitProducerId(self.token(), name, timeout_ms, producer_id, epoch))
        return found

    def add(self, producer_id: int, epoch: int, *names: str, name: str = ID, version: int = 2) -> PartitionsResult | None:
        found: PartitionsResult | None = self.ask(AddPartitions(self.token(), name, producer_id, epoch, partitions(*names), version))
        return found

    def verify(self, producer_id: int, epoch: int, *names: str, name: str = ID) -> PartitionsResult | None:
        found: PartitionsResult | None = self.ask(VerifyPartitions(self.token(), name, producer_id, epoch, partitions(*names)))
        return found

    def end(self, producer_id: int, epoch: int, *, is_commit: bool, name: str = ID, version: int = 2) -> EndResult | None:
        found: EndResult | None = self.ask(EndTransaction(self.token(), name, producer_id, epoch, is_commit, version))
        return found

    def described(self, name: str = ID) -> Transaction | None:
        found: Transaction | None = self.ask(DescribeTransaction(self.token(), name)).transaction
        return found

    @property
    def state(self) -> Transaction:
        """Of the one that tests use, which is known."""
        return self.machine._transactions[ID]

    def status(self) -> TransactionState:
        return self.state.state

    def brought_to(self, epoch: int) -> tuple[int, int]:
        """A producer that has come to this epoch; its id, and the epoch."""
        found = self.init()
        assert found is not None
        [record] = [record for record in self.machine.snapshot() if record.key == TransactionLogKey(ID)]
        assert isinstance(record.value, TransactionLogValue)
        value = replace(record.value, producer_epoch=epoch)
        self.log.append(encode_record(StoredRecord(record.key, value), transaction_version=self.level))
        self.restart()
        return found.producer_id, epoch
