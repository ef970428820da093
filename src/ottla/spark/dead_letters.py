"""Records whose values do not fit, on their way to a topic of their own, in the transaction of the batch that has met them.

``read_topic`` leaves them out of its rows, wherever these go: into an aggregate, a join, a state. It has Spark count them in passing
(``observe``). When a batch's rows have been computed, the sink looks at the counts; where one is not 0, it reads the batch's own
offsets again and takes what does not fit. So a batch without bad rows costs nothing, and one that comes again finds the same ones.

A dead letter is the record as it was, key, value, headers and time, with more headers: topic, partition, offset, error. A time before 1970,
which a record has that was written without one, is that of writing, and so is one that is far ahead, which only topics with another
``message.timestamp.after.max.ms`` take: one record of a stranger would end the query otherwise.
"""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.checkpoint import COUNTED_BAD, topics_of
from ottla.spark.lookup import Lookup
from ottla.spark.offsets import Offsets, as_json, batch_start, from_json, ids_of, made_again
from ottla.spark.options import STREAM, boolean, checked, invalid
from ottla.spark.reading import AFTER_DELETION, report_loss
from ottla.spark.security import is_security

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ottla.spark.registry_values import RegistryValues
    from ottla.spark.values import Json

_KEPT: Final = (
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.request.timeout.ms",
    "kafka.isolation.level",
    "kafka.check.crcs",
    "kafkaConsumer.pollTimeoutMs",
    "failOnDataLoss",
)
_SOURCES: Final[dict[str, BadRows]] = {}
_SINKS: Final = frozenset({"ForeachBatchSink", "MemorySink", "ConsoleTable$", "NoopTable$"})
"""Spark's classes of sinks that may write bad rows, or that are for a look at a stream."""
_NUMBERS: Final = itertools.count()
ERROR_MAX: Final = 1_000
"""Characters of the header error."""
AHEAD_MAX_US: Final = 3_600_000_000
"""How far ahead a record's time may be by the default of ``message.timestamp.after.max.ms``."""


class LeftOutWarning(UserWarning):
    """A query's sink does not write the bad rows that its source leaves out."""


class ChangedValuesError(RuntimeError):
    """Records of a batch that were bad when it was computed, and are not when they are read for their dead letters, or the reverse."""


@dataclass(frozen=True, slots=True)
class BadRows:
    """The bad rows of one source, and where they go."""

    topics: frozenset[str]
    values: Json | RegistryValues
    dead_letter_topic: str
    options: Mapping[str, str] = field(repr=False)  # of the source; with passwords


def named(found: BadRows) -> str:
    """Returns the name under which Spark counts them: the sink finds it in the plan of its batch."""
    name = f"{COUNTED_BAD}{next(_NUMBERS)}"
    _SOURCES[name] = found
    return name


def dead_letter_topics() -> set[str]:
    """Returns the topics that take the bad rows of the sources that this process has made."""
    return {bad.dead_letter_topic for bad in _SOURCES.values()}


def dead_letter_topic_of(name: str) -> str | None:
    """Returns the topic of the bad rows that Spark counts under this name; None for what else it counts."""
    found = _SOURCES.get(name)
    return None if found is None else found.dead_letter_topic


def warn_of_left_out(frame: DataFrame, query: Any) -> None:
    """Warns where the sink of a query of this frame, which has started, writes no bad rows: nothing else would say that they are lost."""
    if not _SOURCES or not hasattr(frame, "_jdf") or not hasattr(query, "_jsq"):
        return
    jdf: Any = frame._jdf
    plan = jdf.queryExecution().logical().toString()
    topics = sorted({bad.dead_letter_topic for name, bad in _SOURCES.items() if f"{name}," in plan})
    if topics and query._jsq.streamingQuery().sink().getClass().getSimpleName() not in _SINKS:
        text = f"bad rows are left out, and not written to {', '.join(topics)}: to_topic(...) and foreachBatch(sink(...)) write them"
        warnings.warn(f"{text}, and this sink does not", LeftOutWarning, stacklevel=4)


def dead_letters(
    session: Any, counts: Mapping[str, int], before: Sequence[str | None], after: Sequence[str | None]
) -> Iterator[pa.RecordBatch]:
    """Yields the dead letters of a batch, with their topics, by what Spark has counted, and by where its sources start and end.

    KafkaError INVALID_CONFIG where two sources read one topic, and it cannot be known which of them has met them. DataLossError where a
    topic was deleted and made again since they were met; with ``failOnDataLoss=false`` they have no letters then.
    """
    for name, count in counts.items():
        if count == 0 or not name.startswith(COUNTED_BAD):
            continue
        bad = _SOURCES[name]
        found = [index for index, text in enumerate(after) if _is_of(bad, topics_of(text))]
        if len(found) > 1:
            raise invalid(f"bad_rows={bad.dead_letter_topic}: two sources of the query read {', '.join(sorted(bad.topics))}; use one twice")
        read = 0
        for index in found:
            start, end = before[index] if index < len(before) else None, topics_of(after[index]) or {}
            made = list(_read(session, bad, topics_of(start) or {}, end))
            if _are_others(bad, end):
                read = count
                continue
            read += sum(letters.num_rows for letters in made)
            yield from made
        if read != count and not bad.values.is_fixed:
            raise ChangedValuesError(
                f"{count} records of {', '.join(sorted(bad.topics))} were bad, and {read} are now: their registry has changed meanwhile, "
                "or some of them were deleted. "
                "Nothing of the batch was written; it is computed again when the query is started again"
            )


def _are_others(bad: BadRows, end: Mapping[str, Any]) -> bool:
    """Returns whether a topic by now is another one than the batch was planned over: what was read may be of either."""
    options = checked(dict(bad.options), STREAM)
    again = made_again(ids_of(end), Lookup(options).selection(must_exist=False).topic_ids)
    for topic in sorted(again):
        text = f"topic {topic!r} was deleted and made again before its bad rows were written to {bad.dead_letter_topic}"
        report_loss(text, fails=boolean(options, "failOnDataLoss", True), way_out=AFTER_DELETION)
    return bool(again)


def _is_of(bad: BadRows, offsets: Mapping[str, Any] | None) -> bool:
    topics = {partition.topic for partition in from_json(offsets or {})}
    return bool(topics) and topics <= bad.topics


def _read(session: Any, bad: BadRows, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    from pyspark.sql import functions as F

    end = from_json(after)
    begin = batch_start(before, after)
    start: Offsets = {partition: begin.get(partition, 0) for partition in end}  # a partition that came since was read from its first record
    options = {name: value for name, value in bad.options.items() if name in _KEPT or is_security(name)} | {
        "assign": json.dumps({topic: [int(index) for index in by_index] for topic, by_index in as_json(end).items()}),
        "startingOffsets": json.dumps(as_json(start)),
        "endingOffsets": json.dumps(as_json(end)),
        "includeHeaders": "true",
        "failOnTimestamp": "false",
    }
    rows: DataFrame = session.read.format("ottla").options(**options).load()
    parsed = rows.withColumn("parsed", bad.values.parsed(F.col("value")))
    found = parsed.where(bad.values.is_bad(F.col("value"), F.col("parsed"))).drop("parsed")
    table: pa.Table = found.withColumn("misfit", bad.values.misfit(F.col("value"))).toArrow()
    for batch in table.to_batches():
        yield _letters(batch, bad)


def _shortened(error: str) -> str:
    """Returns the text, or its start: a schema within it would make the letter larger than its topic takes."""
    return error if len(error) <= ERROR_MAX else f"{error[:ERROR_MAX]}..."


def _letters(batch: pa.RecordBatch, bad: BadRows) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    headers = []
    for row in batch.select(["topic", "partition", "offset", "value", "headers", "misfit"]).to_pylist():
        error = _shortened(bad.values.problem(row["value"], row["misfit"]))
        said = {name: row[name] for name in ("topic", "partition", "offset")} | {"error": error}
        headers.append([*row["headers"], *({"key": key, "value": str(value).encode()} for key, value in said.items())])
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {name: batch.column(name) for name in ("key", "value")}
    times = batch.column("timestamp")
    at_us = times.cast(pa.int64())
    is_strange = pc.or_(pc.less(at_us, 0), pc.greater(at_us, time.time_ns() // 1_000 + AHEAD_MAX_US))
    columns["timestamp"] = pc.if_else(is_strange, pa.scalar(None, times.type), times)
    columns |= {"topic": pa.array([bad.dead_letter_topic] * batch.num_rows, pa.string()), "headers": pa.array(headers, kind)}
    return pa.RecordBatch.from_pydict(columns)
