"""A stateful processor whose state others can read: after each call of its handlers the states that it has changed come as rows.

PySpark's own processor, handle and states are called; these classes only note which store was changed under which key. A store's newest
value of a call counts. A list is one value, all of it. A state that is cleared has no value.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ottla.spark.options import invalid

CHANGE: Final = "__ottla_change"
_NO_ZONE: Final = "timestamp_ntz"
Columns = dict[str, bool]
"""The names of a state's columns, and whether its times have no zone."""
Change = tuple[str, str, str | None]
"""Store, key, value; None where the state is gone."""

_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class Changes:
    """The changes that the handlers made for the current grouping key."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[list[Any], Callable[[], Any]]] = {}

    def note(self, store: str, value: Callable[[], Any], map_key: Sequence[Any] = ()) -> None:
        """Notes that the state is what ``value`` returns when the call has ended; None for no state. Both are as JSON has them."""
        self._found[store, _json(map_key)] = list(map_key), value

    def take(self, key: Sequence[Any]) -> list[Change]:
        """Takes all changes, for this grouping key; there is nothing noted afterwards."""
        found, self._found = self._found, {}
        taken = []
        for (store, _), (map_key, value) in found.items():
            content = value()
            taken.append((store, key_text((*key, *map_key)), None if content is None else _json(content)))
        return taken


class LoggedValue:
    """PySpark's ValueState, whose changes are noted."""

    def __init__(self, state: Any, store: str, columns: Columns, changes: Changes) -> None:
        self._state, self._store, self._columns, self._changes = state, store, columns, changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def update(self, newValue: tuple[Any, ...]) -> None:
        self._state.update(newValue)
        value = _named(self._columns, newValue)
        self._changes.note(self._store, lambda: value)

    def clear(self) -> None:
        self._state.clear()
        self._changes.note(self._store, lambda: None)


class LoggedList:
    """PySpark's ListState, whose changes are noted."""

    def __init__(self, state: Any, store: str, columns: Columns, changes: Changes) -> None:
        self._state, self._store, self._columns, self._changes = state, store, columns, changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        self._state.put(newState)
        self._note()

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        self._state.appendValue(newState)
        self._note()

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        self._state.appendList(newState)
        self._note()

    def clear(self) -> None:
        self._state.clear()
        self._changes.note(self._store, lambda: None)

    def _note(self) -> None:
        self._changes.note(self._store, lambda: [_named(self._columns, value) for value in self._state.get()])


class LoggedMap:
    """PySpark's MapState, whose changes are noted; each of its keys has a value of its own."""

    def __init__(self, state: Any, store: str, key_columns: Columns, columns: Columns, changes: Changes) -> None:
        self._state, self._store, self._columns, self._changes = state, store, columns, changes
        self._key_columns = key_columns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self._state.updateValue(key, value)
        named = _named(self._columns, value)
        self._changes.note(self._store, lambda: named, self._plain(key))

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self._state.removeKey(key)
        self._changes.note(self._store, lambda: None, self._plain(key))

    def clear(self) -> None:
        keys = [tuple(key) for key in self._state.keys()]  # noqa: SIM118 - it is no dict
        self._state.clear()
        for key in keys:
            self._changes.note(self._store, lambda: None, self._plain(key))

    def _plain(self, key: Sequence[Any]) -> list[Any]:
        return list(_named(self._key_columns, key).values())


class LoggedHandle:
    """PySpark's handle, whose states note their changes."""

    def __init__(self, handle: Any, changes: Changes) -> None:
        self._handle, self._changes = handle, changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> LoggedValue:
        _check_stays(stateName, ttlDurationMs)
        return LoggedValue(self._handle.getValueState(stateName, schema), stateName, columns_of(schema), self._changes)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> LoggedList:
        _check_stays(stateName, ttlDurationMs)
        return LoggedList(self._handle.getListState(stateName, schema), stateName, columns_of(schema), self._changes)

    def getMapState(self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None) -> LoggedMap:
        _check_stays(stateName, ttlDurationMs)
        state = self._handle.getMapState(stateName, userKeySchema, valueSchema)
        return LoggedMap(state, stateName, columns_of(userKeySchema), columns_of(valueSchema), self._changes)

    def deleteIfExists(self, stateName: str) -> None:
        raise invalid(f"state {stateName!r} is in a topic, of which deleteIfExists would delete nothing: delete the topic")


class LoggingProcessor(StatefulProcessor):
    """A processor whose rows have one more column: None for its own ones, a change of its state in those that are added."""

    def __init__(self, processor: StatefulProcessor, names: Sequence[str]) -> None:
        self._processor = processor
        self._names = list(names)  # of the columns of its rows
        self._changes = Changes()

    def init(self, handle: Any) -> None:
        logged: Any = LoggedHandle(handle, self._changes)
        self._processor.init(logged)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield from self._with_changes(key, self._processor.handleInputRows(key=key, rows=rows, timerValues=timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        rows = self._processor.handleExpiredTimer(key=key, timerValues=timerValues, expiredTimerInfo=expiredTimerInfo)
        yield from self._with_changes(key, rows)

    def close(self) -> None:
        self._processor.close()

    def _with_changes(self, key: Any, rows: Iterator[Any]) -> Iterator[Any]:
        made, changed = Row(*self._names, CHANGE), Row("store", "key", "value")
        for row in rows:
            found = row.asDict()
            yield made(*(found.get(name) for name in self._names), None)
        for change in self._changes.take(tuple(key)):
            yield made(*[None] * len(self._names), changed(*change))


def key_text(values: Sequence[Any]) -> str:
    """Returns a key as its record has it: one text as it is, anything else as JSON; several values, and null, as a JSON array."""
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return _json(values[0] if len(values) == 1 and values[0] is not None else list(values))


def columns_of(schema: Any) -> Columns:
    """Returns the columns of a StructType, or of DDL; a worker has no JVM to read that."""
    if not isinstance(schema, str):
        return {field.name: _NO_ZONE in field.dataType.simpleString() for field in schema.fields}
    parts, depth = [""], 0
    for character in schema:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return {(re.match(r"\s*(`[^`]+`|[^\s:]+)", part) or [part, part])[1].strip("`"): _NO_ZONE in part.lower() for part in parts}


def _check_stays(store: str, ttl_ms: int | None) -> None:
    if ttl_ms is not None:
        text = f"state {store!r} has ttlDurationMs={ttl_ms}: Spark lets it expire unseen, and its topic would keep it"
        raise invalid(f"{text}; clear it by a timer instead")


def _named(columns: Columns, value: Sequence[Any]) -> dict[str, Any]:
    return {name: _plain(field, has_zone=not has_none) for (name, has_none), field in zip(columns.items(), value, strict=True)}


def _json(value: Any) -> str:
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _plain(value: Any, *, has_zone: bool = False) -> Any:
    """Returns the value as JSON has it: a row is an object, NaN a text, as in Spark's ``to_json``.

    A time of a zone is in UTC; where one ``has_zone``, and does not say which, PySpark means that of the process.
    """
    if type(value).__module__ == "numpy":
        value = value.tolist()
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _NOT_FINITE[str(float(value))]
        case Row() if hasattr(value, "__fields__"):
            return {name: _plain(field, has_zone=has_zone) for name, field in zip(value.__fields__, value, strict=True)}
        case dict():
            named = ((key if type(key) is str else _json(key).strip('"'), field) for key, field in value.items())
            return {key: _plain(field, has_zone=has_zone) for key, field in named}
        case list() | tuple():
            return [_plain(field, has_zone=has_zone) for field in value]
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case datetime() if has_zone or value.tzinfo is not None:
            plain = value.to_pydatetime() if hasattr(value, "to_pydatetime") else value
            return plain.astimezone(UTC).isoformat()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
