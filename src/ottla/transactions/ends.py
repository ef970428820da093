"""From a decision to its end: the markers that are to be written, what brokers answer, and the record that all is done."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from ottla.machine import Decision, StoredRecord
from ottla.messages.transaction_records import TransactionLogKey
from ottla.transactions.commands import AnswerMarkers
from ottla.transactions.effects import ReportMarker, Verdict, WriteMarkers, delay_ms, verdict_of
from ottla.transactions.transaction import Transaction
from ottla.types import TopicPartition


class Ended(Struct, frozen=True):
    """A transaction that was just decided."""

    transactional_id: str
    records: tuple[StoredRecord, ...]
    effects: tuple[WriteMarkers, ...]
    wakes: tuple[str, ...]


class MarkersAnswered(Struct, frozen=True):
    """These partitions have their marker, those were asked in vain."""

    transactional_id: str
    marked: frozenset[TopicPartition]
    in_vain: frozenset[TopicPartition]


class Superseded(Struct, frozen=True):
    """A newer coordinator decides about the transaction."""

    transactional_id: str


def ended(transactional_id: str, prepared: Transaction, *, now_ms: int) -> Ended:
    """Returns what follows from a decision: its record, and the markers. Without partitions it is complete at once."""
    key = TransactionLogKey(transactional_id)
    decided = StoredRecord(key, prepared.to_value())
    if prepared.partitions:
        return Ended(transactional_id, (decided,), (_markers(transactional_id, prepared, prepared.partitions),), ())
    complete = StoredRecord(key, prepared.completed(now_ms=now_ms).to_value())
    return Ended(transactional_id, (decided, complete), (), (transactional_id,))


def resumed(transactional_id: str, prepared: Transaction, *, now_ms: int) -> Decision:
    """Returns what follows when a decided transaction was loaded."""
    found = ended(transactional_id, prepared, now_ms=now_ms)
    return Decision(records=found.records[1:], effects=found.effects, wakes=found.wakes, has_limit=False)


def answered(command: AnswerMarkers, prepared: Transaction, unmarked: Mapping[TopicPartition, int], *, now_ms: int) -> Decision:
    """Takes brokers' answers about some of the partitions that lack their marker. It is complete when none is left."""
    verdicts = {partition: verdict_of(code) for partition, code in command.answers if partition in unmarked}
    if Verdict.SUPERSEDED in verdicts.values():
        return Decision(facts=(Superseded(command.transactional_id),))
    verdicts |= dict.fromkeys(command.deleted & unmarked.keys(), Verdict.DONE)
    marked = frozenset(partition for partition, verdict in verdicts.items() if verdict in (Verdict.DONE, Verdict.REFUSED))
    in_vain = frozenset(verdicts) - marked
    reports = tuple(
        ReportMarker(command.transactional_id, command.producer_id, command.producer_epoch, partition, code)
        for partition, code in command.answers
        if verdicts.get(partition) in (Verdict.REFUSED, Verdict.UNFORESEEN)
    )
    if len(marked) == len(unmarked):
        complete = StoredRecord(TransactionLogKey(command.transactional_id), prepared.completed(now_ms=now_ms).to_value())
        return Decision(records=(complete,), effects=reports, wakes=(command.transactional_id,), has_limit=False)
    again: tuple[WriteMarkers, ...] = ()
    if in_vain:
        attempts = 1 + max(unmarked[partition] for partition in in_vain)
        again = (_markers(command.transactional_id, prepared, in_vain, delay=delay_ms(attempts)),)
    return Decision(facts=(MarkersAnswered(command.transactional_id, marked, in_vain),), effects=(*reports, *again))


def lacking(prepared: Transaction, unmarked: Mapping[TopicPartition, int]) -> Transaction:
    """Returns the transaction as administrators see it: with the partitions alone that lack their marker."""
    return replace(prepared, partitions=frozenset(unmarked))


def _markers(transactional_id: str, prepared: Transaction, partitions: frozenset[TopicPartition], *, delay: int = 0) -> WriteMarkers:
    return WriteMarkers(
        transactional_id, prepared.producer_id, prepared.producer_epoch, prepared.state.is_commit, prepared.version, partitions, delay
    )
