"""Spark writing topics."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F
from tests.spark.conftest import Topics
from tests.spark.test_rows import stored
from tests.spark.test_source import load

from ottla.client.partitioner import partition_for_key
from ottla.spark import sink, to_topic
from ottla.spark.group_offsets import note_of
from ottla.sync import Admin

pytestmark = pytest.mark.spark
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_a_batch_is_appended_and_read_back(spark, topics: Topics):
    topic = topics.create(2)
    frame = spark.range(1_000).select(F.concat(F.lit("k"), "id").alias("key"), F.col("id").cast("string").alias("value"))
    writer = frame.write.format("ottla").option("kafka.bootstrap.servers", topics.bootstrap).option("topic", topic)
    writer.mode("append").save()
    rows = load(spark.read, topics, topic).selectExpr("string(key)", "string(value)", "partition").collect()
    assert sorted((row.key, row.value) for row in rows) == sorted((f"k{number}", str(number)) for number in range(1_000))
    assert all(row.partition == partition_for_key(row.key.encode(), 2) for row in rows)
    with pytest.raises(PySparkException, match=r'use mode\("append"\)'):
        writer.mode("overwrite").save()


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_what_spark_says_of_a_mode_that_it_refuses_itself_is_documented_and_carries_the_way_out(spark, topics: Topics, mode: str):
    writer = spark.range(1).select(F.lit("x").alias("value")).write.format("ottla").options(**topics.sink_options("t"))
    with pytest.raises(PySparkException) as refused:
        writer.mode(mode).save()
    assert refused.value.__notes__ == ['use mode("append"): a topic can only be appended to']
    said = str(refused.value).partition("] ")[2].partition(" SQLSTATE")[0].replace("Ignore", "ErrorIfExists")
    assert f'| `{said}` | `.mode("append")`' in PAGE.read_text(encoding="utf-8")


def test_a_totals_query_writes_its_changes_in_update_mode(spark, topics: Topics, tmp_path: Path):
    source, target = topics.create(2), topics.create(2)
    written = []
    frame = load(spark.readStream, topics, source, startingOffsets="earliest")
    counts = frame.groupBy(F.col("key").cast("string").alias("name")).count()

    def run():
        writer = to_topic(counts, target, key="name", bootstrap=topics.bootstrap, on_batch=lambda *told: written.append(told))
        query = writer.outputMode("update").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
        return {
            record.key: json.loads(record.value)
            for records in stored(topics, target, 2).values()
            for record in records
        }  # fmt: skip

    topics.produce(source, [(b"a", b"")] * 3 + [(b"b", b"")] * 2)
    assert run() == {b"a": {"name": "a", "count": 3}, b"b": {"name": "b", "count": 2}}
    topics.produce(source, [(b"b", b"")] * 5)
    assert run() == {b"a": {"name": "a", "count": 3}, b"b": {"name": "b", "count": 7}}
    assert written == [(0, 2), (1, 1)]  # the second batch changed one group


def test_a_batch_that_spark_runs_again_is_skipped_and_its_state_goes_on(spark, topics: Topics, tmp_path: Path):
    source, target, kept = topics.create(2), topics.create(2), tmp_path / "kept"
    counts = load(spark.readStream, topics, source, startingOffsets="earliest").groupBy(F.col("key").cast("string").alias("name")).count()
    written: list[tuple[int, int]] = []

    def run():
        writer = to_topic(counts, target, key="name", bootstrap=topics.bootstrap, app=target, on_batch=lambda *told: written.append(told))
        query = writer.outputMode("update").option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    def results():
        return sorted(json.loads(record.value)["count"] for records in stored(topics, target, 2).values() for record in records)

    topics.produce(source, [(b"a", b"")] * 3 + [(b"b", b"")] * 2)
    run()
    shutil.copytree(tmp_path / "checkpoint", kept)
    topics.produce(source, [(b"b", b"")] * 5)
    run()
    assert results() == [2, 3, 7]
    (tmp_path / "checkpoint" / "commits" / "1").unlink()  # as if the driver had ended between the commit and this file
    topics.produce(source, [(b"a", b"")] * 4)
    run()
    assert results() == [2, 3, 7, 7]
    assert written == [(0, 2), (1, 1), (2, 1)]

    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(kept, tmp_path / "checkpoint")  # yesterday's
    with pytest.raises(StreamingQueryException, match="the checkpoint is older than what was written"):
        run()
    assert results() == [2, 3, 7, 7]


def test_a_stream_in_append_mode_has_a_sink_of_its_own(spark, topics: Topics, tmp_path: Path):
    source, target = topics.create(), topics.create()
    topics.produce(source, [(b"%d" % index, b"v") for index in range(20)])
    frame = load(spark.readStream, topics, source, startingOffsets="earliest").select("key", "value", F.lit(target).alias("topic"))
    writer = frame.writeStream.format("ottla").option("kafka.bootstrap.servers", topics.bootstrap)
    writer = writer.queryName("named").option("checkpointLocation", str(tmp_path)).option("app", "appending").trigger(availableNow=True)
    writer.start().awaitTermination()
    (tmp_path / "commits" / "0").unlink()
    topics.produce(source, [(b"20", b"v")])
    writer.start().awaitTermination()
    assert [record.key for record in stored(topics, target)[0]] == [b"%d" % index for index in range(21)]
    with Admin(topics.bootstrap) as admin:
        assert {partition.topic: place.offset for partition, place in admin.committed_offsets("appending").items()} == {source: 21}
    often = writer.option("checkpointLocation", str(tmp_path / "often")).option("app", "often").option("delivery", "at_least_once")
    often.start().awaitTermination()
    assert len(stored(topics, target)[0]) == 42
    with Admin(topics.bootstrap) as admin:
        [(partition, place)] = admin.committed_offsets("often").items()
    assert (partition.topic, place.offset) == (source, 21)
    note = note_of(place.metadata)
    assert note is not None
    assert note.query == json.loads((tmp_path / "often" / "metadata").read_text())["id"]


def test_update_mode_of_the_sink_of_its_own_is_refused_in_documented_words_with_the_way_out(spark, topics: Topics, tmp_path: Path):
    counts = spark.readStream.format("rate").load().groupBy(F.col("value").cast("string").alias("value")).count().select("value")
    writer = counts.writeStream.format("ottla").options(**topics.sink_options("t")).outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match=r"requirement failed: ottla does not support Update mode\.") as refused:
        query.awaitTermination()
    assert refused.value.__notes__ == ["use to_topic(...) or foreachBatch(sink(...)) of ottla.spark, which take every mode"]
    assert "| `ottla does not support Update mode` | `to_topic(...)`" in PAGE.read_text(encoding="utf-8")


def test_a_sink_is_checked_before_its_stream_starts(topics: Topics):
    with pytest.raises(Exception, match="transactional"):
        sink({"kafka.bootstrap.servers": topics.bootstrap, "topic": "t", "kafka.transactional.id": "x"})
