"""Spark reading topics."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from tests.spark.conftest import Topics

from ottla.spark import sink
from ottla.spark.source_environment import environment_of
from ottla.sync import Admin, Consumer, Producer
from ottla.types import TopicPartition

pytestmark = pytest.mark.spark

CODECS: tuple[Any, ...] = ("none", "gzip", "snappy", "lz4", "zstd")


def load(reader, topics: Topics, topic: str, **options: str):
    return reader.format("ottla").options(**topics.options(topic, **options)).load()


def collect_stream(frame, checkpoint: Path):
    """Rows of each batch of a run that takes what is there, by batch id."""
    batches = {}

    def keep(rows, batch_id):
        batches[batch_id] = rows.collect()

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return batches


def values(batches):
    return sorted(bytes(row.value) for rows in batches.values() for row in rows)


def test_the_module_that_spark_looks_for_imports_nothing_heavy():
    script = "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_ottla; print(*set(sys.modules) - before)"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "ottla.spark.source" in output
    assert not {"pyarrow", "numpy", "asyncio", "msgspec"} & set(output)
    assert not [name for name in output if name.startswith(("ottla.client", "ottla.wire", "ottla.records", "ottla.runtime"))]


def test_a_batch_read_is_what_was_produced_with_every_codec(spark, topics: Topics):
    topic = topics.create(2)
    for index, codec in enumerate(CODECS):
        with Producer(topics.bootstrap, compression_type=codec) as producer:
            for number in range(200):
                key = f"{codec}-{number}".encode() if number % 5 else None
                headers = [("codec", codec.encode()), ("none", None)] if number % 2 else []
                value = b"value %d" % number if number % 7 else None
                producer.send(topic, value, key=key, headers=headers, partition=number % 2, timestamp_ms=1_700_000_000_000 + number + index)
            producer.flush()
    frame = load(spark.read, topics, topic, includeHeaders="true")
    assert [field.simpleString() for field in frame.schema] == [
        "key:binary", "value:binary", "topic:string", "partition:int", "offset:bigint", "timestamp:timestamp", "timestampType:int",
        "headers:array<struct<key:string,value:binary>>",
    ]  # fmt: skip
    rows = frame.selectExpr("*", "unix_millis(timestamp) as ms").collect()
    found = {
        (row.topic, row.partition, row.offset): (
            row.key and bytes(row.key),
            row.value and bytes(row.value),
            row.ms,
            row.timestampType,
            tuple((header.key, header.value and bytes(header.value)) for header in row.headers),
        )
        for row in rows
    }
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with Consumer(topics.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        records: list = []
        while len(records) < 1_000:
            records += consumer.poll(1000)
    assert found == {(r.topic, r.partition, r.offset): (r.key, r.value, r.timestamp_ms, 0, r.headers) for r in records}
    assert len(rows) == 1_000


def test_a_batch_read_keeps_to_its_bounds_and_its_schema(spark, topics: Topics):
    topic = topics.create()
    topics.produce(topic, [(None, b"%d" % index) for index in range(10)])
    bounds = {"startingOffsets": f'{{"{topic}": {{"0": 3}}}}', "endingOffsets": f'{{"{topic}": {{"0": 7}}}}'}
    reader = spark.read.format("ottla").options(**topics.options(topic, minPartitions="3", **bounds)).schema("value binary, offset long")
    frame = reader.load()
    assert frame.columns == ["value", "offset"]
    assert sorted((row.offset, bytes(row.value)) for row in frame.collect()) == [(offset, b"%d" % offset) for offset in range(3, 7)]
    assert frame.rdd.getNumPartitions() == 3


def test_what_the_filters_of_a_query_leave_out_is_not_read(spark, topics: Topics):
    topic = topics.create(2)
    for partition in (0, 1):
        topics.produce(topic, [(None, b"%d" % index) for index in range(5)], partition=partition)
    with Admin(topics.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 1): 3})
    frame = load(spark.read, topics, topic, startingOffsets=f'{{"{topic}": {{"0": 0, "1": 0}}}}')
    with pytest.raises(PySparkException, match="its log begins at 3"):
        frame.collect()
    for condition in ("partition = 0 and offset > 1", "partition = 0 and timestamp > timestamp'2020-01-01' and offset in (2, 3, 4)"):
        assert [row.offset for row in frame.where(condition).collect()] == [2, 3, 4]
    assert frame.where("timestamp > timestamp'2100-01-01'").collect() == []


@pytest.mark.parametrize(
    ("options", "schema", "word"),
    [
        ({"startingOffset": "earliest"}, None, "did you mean startingOffset"),
        ({"kafka.enable.auto.commit": "true"}, None, "checkpoint"),
        ({"assign": "{}"}, None, "exactly one of"),
        ({}, "value string", "column value is binary"),
        ({}, "total long", "no column 'total'"),
    ],
)
def test_a_read_that_cannot_be_says_why(spark, topics: Topics, options, schema, word):
    reader = spark.read.format("ottla").options(**topics.options("some-topic", **options))
    with pytest.raises(PySparkException, match=word):
        (reader if schema is None else reader.schema(schema)).load().collect()


@pytest.mark.slow
def test_a_stream_resumes_from_its_checkpoint_in_limited_batches(spark, topics: Topics, tmp_path: Path):
    topic = topics.create(3)
    for partition, count in enumerate((60, 30, 10)):
        topics.produce(topic, [(None, b"first %d %d" % (partition, index)) for index in range(count)], partition=partition)
    frame = load(spark.readStream, topics, topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    batches = collect_stream(frame, tmp_path)
    assert {batch_id: len(rows) for batch_id, rows in batches.items()} == {0: 40, 1: 40, 2: 20}
    assert len(set(values(batches))) == 100
    topics.produce(topic, [(None, b"second %d" % index) for index in range(7)])
    batches = collect_stream(frame, tmp_path)
    assert values(batches) == [b"second %d" % index for index in range(7)]
    assert list(batches) == [3]
    last_offsets = json.loads((tmp_path / "offsets" / "3").read_text().splitlines()[2])
    assert sum(last_offsets[topic].values()) == 107


@pytest.mark.slow
def test_a_stream_from_the_latest_offset_begins_where_its_own_first_batch_did(spark, topics: Topics, tmp_path: Path):
    topic = topics.create()
    topics.produce(topic, [(None, b"before")])
    frame = load(spark.readStream, topics, topic)

    def fail(rows, batch_id):
        raise ArithmeticError("the first batch fails")

    query = frame.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path / "first")).start()
    with pytest.raises(StreamingQueryException, match="the first batch fails"):
        query.awaitTermination()
    later = [b"later %d" % index for index in range(3)]
    topics.produce(topic, [(None, value) for value in later])
    assert values(collect_stream(frame, tmp_path / "first")) == later
    assert values(collect_stream(frame, tmp_path / "second")) == []


def test_exactly_once_in_foreachbatch_without_a_checkpoint_is_refused_before_its_first_record(spark, topics: Topics):
    """Spark makes a temporary directory for such a query, and only its name says so."""
    source, target = topics.create(), topics.create()
    topics.produce(source, [(None, b"value")])
    write = sink(topics.sink_options(target))
    frame = load(spark.readStream, topics, source, startingOffsets="earliest")
    query = frame.select("value").writeStream.foreachBatch(write).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match=r'give the writer \.option\("checkpointLocation", DIRECTORY\)'):
        query.awaitTermination()
    assert load(spark.read, topics, target).count() == 0


def test_a_query_that_starts_adds_nothing_to_the_environment_that_it_shares(spark, topics: Topics, tmp_path: Path):
    """Of two queries that start at the same time, each may break the map of the other for good, where one adds a variable."""
    environment = environment_of(spark)
    found = set(environment)
    for name in found:
        if name.startswith("SPARK_"):
            del environment[name]
    topic = topics.create()
    topics.produce(topic, [(None, b"a")])
    frame = load(spark.readStream, topics, topic, startingOffsets="earliest")
    names = set(environment)
    assert values(collect_stream(frame, tmp_path)) == [b"a"]
    assert set(environment) == names >= found


def test_all_sessions_of_one_jvm_share_the_environment(spark):
    """So the first query of a Spark Connect server, whatever its client, adds the variables for all later ones (docs/spark.md)."""
    one, other = environment_of(spark), environment_of(spark.newSession())
    one["OTTLA_TEST"] = "x"
    try:
        assert other["OTTLA_TEST"] == "x"
    finally:
        del one["OTTLA_TEST"]


@pytest.mark.slow
def test_lost_data_fails_a_query_unless_it_is_set_to_continue(spark, topics: Topics, tmp_path: Path):
    topic = topics.create()
    topics.produce(topic, [(None, b"old")] * 5)
    strict = load(spark.readStream, topics, topic, startingOffsets="earliest")
    collect_stream(strict, tmp_path)
    topics.delete(topic)
    topics.create(1, topic)
    topics.produce(topic, [(None, b"new")] * 2)
    with pytest.raises(StreamingQueryException, match="failOnDataLoss=false"):
        collect_stream(strict, tmp_path)
    lenient = load(spark.readStream, topics, topic, startingOffsets="earliest", failOnDataLoss="false")
    collect_stream(lenient, tmp_path)
    topics.produce(topic, [(None, b"newer")] * 3)
    assert values(collect_stream(lenient, tmp_path)) == [b"newer"] * 3
