"""What a cluster knows of the queries that write to it, or read from it, by the offsets of their groups: for ``ottla pipeline``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.spark.offsets import Offsets
    from ottla.sync import Admin


class StatusRow(NamedTuple):
    query: str
    delivery: str
    spark_id: str
    batch: int
    last_batch: str | None  # when it was written, in UTC
    batches_in_all: int
    partitions: int
    lag: int
    late_rows: int | None  # None of a query whose sink does not count them
    writes_now: bool
    lost_offsets: str | None  # the last ones of each partition, which the query went on without


@dataclass(frozen=True, slots=True)
class Application:
    """A query, by its group: what it has written last."""

    delivery: str
    spark_id: str
    batch: int
    time_ms: int | None  # when it was written; None where a version of ottla has written it that notes no time
    batches_in_all: int  # of all checkpoints where it is exactly once, else of the newest one
    offsets: Offsets
    late_rows: int | None = None  # in all batches of the checkpoint, where it is exactly once
    lost_offsets: str | None = None


def status_rows(admin: Admin, app: str | None = None) -> list[StatusRow]:
    """Returns for each query of the application, or of all, what it has written last, and how far its topics go on."""
    rows = []
    for group, found in applications(admin, app).items():
        is_open = bool(admin.pending_offsets(group))
        time = None if found.time_ms is None else datetime.fromtimestamp(found.time_ms // 1000, UTC).isoformat()
        counts = (found.batch, time, found.batches_in_all, len(found.offsets), lag_of(admin, found.offsets))
        rows.append(StatusRow(group, found.delivery, found.spark_id, *counts, found.late_rows, is_open, found.lost_offsets))
    return rows


def lag_of(admin: Admin, offsets: Offsets) -> int:
    """Returns how many offsets the topics have more; with a topic a cluster deletes its offsets."""
    from ottla.types import LATEST_TIMESTAMP

    ends = admin.offsets_for_times(dict.fromkeys(offsets, LATEST_TIMESTAMP))
    return sum(max(0, ends[partition][0] - offset) for partition, offset in offsets.items())


def checkpoint_topics(admin: Admin, app: str | None = None) -> dict[str, str]:
    """Returns the topics that have checkpoints of the application, or of all, by the names of their queries."""
    from ottla.spark.marker import CHECKPOINT_SUFFIX
    from ottla.spark.pipelines import is_query_of

    topics = {name.removesuffix(CHECKPOINT_SUFFIX): name for name in sorted(admin.list_topics()) if name.endswith(CHECKPOINT_SUFFIX)}
    return {query: topic for query, topic in topics.items() if app is None or is_query_of(app, query)}


def applications(admin: Admin, app: str | None = None) -> dict[str, Application]:
    """Returns the queries of the application, or of all, that have written something, by their names."""
    from ottla.client.group_metadata import OffsetAndMetadata
    from ottla.spark.group_offsets import noted_of
    from ottla.spark.marker import committed_of, text_of
    from ottla.spark.pipelines import is_query_of

    found = {}
    for group in sorted(listed.group_id for listed in admin.list_groups()):
        if app is not None and not is_query_of(app, group):
            continue
        places = {key: OffsetAndMetadata(place.offset, place.metadata) for key, place in admin.committed_offsets(group).items()}
        committed, noted = committed_of(places), noted_of(places)
        if committed.marker is not None:
            marker = committed.marker
            lost = ", ".join(text_of(place, offsets) for place, offsets in sorted(marker.noticed.lost.items()))
            last = (marker.query, marker.batch, marker.time_ms, marker.serial + 1)
            found[group] = Application("exactly_once", *last, committed.offsets, marker.noticed.late_rows, lost or None)
        elif noted is not None:
            note, offsets = noted
            found[group] = Application("at_least_once", note.query, note.batch, note.time_ms, note.batch + 1, offsets)
    return found
