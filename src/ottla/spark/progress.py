"""What a runner says of its queries' batches; it commits offsets for queries whose sinks do not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.spark.backlog import as_text, backlog_of, oldest_ms
from ottla.spark.checkpoint import COUNTED_BAD, LATE_ROWS, PlannedBatch
from ottla.spark.group_offsets import WAIT_S, GroupOffsets
from ottla.spark.link import link_for
from ottla.types import TopicPartition

LOOK_S: Final = 0.3
Backlog = Mapping[TopicPartition, tuple[int, int]]


class Progress:
    """The progress of an application's queries over one cluster. Nothing of it raises, or takes longer than a look at a clock may."""

    def __init__(self, settings: Mapping[str, str], now_ms: Callable[[], float] = lambda: time.time() * 1000) -> None:
        """Makes the progress; ``settings`` are the options that name the brokers, and how to reach them."""
        self._settings = settings
        self._now_ms = now_ms
        self._groups: dict[str, GroupOffsets] = {}

    def line(self, name: str, progress: Mapping[str, Any]) -> str:
        """Returns one line for a batch: rows a second, how long it took, how many offsets are left after it, and how old the first is."""
        return progress_line(name, progress, self._age_s(backlog_of(progress)))

    def commit(self, name: str, progress: Mapping[str, Any], *, is_last: bool) -> None:
        """Commits the batch's offsets in the group named like the query; the last batch's before this returns."""
        group = self._groups.setdefault(name, GroupOffsets(self._settings, name))
        sources = [as_text(source["endOffset"]) for source in progress.get("sources", ())]
        planned = PlannedBatch(str(progress.get("id")), sources, has_state=False)
        group.commit(planned, progress["batchId"], wait_s=WAIT_S if is_last else 0)

    def _age_s(self, backlog: Backlog | None) -> float | None:
        if not backlog:
            return None
        link = link_for(self._settings)
        looking = link.start(oldest_ms(link.cluster, backlog))
        try:
            oldest = looking.result(LOOK_S)
        except TimeoutError:
            looking.cancel()
            return None
        return None if oldest is None else max(0.0, (self._now_ms() - oldest) / 1000)


def batches_after(batch: int, query: Any) -> list[Mapping[str, Any]]:
    """Returns the progress of the query's batches after that one, in order, as far as Spark keeps them (the last hundred).

    A query with nothing to do has a progress now and then, too, with the number of its next batch: it has no ``addBatch``.
    """
    last = query.lastProgress
    if last is None or last["batchId"] <= batch:
        return []
    found = [last] if last["batchId"] == batch + 1 else query.recentProgress
    return [progress for progress in found if progress["batchId"] > batch and _is_of_batch(progress)]


def _is_of_batch(progress: Mapping[str, Any]) -> bool:
    return "addBatch" in progress.get("durationMs", ("addBatch",))


def progress_line(name: str, progress: Mapping[str, Any], age_s: float | None = None) -> str:
    """Returns the line; the lag is - where it is not known, and has no age where that is not known, or nothing is left."""
    speed = progress.get("processedRowsPerSecond") or 0
    rate = f"in {speed:,.{1 if 0 < speed < 10 else 0}f}/s"
    took = f"batch {progress.get('batchDuration') or 0:,} ms"
    backlog = backlog_of(progress)
    left = "-" if backlog is None else f"{sum(count for _, count in backlog.values()):,}"
    lag = f"lag {left}" if age_s is None else f"lag {left} ({duration(age_s)})"
    rows = sum(operator.get("numRowsTotal") or 0 for operator in progress.get("stateOperators", ()))
    state = f"  state {rows:,} rows" if progress.get("stateOperators") else ""
    bad_count = bad_rows_of(progress)
    bad = f"  bad rows {bad_count:,}" if bad_count else ""
    late_count = late_rows_of(progress)
    late = f"  late rows {late_count:,}" if late_count else ""
    return f"{name}  #{progress['batchId']}  {rate}  {took}  {lag}{state}{bad}{late}"


def is_at_rest(progress: Mapping[str, Any], watermark: str | None) -> bool:
    """Returns whether nothing had come for the batch: no source had gone on, and the watermark is that of the batch before it."""
    sources = progress.get("sources") or ()
    is_still = all(source.get("startOffset") is not None and source["startOffset"] == source["endOffset"] for source in sources)
    return bool(sources) and is_still and watermark_of(progress) == watermark


def watermark_of(progress: Mapping[str, Any]) -> str | None:
    """Returns the watermark that the batch had; None for a query without one."""
    found: str | None = (progress.get("eventTime") or {}).get("watermark")
    return found


def late_rows_of(progress: Mapping[str, Any]) -> int:
    """Returns how many rows the batch's steps with state have dropped, since the watermark had passed them."""
    return sum(operator.get(LATE_ROWS) or 0 for operator in progress.get("stateOperators", ()))


def bad_rows_of(progress: Mapping[str, Any]) -> int:
    """Returns how many bad rows the batch has met, as Spark has counted them for ``read_topic``."""
    found: Mapping[str, Any] = progress.get("observedMetrics") or {}
    return sum(row[0] or 0 for name, row in found.items() if name.startswith(COUNTED_BAD))


def duration(seconds: float) -> str:
    """Returns the duration as people say it: 0.2 s, 42 s, 17 min, 5.2 h, 3.1 days."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
