"""How far a stream has come that is not written exactly once, as the offsets of a group: for all tools that show lag.

They are committed when the rows of a batch have been written, and nothing reads them back: it is the checkpoint that says where the query
goes on. So a commit that fails is a warning, and the next one makes up for it. Exactly once the offsets are in the transaction of the
rows, with a marker (``marker``); a group with a marker is left alone, for without it that query could not go on.
"""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.client.group_metadata import OffsetAndMetadata
from ottla.errors import KafkaError
from ottla.spark.checkpoint import PlannedBatch, ends_of
from ottla.spark.link import link_for
from ottla.spark.marker import committed_of, in_portions, time_of, with_time
from ottla.spark.offsets import Offsets
from ottla.spark.options import invalid
from ottla.types import TopicPartition

FORM: Final = "ottla progress 1"
WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Note:
    """The query and the batch that offsets are the end of; they carry it as their metadata."""

    query: str  # Spark's id
    batch: int
    time_ms: int | None = field(default=None, compare=False)  # when its rows had been written; for people

    def text(self) -> str:
        value = {"form": FORM, "query": self.query, "batch": self.batch}
        return json.dumps(value | with_time(self.time_ms), separators=(",", ":"))


def note_of(text: str) -> Note | None:
    """Returns the note that an offset carries; None for what is no note."""
    try:
        value = json.loads(text)
        return Note(str(value["query"]), int(value["batch"]), time_of(value)) if value["form"] == FORM else None
    except (ValueError, TypeError, KeyError):
        return None


def noted_of(group: Mapping[TopicPartition, OffsetAndMetadata]) -> tuple[Note, Offsets] | None:
    """Returns the newest note among the group's offsets, and all offsets that have one of its query; None where none has one."""
    found = {partition: note for partition, place in group.items() if (note := note_of(place.metadata)) is not None}
    if not found:
        return None
    newest = max(found.values(), key=lambda note: note.batch)
    return newest, {partition: group[partition].offset for partition, note in found.items() if note.query == newest.query}


class GroupOffsets:
    """The offsets of one group. The newest ones are committed; older ones that wait for their turn are passed over."""

    def __init__(self, settings: Mapping[str, str], group: str) -> None:
        self._settings = settings
        self._group = group
        self._waiting: tuple[Offsets, Note] | None = None
        self._is_committing = False

    def commit(self, planned: PlannedBatch, number: int, *, wait_s: float = WAIT_S) -> None:
        """Commits the ends of the batch, or starts to; it returns after ``wait_s`` seconds at most, and raises nothing."""
        ends = ends_of(planned.sources)
        if not ends:
            return
        future = link_for(self._settings).start(self._commit(ends, Note(planned.query, number, time.time_ns() // 1_000_000)))
        with contextlib.suppress(TimeoutError):
            future.result(wait_s)

    async def _commit(self, ends: Offsets, note: Note) -> None:
        """Commits on the link's loop, one commit at a time: an older one never comes after a newer one."""
        self._waiting = ends, note
        if self._is_committing:
            return
        self._is_committing = True
        try:
            while self._waiting is not None:
                (ends, note), self._waiting = self._waiting, None
                try:
                    await self._commit_now(ends, note)
                except KafkaError as error:
                    warnings.warn(
                        f"the offsets of group {self._group!r} were not committed, and its lag looks larger: {error}", stacklevel=1
                    )
        finally:
            self._is_committing = False

    async def _commit_now(self, ends: Offsets, note: Note) -> None:
        link = link_for(self._settings)
        there = await self._there(ends)
        if not there:
            return
        committed = await link.admin.committed_offsets(self._group)
        if committed_of({key: OffsetAndMetadata(place.offset, place.metadata) for key, place in committed.items()}).marker is not None:
            raise invalid(
                "they are those of a query that is written exactly once; give this one an app of its own, or, where it is the same one, "
                f"forget the former with: ottla group delete {self._group} --yes"
            )
        text = note.text()
        for portion in in_portions({key: OffsetAndMetadata(offset, text) for key, offset in there.items()}, self._group):
            await link.admin.set_offsets(self._group, {key: place.offset for key, place in portion.items()}, metadata=text)

    async def _there(self, ends: Offsets) -> Offsets:
        """Returns the offsets of partitions that the cluster has: a source may belong to another cluster."""
        cluster = link_for(self._settings).cluster
        if not all(key.topic in cluster.topics and key.partition in cluster.topics[key.topic].partitions for key in ends):
            await cluster.refresh({key.topic for key in ends})
        known = cluster.topics
        return {key: offset for key, offset in ends.items() if key.topic in known and key.partition in known[key.topic].partitions}
