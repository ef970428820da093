"""Which topics, or what else, a query writes, by its plan and its sink; and which of them it reads, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.spark.changelogs import SUFFIX
from ottla.spark.dead_letters import dead_letter_topic_of
from ottla.spark.marker import CHECKPOINT_SUFFIX
from ottla.spark.pipelines import BOOTSTRAP
from ottla.spark.plans import each, nodes_of, selected_of
from ottla.spark.state_changes import CHANGE

_PROCESSORS: Final = ("TransformWithState", "TransformWithStateInPySpark")


def loops_of(writer: Any, query: str, settings: Mapping[str, str] | None) -> list[str]:
    """Returns the topics that a query both reads and writes, of the same brokers; ``settings`` belong to a sink of ours.

    Topics of rows that only show when the query runs are not among them.
    """
    frame = writer._df
    if settings:
        kept = [f"{settings.get('app', query)}{CHECKPOINT_SUFFIX}"] if settings.get("checkpoint") == "topic" else []
        topics, bootstrap = [*written(frame, query, settings), *kept], settings.get(BOOTSTRAP, "")
    elif str(field_of(writer, "source")) in ("ottla", "kafka"):
        options = field_of(writer, "extraOptions")
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


def written(frame: Any, query: str, settings: Mapping[str, str]) -> list[str]:
    """Returns the topics that a sink of ours writes, also for changes of state and for bad rows."""
    nodes = list(nodes_of(frame._jdf.queryExecution().analyzed()))
    topics = [settings["topic"]] if "topic" in settings else _topics_of_rows(nodes) or ["the topics of its rows"]
    if any(_has_column(node.output(), CHANGE) for node, kind in nodes if kind in _PROCESSORS):
        topics.append(f"{settings.get('app', query)}-*{SUFFIX}")
    counted = [dead_letter_topic_of(node.name()) for node, kind in nodes if kind == "CollectMetrics"]
    return list(dict.fromkeys([*topics, *(topic for topic in counted if topic is not None)]))


def written_elsewhere(writer: Any, frame: Any) -> str:
    """Returns what a sink that is none of ours writes: its format, and where to; and that it leaves bad rows out, where it does."""
    options = field_of(writer, "extraOptions")
    places = (options.get(name) for name in ("path", "topic"))
    place = next((f" {found.get()}" for found in places if found.isDefined()), "")
    kind = str(field_of(writer, "source"))
    nodes = nodes_of(frame._jdf.queryExecution().analyzed())
    is_left_out = any(found.endswith("CollectMetrics") and dead_letter_topic_of(node.name()) for node, found in nodes)
    left_out = "; bad rows are left out" if is_left_out and kind != "foreachBatch" else ""
    return f"{kind}{place}{left_out}"


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


def field_of(writer: Any, name: str) -> Any:
    """Returns what the writer has, which has no methods for it."""
    field = writer._jwrite.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(writer._jwrite)
