"""Which anomalies a history has, partition by partition: the checks of Jepsen's Kafka workload, and checks of groups' commits.

    lost-write             acknowledged at or below the highest offset that was polled, and never polled at its offset
    unseen                 acknowledged, and never polled although all that there is has been (``drained``)
    duplicate              one value at two offsets
    inconsistent-offsets   two values at one offset
    phantom                a value was polled that was never sent, or sent elsewhere
    aborted-read           a value was polled whose send failed or whose transaction was aborted (G1a)
    precommitted-read      a transaction polled what it had sent itself
    nonmonotonic-poll      a consumer went back between two polls, without an assignment in between
    poll-skip              a consumer left out a record between two polls
    int-nonmonotonic-poll, int-poll-skip    the same within one poll, or within one transaction
    nonmonotonic-send      a later send of a process got a lower offset
    int-nonmonotonic-send  the same within one transaction
    realtime-send          a send got a lower offset than another process's that had been acknowledged before it was invoked
    G1c                    transactions have polled from each other in a circle
    torn                   of a transaction some records were polled at read_committed, and others passed over
    lost-commit            a group was found below an offset whose commit was confirmed, and which it did not take back
    phantom-commit         a group was found at an offset that no client had tried to commit, or only transactions that were aborted

Each is a single pass. Circles are of reads (``cycles.py``). Source: jepsen.tests.kafka.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.history.commits import Commits
from ottla.history.cycles import Read, circles
from ottla.history.logs import Acknowledged, LogView
from ottla.history.operations import Operation, Value

KINDS: Final = (
    *("lost-write", "unseen", "duplicate", "inconsistent-offsets", "phantom", "aborted-read", "precommitted-read"),
    *("nonmonotonic-poll", "poll-skip", "int-nonmonotonic-poll", "int-poll-skip"),
    *("nonmonotonic-send", "int-nonmonotonic-send", "realtime-send", "G1c", "torn", "lost-commit", "phantom-commit"),
)
Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """``partition`` is ``topic-index``; ``event`` is the number of the event that shows it, from 1 on; 0 for the history's end."""

    kind: str
    partition: str
    text: str
    event: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """``counts`` are of events that were ok, by ``f``."""

    anomalies: list[Anomaly]
    counts: Counter[str]
    record_count: int  # polled

    @property
    def is_unknown(self) -> bool:
        """Nothing was acknowledged, or nothing polled: an empty history is not a good one."""
        return not self.anomalies and not (self.counts["send"] and self.record_count)


@dataclass(slots=True)
class _Sent:
    process: str | int
    topic: str
    partition: int  # -1 while that is not known
    transaction: str
    event: int
    was_invoked: bool
    has_failed: bool = False


@dataclass(slots=True)
class _Position:
    """A consumer's position in a partition: the offset of its last record, and the transaction that polled it."""

    offset: int
    transaction: str


@dataclass(frozen=True, slots=True)
class _Jump:
    """A poll that went on at ``high`` after ``low``."""

    partition: Partition
    low: int
    high: int
    is_internal: bool
    process: str | int
    event: int


class Judge:
    """``take`` is called for each event in order, then ``verdict`` once."""

    def __init__(self) -> None:
        self._event = 0
        self._anomalies: list[Anomaly] = []
        self._counts: Counter[str] = Counter()
        self._record_count = 0
        self._logs: dict[Partition, LogView] = {}
        self._sent: dict[tuple[str, Value], _Sent] = {}
        self._ends: dict[str, bool] = {}  # transactions that certainly were committed, or aborted
        self._polled: list[tuple[Partition, int, Value, Operation, int]] = []
        self._positions: dict[tuple[str | int, Partition], _Position] = {}
        self._jumps: list[_Jump] = []
        self._commits = Commits()
        self._is_drained = False

    def take(self, operation: Operation) -> None:
        self._event += 1
        is_ok = operation.type == "ok"
        self._counts[operation.f] += is_ok
        match operation.f:
            case "send":
                self._on_send(operation)
            case "poll" if is_ok:
                self._on_poll(operation)
            case "assign" if is_ok:
                for topic, index in operation.partitions:
                    self._positions.pop((operation.process, (topic, index)), None)
            case "commit":
                self._commits.take(operation)
            case "committed":
                for kind, partition, text in self._commits.found(operation):
                    self._find(kind, partition, text, self._event)
            case "commit_transaction" | "abort_transaction" if is_ok:
                self._ends[operation.transaction] = operation.f == "commit_transaction"
                self._commits.end(operation.transaction, is_commit=self._ends[operation.transaction])
            case "drained" if is_ok:
                self._is_drained = True
            case _:
                return

    def verdict(self) -> Verdict:
        """Returns all anomalies, in the order of the events that show them; anomalies that only the end shows come last."""
        self._judge_polled()
        for partition, log in sorted(self._logs.items()):
            self._judge_acknowledged(partition, log)
        self._judge_order()
        self._judge_real_time()
        self._judge_circles()
        self._judge_jumps()
        self._judge_torn()
        self._anomalies.sort(key=lambda anomaly: anomaly.event or self._event + 1)
        return Verdict(self._anomalies, self._counts, self._record_count)

    def _find(self, kind: str, partition: Partition, text: str, event: int) -> None:
        self._anomalies.append(Anomaly(kind, f"{partition[0]}-{partition[1]}", text, event))

    # -- sends

    def _on_send(self, operation: Operation) -> None:
        key = operation.topic, operation.value
        if operation.type == "invoke" or key not in self._sent:
            was_invoked = operation.type == "invoke"
            sent = _Sent(operation.process, operation.topic, operation.partition, operation.transaction, self._event, was_invoked)
            self._sent.setdefault(key, sent)
        sent = self._sent[key]
        if operation.type == "fail":
            sent.has_failed = True
        elif operation.type == "ok":
            partition = operation.topic, operation.partition
            sent.partition = operation.partition
            log = self._logs.setdefault(partition, LogView())
            log.acknowledged.append(
                Acknowledged(operation.value, operation.offset, sent.process, sent.transaction, sent.event, self._event)
            )
            if sent.transaction:
                log.transactions[operation.offset] = sent.transaction
            self._place(partition, operation.offset, operation.value, f"was acknowledged to {sent.process}")

    def _place(self, partition: Partition, offset: int, value: Value, how: str) -> None:
        known, other = self._logs.setdefault(partition, LogView()).place(offset, value)
        if known != value:
            self._find("inconsistent-offsets", partition, f"offset {offset} is {known!r}, and {value!r} {how} there", self._event)
        if other is not None:
            self._find("duplicate", partition, f"{value!r} is at offset {other}, and {how} at offset {offset}", self._event)

    # -- polls

    def _on_poll(self, operation: Operation) -> None:
        within: set[Partition] = set()  # the partitions that this poll has returned a record of
        for topic, index, offset, value in operation.records:
            partition = topic, index
            log = self._logs.setdefault(partition, LogView())
            if log.values.get(offset) != value or offset not in log.polled:
                self._place(partition, offset, value, f"was polled by {operation.process}")
            log.polled.add(offset)
            log.highest_polled = max(log.highest_polled, offset)
            self._record_count += 1
            self._polled.append((partition, offset, value, operation, self._event))
            self._advance(partition, offset, operation, is_within=partition in within)
            within.add(partition)

    def _advance(self, partition: Partition, offset: int, operation: Operation, *, is_within: bool) -> None:
        key = operation.process, partition
        last = self._positions.get(key)
        self._positions[key] = _Position(offset, operation.transaction)
        if last is None:
            return
        is_internal = is_within or bool(operation.transaction and operation.transaction == last.transaction)
        if offset <= last.offset:
            kind = "int-nonmonotonic-poll" if is_internal else "nonmonotonic-poll"
            self._find(kind, partition, f"{operation.process} polled offset {offset} after offset {last.offset}", self._event)
        elif offset > last.offset + 1:
            self._jumps.append(_Jump(partition, last.offset, offset, is_internal, operation.process, self._event))

    # -- what only the end shows

    def _judge_polled(self) -> None:
        topics = {topic for topic, _ in self._sent}
        for partition, offset, value, operation, event in self._polled:
            sent = self._sent.get((partition[0], value))
            if sent is None or sent.partition not in (-1, partition[1]):
                if partition[0] in topics:
                    self._find("phantom", partition, f"{value!r} was polled at offset {offset}, and no client sent it there", event)
                continue
            if sent.transaction and sent.transaction == operation.transaction:
                text = f"{value!r} was polled at offset {offset} by the transaction {sent.transaction} that sends it"
                self._find("precommitted-read", partition, text, event)
            is_aborted = self._ends.get(sent.transaction) is False and not operation.read_uncommitted
            if sent.has_failed or is_aborted:
                why = "its send had failed" if sent.has_failed else f"its transaction {sent.transaction} was aborted"
                self._find("aborted-read", partition, f"{value!r} was polled at offset {offset} by {operation.process}, and {why}", event)

    def _judge_acknowledged(self, partition: Partition, log: LogView) -> None:
        for found in log.acknowledged:
            if found.offset in log.polled or (found.transaction and not self._ends.get(found.transaction)):
                continue
            text = f"{found.value!r} was acknowledged to {found.process} at offset {found.offset}"
            if found.offset <= log.highest_polled:
                self._find("lost-write", partition, f"{text}, and no client polled it; offset {log.highest_polled} was polled", found.event)
            elif self._is_drained:
                self._find("unseen", partition, f"{text}, and the last polls end at offset {log.highest_polled}", found.event)

    def _judge_order(self) -> None:
        for partition, log in sorted(self._logs.items()):
            last: dict[str | int, Acknowledged] = {}
            for found in sorted(log.acknowledged, key=lambda found: found.event):
                before = last.get(found.process)
                last[found.process] = found
                if before is not None and found.offset < before.offset:
                    kind = (
                        "nonmonotonic-send" if not found.transaction or found.transaction != before.transaction else "int-nonmonotonic-send"
                    )
                    text = f"{found.process} sent {found.value!r} after {before.value!r}, to offset {found.offset} before {before.offset}"
                    self._find(kind, partition, text, found.event)

    def _judge_real_time(self) -> None:
        for partition, log in sorted(self._logs.items()):
            by_answer, index = sorted(log.acknowledged, key=lambda found: found.answer_event), 0
            last: Acknowledged | None = None  # of those that were acknowledged by then, the one with the highest offset
            for found in sorted(log.acknowledged, key=lambda found: found.event):
                while by_answer[index].answer_event < found.event:
                    last = by_answer[index] if last is None or by_answer[index].offset > last.offset else last
                    index += 1
                if last is None or last.offset <= found.offset or last.process == found.process:
                    continue
                if self._sent[partition[0], found.value].was_invoked:
                    text = f"{found.process} sent {found.value!r}, to offset {found.offset}, when offset {last.offset} was acknowledged"
                    self._find("realtime-send", partition, text, found.event)

    def _judge_circles(self) -> None:
        reads: dict[str, dict[str, Read]] = {}
        for partition, _, value, operation, event in self._polled:
            sent, reader = self._sent.get((partition[0], value)), operation.transaction
            if sent is None or not reader or sent.transaction in ("", reader) or operation.read_uncommitted:
                continue
            if self._ends.get(reader, True) and self._ends.get(sent.transaction, True):
                reads.setdefault(reader, {}).setdefault(sent.transaction, Read(partition, value, event))
        for circle in circles(reads):
            found = [reads[reader][writer] for reader, writer in zip(circle, [*circle[1:], circle[0]], strict=True)]
            texts = [f"{reader} polled {read.value!r} of" for reader, read in zip(circle, found, strict=True)]
            last = max(found, key=lambda read: read.event)
            self._find("G1c", last.partition, f"{' '.join(texts)} {circle[0]}", last.event)

    def _judge_jumps(self) -> None:
        readable = {partition: self._readable(self._logs[partition]) for partition in {jump.partition for jump in self._jumps}}
        for jump in self._jumps:
            offsets = readable[jump.partition]
            missed = offsets[bisect_right(offsets, jump.low)]  # ``high`` itself was polled
            if missed < jump.high:
                value = self._logs[jump.partition].values[missed]
                text = f"{jump.process} polled offset {jump.high} after offset {jump.low}; {value!r} is at offset {missed}"
                self._find("int-poll-skip" if jump.is_internal else "poll-skip", jump.partition, text, jump.event)

    def _judge_torn(self) -> None:
        """Judges that readers of committed records get all of a transaction or nothing, also where no client knows how it has ended."""
        polled: dict[Partition, set[int]] = {}
        for partition, offset, _, operation, _ in self._polled:
            if not operation.read_uncommitted:
                polled.setdefault(partition, set()).add(offset)
        seen: dict[str, tuple[Partition, Acknowledged]] = {}
        missed: dict[str, tuple[Partition, Acknowledged]] = {}
        for partition, log in sorted(self._logs.items()):
            offsets = polled.get(partition, set())
            highest = max(offsets, default=-1)
            for found in log.acknowledged:
                if found.transaction and found.offset <= highest and self._ends.get(found.transaction, True):
                    (seen if found.offset in offsets else missed).setdefault(found.transaction, (partition, found))
        for transaction in sorted(seen.keys() & missed.keys()):
            (_, there), (partition, lacking) = seen[transaction], missed[transaction]
            text = (
                f"of transaction {transaction} {there.value!r} was polled, and {lacking.value!r} at offset {lacking.offset} was passed over"
            )
            self._find("torn", partition, text, lacking.event)

    def _readable(self, log: LogView) -> list[int]:
        """Returns the offsets that every consumer reads, leaving out transactions that may have been aborted."""
        return sorted(
            offset for offset in log.values if offset in log.polled or not (found := log.transactions.get(offset)) or self._ends.get(found)
        )


def judge(operations: Iterable[Operation]) -> Verdict:
    """Returns the verdict over a complete history."""
    found = Judge()
    for operation in operations:
        found.take(operation)
    return found.verdict()
