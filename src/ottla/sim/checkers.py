"""What must hold of a history and the logs after it. Each function returns what is wrong, one line a finding.

The judge is the one of ``ottla check-history`` (``ottla.history``): the logs are what a last reader polls. Who sends, and whether twice is
allowed, is known here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ottla.history.judge import judge
from ottla.history.operations import Operation
from ottla.sim.workload import History
from ottla.types import TopicPartition

FOUND_MAX = 3
"""So many lost records say what there is to say."""
READER, GROUP = "reader", "group"

Logs = Mapping[TopicPartition, Sequence[tuple[int, bytes]]]
"""Offset and value of every record, as a reader finds them."""


def acknowledged_are_kept(history: History, logs: Logs, *, since_crash: int = 0) -> list[str]:
    """Finds each record acknowledged after ``since_crash`` crashes that is not where the broker said."""
    kept = [ack for ack in history.acknowledged if ack.crashes >= since_crash and ack.offset >= 0]
    sends = (_send("ok", "producer", ack.partition, ack.value, offset=ack.offset) for ack in kept)
    found = _found([*sends, *_last_polls(logs)], {"lost-write", "unseen", "inconsistent-offsets"})
    return found if len(found) <= FOUND_MAX else [*found[:FOUND_MAX], f"... and {len(found) - FOUND_MAX} more"]


def logs_are_dense(logs: Logs) -> list[str]:
    """Finds holes: offsets are 0, 1, 2 and so on."""
    return [
        f"{partition}: record {index} has offset {offset}"
        for partition, records in logs.items()
        for index, (offset, _) in enumerate(records)
        if index != offset
    ]


def nothing_is_invented(history: History, logs: Logs) -> list[str]:
    """Finds each record that was not sent, or not to this partition."""
    sends = [_send("invoke", name, partition, value) for value, (name, partition) in history.sent.items()]
    silent = [_send("invoke", READER, partition, b"") for partition in logs]  # so that topics without any send are judged, too
    return _found([*sends, *silent, *_last_polls(logs)], {"phantom"})


def idempotent_producers_store_once_and_in_order(history: History, logs: Logs) -> list[str]:
    """Finds each record of an idempotent producer that the log has twice, not at all, or out of order."""
    ours = {
        partition: [(offset, value) for offset, value in records if history.sent[value][0] in history.idempotent]
        for partition, records in logs.items()
    }
    places = {value: (partition, offset) for partition, records in ours.items() for offset, value in reversed(records)}
    by_number = sorted(places, key=lambda value: int(value.rsplit(b"-", 1)[1]))
    sends = [_send("ok", history.sent[value][0], places[value][0], value, offset=places[value][1]) for value in by_number]
    return _found([*sends, *_last_polls(ours)], {"duplicate", "nonmonotonic-send"})


def commits_are_kept(history: History, committed: Mapping[TopicPartition, int], *, since_crash: int = 0) -> list[str]:
    """Finds each partition whose group offset is before the last commit that was acknowledged."""
    newest: dict[TopicPartition, int] = {}
    for partition, offset, crashes in history.commits:
        if crashes >= since_crash:
            newest[partition] = max(offset, newest.get(partition, 0))
    confirmed = Operation(GROUP, "ok", "commit", group=GROUP, offsets=_offsets(newest))
    found = Operation(READER, "ok", "committed", group=GROUP, offsets=_offsets({key: committed.get(key, -1) for key in newest}))
    return _found([confirmed, found], {"lost-commit"})


def _found(operations: Iterable[Operation], kinds: Collection[str]) -> list[str]:
    return [f"{anomaly.kind} {anomaly.partition}: {anomaly.text}" for anomaly in judge(operations).anomalies if anomaly.kind in kinds]


def _send(kind: str, process: str, partition: TopicPartition, value: bytes, *, offset: int = -1) -> Operation:
    assert kind in ("invoke", "ok"), "what became of it is known"
    return Operation(process, kind, "send", topic=partition.topic, partition=partition.partition, value=value.decode(), offset=offset)  # type: ignore[arg-type]


def _last_polls(logs: Logs) -> Iterator[Operation]:
    """Yields the operations of a reader that gets every record."""
    for partition, records in logs.items():
        found = tuple((partition.topic, partition.partition, offset, value.decode()) for offset, value in records)
        yield Operation(READER, "ok", "poll", records=found)
    yield Operation(READER, "ok", "drained")


def _offsets(found: Mapping[TopicPartition, int]) -> tuple[tuple[str, int, int], ...]:
    return tuple((key.topic, key.partition, offset) for key, offset in found.items())
