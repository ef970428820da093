"""Runs the pipelines of an application: queries are started, watched, and started again when they fail.

A query that fails waits before it is started again, twice as long each time, up to a minute; one that has run for a minute since begins
anew with a second. A ``StopError`` (another copy, another checkpoint) ends it for good: to go on would double or skip rows, or take
turns with the other copy. The same holds for a batch that does not fit into the driver.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.errors import KafkaError
from ottla.spark.exactly_once import StopError
from ottla.spark.options import CHECKPOINT
from ottla.spark.pipelines import name_of, running, writers_of

BACKOFF_S_MAX: Final = 60
STEADY_S: Final = 60
POLL_S: Final = 0.5
FINAL: Final = ("StopError", "BatchTooLargeError")
_REASON: Final = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)


@dataclass(slots=True)
class RunningQuery:
    function: str
    index: int  # among the writers that the function returns
    query: Any = None  # PySpark's StreamingQuery; None while it waits to be started
    started_s: float = 0.0
    failures: int = 0  # one after the other
    due_s: float = 0.0  # of the next start
    shown_batch: int = -1


class Runner:
    def __init__(
        self,
        session: Any,
        app: str,
        pipelines: Mapping[str, Callable[[Any], Any]],
        *,
        checkpoints: Path,
        bootstrap: str,
        checkpoint: str,
        until_caught_up: bool,
        client: Mapping[str, str] | None = None,
        say: Callable[[str], object],
        now_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._session = session
        self._app = app
        self._pipelines = pipelines
        self._checkpoints = checkpoints
        self._bootstrap = bootstrap
        self._client = client
        self._checkpoint = checkpoint
        self._until_caught_up = until_caught_up
        self._say = say
        self._now_s = now_s
        self._pause = pause
        self._queries: list[RunningQuery] = []
        self._is_stopped = False

    def run(self) -> bool:
        """Returns when every query has ended: True when none was stopped. KeyboardInterrupt when a Ctrl-C has ended all of them."""
        for function in self._pipelines:
            for index in range(len(self._made(function)[0])):
                self._queries.append(RunningQuery(function, index))
        try:
            while self._queries:
                for found in list(self._queries):
                    self._look(found)
                self._pause(POLL_S)
        finally:
            for found in self._queries:
                if found.query is not None:
                    found.query.stop()
        return not self._is_stopped

    def _made(self, function: str) -> tuple[list[Any], list[Any]]:
        """The writers that the function returns, and the sinks that it makes."""
        with running(self._app, function, self._bootstrap, self._checkpoint, self._client) as found:
            return writers_of(self._pipelines[function](self._session)), found.sinks

    def _start(self, found: RunningQuery) -> None:
        name = name_of(self._app, found.function, found.index)
        location = str(self._checkpoints / name)
        writers, sinks = self._made(found.function)
        if found.index < len(sinks) and sinks[found.index] is not None:
            count = sinks[found.index].prepare(location)
            if count is not None:
                self._say(f"{name}  had lost its checkpoint; {count} files are written back from its topic")
        writer = writers[found.index].queryName(name).option(CHECKPOINT, location)
        if self._until_caught_up:
            writer = writer.trigger(availableNow=True)
        found.query, found.started_s, found.shown_batch = writer.start(), self._now_s(), -1

    def _look(self, found: RunningQuery) -> None:
        """The query runs, waits for its next start, or is not among the queries any more."""
        name = name_of(self._app, found.function, found.index)
        if found.query is None:
            if self._now_s() >= found.due_s:
                try:
                    self._start(found)
                except (StopError, KafkaError) as error:  # the checkpoint cannot be written back, or not yet
                    self._on_failure(found, type(error).__name__, str(error))
            return
        progress = found.query.lastProgress
        if progress is not None and progress["batchId"] != found.shown_batch:
            found.shown_batch = progress["batchId"]
            self._say(progress_line(name, progress))
        if found.query.isActive:
            return
        ended = found.query.exception()
        if ended is None:
            self._queries.remove(found)
            self._say(f"{name}  has caught up" if self._until_caught_up else f"{name}  has ended")
            return
        self._on_failure(found, *reason_of(str(ended)))

    def _on_failure(self, found: RunningQuery, kind: str, reason: str) -> None:
        """The query waits for its next start, or is not among the queries any more."""
        name = name_of(self._app, found.function, found.index)
        if kind in FINAL:
            self._queries.remove(found)
            self._is_stopped = True
            self._say(f"{name}  stopped, and is not started again: {reason}")
            return
        found.failures = 1 if self._now_s() - found.started_s >= STEADY_S else found.failures + 1
        delay_s = min(BACKOFF_S_MAX, 2 ** (found.failures - 1))
        found.query, found.due_s = None, self._now_s() + delay_s
        self._say(f"{name}  failed, and is started again in {delay_s} s: {kind}: {reason}")


def reason_of(text: str) -> tuple[str, str]:
    """The class and the text of the error that ended a query: the last one of the Python traceback that Spark's own text quotes."""
    found: list[tuple[str, str]] = _REASON.findall(text)
    final = [pair for pair in found if pair[0] in FINAL]
    return (final or found or [("error", text.strip().splitlines()[0])])[-1]


def progress_line(name: str, progress: Mapping[str, Any]) -> str:
    """One line for a batch: rows a second, how long it took, and how many offsets are left."""
    rate = f"in {progress.get('processedRowsPerSecond') or 0:,.0f}/s"
    took = f"batch {progress.get('batchDuration') or 0:,} ms"
    return f"{name}  #{progress['batchId']}  {rate}  {took}  lag {lag_of(progress):,}"


def lag_of(progress: Mapping[str, Any]) -> int:
    """Offsets of topics that the batch has not reached."""
    from ottla.spark.checkpoint import ends_of

    left = 0
    for source in progress.get("sources", ()):
        latest, end = ends_of([_text(source["latestOffset"])]), ends_of([_text(source["endOffset"])])
        left += sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())
    return left


def _text(offset: Any) -> str | None:
    import json

    return offset if offset is None or isinstance(offset, str) else json.dumps(offset)
