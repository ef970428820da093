"""A checkpoint's state is gone on with by the query that made it, and by no other one of the same types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from tests.spark.conftest import Topics

from ottla.errors import KafkaError
from ottla.spark import catch_up, pipeline, read_topic, to_topic
from ottla.spark.kept_state import KEPT_STATE, ChangedStateError, check_state, steps_of

SCHEMA = "customer string, region string, n long, amount double, at timestamp"
Make = Callable[[DataFrame], DataFrame]


def frame(spark: SparkSession, make: Make, schema: str = SCHEMA, **options: Any) -> DataFrame:
    return make(read_topic(spark, "t", schema, bootstrap="127.0.0.1:1", **options))


def late(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "1 minute")


def totals(rows: DataFrame) -> DataFrame:
    return rows.groupBy("customer").agg(F.sum("amount").alias("total"))


def joined(rows: DataFrame, on: str) -> DataFrame:
    left = rows.select(F.col(on).alias("left"), F.col("at").alias("left_at")).withWatermark("left_at", "1 minute")
    right = rows.select(F.col("customer").alias("right"), F.col("at").alias("right_at")).withWatermark("right_at", "1 minute")
    return left.join(right, F.expr("left = right and right_at between left_at and left_at + interval 1 minute"))


def counted(rows: DataFrame, by: str) -> DataFrame:
    def count(key: Any, found: Any, state: Any) -> Iterator[Any]:
        yield from found

    return rows.groupBy(by).applyInPandasWithState(count, "n long", "n long", "update", "NoTimeout")


class Nothing(StatefulProcessor):
    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield from ()


def processed(rows: DataFrame, by: str) -> DataFrame:
    return rows.groupBy(by).transformWithState(Nothing(), "n long", "update", "none")


OTHERS: dict[str, tuple[Make, Make]] = {
    "key": (totals, lambda rows: rows.groupBy("region").agg(F.sum("amount").alias("total"))),
    "function": (totals, lambda rows: rows.groupBy("customer").agg(F.max("amount").alias("total"))),
    "order of figures": (
        lambda rows: rows.groupBy("customer").agg(F.sum("amount").alias("a"), F.max("amount").alias("b")),
        lambda rows: rows.groupBy("customer").agg(F.max("amount").alias("b"), F.sum("amount").alias("a")),
    ),
    "computed key": (
        lambda rows: rows.withColumn("k", F.expr("n % 5")).groupBy("k").count(),
        lambda rows: rows.withColumn("k", F.expr("n % 7")).groupBy("k").count(),
    ),
    "window": (
        lambda rows: late(rows).groupBy(F.window("at", "1 minute")).count(),
        lambda rows: late(rows).groupBy(F.window("at", "10 minutes")).count(),
    ),
    "slide of a window": (
        lambda rows: late(rows).groupBy(F.window("at", "10 minutes", "5 minutes")).count(),
        lambda rows: late(rows).groupBy(F.window("at", "10 minutes", "2 minutes")).count(),
    ),
    "gap of a session": (
        lambda rows: late(rows).groupBy(F.session_window("at", "5 minutes")).count(),
        lambda rows: late(rows).groupBy(F.session_window("at", "6 minutes")).count(),
    ),
    "deduplication": (lambda rows: rows.dropDuplicates(["customer"]), lambda rows: rows.dropDuplicates(["region"])),
    "join": (lambda rows: joined(rows, "customer"), lambda rows: joined(rows, "region")),
    "applyInPandasWithState": (lambda rows: counted(rows, "customer"), lambda rows: counted(rows, "region")),
    "transformWithState": (lambda rows: processed(rows, "customer"), lambda rows: processed(rows, "region")),
    "state or none": (totals, lambda rows: rows.select("customer")),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_step_of_the_same_types_does_not_go_on_with_the_state(spark: SparkSession, tmp_path: Path, what: str) -> None:
    before, now = (frame(spark, make) for make in OTHERS[what])
    location = str(tmp_path / "checkpoint")
    check_state(before, location)
    check_state(before, location)
    with pytest.raises(ChangedStateError) as refused:
        check_state(now, location)
    assert "results would be a mixture" in str(refused.value)
    file = tmp_path / "checkpoint" / KEPT_STATE
    assert str(file) in str(refused.value)
    with pytest.raises(ChangedStateError):
        check_state(now, f"file://{location}")
    file.unlink()
    check_state(now, location)


SAME: dict[str, Make] = {
    "filter": lambda rows: totals(rows.where("amount > 0")),
    "computed figure": lambda rows: totals(rows.withColumn("amount", F.col("amount") * 2)),
    "name of a figure": lambda rows: rows.groupBy("customer").agg(F.sum("amount").alias("sum")),
    "after it": lambda rows: totals(rows).where("total > 1").withColumn("more", F.lit(1)),
}


@pytest.mark.parametrize("what", SAME)
def test_what_feeds_a_step_and_what_follows_it_may_change(spark: SparkSession, tmp_path: Path, what: str) -> None:
    check_state(frame(spark, totals), str(tmp_path))
    check_state(frame(spark, SAME[what]), str(tmp_path))


def test_a_schema_may_grow_and_bad_rows_may_go_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    check_state(frame(spark, totals), str(tmp_path))
    check_state(frame(spark, totals, schema=f"more string, {SCHEMA}"), str(tmp_path))
    check_state(frame(spark, totals, bad_rows="bad"), str(tmp_path))
    check_state(frame(spark, totals, record="record"), str(tmp_path))


def test_what_another_release_of_spark_or_nothing_has_said_is_not_compared(spark: SparkSession, tmp_path: Path) -> None:
    rows, file = frame(spark, totals), tmp_path / KEPT_STATE
    for text in ('{"form": 1, "spark": "3.5", "steps": [["aggregate by region", []]]}', "[]", "no JSON"):
        file.write_text(text)
        check_state(rows, str(tmp_path))
        assert json.loads(file.read_text())["steps"] == [list(step) for step in steps_of(rows)]
    check_state(rows, "hdfs://elsewhere/checkpoint")
    check_state(frame(spark, lambda rows: rows), str(tmp_path / "none"))
    assert not (tmp_path / "none").exists(), "a query without state keeps nothing"


@pytest.mark.slow
def test_a_pipeline_whose_aggregate_is_another_one_by_now_stops(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, results = topics.create(), topics.create()
    topics.produce(source, [(None, b'{"customer": "ada", "region": "eu", "amount": 5}')])

    def made(key: str) -> Callable[[SparkSession], Any]:
        @pipeline
        def counted(session: SparkSession) -> Any:
            rows = read_topic(session, source, SCHEMA)
            return to_topic(rows.groupBy(key).agg(F.sum("amount").alias("total")), results).outputMode("update")

        return counted

    def run(key: str) -> list[str]:
        return catch_up(spark, made(key), bootstrap=topics.bootstrap, checkpoints=tmp_path)

    assert run("customer")[-1].endswith("has caught up")
    with pytest.raises(KafkaError, match="keeps aggregate by region by now, and its checkpoint has aggregate by customer"):
        run("region")
    assert run("customer")[-1].endswith("has caught up")
