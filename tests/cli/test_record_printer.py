"""What a group has consumed, and a command has not printed, is read again."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.cli.record_printer import print_polled
from ottla.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("orders", 1)


class Polled:
    """A consumer with four records of two partitions, in this order; it notes where it is moved to."""

    def __init__(self, *, interrupted: bool = False) -> None:
        self.moved: dict[TopicPartition, int] = {}
        self._is_interrupted = interrupted

    def poll(self, _timeout_ms: int, *, max_records: int) -> Sequence[Any]:
        if self._is_interrupted:
            raise KeyboardInterrupt
        found = [
            SimpleNamespace(topic="orders", partition=partition, offset=offset) for partition, offset in ((0, 7), (0, 8), (1, 4), (1, 5))
        ]
        return found[:max_records]

    def assignment(self) -> list[TopicPartition]:
        return [ORDERS, OTHERS]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.moved[partition] = offset


class Full(io.RawIOBase):
    """A disk without room."""

    def writable(self) -> bool:
        return True

    def write(self, _data: Any) -> int:
        raise OSError(28, "No space left on device")


def standard_output(monkeypatch: pytest.MonkeyPatch, raw: io.RawIOBase | io.BytesIO) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(cast(Any, io.BufferedWriter(cast(Any, raw)))))


def interrupted_at(place: tuple[int, int]) -> Callable[[Any], bytes]:
    def render(record: Any) -> bytes:
        if (record.partition, record.offset) == place:
            raise KeyboardInterrupt
        return b"%d:%d " % (record.partition, record.offset)

    return render


def test_a_stop_between_two_records_gives_back_what_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    output, consumer = io.BytesIO(), Polled()
    standard_output(monkeypatch, output)
    with pytest.raises(KeyboardInterrupt):
        print_polled(cast(Any, consumer), 500, interrupted_at((0, 8)))
    assert (output.getvalue(), consumer.moved) == (b"0:7 ", {ORDERS: 8, OTHERS: 4})


def test_a_record_that_is_printed_is_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    output, consumer = io.BytesIO(), Polled()
    standard_output(monkeypatch, output)
    with pytest.raises(KeyboardInterrupt):
        print_polled(cast(Any, consumer), 500, interrupted_at((1, 5)))
    assert (output.getvalue(), consumer.moved) == (b"0:7 0:8 1:4 ", {OTHERS: 5})


def test_a_disk_without_room_gives_all_of_the_poll_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer holds what was written, and no more than that is known of it."""
    consumer = Polled()
    standard_output(monkeypatch, Full())
    with pytest.raises(OSError, match="No space left"):
        print_polled(cast(Any, consumer), 500, lambda record: b"a record")
    assert consumer.moved == {ORDERS: 7, OTHERS: 4}
    monkeypatch.setattr(Full, "write", lambda _, data: len(data))  # so that the end of the buffer is silent


def test_an_interrupted_poll_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Polled(interrupted=True)
    standard_output(monkeypatch, io.BytesIO())
    with pytest.raises(KeyboardInterrupt):
        print_polled(cast(Any, consumer), 500, lambda record: b"")
    assert consumer.moved == {}


def test_records_that_are_not_wanted_count_as_come(monkeypatch: pytest.MonkeyPatch) -> None:
    output, consumer = io.BytesIO(), Polled()
    standard_output(monkeypatch, output)
    assert print_polled(cast(Any, consumer), 3, lambda record: b"x" if record.offset == 8 else None) == (3, 1)
    assert (output.getvalue(), consumer.moved) == (b"x", {})
