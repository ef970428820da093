"""What the queries of an application read, keep and write, in words, before anything runs: for ``ottla pipeline explain``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ottla.spark.changelogs import SUFFIX
from ottla.spark.dead_letters import dead_letter_topic_of
from ottla.spark.marker import CHECKPOINT_SUFFIX
from ottla.spark.options import DELIVERIES
from ottla.spark.pipelines import BOOTSTRAP, made_by, name_of
from ottla.spark.plans import each, nodes_of, plan_of, selected_of
from ottla.spark.state_changes import CHANGE
from ottla.spark.ways_out import noting

_PROCESSORS: Final = ("TransformWithState", "TransformWithStateInPySpark")


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
                    ", ".join(_written(frame, query, settings)) if settings else _written_elsewhere(writer, frame),
                    settings.get("delivery", DELIVERIES[0]) if settings else "",
                    settings.get("checkpoint", "directory"),
                ),
                frame,
            )


def loops_of(writer: Any, query: str, settings: Mapping[str, str] | None) -> list[str]:
    """Returns the topics that a query both reads and writes, of the same brokers; ``settings`` are those of a sink of ours.

    Topics of rows that only show when the query runs are not among them.
    """
    frame = writer._df
    if settings:
        kept = [f"{settings.get('app', query)}{CHECKPOINT_SUFFIX}"] if settings.get("checkpoint") == "topic" else []
        topics, bootstrap = [*_written(frame, query, settings), *kept], settings.get(BOOTSTRAP, "")
    elif str(_field(writer, "source")) in ("ottla", "kafka"):
        options = _field(writer, "extraOptions")
        topic, brokers = (options.get(name) for name in ("topic", BOOTSTRAP))
        topics, bootstrap = [str(topic.get())] if topic.isDefined() else [], str(brokers.get()) if brokers.isDefined() else ""
    else:
        return []
    brokers = set(bootstrap.split(","))
    reads = [selected for selected in selected_of(frame) if brokers & set(selected.bootstrap.split(","))]
    return [topic for topic in topics if any(selected.has(topic) for selected in reads)]


def loop_text(query: str, topic: str) -> str:
    """Returns the warning of a query that writes a topic which it reads."""
    return f"{query}  writes topic {topic}, which it reads: each row that it writes there comes back, without end, unless a filter drops it"


def _output_mode(writer: Any) -> Any:
    """Returns Spark's output mode of the writer."""
    return _field(writer, "outputMode")


def _field(writer: Any, name: str) -> Any:
    """Returns what the writer has, which has no methods for it."""
    field = writer._jwrite.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(writer._jwrite)


def _check(session: Any, frame: Any, mode: Any) -> None:
    """Checks what Spark checks when a query starts: whether each step of the stream has this output mode."""
    checker = session._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)


def _written(frame: Any, query: str, settings: Mapping[str, str]) -> list[str]:
    """Returns the topics that a sink of ours writes, also for changes of state and for bad rows."""
    nodes = list(nodes_of(frame._jdf.queryExecution().analyzed()))
    topics = [settings["topic"]] if "topic" in settings else _topics_of_rows(nodes) or ["the topics of its rows"]
    if any(_has_column(node.output(), CHANGE) for node, kind in nodes if kind in _PROCESSORS):
        topics.append(f"{settings.get('app', query)}-*{SUFFIX}")
    counted = [dead_letter_topic_of(node.name()) for node, kind in nodes if kind == "CollectMetrics"]
    return list(dict.fromkeys([*topics, *(topic for topic in counted if topic is not None)]))


def _written_elsewhere(writer: Any, frame: Any) -> str:
    """Returns what a sink that is none of ours writes: its format, and where to; and that it leaves bad rows out, where it does."""
    options = _field(writer, "extraOptions")
    places = (options.get(name) for name in ("path", "topic"))
    place = next((f" {found.get()}" for found in places if found.isDefined()), "")
    kind = str(_field(writer, "source"))
    is_left_out = any(found.endswith("CollectMetrics") and dead_letter_topic_of(node.name()) for node, found in nodes_of(_plan(frame)))
    left_out = "; bad rows are left out" if is_left_out and kind != "foreachBatch" else ""
    return f"{kind}{place}{left_out}"


def _plan(frame: Any) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _topics_of_rows(nodes: list[tuple[Any, str]]) -> list[str]:
    """Returns the names of topics that the plan has as texts, by ``route`` or in a column topic."""
    found: list[str] = []
    for node, _ in nodes:
        waiting = each(node.expressions())
        while waiting:
            expression = waiting.pop(0)
            kind = expression.getClass().getSimpleName()
            children = each(expression.children())
            is_route = kind == "CreateNamedStruct" and [str(child.value()) for child in children[::2]] == ["topic", "is_meant"]
            if is_route or (kind == "Alias" and expression.name() == "topic"):
                topic = children[1 if is_route else 0]
                if topic.getClass().getSimpleName() == "Literal" and topic.value() is not None:
                    found.append(topic.value().toString())
            waiting += children
    return list(dict.fromkeys(found))


def _has_column(attributes: Any, name: str) -> bool:
    return any(attribute.name() == name for attribute in each(attributes))
