"""The transaction machine behind a transcript. Producers have names; each remembers the id and epoch that it was told.

================================================  =================================================================
``init NAME``                                     InitProducerId of a process that begins
``continue NAME``                                 the same, with the id and epoch that it has (KIP-360)
``add NAME PARTITION...``                         partitions are added, by AddPartitionsToTxn or the first Produce
``verify NAME PARTITION...``
``commit NAME [v0]`` ``abort NAME [v0]``          EndTxn 5, or ``v0`` below
``was NAME ID EPOCH``                             it has these, whatever it was told since: an answer was lost
``markers [CODE...]``                             brokers answer for the markers that are due, by partition; NONE without a code
``advance MS``                                    time passes, deadlines are met
``restart``                                       the coordinator is lost; another one reads the log
``epoch NAME EPOCH``                              the producer has come this far (as the first command)
================================================  =================================================================
"""

from __future__ import annotations

from typing import Any

from tests.transactions.coordinator_runner import Runner

from ottla.errors import ErrorCode
from ottla.messages.transaction_records import TransactionLogValue
from ottla.transactions.commands import PartitionsResult
from ottla.transactions.records import decode_record
from ottla.transactions.transaction import Transaction


class TransactionPlayer:
    def __init__(self) -> None:
        self._runner = Runner()
        self._had: dict[str, tuple[int, int]] = {}
        self._waiting: dict[int, str] = {}  # by token
        self._printed = 0  # records of the log
        self._known: list[Any] = []  # markers that were shown

    def __call__(self, line: str) -> list[str]:
        name, *arguments = line.split()
        out: list[str] = getattr(self, f"_{name}")(*arguments) or []
        return [*out, *self._records(), *self._answers(), *self._markers_asked()]

    def _asked(self, producer: str) -> None:
        self._waiting[self._runner.last_token] = producer

    def _init(self, producer: str) -> None:
        self._runner.init()
        self._asked(producer)

    def _continue(self, producer: str) -> None:
        self._runner.init(*self._had[producer])
        self._asked(producer)

    def _add(self, producer: str, *partitions: str) -> None:
        self._runner.add(*self._had[producer], *partitions)
        self._asked(producer)

    def _verify(self, producer: str, *partitions: str) -> None:
        self._runner.verify(*self._had[producer], *partitions)
        self._asked(producer)

    def _commit(self, producer: str, version: str = "v2") -> None:
        self._runner.end(*self._had[producer], is_commit=True, version=int(version[1:]))
        self._asked(producer)

    def _abort(self, producer: str, version: str = "v2") -> None:
        self._runner.end(*self._had[producer], is_commit=False, version=int(version[1:]))
        self._asked(producer)

    def _was(self, producer: str, producer_id: str, epoch: str) -> None:
        self._had[producer] = (int(producer_id), int(epoch))

    def _markers(self, *codes: str) -> None:
        [markers, *_] = self._runner.due_markers
        self._runner.answer(markers, *(ErrorCode[code] for code in codes))

    def _advance(self, ms: str) -> None:
        self._runner.advance(int(ms))

    def _restart(self) -> list[str]:
        lost = [self._waiting.pop(token) for token in sorted(self._waiting)]
        self._runner.restart()
        return [f"{producer}: NOT_COORDINATOR" for producer in lost]

    def _epoch(self, producer: str, epoch: str) -> None:
        self._had[producer] = self._runner.brought_to(int(epoch))

    def _answers(self) -> list[str]:
        out = []
        for token, producer in sorted(self._waiting.items()):
            if token not in self._runner.answers:
                out.append(f"{producer} waits")
                continue
            del self._waiting[token]
            out.append(f"{producer}: {self._told(producer, self._runner.answers[token])}")
        return out

    def _told(self, producer: str, result: Any) -> str:
        if isinstance(result, PartitionsResult):
            return " ".join(ErrorCode(code).name for code in result.error_codes)
        if result.error_code:
            return ErrorCode(result.error_code).name
        self._had[producer] = (result.producer_id, result.producer_epoch)
        return f"id {result.producer_id} epoch {result.producer_epoch}"

    def _records(self) -> list[str]:
        fresh, self._printed = self._runner.log[self._printed :], len(self._runner.log)
        out = []
        for key, value in fresh:
            record = decode_record(key, value)
            assert record is not None
            if record.value is None:
                out.append("record deleted")
                continue
            assert isinstance(record.value, TransactionLogValue)
            found = Transaction.from_value(record.value)
            state = "".join(word.title() for word in found.state.name.split("_"))
            partitions = [str(partition) for partition in sorted(found.partitions)]
            after = [f"then id {found.next_producer_id}"] if found.next_producer_id >= 0 else []
            out.append(" ".join(["record", state, f"id {found.producer_id} epoch {found.producer_epoch}", *partitions, *after]))
        return out

    def _markers_asked(self) -> list[str]:
        asked, out = self._runner.asked, []
        for one in asked:
            if not any(one is known for known in self._known):
                markers = one.markers
                kind, partitions = "commit" if markers.is_commit else "abort", " ".join(map(str, sorted(markers.partitions)))
                delay = f" in {one.due_ms - self._runner.now_ms} ms" if one.due_ms > self._runner.now_ms else ""
                out.append(f"{kind} markers of id {markers.producer_id} epoch {markers.producer_epoch} for {partitions}{delay}")
        self._known = list(asked)
        return out
