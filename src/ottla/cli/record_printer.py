"""Records on their way to standard output.

A record counts as consumed once it is printed. What a stop or an error leaves unprinted is given back, so that the group reads it again.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.client.buffer import AnyRecord
    from ottla.sync import Consumer

    Reader = Consumer[bytes | None, bytes | None]

FLUSH_S_MAX: Final = 1.0
"""How long a stop waits for a reader that reads nothing: the group waits for this member meanwhile."""
POLL_MS: Final = 200
RECORDS_MAX: Final = 500
"""Of one poll: so many are given back at most."""


def print_polled(consumer: Reader, count_max: int, render: Callable[[AnyRecord], bytes | None]) -> tuple[int, int]:
    """Prints the records of one poll, and returns how many came, and how many of them were printed: one that renders as None is not.

    Where that is broken off, the consumer is moved back to what is not printed, or may not be. The poll is within the same block: Python
    looks for a Ctrl-C at the start of a function of its own, and not between its return and the assignment.
    """
    if sys.stdout is None:
        raise click.ClickException("standard output is closed, and records are printed there")
    records: Sequence[AnyRecord] = ()
    done, printed, output = 0, 0, sys.stdout.buffer
    try:
        records = consumer.poll(POLL_MS, max_records=min(count_max, RECORDS_MAX))
        if not records and _has_lost_its_reader(output):
            raise BrokenPipeError
        for record in records:
            text = render(record)
            if text is not None:
                output.write(text)
                printed += 1
            done += 1
        output.flush()
    except BaseException as end:
        _give_back(consumer, records[done if isinstance(end, KeyboardInterrupt) and _is_flushed() else 0 :])
        raise
    return done, printed


def _has_lost_its_reader(output: BinaryIO) -> bool:
    """True when the process that read the pipe has ended, as after `| head`: a write would show it, and none may come for hours."""
    try:
        descriptor = output.fileno()
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):  # a write to a terminal that has closed is an error
            return False
    except io.UnsupportedOperation:
        return False
    ends = select.poll()
    ends.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in ends.poll(0))


def _give_back(consumer: Reader, records: Sequence[AnyRecord]) -> None:
    """Moves the consumer back to the first of the records in each partition that it still has: the last commit does not cover them."""
    first = dict[TopicPartition, int]()
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    for partition in first.keys() & set(consumer.assignment()) if first else ():
        consumer.seek(partition, first[partition])


def _is_flushed() -> bool:
    """Returns whether what was written before a Ctrl-C has reached the reader; a second Ctrl-C ends the wait for one that does not read."""
    try:
        if not select.select([], [sys.stdout.buffer], [], FLUSH_S_MAX)[1]:
            return False
        sys.stdout.buffer.flush()
    except (OSError, KeyboardInterrupt):
        return False
    return True
