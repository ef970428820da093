"""What must hold of a history and the logs after it. Each function returns what is wrong, one line a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ottla.sim.workload import History
from ottla.types import TopicPartition

FOUND_MAX = 3
"""So many lost records say what there is to say."""

Logs = Mapping[TopicPartition, Sequence[tuple[int, bytes]]]
"""Offset and value of every record, as a reader finds them."""


def acknowledged_are_kept(history: History, logs: Logs, *, since_crash: int = 0) -> list[str]:
    """Every record acknowledged after ``since_crash`` crashes is where the broker said."""
    found = []
    for ack in history.acknowledged:
        if ack.crashes < since_crash or ack.offset < 0:
            continue
        at = dict(logs.get(ack.partition, ())).get(ack.offset)
        if at != ack.value:
            found.append(f"{ack.partition} offset {ack.offset}: {ack.value!r} was acknowledged (crash {ack.crashes}), {at!r} is there")
    return found if len(found) <= FOUND_MAX else [*found[:FOUND_MAX], f"... and {len(found) - FOUND_MAX} more"]


def logs_are_dense(logs: Logs) -> list[str]:
    """Offsets go 0, 1, 2 ... without holes."""
    return [
        f"{partition}: record {index} has offset {offset}"
        for partition, records in logs.items()
        for index, (offset, _) in enumerate(records)
        if index != offset
    ]


def nothing_is_invented(history: History, logs: Logs) -> list[str]:
    """Each record was sent, and to this partition."""
    return [
        f"{partition} offset {offset}: {value!r} was never sent there"
        for partition, records in logs.items()
        for offset, value in records
        if history.sent.get(value, ("", None))[1] != partition
    ]


def idempotent_producers_store_once_and_in_order(history: History, logs: Logs) -> list[str]:
    found = []
    for partition, records in logs.items():
        values = [value for _, value in records if history.sent[value][0] in history.idempotent]
        found += [f"{partition}: {value!r} is stored {count} times" for value, count in Counter(values).items() if count > 1]
        last: dict[str, int] = {}
        for value in values:
            name, number = history.sent[value][0], int(value.rsplit(b"-", 1)[1])
            if number < last.get(name, -1):
                found.append(f"{partition}: {value!r} comes after {name}-{last[name]}")
            last[name] = number
    return found


def commits_are_kept(history: History, committed: Mapping[TopicPartition, int], *, since_crash: int = 0) -> list[str]:
    """The group's offset is at or after the last commit that was acknowledged."""
    newest: dict[TopicPartition, int] = {}
    for partition, offset, crashes in history.commits:
        if crashes >= since_crash:
            newest[partition] = max(offset, newest.get(partition, 0))
    return [
        f"{partition}: {offset} was committed, {committed.get(partition)} is there"
        for partition, offset in newest.items()
        if committed.get(partition, -1) < offset
    ]
