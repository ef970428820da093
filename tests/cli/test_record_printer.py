"""What a group has consumed, and a command has not printed, is read again."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.cli import record_printer
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


def standard_output(monkeypatch: pytest.MonkeyPatch, raw: io.RawIOBase) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(cast(Any, io.BufferedWriter(cast(Any, raw)))))


def shown(directory: Path) -> io.FileIO:
    return io.FileIO(directory / "shown", "w")


def interrupted_at(place: tuple[int, int]) -> Callable[[Any], bytes]:
    def render(record: Any) -> bytes:
        if (record.partition, record.offset) == place:
            raise KeyboardInterrupt
        return b"%d:%d " % (record.partition, record.offset)

    return render


def test_a_reader_that_has_gone_is_noticed_where_no_record_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ottla consume t | head -2` of a topic with two records went on until the third came."""
    reader, writer = os.pipe()
    standard_output(monkeypatch, io.FileIO(writer, "w"))
    consumer = cast(Any, SimpleNamespace(poll=lambda _timeout_ms, *, max_records: []))
    assert print_polled(consumer, 5, lambda _record: None) == (0, 0), "the reader is there"
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        print_polled(consumer, 5, lambda _record: None)


def test_a_stop_between_two_records_gives_back_what_is_not_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, consumer = shown(tmp_path), Polled()
    standard_output(monkeypatch, output)
    with pytest.raises(KeyboardInterrupt):
        print_polled(cast(Any, consumer), 500, interrupted_at((0, 8)))
    assert (Path(output.name).read_bytes(), consumer.moved) == (b"0:7 ", {ORDERS: 8, OTHERS: 4})


def test_a_record_that_is_printed_is_not_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, consumer = shown(tmp_path), Polled()
    standard_output(monkeypatch, output)
    with pytest.raises(KeyboardInterrupt):
        print_polled(cast(Any, consumer), 500, interrupted_at((1, 5)))
    assert (Path(output.name).read_bytes(), consumer.moved) == (b"0:7 0:8 1:4 ", {OTHERS: 5})


@contextmanager
def full_pipe() -> Iterator[io.FileIO]:
    """The end of a pipe that takes no byte; what was written to it by way of a buffer finds room at the end of the block."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)
    try:
        yield io.FileIO(writing, "w")
    finally:
        os.read(reading, 1 << 16)
        sys.stdout.close()
        os.close(reading)


def test_a_stop_does_not_wait_for_a_reader_that_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group waits for this member meanwhile."""
    consumer = Polled()
    monkeypatch.setattr(record_printer, "FLUSH_S_MAX", 0)
    with full_pipe() as pipe:
        standard_output(monkeypatch, pipe)
        with pytest.raises(KeyboardInterrupt):
            print_polled(cast(Any, consumer), 500, interrupted_at((1, 4)))
        assert consumer.moved == {ORDERS: 7, OTHERS: 4}, "it is not known what the reader will have read"


def test_a_disk_without_room_gives_all_of_the_poll_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer holds what was written, and no more than that is known of it."""
    consumer = Polled()
    standard_output(monkeypatch, Full())
    with pytest.raises(OSError, match="No space left"):
        print_polled(cast(Any, consumer), 500, lambda record: b"a record")
    assert consumer.moved == {ORDERS: 7, OTHERS: 4}
    monkeypatch.setattr(Full, "write", lambda _, data: len(data))  # so that the end of the buffer is silent


def test_an_interrupted_poll_moves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Polled(interrupted=True)
    standard_output(monkeypatch, shown(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        print_polled(cast(Any, consumer), 500, lambda record: b"")
    assert consumer.moved == {}


def test_records_that_are_not_wanted_count_as_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, consumer = shown(tmp_path), Polled()
    standard_output(monkeypatch, output)
    assert print_polled(cast(Any, consumer), 3, lambda record: b"x" if record.offset == 8 else None) == (3, 1)
    assert (Path(output.name).read_bytes(), consumer.moved) == (b"x", {})
