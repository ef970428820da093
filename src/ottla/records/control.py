"""Control batches: one record, written by brokers, that ends a transaction or marks a change of leader.

The key is (version, type), two 16-bit numbers; the value of an end marker is (version, coordinator epoch).
Source: KIP-98, KIP-595.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

import msgspec

from ottla.errors import DecodeError
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import Record

_KEY: Final = struct.Struct(">hh")
_END_MARKER: Final = struct.Struct(">hi")


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndMarker(msgspec.Struct, gc=False, frozen=True):
    """A transaction of the batch's producer has ended here."""

    is_commit: bool
    coordinator_epoch: int


REMOVED_MARKER: Final = EndMarker(is_commit=True, coordinator_epoch=-1)
"""What compaction leaves of a marker, an empty batch, says of the producer that it has no open transaction, and nothing else."""


def control_type_of(record: Record) -> int:
    """Returns the type of a control batch's record; a number that ``ControlType`` lacks is a newer broker's and is skipped by readers."""
    if record.key is None or len(record.key) < _KEY.size:
        raise DecodeError("a control record's key has a version and a type of two bytes each")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise DecodeError(f"a control record's key has version {version}")
    return int(number)


def end_marker_of(record: Record) -> EndMarker | None:
    """Returns the end of a transaction; None for other control records."""
    kind = control_type_of(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_MARKER.size:
        raise DecodeError("an end marker's value has a version and a coordinator epoch")
    _, epoch = _END_MARKER.unpack_from(record.value)
    return EndMarker(kind == ControlType.COMMIT, epoch)


def build_control_batch(kind: ControlType, value: bytes, *, timestamp_ms: int) -> bytearray:
    """Builds a control batch of one record without a producer, for the metadata log and its snapshots."""
    builder = BatchBuilder()
    builder.append(_KEY.pack(0, kind), value, timestamp_ms=timestamp_ms)
    return builder.build(is_control=True)


def build_end_marker(*, is_commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int) -> bytearray:
    """Builds the control batch that a coordinator writes into each partition of a transaction."""
    builder = BatchBuilder()
    kind = ControlType.COMMIT if is_commit else ControlType.ABORT
    builder.append(_KEY.pack(0, kind), _END_MARKER.pack(0, coordinator_epoch), timestamp_ms=timestamp_ms)
    return builder.build(producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True, is_control=True)
