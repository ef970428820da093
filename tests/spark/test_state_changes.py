"""A processor's changes of its state, without Spark: in PySpark's own tester, which has no JVM."""

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import DoubleType, StructField, StructType, TimestampNTZType, TimestampType

from ottla.errors import KafkaError
from ottla.spark.changelogs import check_complete
from ottla.spark.state_changes import Changes, LoggedMap, LoggedValue, LoggingProcessor, columns_of, key_text


class Everything(StatefulProcessor):
    """Does to its states what the rows say."""

    def __init__(self, ttl_ms: int | None = None) -> None:
        self._ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        self._one = handle.getValueState("one", "n long, t string", self._ttl_ms)
        self._many = handle.getListState("many", "n long")
        self._by = handle.getMapState("by", "k string", "n long")
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            getattr(self, row["do"])(row["n"])
            yield Row(key=key[0], size=len(list(self._many.get())))

    def value(self, number: int) -> None:
        self._one.update((number, "x"))

    def append(self, number: int) -> None:
        self._many.appendValue((number,))

    def extend(self, number: int) -> None:
        self._many.appendList([(number,), (number + 1,)])

    def put(self, number: int) -> None:
        self._many.put([(number,)])

    def map(self, number: int) -> None:
        self._by.updateValue((f"k{number}",), (number,))

    def remove(self, number: int) -> None:
        self._by.removeKey((f"k{number}",))

    def clear(self, number: int) -> None:
        for state in (self._one, self._many, self._by):
            state.clear()

    def timer(self, number: int) -> None:
        self._handle.registerTimer(number)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        self._one.clear()
        yield Row(key=key[0], size=-1)

    def close(self) -> None:
        """Nothing is open."""


def played(tester: Any, *steps: tuple[str, int]) -> tuple[list[Any], list[Any]]:
    """The results, and the changes."""
    rows = tester.test("a", [Row(do=do, n=number) for do, number in steps])
    return split(rows)


def split(rows: Any) -> tuple[list[Any], list[Any]]:
    assert all(len(row) == 3 for row in rows)
    return [tuple(row[:2]) for row in rows if row[2] is None], [tuple(row[2]) for row in rows if row[2] is not None]


def a_tester(**more: Any) -> Any:
    return TwsTester(LoggingProcessor(Everything(), ["key", "size"]), **more)


def test_the_newest_value_of_each_state_of_a_call_is_a_change_after_the_results():
    tester = a_tester()
    results, changes = played(tester, ("value", 1), ("value", 2), ("append", 5), ("map", 7), ("map", 8))
    assert results == [("a", 0), ("a", 0), ("a", 1), ("a", 1), ("a", 1)]
    assert changes == [
        ("one", "a", '{"n":2,"t":"x"}'),
        ("many", "a", '[{"n":5}]'),
        ("by", '["a","k7"]', '{"n":7}'),
        ("by", '["a","k8"]', '{"n":8}'),
    ]
    assert played(tester, ("extend", 6))[1] == [("many", "a", '[{"n":5},{"n":6},{"n":7}]')]


def test_a_state_that_is_cleared_or_removed_has_no_value():
    tester = a_tester()
    played(tester, ("value", 1), ("append", 5), ("map", 7), ("map", 8), ("map", 9))
    assert played(tester, ("remove", 7), ("put", 3))[1] == [("by", '["a","k7"]', None), ("many", "a", '[{"n":3}]')]
    cleared = [("one", "a", None), ("many", "a", None), ("by", '["a","k8"]', None), ("by", '["a","k9"]', None)]
    assert played(tester, ("clear", 0))[1] == cleared


def test_a_timer_changes_state_too():
    tester = a_tester(timeMode="ProcessingTime")
    played(tester, ("value", 1), ("timer", 1_000))
    assert split(tester.setProcessingTime(2_000)) == ([("a", -1)], [("one", "a", None)])


def test_a_ttl_is_refused_for_its_topic_would_not_see_it():
    with pytest.raises(KafkaError, match=r"state 'one' has ttlDurationMs=5: Spark lets it expire unseen.* clear it by a timer"):
        TwsTester(LoggingProcessor(Everything(5), ["key", "size"]))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (["a"], "a"),
        ([7], "7"),
        ([None], "[null]"),
        (["null"], "null"),
        (["a", 7], '["a",7]'),
        ([date(2026, 1, 2)], '"2026-01-02"'),
        ([b"\x00"], '"AA=="'),
        (["é"], "é"),
    ],
)
def test_a_key_is_one_text_as_it_is_or_json(values: list, text: str):
    assert key_text(values) == text


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("n long", ["n"]),
        ("n long, t array<struct<a: int, b: int>>, `o-d` string", ["n", "t", "o-d"]),
        ("d decimal(10,2), m map<string,int>", ["d", "m"]),
        ("a: int, b: string", ["a", "b"]),
    ],
)
def test_ddl_is_read_without_a_jvm(schema: str, names: list):
    assert list(columns_of(schema)) == names


TYPES = "n double, at timestamp, wall timestamp_ntz, s struct<a: int, b: double>, m map<date, int>"
AT = datetime(2026, 1, 1, 21)


@pytest.mark.parametrize(
    "schema",
    [
        TYPES,
        StructType(
            [
                StructField(name, kind)
                for name, kind in (
                    ("n", DoubleType()),
                    ("at", TimestampType()),
                    ("wall", TimestampNTZType()),
                    ("s", StructType()),
                    ("m", StructType()),
                )
            ]
        ),
    ],
)
def test_a_value_is_json_that_any_reader_takes_whatever_the_zone_of_the_worker(schema: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        changes = Changes()
        value = LoggedValue(SimpleNamespace(update=lambda new: None), "one", columns_of(schema), changes)
        value.update((float("nan"), AT, AT, Row(a=1, b=float("-inf")), {date(2026, 1, 2): 3}))
        by = LoggedMap(
            SimpleNamespace(updateValue=lambda *new: None, keys=lambda: [(AT,)], clear=lambda: None),
            "by",
            columns_of("at timestamp"),
            columns_of("n long"),
            changes,
        )
        by.updateValue((AT.astimezone(UTC),), (1,))
        by.clear()
        by.updateValue((AT.astimezone(UTC),), (2,))
        utc = "2026-01-01T12:00:00+00:00"
        assert changes.take(["a"]) == [
            (
                "one",
                "a",
                f'{{"n":"NaN","at":"{utc}","wall":"2026-01-01T21:00:00","s":{{"a":1,"b":"-Infinity"}},"m":{{"2026-01-02":3}}}}',
            ),
            ("by", f'["a","{utc}"]', '{"n":2}'),
        ]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_changes_that_do_not_reach_the_sink_are_missed():
    counts = {"ottla.changes.3": 2, "ottla.bad_rows.1": 5}
    assert check_complete(counts, "app", {"app-seen-changelog": 2, "alerts": 7}) == ["app-seen-changelog"]
    assert check_complete({"ottla.bad_rows.1": 5}, "app", {"app-seen-changelog": 2}) == []
    with pytest.raises(KafkaError, match=r'2 changes of state were made, and 1 reached the sink.*F\.col\("__ottla_change"\)\.isNotNull'):
        check_complete(counts, "app", {"app-seen-changelog": 1})
