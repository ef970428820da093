"""The marker of a batch: the text that a group's offsets carry, in the transaction that the batch's rows are in.

It says which batch of which query was written last, and from which offsets. It is in the offset of every partition that the transaction
commits, since a partition may be gone by the next one; ``serial`` says which marker is the newest, whatever query it is of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client.group_metadata import OffsetAndMetadata
from ottla.spark.offsets import Offsets
from ottla.types import TopicPartition

FORM: Final = "ottla 1"
LOST_MAX: Final = 8
"""Partitions with losses that a marker names: its text has 4096 bytes at most, and a topic's name may have 249."""
COMMIT_BYTES_MAX: Final = 512 << 10
"""Of the offsets in one request: a coordinator writes them as one batch, of 1 MiB at most."""
OFFSET_BYTES: Final = 100
"""What an offset takes in such a batch beside the names and its text; more than it does."""
CHECKPOINT_SUFFIX: Final = "-checkpoint"
"""Of the topic that has an application's checkpoint, with that of the marker; the rest is the application's name."""


@dataclass(frozen=True, slots=True)
class Noticed:
    """A count of records that are in no result, of a batch or of all batches of a query so far; for people."""

    late_rows: int = 0  # which Spark has dropped
    lost: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # by partition, the last range of offsets that were lost

    def and_then(self, later: Noticed) -> Noticed:
        """Returns both as one; of many partitions those that have lost something last."""
        lost = {key: found for key, found in self.lost.items() if key not in later.lost} | dict(later.lost)
        return Noticed(self.late_rows + later.late_rows, dict(list(lost.items())[-LOST_MAX:]))


@dataclass(frozen=True, slots=True)
class Marker:
    query: str  # Spark's id of the query, which a checkpoint keeps
    batch: int
    offsets_hash: str
    serial: int  # one more with each batch of the application
    time_ms: int | None = field(default=None, compare=False)  # when the batch was about to be written; for people
    noticed: Noticed = field(default_factory=Noticed, compare=False)  # in all batches of the query so far
    is_partial: bool = field(default=False, compare=False)  # it lacks offsets of partitions that were read

    def text(self) -> str:
        """Returns the text that offsets carry; 4096 bytes at most."""
        value = {"form": FORM, "query": self.query, "batch": self.batch, "offsets": self.offsets_hash, "serial": self.serial}
        noticed: dict[str, Any] = {"late": self.noticed.late_rows} if self.noticed.late_rows else {}
        noticed |= {"lost": self.noticed.lost} if self.noticed.lost else {}
        partial = {"partial": True} if self.is_partial else {}
        return json.dumps(value | with_time(self.time_ms) | noticed | partial, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Committed:
    """The newest commit of the application: its marker, if there is one, and the offsets that came with it."""

    marker: Marker | None = None
    offsets: Offsets = field(default_factory=dict)


def text_of(partition: str, lost: tuple[int, int]) -> str:
    """Returns the range in words: 27 to 39 of orders-0."""
    return f"{lost[0]} to {lost[1] - 1} of {partition}"


def with_time(time_ms: int | None) -> dict[str, int]:
    return {} if time_ms is None else {"time": time_ms}


def time_of(value: Mapping[str, Any]) -> int | None:
    """Returns the time of a marker or a note, in milliseconds since 1970; None for one of a version that wrote none."""
    found = value.get("time")
    return found if isinstance(found, int) else None


def hash_of(sources: Sequence[str | None]) -> str:
    """Returns a hash of a batch's end offsets, a JSON text of each source. Blanks and the order of names do not count."""
    found = json.dumps([_plain(text) for text in sources], sort_keys=True)
    return hashlib.sha256(found.encode()).hexdigest()[:32]


def _plain(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def marker_of(text: str) -> Marker | None:
    """Returns the marker that an offset carries; None for what is no marker."""
    try:
        value = json.loads(text)
        if value["form"] != FORM:
            return None
        lost = {str(key): (int(begin), int(end)) for key, (begin, end) in value.get("lost", {}).items()}
        noticed = Noticed(int(value.get("late", 0)), lost)
        is_partial = bool(value.get("partial", False))
        return Marker(
            str(value["query"]), int(value["batch"]), str(value["offsets"]), int(value["serial"]), time_of(value), noticed, is_partial
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def committed_of(group: Mapping[TopicPartition, OffsetAndMetadata]) -> Committed:
    """Returns the newest marker among the group's offsets, with all that came with it."""
    found = {partition: marker for partition, place in group.items() if (marker := marker_of(place.metadata)) is not None}
    if not found:
        return Committed()
    newest = max(found.values(), key=lambda marker: marker.serial)
    return Committed(newest, {partition: group[partition].offset for partition, marker in found.items() if marker == newest})


def in_portions(offsets: Mapping[TopicPartition, OffsetAndMetadata], group: str) -> Iterator[dict[TopicPartition, OffsetAndMetadata]]:
    """Yields the offsets in portions, each of which a coordinator takes in one request."""
    portion: dict[TopicPartition, OffsetAndMetadata] = {}
    size = 0
    for partition, place in offsets.items():
        more = OFFSET_BYTES + len(group) + len(partition.topic) + len(place.metadata.encode())
        if portion and size + more > COMMIT_BYTES_MAX:
            yield portion
            portion, size = {}, 0
        portion[partition] = place
        size += more
    if portion:
        yield portion
