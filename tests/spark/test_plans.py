"""What queries read, keep and write, by their plans; and what ``ottla pipeline`` asks of a session."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.cli.pipeline import pipeline
from ottla.runtime.java import JavaMissingError
from ottla.spark import defaults
from ottla.spark.explaining import Explained, explained

FILE = """
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from ottla.spark import changelogged, pipeline, read_table, read_topic, route, to_topic

@pipeline
def paid(spark):
    orders = read_topic(spark, "orders", "customer string, amount double, t timestamp", bad_rows="bad").withWatermark("t", "10 seconds")
    pays = read_topic(spark, "pays", "c2 string, t2 timestamp").withWatermark("t2", "1 minute")
    joined = orders.join(pays, F.expr("customer = c2 and t2 between t and t + interval 5 seconds"), "leftOuter")
    names = read_table(spark, "names", "name string", key="customer")
    sums = orders.join(names, "customer").groupBy(F.window("t", "5 seconds"), "customer").agg(F.sum("amount").alias("s"))
    often = to_topic(sums.select("customer", "s"), "sums", key="customer", delivery="at_least_once")
    return [to_topic(route(joined, a=F.col("amount") > 1, key="customer")), often]

@pipeline
def loud(spark):
    counts = read_topic(spark, "orders", "customer string").groupBy(F.upper("customer").alias("name")).count()
    return to_topic(counts, "counts", key="name").outputMode("update")

@pipeline
def raw(spark):
    values = read_topic(spark, "orders", "customer string", bad_rows="bad")
    return [
        spark.readStream.format("rate").load().dropDuplicates(["value"]).writeStream.format("noop"),
        values.writeStream.format("parquet").option("path", "/data/raw"),
        values.writeStream.foreachBatch(lambda rows, number: None),
        values.selectExpr("customer as value").writeStream.format("kafka").option("topic", "t"),
    ]

@pipeline
def kept(spark):
    class Processor(StatefulProcessor):
        def init(self, handle): pass
        def handleInputRows(self, key, rows, timerValues): return iter(())
        def close(self): pass

    counts = changelogged(read_topic(spark, "orders", "customer string").groupBy("customer"), Processor(), "customer string")
    return to_topic(counts, "kept", key="customer").outputMode("update")

@pipeline
def both(spark):
    class Processor(StatefulProcessor):
        def init(self, handle): pass
        def handleInputRows(self, key, rows, timerValues): return iter(())
        def close(self): pass

    counts = changelogged(read_topic(spark, "orders", "customer string").groupBy("customer"), Processor(), "customer string")
    return to_topic(route(counts, hot=F.col("customer") == "a", all_readings=F.lit(True))).outputMode("update")
"""
REFUSED = """
from ottla.spark import pipeline, read_topic, to_topic

@pipeline
def counts(spark):
    return to_topic(read_topic(spark, "orders", "customer string").groupBy("customer").count(), "counts", key="customer")
"""
EXPECTED = [
    Explained(
        "shop-paid", "orders, pays", "", "t: 10 seconds, t2: 1 minutes", "left outer join of streams", "append", "a, bad",
        "exactly_once", "topic",
    ),
    Explained(
        "shop-paid-2", "orders", "names", "t: 10 seconds", "aggregate by window, customer", "append", "sums, bad", "at_least_once",
        "directory",
    ),
    Explained("shop-loud", "orders", "", "", "aggregate by upper(customer)", "update", "counts", "exactly_once", "topic"),
    Explained("shop-raw", "rate", "", "", "deduplication by value", "append", "noop", "", "directory"),
    Explained("shop-raw-2", "orders", "", "", "", "append", "parquet /data/raw; bad rows are left out", "", "directory"),
    Explained("shop-raw-3", "orders", "", "", "", "append", "foreachBatch", "", "directory"),
    Explained("shop-raw-4", "orders", "", "", "", "append", "kafka t; bad rows are left out", "", "directory"),
    Explained(
        "shop-kept", "orders", "", "", "transformWithState by customer", "update", "kept, shop-kept-*-changelog", "exactly_once", "topic",
    ),
    Explained(
        "shop-both", "orders", "", "", "transformWithState by customer", "update", "hot, all_readings, shop-both-*-changelog",
        "exactly_once", "topic",
    ),
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.slow
def test_a_query_is_explained_without_a_broker(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(defaults, "session", lambda *_, **__: spark)
    monkeypatch.setattr(defaults, "stop_session", lambda: None)
    (tmp_path / "shop.py").write_text(FILE)
    shown = CliRunner().invoke(pipeline, ["explain", str(tmp_path / "shop.py"), "--plan", "-B", "127.0.0.1:1"])
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(EXPECTED)]] == [row.query for row in EXPECTED]
    assert "== Physical Plan ==" in lines

    def of(name: str) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] = namespace[name]
        return found

    namespace: dict[str, Any] = {}
    exec(FILE, namespace)
    pipelines = {name: of(name) for name in ("paid", "loud", "raw", "kept", "both")}
    assert [row for row, _ in explained(spark, "shop", pipelines, bootstrap="127.0.0.1:1", checkpoint="topic")] == EXPECTED


@pytest.mark.spark
def test_what_spark_would_refuse_at_the_start_is_refused(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(defaults, "session", lambda *_, **__: spark)
    monkeypatch.setattr(defaults, "stop_session", lambda: None)
    (tmp_path / "shop.py").write_text(REFUSED)
    shown = CliRunner().invoke(pipeline, ["explain", str(tmp_path / "shop.py"), "-B", "127.0.0.1:1"])
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION]" in shown.stderr
    assert '.outputMode("update")' in shown.stderr
    assert "the query is shop-counts" in shown.stderr


LOOPS = """
from pyspark.sql import functions as F
from ottla.spark import pipeline, read_topic, route, to_topic

ELSEWHERE = {"kafka.bootstrap.servers": "127.0.0.2:1"}

def values(spark, **options):
    return spark.readStream.format("ottla").options(**{"kafka.bootstrap.servers": "127.0.0.1:1"} | options).load().select("value")

@pipeline
def loops(spark):
    orders = read_topic(spark, "orders, pays", "customer string")
    return [
        to_topic(orders, "pays"),
        to_topic(route(orders, orders=F.lit(True), big=F.lit(True))),
        to_topic(orders.unionByName(read_topic(spark, "names", "customer string")), "names"),
        to_topic(values(spark, subscribePattern="or.*"), "orders"),
        to_topic(values(spark, subscribePattern="shop-.*"), "totals"),
        to_topic(values(spark, assign='{"totals": [0]}'), "totals"),
        values(spark, subscribe="a").writeStream.format("ottla").options(**{"kafka.bootstrap.servers": "x:1,127.0.0.1:1", "topic": "a"}),
    ]

@pipeline
def ends(spark):
    return [
        to_topic(read_topic(spark, "orders", "customer string", bad_rows="bad"), "order"),
        to_topic(values(spark, subscribePattern="or"), "orders"),
        to_topic(read_topic(spark, "orders", "customer string", options=ELSEWHERE), "orders"),
        values(spark, subscribe="a").writeStream.format("parquet").option("topic", "a"),
    ]
"""


@pytest.mark.spark
def test_a_query_that_writes_what_it_reads_is_warned_of(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It was accepted without a word: an endless loop."""
    monkeypatch.setattr(defaults, "session", lambda *_, **__: spark)
    monkeypatch.setattr(defaults, "stop_session", lambda: None)
    (tmp_path / "shop.py").write_text(LOOPS)
    shown = CliRunner().invoke(pipeline, ["explain", str(tmp_path / "shop.py"), "-B", "127.0.0.1:1"])
    assert shown.exit_code == 0, shown.output
    expected = {"": "pays", "-2": "orders", "-3": "names", "-4": "orders", "-5": "shop-loops-5-checkpoint", "-6": "totals", "-7": "a"}
    end = "which it reads: each row that it writes there comes back, without end, unless a filter drops it"
    assert shown.stderr.splitlines() == [
        f"warning: shop-loops{index}  writes topic {topic}, {end}" for index, topic in expected.items()
    ]  # fmt: skip


@pytest.mark.parametrize(("more", "master"), [((), "local[*]"), (("--small",), "local[1]"), (("--master", "local[3]"), "local[3]")])
def test_a_small_pipeline_has_one_core_and_less_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], master: str):
    asked: dict[str, Any] = {}

    def session(app: str, **given: Any) -> Any:
        asked.update(given)
        raise JavaMissingError("no Java here")

    monkeypatch.setattr(defaults, "session", session)
    monkeypatch.setattr("ottla.cli.pipeline_runs.check_brokers", lambda bootstrap: None)
    (tmp_path / "shop.py").write_text(FILE)
    command = ["run", str(tmp_path / "shop.py"), "--data", str(tmp_path / "data"), *more]
    shown = CliRunner().invoke(pipeline, command)
    assert "no Java here" in shown.output
    assert asked["master"] == master
    assert ("spark.driver.memory" in asked["config"]) is (more == ("--small",))
    assert asked["config"]["spark.sql.streaming.minBatchesToRetain"] == "5"


def test_a_small_pipeline_has_no_master_besides(tmp_path: Path):
    (tmp_path / "shop.py").write_text(FILE)
    shown = CliRunner().invoke(pipeline, ["run", str(tmp_path / "shop.py"), "--small", "--master", "local[4]"])
    assert (shown.exit_code, "leave --master out" in shown.output) == (2, True)
