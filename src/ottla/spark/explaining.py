"""What the queries of an application read, keep and write, in words, before anything runs: for ``ottla pipeline explain``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.spark.options import DELIVERIES
from ottla.spark.outputs import field_of, loop_text, loops_of, written, written_elsewhere
from ottla.spark.pipelines import made_by, name_of
from ottla.spark.plans import plan_of
from ottla.spark.ways_out import noting


class Explained(NamedTuple):
    """A query of an application, in words."""

    query: str
    reads: str
    tables: str
    watermarks: str
    state: str
    output_mode: str
    writes: str
    delivery: str
    checkpoint: str


def explained(
    session: Any,
    app: str,
    pipelines: Mapping[str, Callable[[Any], Any]],
    *,
    bootstrap: str,
    checkpoint: str,
    warn: Callable[[str], object] = lambda text: None,
) -> Iterator[tuple[Explained, Any]]:
    """Yields each query of the application, and its frame. No broker is asked, and nothing is started.

    ``warn`` is given the warning of a query that writes a topic which it reads.

    What Spark would refuse when the query starts, such as an output mode, is refused here, with Spark's AnalysisException.
    """
    for function, pipeline in pipelines.items():
        made = made_by(pipeline, session, app, function, bootstrap=bootstrap, checkpoint=checkpoint)
        for index, writer in enumerate(made.writers):
            frame = writer._df
            plan = plan_of(frame)
            mode = _output_mode(writer)
            query = name_of(app, function, index)
            try:
                noting(_check)(session, frame, mode)
            except Exception as error:
                error.add_note(f"the query is {query}")
                raise
            settings: Mapping[str, str] = made.settings.get(index, {})
            for topic in loops_of(writer, query, settings):
                warn(loop_text(query, topic))
            yield (
                Explained(
                    query,
                    ", ".join(plan.streams),
                    ", ".join(plan.tables),
                    ", ".join(plan.watermarks),
                    ", ".join(plan.state),
                    mode.toString().lower(),
                    ", ".join(written(frame, query, settings)) if settings else written_elsewhere(writer, frame),
                    settings.get("delivery", DELIVERIES[0]) if settings else "",
                    settings.get("checkpoint", "directory"),
                ),
                frame,
            )


def _output_mode(writer: Any) -> Any:
    """Returns Spark's output mode of the writer."""
    return field_of(writer, "outputMode")


def _check(session: Any, frame: Any, mode: Any) -> None:
    """Checks what Spark checks when a query starts: whether each step of the stream has this output mode."""
    checker = session._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
