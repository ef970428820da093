"""The way out of what Spark refuses before any code of ottla runs, as a note of Spark's own error (PEP 678). The reason of a failure that
Spark's text has amid the tracebacks of several programs is a note, too, so that it is the last line of what a person sees.

Errors of a few of PySpark's methods are looked at, and nothing else: they stay what they are, and are raised as they were. Spark
Connect's classes are left alone; its errors come from a server that may be anywhere.
"""

from __future__ import annotations

import functools
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from ottla.spark import interpreter

METHODS: Final[tuple[tuple[Any, str], ...]] = (
    (DataFrameReader, "load"),
    (DataFrameWriter, "save"),
    *((DataFrameWriter, name) for name in ("csv", "insertInto", "json", "orc", "parquet", "saveAsTable", "text")),
    *((DataFrame, name) for name in ("collect", "count", "foreach", "foreachPartition", "isEmpty", "show", "tail")),
    *((DataFrame, name) for name in ("toArrow", "toLocalIterator", "toPandas")),
    (DataStreamReader, "load"),
    (DataStreamWriter, "start"),
    (StreamingQuery, "awaitTermination"),
    (StreamingQuery, "processAllAvailable"),
)
WAYS_OUT: Final = {
    r"Failed to find the data source: ottla\.": f"Spark looks for it with a Python that has no ottla: {interpreter.way_out()}",
    r"ottla does not support Update mode": "use to_topic(...) or foreachBatch(sink(...)) of ottla.spark, which take every mode",
    r"(?s)STREAMING_OUTPUT_MODE\.UNSUPPORTED_OPERATION.*append.*without watermark": 'write .outputMode("update"), which has each group '
    "that a batch has changed; or give the stream a watermark (withWatermark), and append has each group once, when it is complete",
    r"(?s)bigger than spark\.driver\.maxResultSize.*ottla": "a stream that is exactly once has its batch in the driver: raise "
    "spark.driver.maxResultSize until it is through, lower maxOffsetsPerTrigger of the source for those that follow, or let tasks "
    'write, with delivery="at_least_once"',
    r'data source "ottla" cannot be written': 'use mode("append"): a topic can only be appended to',
}
# A failure of ottla's own code within a batch of Spark: its reader, its writer, or a task of theirs.
_BATCH_FAILURE: Final = re.compile(r"Traceback \(most recent call last\)(?s:.*)^ottla\.[\w.]+: ", re.MULTILINE)
_PLAN: Final = re.compile(r"^\s*\+- ", re.MULTILINE)


def add_notes() -> None:
    """Adds the way out to errors of these methods as a note, once; methods that this PySpark lacks are passed over."""
    for owner, name in METHODS:
        method = getattr(owner, name, None)
        if method is not None:
            setattr(owner, name, noting(method))
    starts: Any = DataStreamWriter
    starts.start = warning(starts.start)
    for name in ("option", "options", "queryName"):
        setattr(starts, name, left_to_runner(getattr(starts, name)))


def warning(start: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the method that starts a query; where its sink leaves bad rows out, there is a warning."""

    @functools.wraps(start)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        query = start(self, *args, **kwargs)
        found = sys.modules.get("ottla.spark.dead_letters")  # which has what counts bad rows
        if found is not None:
            found.warn_of_left_out(self._df, query)
        return query

    return call


def left_to_runner(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the method of a writer; in a pipeline it refuses the options that the runner sets."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = sys.modules.get("ottla.spark.pipelines")  # which has the runner
        if found is not None:
            name = method.__name__
            found.check_is_free(kwargs if name == "options" else [name, *map(str, args[:1]), *map(str, kwargs.values())])
        return method(self, *args, **kwargs)

    return call


def noting(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the method; an error of it that is known here has its way out as a note."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            said = "".join(traceback.format_exception_only(error))  # str() of a JVM's error asks the JVM, which may have ended
            known = next((way_out for text, way_out in WAYS_OUT.items() if re.search(text, said, re.IGNORECASE)), None)
            note = known or _reason(error, said)
            if note is not None and note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            raise

    return call


def _reason(error: Exception, said: str) -> str | None:
    """Returns why a query or a batch has failed, which its error says amid the tracebacks of several programs; None for other errors."""
    if type(error).__name__ == "Py4JJavaError":  # which PySpark has no class for, as of a checkpoint that cannot be written
        return next((line.removeprefix(": ") for line in said.splitlines() if line.startswith(": ")), None)
    is_of_batch = _BATCH_FAILURE.search(said) is not None
    if not is_of_batch and isinstance(error, AnalysisException) and _PLAN.search(said):
        return str(error).strip().partition("\n")[0].rstrip(";")  # the plan follows it, of dozens of lines
    if not is_of_batch and not isinstance(error, StreamingQueryException):
        return None
    from ottla.spark.runner import place_of, reason_of

    kind, reason = reason_of(said)
    place = place_of(said, kind, reason)
    is_last = said.rstrip().endswith(f"{kind}: {reason}")
    return None if is_last or kind == type(error).__name__ else f"{kind}: {reason}{place}"
