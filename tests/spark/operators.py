"""Queries with each of Spark's operators that keep state, over one topic of events, and what a batch computes in their place.

An event is JSON: ``id``, ``k`` (a key), ``v`` (a number), ``t`` (its time). Each query writes to a topic of its own, whose values are JSON.
``expected`` computes the same from all events, in Python.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

SCHEMA = "id long, k string, v long, t timestamp"
WINDOW_S = 10
SESSION_GAP_S = 4
JOIN_S = 3
NAMES = {"a": "Ada", "b": "Bob", "c": "Cyd"}
Event = dict[str, Any]
Result = tuple[Any, ...]


def event(number: int, second: float, key: str, value: int) -> bytes:
    moment = datetime.fromtimestamp(round(second, 3), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return json.dumps({"id": number, "k": key, "v": value, "t": moment}).encode()


class Running(StatefulProcessor):
    """The sum of a key's values so far, and its last value."""

    def init(self, handle: Any) -> None:
        self._total = handle.getValueState("total", "total long")
        self._seen = handle.getMapState("seen", "v long", "times long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        total = self._total.get()[0] if self._total.exists() else 0
        for row in rows:
            total += row["v"]
            times = self._seen.getValue((row["v"],))[0] if self._seen.containsKey((row["v"],)) else 0
            self._seen.updateValue((row["v"],), (times + 1,))
        self._total.update((total,))
        yield Row(k=key[0], total=total, kinds=len(list(self._seen.iterator())))

    def close(self) -> None:
        """Nothing is open."""


def window_append(events: DataFrame) -> DataFrame:
    late = events.withWatermark("t", "2 seconds")
    counts = late.groupBy(F.window("t", f"{WINDOW_S} seconds"), "k").agg(F.sum("v").alias("total"))
    return counts.select(F.unix_seconds("window.start").alias("start"), "k", "total")


def session(events: DataFrame) -> DataFrame:
    late = events.withWatermark("t", "2 seconds")
    counts = late.groupBy(F.session_window("t", f"{SESSION_GAP_S} seconds"), "k").agg(F.count("*").alias("n"))
    return counts.select(F.unix_millis("session_window.start").alias("start"), "k", "n")


def _sides(events: DataFrame) -> tuple[DataFrame, DataFrame]:
    late = events.withWatermark("t", "2 seconds")
    left = late.where("id % 2 = 0").select(F.col("k").alias("lk"), F.col("id").alias("lid"), F.col("t").alias("lt"))
    right = late.where("id % 2 = 1").select(F.col("k").alias("rk"), F.col("id").alias("rid"), F.col("t").alias("rt"))
    return left, right


def _joined(events: DataFrame, how: str) -> DataFrame:
    left, right = _sides(events)
    near = F.expr(f"lk = rk and rt between lt - interval {JOIN_S} seconds and lt + interval {JOIN_S} seconds")
    return left.join(right, near, how).select("lid", "rid")


def inner_join(events: DataFrame) -> DataFrame:
    return _joined(events, "inner")


def outer_join(events: DataFrame) -> DataFrame:
    return _joined(events, "left_outer")


def static_join(events: DataFrame) -> DataFrame:
    names = events.sparkSession.createDataFrame(list(NAMES.items()), "k string, name string")
    return events.join(names, "k").select("id", "name")


def distinct(events: DataFrame) -> DataFrame:
    return events.withWatermark("t", "1 hour").dropDuplicatesWithinWatermark(["k", "v"]).select("k", "v")


def sums(events: DataFrame) -> DataFrame:
    return events.groupBy("k").agg(F.sum("v").alias("total"))


def window_update(events: DataFrame) -> DataFrame:
    return window_append(events)


def running(events: DataFrame) -> DataFrame:
    return events.groupBy("k").transformWithState(
        statefulProcessor=Running(), outputStructType="k string, total long, kinds long", outputMode="Update", timeMode="None"
    )


APPENDING: dict[str, Callable[[DataFrame], DataFrame]] = {
    "window_append": window_append,
    "session": session,
    "inner_join": inner_join,
    "outer_join": outer_join,
    "static_join": static_join,
    "distinct": distinct,
}
UPDATING: dict[str, Callable[[DataFrame], DataFrame]] = {"sums": sums, "window_update": window_update, "running": running}
OPERATORS = APPENDING | UPDATING
COLUMNS = {
    "window_append": ("start", "k", "total"),
    "session": ("start", "k", "n"),
    "inner_join": ("lid", "rid"),
    "outer_join": ("lid", "rid"),
    "static_join": ("id", "name"),
    "distinct": ("k", "v"),
    "sums": ("k", "total"),
    "window_update": ("start", "k", "total"),
    "running": ("k", "total", "kinds"),
}


def read_events(spark: SparkSession, bootstrap: str, topic: str, rows_per_batch: int) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("ottla").options(maxOffsetsPerTrigger=str(rows_per_batch), **options).load()
    return rows.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("e")).select("e.*")


def check(name: str, events: list[Event], values: list[bytes]) -> None:
    """The values are what an appending query writes in all; of an updating one each is there once, and the last of each key is right."""
    found: Counter[Result] = Counter()
    for value in values:
        said = json.loads(value)
        found[tuple(said.get(column) for column in COLUMNS[name])] += 1
    expected = _EXPECTED[name](events)
    if name in UPDATING:
        assert set(found.values()) <= {1}, f"{name}: results are there twice"
        last: dict[Result, Result] = {}
        for result in sorted(found):  # sums grow
            key = result[: COLUMNS[name].index("total")]
            last[key] = max(result, last.get(key, result))
        found = Counter(last.values())
    assert found == expected, f"{name}: {found - expected} too many, {expected - found} too few"


def _seconds(found: Event) -> float:
    return datetime.fromisoformat(found["t"]).timestamp()


def _last_s(events: list[Event]) -> float:
    """The last watermark: results of windows that end later are still to come."""
    return max(map(_seconds, events)) - 2


def _windows(events: list[Event]) -> dict[tuple[int, str], int]:
    sums: dict[tuple[int, str], int] = defaultdict(int)
    for found in events:
        sums[int(_seconds(found)) // WINDOW_S * WINDOW_S, found["k"]] += found["v"]
    return sums


def _sessions(events: list[Event]) -> Counter[Result]:
    by_key: dict[str, list[float]] = defaultdict(list)
    for found in events:
        by_key[found["k"]].append(_seconds(found))
    ended: Counter[Result] = Counter()
    for key, times in by_key.items():
        times.sort()
        first = 0
        for index in range(1, len(times) + 1):
            if index == len(times) or times[index] >= times[index - 1] + SESSION_GAP_S:
                if times[index - 1] + SESSION_GAP_S <= _last_s(events):
                    ended[round(times[first] * 1000), key, index - first] += 1
                first = index
    return ended


def _pairs(events: list[Event], *, with_unmatched: bool) -> Counter[Result]:
    left, right = [e for e in events if e["id"] % 2 == 0], [e for e in events if e["id"] % 2]
    found: Counter[Result] = Counter()
    for one in left:
        partners = [other for other in right if other["k"] == one["k"] and abs(_seconds(other) - _seconds(one)) <= JOIN_S]
        found.update((one["id"], other["id"]) for other in partners)
        if with_unmatched and not partners and _seconds(one) + JOIN_S < _last_s(events):
            found[one["id"], None] += 1
    return found


def _running(events: list[Event]) -> Counter[Result]:
    values: dict[str, list[int]] = defaultdict(list)
    for found in events:
        values[found["k"]].append(found["v"])
    return Counter((key, sum(of_key), len(set(of_key))) for key, of_key in values.items())


def _sums(events: list[Event]) -> Counter[Result]:
    sums: Counter[str] = Counter()
    for found in events:
        sums[found["k"]] += found["v"]
    return Counter(sums.items())


_EXPECTED: dict[str, Callable[[list[Event]], Counter[Result]]] = {
    "window_append": lambda events: Counter(
        (start, key, total) for (start, key), total in _windows(events).items() if start + WINDOW_S <= _last_s(events)
    ),
    "session": _sessions,
    "inner_join": lambda events: _pairs(events, with_unmatched=False),
    "outer_join": lambda events: _pairs(events, with_unmatched=True),
    "static_join": lambda events: Counter((e["id"], NAMES[e["k"]]) for e in events if e["k"] in NAMES),
    "distinct": lambda events: Counter({(e["k"], e["v"]): 1 for e in events}),
    "sums": _sums,
    "window_update": lambda events: Counter((start, key, total) for (start, key), total in _windows(events).items()),
    "running": _running,
}
