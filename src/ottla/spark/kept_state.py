"""What made the state in a checkpoint: another version of a query does not go on with it where it would mean something else.

Spark compares types alone. Another grouping key, aggregate function or window of the same types goes on with the state of the former one,
and its results are a mixture of the two. So the steps with state, as Spark's analyzed plan has them, are kept in a file of the
checkpoint, and compared when the query starts. What feeds an aggregate may change: filters, computed columns and schemas. A plan of
another release of Spark says the same in other words, perhaps, and is not compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.spark.checkpoint import is_local, local_directory
from ottla.spark.exactly_once import StopError
from ottla.spark.plans import each, keys_of, nodes_of, state_of
from ottla.spark.values import CONTENT

KEPT_STATE: Final = "ottla-state.json"
FORM: Final = 1
_PARSED: Final = ("from_json(", "from_avro(", "from_protobuf(")
"""A value that was read: its schema may have more fields by now."""


class ChangedStateError(StopError):
    """The checkpoint has the state of another version of the query."""


class Step(NamedTuple):
    """A step with state: in words; and by Spark's name, with what its keys and figures are computed from."""

    said: str
    made_of: list[str]


def check_state(frame: Any, location: str) -> None:
    """Checks that the checkpoint's state, if it has any, was made by the steps of this streaming frame, and keeps them there.

    ChangedStateError where they differ. A checkpoint that is not on this machine is not looked at, nor one of an earlier version of ottla,
    which kept nothing; nor are the frames of Spark Connect.
    """
    if not is_local(location) or not hasattr(frame, "_jdf"):
        return
    path = local_directory(location, "") / KEPT_STATE
    release = ".".join(frame.sparkSession.version.split(".")[:2])
    steps = steps_of(frame)
    before = _read(path, release)
    if before is not None and [step.made_of for step in before] != [step.made_of for step in steps]:  # the words may change
        raise ChangedStateError(_changed(before, steps, path))
    if before is None and (steps or path.exists()):
        _write(path, {"form": FORM, "spark": release, "steps": [list(step) for step in steps]})


def steps_of(frame: Any) -> list[Step]:
    """Returns the steps with state of a streaming frame, from its sources on."""
    nodes = list(nodes_of(frame._jdf.queryExecution().analyzed()))
    definitions: dict[int, Any] = {}
    for node, kind in nodes:
        if kind == "Project":
            definitions |= {found.exprId().id(): [found.child()] for found in each(node.projectList()) if _is_alias(found)}
        elif kind == "Expand":
            rows = [each(row) for row in each(node.projections())]
            definitions |= {
                found.exprId().id(): [row[index] for row in rows]
                for index, found in enumerate(each(node.output()))
                if not all(_is_attribute(row[index]) for row in rows)
            }
    return [Step(said, [kind, *_made_of(node, kind, definitions)]) for node, kind in nodes if (said := state_of(node, kind)) is not None]


def _made_of(node: Any, kind: str, definitions: dict[int, Any]) -> list[str]:
    keys = keys_of(node, kind)
    if kind == "Join" and node.condition().isDefined():
        keys = [node.condition().get()]
    figures = [found.child().sql() for found in each(node.aggregateExpressions()) if _is_alias(found)] if kind == "Aggregate" else []
    named = {key.sql() for key in keys}
    return [*_expanded(keys, definitions), *(figure for figure in figures if figure not in named)]


def _expanded(expressions: list[Any], definitions: dict[int, Any]) -> list[str]:
    """Returns the expressions as SQL, each with what the columns in it are computed from, up to what was read."""
    found: dict[str, None] = {}
    waiting = list(expressions)
    while waiting:
        expression = waiting.pop(0)
        text = str(expression.sql())
        if any(name in text for name in _PARSED) or text in found:
            continue
        found[text] = None
        for column in each(expression.references().toSeq()):
            if column.name() != CONTENT:
                waiting += definitions.get(column.exprId().id(), [])
    return list(found)


def _changed(before: list[Step], now: list[Step], path: Path) -> str:
    was, becomes = ("; ".join(step.said for step in steps) or "none" for steps in (before, now))
    if was == becomes:
        old, new = {text for step in before for text in step.made_of}, {text for step in now for text in step.made_of}
        was = f"{was} ({_shown(old - new) or 'in another order'})"
        becomes = f"{becomes} ({_shown(new - old) or 'in another order'})"
    text = f"the query keeps {becomes} by now, and its checkpoint has {was}: results would be a mixture of the two"
    return f"{text}. Where the state fits all the same, delete {path}, and start again."


def _shown(texts: set[str]) -> str:
    return ", ".join(text if len(text) <= 200 else f"{text[:200]}..." for text in sorted(texts))


def _read(path: Path, release: str) -> list[Step] | None:
    """Returns the steps that were kept; None where none were, or in a form, or by a Spark, that may say the same otherwise."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if (found["form"], found["spark"]) != (FORM, release):
            return None
        return [Step(said, list(made_of)) for said, made_of in found["steps"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(value), encoding="utf-8")
    new.replace(path)


def _is_alias(expression: Any) -> bool:
    return bool(expression.getClass().getSimpleName() == "Alias")


def _is_attribute(expression: Any) -> bool:
    return bool(expression.getClass().getSimpleName() == "AttributeReference")
