"""Record batches for two brokers, right ones and wrong ones, and what is compared of those that are fetched."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.records.batch import HEADER_SIZE, iterate_batches, write_crc
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import iterate_records


def _with(at: int, form: str, value: int, *, is_covered: bool = True) -> Callable[[bytearray], bytes]:
    """Writes the field at this byte; the CRC is that of what is there then, if it covers the field."""

    def write(batch: bytearray) -> bytes:
        struct.pack_into(form, batch, at, value)
        if is_covered:
            write_crc(batch)
        return bytes(batch)

    return write


def _flagged(flags: int) -> Callable[[bytearray], bytes]:
    def write(batch: bytearray) -> bytes:
        batch[22] |= flags
        write_crc(batch)
        return bytes(batch)

    return write


WRONGS: Final[Mapping[str, Callable[[bytearray], bytes]]] = {
    "base offset 7": _with(0, ">q", 7, is_covered=False),
    "too long": _with(8, ">i", 10_000, is_covered=False),
    "length 0": _with(8, ">i", 0, is_covered=False),
    "magic 0": _with(16, ">b", 0, is_covered=False),
    "magic 1": _with(16, ">b", 1, is_covered=False),
    "magic 3": _with(16, ">b", 3, is_covered=False),
    "crc": _with(17, ">I", 1, is_covered=False),
    "codec 7": _flagged(0x07),
    "control": _flagged(0x20),
    "transactional control": _flagged(0x30),
    "last delta 9": _with(23, ">i", 9),
    "max timestamp 5": _with(35, ">q", 5),
    "sequence -1": _with(53, ">i", -1),
    "count 0": _with(57, ">i", 0),
    "count 9": _with(57, ">i", 9),
    "one byte less": lambda batch: bytes(batch[:-1]),
    "half a header": lambda batch: bytes(batch[: HEADER_SIZE // 2]),
    "twice": lambda batch: bytes(batch) * 2,
    "nothing": lambda batch: b"",
}


REFUSED_AS_ONE: Final = frozenset({"length 0", "magic 3", "codec 7", "transactional control"})
"""For these Kafka refuses the other partitions of the request, too."""


@dataclass(frozen=True)
class DrawnBatch:
    """``producer`` is an ``Id``, or a number; ``wrong`` one of ``WRONGS``."""

    values: tuple[bytes, ...]
    producer: Any = -1
    epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False
    codec: int = 0
    timestamp_ms: int = 0
    is_keyed: bool = True
    wrong: str = ""

    def built(self, producer_id: int) -> bytes:
        builder = BatchBuilder()
        for index, value in enumerate(self.values):
            builder.append(b"k%d" % index if self.is_keyed else None, value, timestamp_ms=self.timestamp_ms + index)
        batch = builder.build(
            self.codec,
            producer_id=producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=self.is_transactional,
        )
        return WRONGS[self.wrong](batch) if self.wrong else bytes(batch)


def batches_in(data: Any, name_of: Callable[[int], Any]) -> Iterator[list[Any]]:
    """The parts of each whole batch that are compared: not the epochs of leaders, and not the times of markers."""
    data = bytes(data or b"")
    for position, header in iterate_batches(data, check_crc=True):
        yield [
            header.base_offset,
            header.last_offset_delta,
            header.attributes,
            name_of(header.producer_id),
            header.producer_epoch,
            header.base_sequence,
        ]
        for record in iterate_records(data, position):
            time = "" if header.is_control or header.is_log_append_time else record.timestamp_ms
            yield [record.offset, time, record.key, record.value]
