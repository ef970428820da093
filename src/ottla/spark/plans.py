"""What a stream reads and what it keeps, by Spark's own plan of it, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.spark.lookup import topics_of
from ottla.spark.offsets import parse_partitions

SELECTIONS: Final = ("subscribe", "path", "subscribepattern", "assign")
_STATEFUL: Final = {
    "Aggregate": "aggregate",
    "Deduplicate": "deduplication",
    "DeduplicateWithinWatermark": "deduplication",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "GlobalLimit": "limit",
}


@dataclass(frozen=True, slots=True)
class Plan:
    streams: list[str]  # what it reads on and on
    tables: list[str]  # what it reads again in each batch
    state: list[str]  # what it keeps from batch to batch
    watermarks: list[str]


def plan_of(frame: Any) -> Plan:
    """Returns the plan of a streaming frame of a classic session."""
    nodes = list(nodes_of(frame._jdf.queryExecution().analyzed()))
    leaves = [(node, kind) for node, kind in nodes if node.children().isEmpty() and not (kind == "LocalRelation" and node.data().isEmpty())]
    streams = [_name(node, kind) for node, kind in leaves if node.isStreaming()]
    tables = [_name(node, kind) for node, kind in leaves if not node.isStreaming()]
    state = [said for node, kind in nodes if (said := state_of(node, kind)) is not None]
    watermarks = [f"{node.eventTime().name()}: {node.delay().toString()}" for node, kind in nodes if kind == "EventTimeWatermark"]
    return Plan(*(list(dict.fromkeys(found)) for found in (streams, tables, state, watermarks)))


class Selected(NamedTuple):
    """The topics that a stream reads: an option of its source with its value, and the brokers that it asks."""

    option: str
    value: str
    bootstrap: str

    def has(self, topic: str) -> bool:
        """Returns whether the stream reads the topic, if there is one of that name."""
        if self.option == "subscribepattern":
            return re.fullmatch(self.value, topic) is not None
        if self.option == "assign":
            return topic in {partition.topic for partition in parse_partitions(self.value)}
        return topic in topics_of(self.value)


def selected_of(frame: Any) -> list[Selected]:
    """Returns what the streams of a frame read of topics."""
    found = []
    for node, kind in nodes_of(frame._jdf.queryExecution().analyzed()):
        if kind == "StreamingRelationV2":
            options = node.extraOptions()
            values = ((name, options.get(name)) for name in SELECTIONS)
            bootstrap = str(options.get("kafka.bootstrap.servers") or "")
            found += [Selected(name, str(value), bootstrap) for name, value in values if value is not None]
    return found


def streams_of(writer: Any) -> list[str]:
    """Returns what a writer's stream reads on and on."""
    return plan_of(writer._df).streams


def nodes_of(node: Any) -> Iterator[tuple[Any, str]]:
    """Yields the nodes from the leaves up."""
    children = node.children()
    for index in range(children.size()):
        yield from nodes_of(children.apply(index))
    yield node, node.getClass().getSimpleName()


def _name(node: Any, kind: str) -> str:
    """Returns a source's topics, or what Spark calls it."""
    options: Any = node.extraOptions() if kind == "StreamingRelationV2" else node.options() if kind == "DataSourceV2Relation" else {}
    for name in SELECTIONS:
        found = options.get(name)
        if found is not None:
            return str(found)
    return str(node.sourceName()) if kind == "StreamingRelationV2" else str(node.nodeName())


def state_of(node: Any, kind: str) -> str | None:
    """Returns what the step keeps from batch to batch, in words; None where it keeps nothing."""
    children = node.children()
    if kind == "Join" and all(children.apply(index).isStreaming() for index in range(children.size())):
        return f"{node.joinType().sql().lower()} join of streams"
    if kind not in _STATEFUL or not node.isStreaming():
        return None
    names = [_key(key) for key in keys_of(node, kind)]
    if not names and kind != "Aggregate":
        return _STATEFUL[kind]
    return f"{_STATEFUL[kind]} by {', '.join(names) or 'nothing'}"


def keys_of(node: Any, kind: str) -> list[Any]:
    """Returns what a step with state groups its rows by; nothing for a join."""
    if kind == "TransformWithStateInPySpark":  # the groups are the first columns of its rows
        return each(node.child().output())[: node.groupingAttributesLen()]
    keys: Any = None
    if kind == "Aggregate":
        keys = node.groupingExpressions()
    elif kind.startswith("Deduplicate"):
        keys = node.keys()
    elif kind.startswith(("FlatMapGroups", "TransformWithState")):
        keys = node.groupingAttributes()
    return [] if keys is None else each(keys)


def each(sequence: Any) -> list[Any]:
    """Returns what a sequence of Scala's has."""
    return [sequence.apply(index) for index in range(sequence.size())]


def _key(expression: Any) -> str:
    """Returns the name of a column, and anything else as SQL has it: it has no name, whatever its alias is."""
    is_column = expression.getClass().getSimpleName() == "AttributeReference"
    return str(expression.name() if is_column else expression.sql())
