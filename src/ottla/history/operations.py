"""A history: one JSON object a line, each an event of an operation, in the order in which they happened.

An operation is ``invoke``d by a process and ends as ``ok``, as ``fail`` (it certainly had no effect) or as ``info`` (unknown). Values
are texts of the recorder's choice; within a topic each is sent once.

    f                            fields
    send                         topic, value; partition and offset when it is ok; transaction
    poll                         records: [[topic, partition, offset, value], ...], as they were returned; transaction; read_uncommitted
    assign                       partitions: [[topic, partition], ...] whose next record may be any, after a rebalance or a seek
    commit                       group, offsets: [[topic, partition, offset], ...]
    committed                    group, offsets: those that the group was found to have; -1 for none
    commit_transaction, abort_transaction   transaction: its name, which no other transaction has
    drained                      from here on all that was acknowledged has been polled: what was not polled is lost

Only ``send``, ``commit``, ``committed`` and ends of transactions are invoked; an event of another kind that is not ``ok`` says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

Value = str | int | None


class Operation(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One event. Fields that its ``f`` does not name are left out."""

    process: str | int
    type: Literal["invoke", "ok", "fail", "info"]
    f: Literal["send", "poll", "assign", "commit", "committed", "commit_transaction", "abort_transaction", "drained"]
    topic: str = ""
    partition: int = -1
    value: Value = None
    offset: int = -1
    records: tuple[tuple[str, int, int, Value], ...] = ()
    partitions: tuple[tuple[str, int], ...] = ()
    group: str = ""
    offsets: tuple[tuple[str, int, int], ...] = ()
    transaction: str = ""
    read_uncommitted: bool = False
    time: int | None = None  # for people


class HistoryError(ValueError):
    """A line is no event; the text has its number."""


_decoder = msgspec.json.Decoder(Operation)


def read_history(lines: Iterable[bytes]) -> Iterator[Operation]:
    """Yields the events of a file; blank lines are passed over. HistoryError for one that cannot be read."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            operation = _decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise HistoryError(f"line {number}: {error}") from None
        problem = _problem(operation)
        if problem is not None:
            raise HistoryError(f"line {number}: {problem}")
        yield operation


def _problem(operation: Operation) -> str | None:
    if operation.f == "send" and not operation.topic:
        return "a send names its topic"
    if operation.f == "send" and operation.type == "ok" and (operation.partition < 0 or operation.offset < 0):
        return "a send that is ok has a partition and an offset"
    if operation.f in ("commit", "committed") and not operation.group:
        return f"a {operation.f} names its group"
    if operation.f in ("commit_transaction", "abort_transaction") and not operation.transaction:
        return "the end of a transaction names it"
    return None


def write_history(operations: Iterable[Operation]) -> Iterator[bytes]:
    """Yields lines of a file."""
    encoder = msgspec.json.Encoder()
    for operation in operations:
        yield encoder.encode(operation) + b"\n"
