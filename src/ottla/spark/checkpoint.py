"""What a query's checkpoint says of a batch while that is being written: the query's id, and the end offsets of its sources.

Spark writes ``offsets/N`` before batch N runs, and ``commits/N`` after it. In a classic session the running query is asked, wherever its
checkpoint is; where there is no JVM to ask (Spark Connect, the data source's own processes) the files are read, of a local checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ottla.spark.offsets import BEGAN_AT, TOPIC_IDS, Offsets, batch_start, from_json
from ottla.spark.options import CHECKPOINT, invalid
from ottla.spark.plans import nodes_of

QUERY_ID: Final = "sql.streaming.queryId"
COUNTED: Final = "ottla."
"""The prefix of the names of our counts."""
NAMES_APART: Final = "\n"
"""Between the names that one count gathers: no state has it in its own."""
COUNTED_BAD: Final = f"{COUNTED}bad_rows."
LATE_ROWS: Final = "numRowsDroppedByWatermark"
"""Spark's own name of this count, in a step's metrics and in its progress."""
_VERSION: Final = "v1"
_RUNS_MAX: Final = 100
_AT_LEAST_ONCE: Final = 'or write with the option delivery="at_least_once"'


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    query: str
    sources: list[str | None]  # the end offset of each source as JSON; None of one that has none yet
    has_state: bool  # the query keeps state, which a batch that is skipped must bring up to date all the same
    location: str = ""  # of the checkpoint
    before: tuple[str | None, ...] = ()  # where the batch before ended, of each source


@dataclass(frozen=True, slots=True)
class _Run:
    """Spark's own object of a query that runs, and where its checkpoint is."""

    execution: Any
    location: str
    jvm: Any  # that it is one of


_TEMPORARY: Final = re.compile(r"temporary-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The last part of its name."""
_RUNS: Final[dict[str, _Run]] = {}  # by the query's id, the newest one; each question to the JVM costs a batch some time


def check_lasting(location: str) -> None:
    """Raises INVALID_CONFIG for the temporary checkpoint that Spark makes for a query without one: the next run would stop."""
    if _TEMPORARY.fullmatch(location.rstrip("/").rpartition("/")[2]):
        raise invalid(f'exactly once needs a checkpoint that outlives the query: give the writer .option("{CHECKPOINT}", DIRECTORY)')


def asked_of_spark(session: Any, number: int) -> PlannedBatch:
    """Returns the batch, which runs in this thread, as its query knows it."""
    query, run = _running(session)
    if is_local(run.location):
        root = Path(local_directory(run.location, ""))
        sources = _written_offsets(root, number)
        if sources is not None:
            before = _written_offsets(root, number - 1) if number else None
            return PlannedBatch(query, sources, (root / "state").exists(), run.location, tuple(before or ()))
    sources = _offsets_of(run.execution, number)
    assert sources is not None, "Spark writes the offsets of a batch before it runs"
    path = session._jvm.org.apache.hadoop.fs.Path(run.location, "state")
    has_state = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()).exists(path)
    before = _offsets_of(run.execution, number - 1) if number else None
    return PlannedBatch(query, sources, has_state, run.location, tuple(before or ()))


def known_of(session: Any, number: int, location: str | None) -> PlannedBatch | None:
    """Returns the batch that runs in this thread, or whose query has its checkpoint there; None where neither says: outside of a query."""
    if hasattr(session, "_jsparkSession"):
        return None if session.sparkContext.getLocalProperty(QUERY_ID) is None else asked_of_spark(session, number)
    return None if location is None or not is_local(location) else read_from(location, number)


def counts_of(session: Any) -> dict[str, int]:
    """Returns what Spark has counted in the batch that has run in this thread (``observe``), by name; nothing outside of a query."""
    return {name: int(row.get(0) or 0) for name, row in _observed(session).items()}


def names_of(session: Any) -> dict[str, list[str]]:
    """Returns which names Spark has gathered beside some of these counts, by the count's name."""
    return {name: row.get(1).split(NAMES_APART) for name, row in _observed(session).items() if row.size() > 1 and row.get(1)}


def _observed(session: Any) -> dict[str, Any]:
    if session.sparkContext.getLocalProperty(QUERY_ID) is None:
        return {}
    _, run = _running(session)
    found = run.execution.lastExecution().observedMetrics().iterator()
    rows = {}
    while found.hasNext():
        pair = found.next()
        rows[pair._1()] = pair._2()
    return {name: row for name, row in rows.items() if name.startswith(COUNTED)}


def late_rows_of(session: Any) -> int:
    """Returns how many rows Spark has dropped in the batch that has run in this thread, since the watermark had passed them."""
    if session.sparkContext.getLocalProperty(QUERY_ID) is None:
        return 0
    _, run = _running(session)
    execution = run.execution.lastExecution()
    if execution.offsetSeqMetadata().batchWatermarkMs() <= 0:
        return 0  # no row is late yet, or there is no watermark
    metrics = (node.metrics().get(LATE_ROWS) for node, _ in nodes_of(execution.executedPlan()))
    return sum(int(found.get().value()) for found in metrics if found.isDefined())


def running_of(session: Any) -> _Run:
    """Returns the run of the query whose batch runs in this thread: the same object as long as it is the same run."""
    return _running(session)[1]


def _running(session: Any) -> tuple[str, _Run]:
    """Returns the query whose batch runs in this thread: its id, and the run that is active."""
    query = session.sparkContext.getLocalProperty(QUERY_ID)
    if query is None:
        raise invalid(f"exactly once needs a streaming query: call the sink by writeStream.foreachBatch, {_AT_LEAST_ONCE}")
    found = _RUNS.get(query)
    if found is None or found.jvm is not session._jvm or not found.execution.isActive():
        # The session of a batch is a copy of the query's, and its own list of queries is empty: what they share has all of them.
        active = session._jsparkSession.sharedState().activeStreamingQueries()
        execution = active.get(session._jvm.java.util.UUID.fromString(query))
        found = _RUNS[query] = _Run(execution, execution.resolvedCheckpointRoot(), session._jvm)
        while len(_RUNS) > _RUNS_MAX:
            del _RUNS[next(iter(_RUNS))]
    return query, found


def _written_offsets(root: Path, number: int) -> list[str | None] | None:
    """Returns where the batch ends in each source, from the checkpoint's file; None where there is none, or it has another form."""
    try:
        version, _, *sources = (root / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ValueError):
        return None
    return [None if text == "-" else text for text in sources] if version == _VERSION else None


def _offsets_of(execution: Any, number: int) -> list[str | None] | None:
    """Returns where the batch ends in each source; None when the checkpoint does not have it."""
    found = execution.offsetLog().get(number)
    if not found.isDefined():
        return None
    offsets = found.get().offsets()
    sources = [offsets.apply(index) for index in range(offsets.size())]
    return [source.get().json() if source.isDefined() else None for source in sources]


def read_from(location: str | None, number: int) -> PlannedBatch:
    """Returns the batch of the query that has its checkpoint there. KafkaError INVALID_CONFIG where that is no local directory."""
    if location is None:
        raise invalid(f"exactly once reads the batch's offsets in the checkpoint: give the sink the option {CHECKPOINT}, {_AT_LEAST_ONCE}")
    root = local_directory(location, "use to_topic(...) in a classic session")
    query = json.loads((root / "metadata").read_text(encoding="utf-8"))["id"]
    version, _, *sources = (root / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    if version != _VERSION:
        raise invalid(f"the checkpoint {location} has offsets in form {version}, not {_VERSION}: use to_topic(...), {_AT_LEAST_ONCE}")
    return PlannedBatch(query, [None if text == "-" else text for text in sources], (root / "state").exists(), location)


def is_local(location: str) -> bool:
    """True when a checkpoint's location is a directory of this machine."""
    return urlsplit(location).scheme in ("", "file")


def local_directory(location: str, way_out: str) -> Path:
    """Returns the directory that a checkpoint's location names. KafkaError INVALID_CONFIG where it is not one of this machine."""
    parts = urlsplit(location)
    if not is_local(location):
        raise invalid(f"{CHECKPOINT}={location} is not on this machine: {way_out}, {_AT_LEAST_ONCE}")
    return Path(unquote(parts.path) if parts.scheme else location)


def ends_of(sources: Sequence[str | None]) -> Offsets:
    """Returns the end offsets of the sources that are topics; where two of them read one partition, the lower one."""
    ends: Offsets = {}
    for text in sources:
        found = topics_of(text)
        for partition, offset in (from_json(found) if found is not None else {}).items():
            ends[partition] = min(offset, ends.get(partition, offset))
    return ends


def begin_of(sources: Sequence[str | None]) -> Offsets | None:
    """Returns where a first batch started in all of its sources; None where one of them does not say, or two read the same partition."""
    begin: Offsets = {}
    for text in sources:
        found = topics_of(text)
        if found is None or BEGAN_AT not in found:
            return None
        start = batch_start({}, found)
        if start.keys() & begin.keys():
            return None
        begin |= start
    return begin


def topics_of(text: str | None) -> dict[str, dict[str, int]] | None:
    """Returns a source's offset where it is one of topics, as ottla's and Spark's own connector write them."""
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(value, dict) or not value:
        return None
    for topic, by_index in value.items():
        if topic == TOPIC_IDS:
            continue
        if not isinstance(by_index, dict) or not all(type(offset) is int for offset in by_index.values()):
            return None
        if topic != BEGAN_AT and not all(index.isdigit() for index in by_index):
            return None
    return value
