"""Topics as streams and tables of columns, their rows to several topics, and what does not fit to a topic of its own."""

import json
import re
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException, SparkRuntimeException, StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from tests.foreign_clients.wire import produce_request
from tests.spark.conftest import Topics
from tests.spark.test_rows import stored

from ottla.cli.pipeline_status import status_rows
from ottla.errors import KafkaError
from ottla.messages.produce import ProduceResponse
from ottla.records.builder import BatchBuilder
from ottla.spark import catch_up, dead_letters, read_table, read_topic, route, to_topic
from ottla.spark.dead_letters import LeftOutWarning
from ottla.spark.link import link_for
from ottla.spark.lookup import Lookup
from ottla.spark.losses import taken
from ottla.spark.offsets import TOPIC_IDS
from ottla.spark.pipelines import running
from ottla.spark.progress import progress_line
from ottla.spark.reading import DataLossError
from ottla.spark.rows import write_rows
from ottla.spark.values import Json
from ottla.sync import Admin, Producer
from ottla.types import TopicPartition

pytestmark = pytest.mark.spark
ORDERS = "id string, amount double"


def written(topics: Topics, topic: str, partition_count: int = 1) -> list[Any]:
    return [record for records in stored(topics, topic, partition_count, "read_committed").values() for record in records]


def run(writer: Any, directory: Path) -> Any:
    """Returns the query, which has ended."""
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(directory)).start()
    query.awaitTermination()
    return query


def test_rows_go_to_their_topics_and_bad_ones_to_a_topic_of_their_own_in_one_transaction(spark, topics: Topics, tmp_path: Path):
    orders, big, audit, letters = topics.create(2), topics.create(), topics.create(), topics.create()
    with Producer(topics.bootstrap) as producer:
        values = [b"not JSON", b'{"id":"a","amount":5}', b'{"id":"b","amount":5000}', b'{"id":"c","amount":"much"}', b'{"id":"d"}']
        for number, value in enumerate(values):
            producer.send(orders, value, key=b"%d" % number, partition=number % 2, headers=[("h", b"1")], timestamp_ms=1_000 + number)

    def split(rows_per_batch: int, **more: Any) -> Any:
        options = {"maxOffsetsPerTrigger": str(rows_per_batch)}
        frame = read_topic(spark, orders, ORDERS, bad_rows=letters, bootstrap=topics.bootstrap, options=options)
        routed = route(frame, {big: F.col("amount") > 1000, audit: F.lit(True)}, key="id")
        return to_topic(routed, bootstrap=topics.bootstrap, app="split", **more)

    def check() -> None:
        assert sorted(record.key for record in written(topics, audit)) == [b"a", b"b", b"d"]
        assert [json.loads(record.value) for record in written(topics, big)] == [{"id": "b", "amount": 5000.0}]
        found = {record.value: record for record in written(topics, letters)}
        assert len(written(topics, letters)) == 2
        said = {value: dict(record.headers) for value, record in found.items()}
        assert said[b"not JSON"] == {
            "h": b"1", "topic": orders.encode(), "partition": b"0", "offset": b"0",
            "error": b"no JSON: Expecting value: line 1 column 1 (char 0)",
        }  # fmt: skip
        wrong = found[b'{"id":"c","amount":"much"}']
        assert (wrong.key, wrong.timestamp_ms, dict(wrong.headers)["offset"]) == (b"3", 1_003, b"1")
        assert dict(wrong.headers)["error"] == b'field amount does not fit double: "much"'

    def leave(number: int, rows: int) -> None:
        if number == 1:
            raise RuntimeError("the driver leaves before Spark notes it")

    with pytest.raises(StreamingQueryException, match="leaves before") as failed:
        run(split(2, on_batch=leave), tmp_path / "checkpoint")
    [note] = failed.value.__notes__
    assert re.fullmatch(r"RuntimeError: the driver leaves before Spark notes it \(.*/test_streams\.py:\d+\)", note), "the last line"
    again = run(split(2), tmp_path / "checkpoint").recentProgress
    lags = [progress_line("q", found).partition("lag ")[2].partition("  ")[0] for found in again[:2]]
    assert lags == ["-", "0"], "Spark had planned the first one before"
    check()


def test_bad_rows_of_an_aggregate_are_written_at_least_once_too_and_counted_by_the_run_that_has_met_them(
    spark, topics: Topics, tmp_path: Path
):
    orders, totals, letters = topics.create(), topics.create(), topics.create()
    frame = read_topic(spark, orders, ORDERS, bad_rows=letters, bootstrap=topics.bootstrap).where("id is not null")
    per_id = frame.groupBy("id").agg(F.sum("amount").alias("total"))
    often = to_topic(per_id, totals, key="id", bootstrap=topics.bootstrap, delivery="at_least_once", app="often")
    topics.produce(orders, [(None, b'{"id":"a","amount":1}'), (None, None)])
    run(often.outputMode("update"), tmp_path)  # has none
    topics.produce(orders, [(None, b"?"), (None, b'{"id":"a","amount":2}')])
    run(often.outputMode("update"), tmp_path)
    assert [json.loads(record.value)["total"] for record in written(topics, totals)] == [1.0, 3.0]
    assert [record.value for record in written(topics, letters)] == [b"?"]
    with Admin(topics.bootstrap) as admin:
        assert {place.topic: found.offset for place, found in admin.committed_offsets("often").items()} == {orders: 4}


def test_bad_rows_of_transactions_that_are_open_or_aborted_are_written_where_the_stream_reads_these(spark, topics: Topics, tmp_path: Path):
    """They were left out of the rows, and looked for among the committed ones: lost, or waited for until the transaction ended."""
    orders, copy, letters = topics.create(), topics.create(), topics.create()
    options = {"kafka.isolation.level": "read_uncommitted", "kafkaConsumer.pollTimeoutMs": "1000"}
    frame = read_topic(spark, orders, ORDERS, bad_rows=letters, bootstrap=topics.bootstrap, options=options)
    with Producer(topics.bootstrap, transactional_id="open") as producer:
        producer.init_transactions()
        for value in (b"aborted", b"open"):
            producer.begin_transaction()
            producer.send(orders, value).result()
            producer.send(orders, b'{"id":"a","amount":1}').result()
            if value == b"aborted":
                producer.abort_transaction()
        run(to_topic(frame, copy, key="id", bootstrap=topics.bootstrap, app="dirty"), tmp_path)
    assert [record.value for record in written(topics, letters)] == [b"aborted", b"open"]
    assert len(written(topics, copy)) == 2


def test_a_sink_of_sparks_that_leaves_bad_rows_out_is_warned_of(spark, topics: Topics, tmp_path: Path):
    """They are not in the rows of read_topic, and nothing had said that they are nowhere else either."""
    orders, letters = topics.create(), topics.create()
    topics.produce(orders, [(None, b"?")])
    frame = read_topic(spark, orders, ORDERS, bad_rows=letters, bootstrap=topics.bootstrap)
    with pytest.warns(LeftOutWarning, match=f"bad rows are left out, and not written to {letters}: to_topic") as warned:
        run(frame.writeStream.format("parquet").option("path", str(tmp_path / "rows")), tmp_path / "parquet")
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(to_topic(frame, topics.create(), bootstrap=topics.bootstrap), tmp_path / "topic")
        run(frame.writeStream.format("noop"), tmp_path / "noop")
        whole = read_topic(spark, orders, bootstrap=topics.bootstrap).select("value")
        run(whole.writeStream.format("parquet").option("path", str(tmp_path / "whole")), tmp_path / "whole-checkpoint")


def test_a_value_that_does_not_fit_ends_the_query_with_its_place_and_the_way_out(spark, topics: Topics, tmp_path: Path):
    orders, target = topics.create(), topics.create()
    topics.produce(orders, [(None, b'{"id":"a"}'), (None, b"?")])
    writer = to_topic(read_topic(spark, orders, ORDERS, bootstrap=topics.bootstrap), target, bootstrap=topics.bootstrap)
    said = f"topic {orders} partition 0 offset 1: its value does not fit the schema: no JSON object: .; bad_rows=TOPIC"
    with pytest.raises(StreamingQueryException, match=said):
        run(writer, tmp_path)
    assert written(topics, target) == []


def test_a_value_that_does_not_fit_fails_what_reads_none_of_its_columns_too(spark, topics: Topics, tmp_path: Path):
    """A count, that is: Spark computes no column that is not wanted."""
    names = topics.create()
    counts: list[int] = []
    topics.produce(names, [(b"a", b'{"id":"a"}'), (b"b", b'{"id":{}'), (b"c", None)])
    does_not_fit = f"topic {names} partition 0 offset 1: its value does not fit"
    table = read_table(spark, names, ORDERS, key="name", bootstrap=topics.bootstrap)
    with pytest.raises(SparkRuntimeException, match=f"{does_not_fit} the schema: no JSON object: .*; a later record of its key"):
        table.count()
    topics.produce(names, [(b"b", None)])
    assert table.count() == 1
    stream = read_topic(spark, names, ORDERS, record="at", bootstrap=topics.bootstrap).select("at.key")
    with pytest.raises(StreamingQueryException, match=does_not_fit):
        run(stream.writeStream.foreachBatch(lambda rows, _: counts.append(rows.count())), tmp_path)
    assert not counts


def test_a_table_is_the_newest_value_of_each_key_and_follows_its_topic_beside_a_stream(spark, topics: Topics, tmp_path: Path):
    names, orders, target = topics.create(2, None, **{"cleanup.policy": "compact"}), topics.create(), topics.create()
    topics.produce(
        names, [(b"a", b'{"name":"Ada"}'), (b"b", b'{"name":"Bob"}'), (b"a", b'{"name":"Anna"}'), (b"c", b'{"name":"Cyd"}'), (b"c", None)]
    )
    table = read_table(spark, names, "name string", key="id", bootstrap=topics.bootstrap)
    assert sorted(map(tuple, table.collect())) == [("a", "Anna"), ("b", "Bob")]
    topics.produce(orders, [(None, b'{"id":"a"}'), (None, b'{"id":"c"}')])

    def change(number: int, rows: int) -> None:
        if number == 0:
            topics.produce(names, [(b"c", b'{"name":"Cleo"}'), (b"a", None)])
            topics.produce(orders, [(None, b'{"id":"a"}'), (None, b'{"id":"c"}')])

    stream = read_topic(spark, orders, ORDERS, bootstrap=topics.bootstrap)
    writer = to_topic(stream.join(table, "id").select("id", "name"), target, bootstrap=topics.bootstrap, on_batch=change)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        query.processAllAvailable()
    finally:
        query.stop()
    assert [json.loads(record.value) for record in written(topics, target)] == [{"id": "a", "name": "Anna"}, {"id": "c", "name": "Cleo"}]


def test_a_table_has_the_later_value_of_a_key_that_has_moved_to_another_partition(spark, topics: Topics):
    """A topic that got more partitions has its keys elsewhere from then on, at lower offsets: the value of before was taken."""
    names = topics.create(3)
    for partition, time_ms, key, value in (
        (0, 1_000, b"b", b'{"name":"Bob"}'),
        (0, 1_000, b"b", b'{"name":"Ben"}'),
        (0, 1_000, b"a", b'{"name":"Ada"}'),
        (1, 2_000, b"b", None),
        (2, 3_000, b"a", b'{"name":"Anna"}'),
        (1, 9_000, b"c", b'{"name":"Cyd"}'),
        (1, 1_000, b"c", b'{"name":"Cleo"}'),
    ):
        with Producer(topics.bootstrap) as producer:
            producer.send_and_wait(names, value, key=key, partition=partition, timestamp_ms=time_ms)
    table = read_table(spark, names, "name string", key="id", bootstrap=topics.bootstrap)
    assert sorted(map(tuple, table.collect())) == [("a", "Anna"), ("c", "Cleo")]


def test_records_without_a_key_fail_a_table_or_are_left_out_of_it(spark, topics: Topics):
    names = topics.create()
    topics.produce(names, [(b"a", b'{"name":"Ada"}'), (None, None), (b"b", None), (None, b'{"name":"Nemo"}'), (b"a", b'{"name":"Anna"}')])
    table = read_table(spark, names, "name string", key="id", bootstrap=topics.bootstrap)
    with pytest.raises(Exception, match=rf'topic {names} partition 0 offset [13]: a record of a table has no key; without_key="skip"'):
        table.collect()
    table = read_table(spark, names, "name string", key="id", without_key="skip", bootstrap=topics.bootstrap)
    assert list(map(tuple, table.collect())) == [("a", "Anna")]


def test_a_record_has_its_place_and_its_key_beside_its_columns(spark, topics: Topics, tmp_path: Path):
    orders, target = topics.create(), topics.create()
    topics.produce(orders, [(b"k", b'{"id":"a"}'), (b"k", None)])
    frame = read_topic(spark, orders, ORDERS, record="at", bootstrap=topics.bootstrap)
    assert frame.columns == ["id", "amount", "at"]
    shown = frame.select("id", F.col("at.key").cast("string").alias("key"), "at.offset")
    run(to_topic(shown, target, bootstrap=topics.bootstrap), tmp_path)
    assert [json.loads(record.value) for record in written(topics, target)] == [
        {"id": "a", "key": "k", "offset": 0},
        {"key": "k", "offset": 1},
    ]
    assert "headers" in read_topic(spark, orders, bootstrap=topics.bootstrap).columns
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("kind", ["struct<a:int>", "array<int>", "map<string,int>", "double", "timestamp"])
def test_a_key_that_is_no_plain_value_is_refused(spark, kind: str):
    frame = spark.range(1).select(F.lit(None).cast(kind).alias("k"), F.lit("v").alias("v"))
    for make in (lambda: to_topic(frame, "t", key="k", bootstrap="127.0.0.1:1"), lambda: route(frame, key="k", t=F.lit(True))):
        with pytest.raises(KafkaError, match="which has no text that all clients would write: give a column of string"):
            make()


def test_a_key_that_is_no_column_is_refused_with_those_that_are(spark):
    frame = spark.range(1).select(F.lit("v").alias("v"), F.lit("w").alias("w"))
    with pytest.raises(KafkaError, match="key=k is no column of the frame, which has v, w"):
        to_topic(frame, "t", key="k", bootstrap="127.0.0.1:1")


def test_a_stream_that_is_exactly_once_does_not_start_without_a_checkpoint_that_stays(spark, topics: Topics, tmp_path: Path):
    orders, target = topics.create(), topics.create()
    topics.produce(orders, [(None, b'{"id":"a"}')])

    def writer(**more: Any) -> Any:
        return to_topic(read_topic(spark, orders, ORDERS, bootstrap=topics.bootstrap), target, bootstrap=topics.bootstrap, **more)

    refused = pytest.raises(KafkaError, match=r"a checkpoint that outlives the query: .*checkpointLocation")
    with refused:
        writer().queryName("named").start()
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        with refused:  # its directory has a name of chance
            writer().start()
        for turn in range(2):
            writer(app="named").queryName("named").trigger(availableNow=True).start().awaitTermination()
            assert [json.loads(record.value) for record in written(topics, target)] == [{"id": "a"}], turn
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    writer(delivery="at_least_once").trigger(availableNow=True).start().awaitTermination()
    assert len(written(topics, target)) == 2
    query = writer(app="start").trigger(availableNow=True).start(checkpointlocation=str(tmp_path / "own"))
    query.awaitTermination()


def test_what_makes_no_sense_is_refused(spark):
    brokers: Any = {"bootstrap": "127.0.0.1:1"}
    number: Any = 7
    stream = spark.readStream.format("rate").load()
    for make, word in (
        (lambda: read_topic(spark, "t", bad_rows="dlq", **brokers), "are for values with a schema"),
        (lambda: read_topic(spark, "t", options={"startingOffsets": "earlyest"}, **brokers), "did you mean earliest"),
        (lambda: read_topic(spark, "t", options={"startingTimestamp": "soon"}, **brokers), "startingTimestamp=soon is not a time"),
        (lambda: read_topic(spark, "t u", **brokers), "subscribe=t u: "),
        (lambda: read_topic(spark, "t", bootstrap="http://b:1"), "is a URL: host:port is expected"),
        (lambda: read_table(spark, "t", ORDERS, options={"endingOffsets": "folow"}, **brokers), "did you mean follow"),
        (lambda: read_topic(spark, "t", ORDERS, record="id", **brokers), "has a column of that name"),
        (lambda: read_topic(spark, "t", ORDERS), "kafka.bootstrap.servers is missing: .* bootstrap="),
        (lambda: read_topic(spark, "t", ORDERS, options={"kafka.group.ids": "x"}, **brokers), "unknown option"),
        (lambda: read_topic(spark, "t", number, **brokers), "is no schema of columns"),
        (lambda: read_table(spark, "t", ORDERS, key="id", **brokers), "has a column of that name"),
        (lambda: read_table(spark, "t", ORDERS, without_key="drop", **brokers), "without_key=drop is neither"),  # type: ignore[arg-type]
        (lambda: read_topic(spark, "t, u", ORDERS, bad_rows="u", **brokers), "bad_rows=u is a topic that the stream reads"),
        (lambda: route(spark.range(1), big="id > 1"), "the condition of topic 'big' is a str: give a column that is true"),  # type: ignore[arg-type]
        (lambda: route(spark.range(1), big=F.col("id")), "the condition of topic 'big' is bigint, not boolean"),
        (lambda: route(spark.range(1), value="v", big=F.lit(True)), "value=v is no column of the frame, which has id"),
        (lambda: to_topic(spark.range(1), "t", value="v", **brokers), "value=v is no column of the frame, which has id"),
        (lambda: route(spark.range(1)), "route needs a topic with its condition"),
        (lambda: to_topic(spark.range(1), key="id", **brokers), r'no topic given: to_topic\(frame, "topic"\), or rows of route'),
        (lambda: to_topic(spark.range(1), key="id", options={"topic": "t"}, **brokers), "give them to route"),
        (lambda: to_topic(stream.select(F.lit("v").alias("value")), **brokers), "no topic given: "),
        (lambda: to_topic(stream, **brokers), "no topic given: "),
        (
            lambda: to_topic(spark.range(1), "t", key="id", value="id", **brokers),
            re.escape("value=id is bigint: give a column of text or bytes, such as F.col('id').cast('string')"),
        ),
        (lambda: route(spark.range(1), value="id", t=F.lit(True)), "value=id is bigint: give a column of text or bytes"),
        (
            lambda: to_topic(spark.range(1).select(F.struct("id").alias("s")), "t", value="s", **brokers),
            re.escape("value=s is struct<id:bigint>: give a column of text or bytes, such as F.to_json('s')"),
        ),
        (lambda: to_topic(stream.select("timestamp"), options={"topic": "t"}, **brokers), "there is no column value among timestamp"),
        (lambda: to_topic(stream.select(F.lit(1).alias("value")), options={"Topic": "t"}, **brokers), "column value is int"),
        (lambda: to_topic(spark.range(1), "t", **brokers), r'write a batch by df\.write\.format\("ottla"\)'),
    ):
        with pytest.raises(KafkaError, match=word):
            make()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda writer: writer.queryName("mine"), "queryName is set by the runner of a pipeline: leave it out; a query is called after"),
        (lambda writer: writer.option("checkpointLocation", "/c"), "checkpointLocation is set by the runner of a pipeline: leave it out"),
        (lambda writer: writer.options(checkpointlocation="/c"), "checkpointlocation is set by the runner .* pipeline run --data DIR"),
    ],
)
def test_what_the_runner_sets_of_a_pipelines_writer_is_refused(spark, make: Any, said: str):
    """It was replaced without a word."""
    rows = spark.readStream.format("rate").load().select(F.lit("v").alias("value"))
    with running("app", "totals", "127.0.0.1:1"):
        for writer in (
            rows.writeStream.format("noop").option("path", "x"),
            to_topic(rows, "t"),
            to_topic(rows, "t", delivery="at_least_once"),
        ):
            with pytest.raises(KafkaError, match=said):
                make(writer)
    assert make(rows.writeStream) is not None


def test_a_checkpoint_in_the_options_of_a_pipelines_sink_is_refused_too(spark):
    rows = spark.readStream.format("rate").load().select(F.lit("v").alias("value"))
    with running("app", "totals", "127.0.0.1:1"), pytest.raises(KafkaError, match="checkpointLocation is set by the runner of a pipeline"):
        to_topic(rows, "t", options={"checkpointLocation": "/c"})


def test_a_bad_row_says_which_field_does_not_fit(spark, topics: Topics, tmp_path: Path):
    schema = (
        "customer string not null, amount int, place struct<zip: int not null>, items array<struct<id: int not null>>, "
        "tags map<string, struct<id: int not null>>"
    )
    good = [b'{"customer":"ada"}', b'{"customer":"ada","place":null,"items":[null,{"id":1}],"tags":{"a":{"id":1}}}']
    bad = {
        b'{"customer":"ada","amount":5.5}': "field amount does not fit int: 5.5",
        b'{"amount":"x"}': "field customer is missing, and NOT NULL in the schema",
        b'{"customer":null,"amount":5}': "field customer is null, and NOT NULL in the schema",
        b'{"customer":"ada","place":{}}': "field place does not fit struct<zip:int>: {}",
        b'{"customer":"ada","items":[{"id":1},{"id":null}]}': 'field items does not fit array<struct<id:int>>: [{"id": 1}, {"id": null}]',
        b'{"customer":"ada","tags":{"a":{}}}': 'field tags does not fit map<string,struct<id:int>>: {"a": {}}',
        b'{"customer":"ada","amount":"%s"}' % (b"9" * 100): f'field amount does not fit int: "{"9" * 79}...',
        b"[1]": "it does not fit struct<customer:string,amount:int,",
        b"5": "it does not fit struct<customer:string,amount:int,",
        b'{"customer":"\xff","amount":1}': "no UTF-8",
    }
    orders, target, letters = topics.create(), topics.create(), topics.create()
    topics.produce(orders, [(None, value) for value in [*good, *bad, None]])
    rows = read_topic(spark, orders, schema, bad_rows=letters, bootstrap=topics.bootstrap)
    run(to_topic(rows, target, bootstrap=topics.bootstrap), tmp_path)
    found = {record.value: dict(record.headers)["error"].decode() for record in written(topics, letters)}
    assert found.keys() == bad.keys()
    assert {value: said for value, said in found.items() if not said.startswith(bad[value])} == {}
    assert len(written(topics, target)) == len(good) + 1  # a record without a value has no fields
    within = "a field within another one does not fit struct<customer:string"
    no_object = {b"[1]": "no JSON object: [1]", b"5": "no JSON object: 5", b"\xff": "no UTF-8"}
    others = {b'{"amount":1}': "field customer is missing, and", b'{"customer":"a"} x': "text after the JSON object"}
    said = bad | {value: within for value in bad if b"{}" in value or b'"items"' in value} | no_object | others
    said[b'{"customer":"ada","amount":"%s"}' % (b"9" * 100)] = f"field amount does not fit int: {'9' * 80}..."
    kind: Any = StructType.fromDDL(schema)
    values = Json(kind)
    frame = spark.createDataFrame([(bytearray(value),) for value in said], "value binary").select(
        "value", values.parsed(F.col("value")).alias("p")
    )
    shown = frame.select("value", values.reason(F.col("value"), F.col("p")).alias("reason")).collect()
    assert {bytes(row.value): row.reason for row in shown if not row.reason.startswith(said[bytes(row.value)])} == {}


def test_text_after_a_json_value_makes_it_bad(spark, topics: Topics, tmp_path: Path):
    good = [
        b'{"id":"a","amount":1}',
        b' {"id":"b"} \r\n',
        b"{'id':\"c\"}",
        b'{"id":"}],[{\\"","amount":1,"amount":2}',
        b'{"id":5,"amount":NaN}',
    ]
    after = {
        b'{"id":"a","amount":1}{"id":"b","amount":2}': 'text after the JSON value at character 21: {"id":"b","amount":2}',
        b'{"id":"a"} x': "text after the JSON value at character 11: x",
        **{b'{"id":"a"}' + end: f"text after the JSON value at character 10: {end.decode()}" for end in (b"]", b"}", b",", b"\0", b"] x")},
        b'{"id":"a"}],"x":[1': 'text after the JSON value at character 10: ],"x":[1',
        b'{"id":"a"},{"id":"b"}': 'text after the JSON value at character 10: ,{"id":"b"}',
    }
    orders, target, letters = topics.create(), topics.create(), topics.create()
    topics.produce(orders, [(None, value) for value in [*good, *after]])
    rows = read_topic(spark, orders, ORDERS, bad_rows=letters, bootstrap=topics.bootstrap)
    run(to_topic(rows, target, bootstrap=topics.bootstrap), tmp_path / "1")
    assert {record.value: dict(record.headers)["error"].decode() for record in written(topics, letters)} == after
    assert [json.loads(record.value or b"") for record in written(topics, target)] == [
        {"id": "a", "amount": 1.0},
        {"id": "b"},
        {"id": "c"},
        {"id": '}],[{"', "amount": 2.0},
        {"id": "5", "amount": "NaN"},
    ]
    with pytest.raises(StreamingQueryException, match=f"topic {orders} partition 0 offset {len(good)}: its value does not fit"):
        run(read_topic(spark, orders, ORDERS, bootstrap=topics.bootstrap).writeStream.format("noop"), tmp_path / "2")
    topics.produce(orders, [(b"k", b'{"id":"a"} x')])
    with pytest.raises(SparkRuntimeException, match="its value does not fit"):
        read_table(spark, orders, ORDERS, without_key="skip", bootstrap=topics.bootstrap).collect()


def test_what_a_query_goes_on_without_is_said_in_its_lines_and_in_the_status(spark, topics: Topics, tmp_path: Path):
    orders, exactly, at_least = topics.create(), topics.create(), topics.create()
    options = {"failOnDataLoss": False}

    def copies(session: Any) -> list[Any]:
        rows = read_topic(session, orders, ORDERS, options=options)
        return [to_topic(rows, exactly), to_topic(rows, at_least, delivery="at_least_once")]

    def caught_up() -> list[str]:
        lines = catch_up(spark, copies, bootstrap=topics.bootstrap, checkpoints=tmp_path, app="lossy", timeout_s=120)
        return sorted(line for line in lines if "lost" in line)

    topics.produce(orders, [(None, b'{"id":"a"}')] * 5)
    assert caught_up() == []
    topics.produce(orders, [(None, b'{"id":"b"}')] * 5)
    with Admin(topics.bootstrap) as admin:
        admin.delete_records({TopicPartition(orders, 0): 7})
        said = f"lost offsets 5 to 6 of {orders}-0"
        assert caught_up() == [f"lossy-copies  {said}", f"lossy-copies-2  {said}"]
        assert caught_up() == []
        rows = {row.query: (row.delivery, row.lost_offsets) for row in status_rows(admin, "lossy")}
    assert rows == {"lossy-copies": ("exactly_once", f"5 to 6 of {orders}-0"), "lossy-copies-2": ("at_least_once", None)}
    assert [len(written(topics, topic)) for topic in (exactly, at_least)] == [8, 8]


def test_what_the_state_of_a_skipped_batch_lacks_is_said(spark, topics: Topics, tmp_path: Path, one_partition: None):
    """It was not: what had been written counted the deleted records, the state and later results did not, and no line said so."""
    orders, totals = topics.create(), topics.create()
    rows = read_topic(spark, orders, ORDERS, bootstrap=topics.bootstrap, options={"failOnDataLoss": False})
    counts = rows.groupBy("id").count()

    def leave(number: int, rows: int) -> None:
        raise RuntimeError("the driver leaves before Spark notes it")

    def written_by(**more: Any) -> Any:
        return to_topic(counts, totals, key="id", bootstrap=topics.bootstrap, app="counts", **more).outputMode("update")

    topics.produce(orders, [(None, b'{"id":"a"}')] * 5)
    with pytest.raises(StreamingQueryException, match="leaves before"):
        run(written_by(on_batch=leave), tmp_path)
    with Admin(topics.bootstrap) as admin:
        admin.delete_records({TopicPartition(orders, 0): 3})
    topics.produce(orders, [(None, b'{"id":"a"}')])
    query = run(written_by(), tmp_path)
    assert taken(str(query.id)) == [f"lost offsets 0 to 2 of {orders}-0"]
    assert [json.loads(record.value)["count"] for record in written(topics, totals)] == [5, 3]


def test_a_field_that_is_not_null_and_missing_ends_a_query_without_a_topic_of_bad_rows(spark, topics: Topics, tmp_path: Path):
    orders = topics.create()
    topics.produce(orders, [(b"a", b'{"id":"a"}')])
    rows = read_topic(spark, orders, "id string, kunde string not null", bootstrap=topics.bootstrap)
    with pytest.raises(StreamingQueryException, match=f"topic {orders} partition 0 offset 0: its value does not fit"):
        run(rows.select("id").writeStream.format("noop"), tmp_path)
    with pytest.raises(SparkRuntimeException, match="the schema: field kunde is missing, and NOT NULL in the schema; a later record"):
        read_table(spark, orders, "id string, kunde string not null", bootstrap=topics.bootstrap).count()


def test_a_bad_record_without_a_time_goes_to_its_topic_with_that_of_writing(spark, topics: Topics):
    """The sink refused it, as a time that no record may have: one record of an old producer ended the query for good."""
    orders, letters = topics.create(), topics.create()
    builder = BatchBuilder()
    for time_ms, header in ((-1, b"a" * 5_000), (-5_000, None), (7, b"")):
        builder.append(b"k", b"?", (("h", header), ("h", None)), timestamp_ms=time_ms)
    produce_batch(topics, orders, builder)
    read_topic(spark, orders, ORDERS, bad_rows=letters, bootstrap=topics.bootstrap)
    name = next(reversed(dead_letters._SOURCES))
    made = dead_letters.dead_letters(spark, {name: 3}, [None], [json.dumps({orders: {"0": 3}})])
    assert write_rows(made, {"kafka.bootstrap.servers": topics.bootstrap}) == 3
    found = written(topics, letters)
    first = [(("h", b"a" * 5_000), ("h", None)), (("h", None), ("h", None)), (("h", b""), ("h", None))]
    assert [record.headers[:2] for record in found] == first
    now_ms = time.time_ns() // 1_000_000
    assert [record.timestamp_ms > now_ms - 600_000 or record.timestamp_ms for record in found] == [True, True, 7]


@pytest.mark.parametrize("record", [None, "record"])
def test_a_dead_letter_takes_no_time_that_its_topic_or_spark_refuses(spark, topics: Topics, tmp_path: Path, record: str | None):
    """Topics that take any time have them. Each start of the query failed: it could not read the record, or not write its letter."""
    orders = topics.create(1, None, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    letters, rows = topics.create(), topics.create()
    now_ms = time.time_ns() // 1_000_000
    for time_ms in (2**62, now_ms + 7_200_000, now_ms + 600_000):
        builder = BatchBuilder()
        builder.append(None, b"?", timestamp_ms=time_ms)
        produce_batch(topics, orders, builder)
    frame = read_topic(spark, orders, ORDERS, bad_rows=letters, record=record, bootstrap=topics.bootstrap)
    run(to_topic(frame.drop("record"), rows, bootstrap=topics.bootstrap, app=f"strange-times-{record}"), tmp_path)
    far, ahead, near = (record.timestamp_ms for record in written(topics, letters))
    assert near == now_ms + 600_000
    assert now_ms <= far < now_ms + 600_000
    assert now_ms <= ahead < now_ms + 600_000


def produce_batch(topics: Topics, topic: str, builder: BatchBuilder) -> None:
    """The batch as it is: clients refuse times before 1970."""
    link = link_for({"kafka.bootstrap.servers": topics.bootstrap})

    async def send() -> int:
        await link.cluster.refresh([topic])
        request = produce_request(topic, bytes(builder.build()))
        request.topic_data[0].topic_id = link.cluster.topics[topic].topic_id
        leader = link.cluster.leader(TopicPartition(topic, 0))
        return (await link.cluster.ask(leader, request, ProduceResponse)).responses[0].partition_responses[0].error_code

    assert link.run(send()) == 0


def test_bad_rows_of_a_new_partition_that_were_deleted_are_data_loss_too(spark, topics: Topics):
    """They were read from where its log began by then: the batch was written without its first letters."""
    orders, letters = topics.create(), topics.create()
    read_topic(spark, orders, ORDERS, bad_rows=letters, bootstrap=topics.bootstrap)
    name = next(reversed(dead_letters._SOURCES))
    topics.produce(orders, [(None, b"?")] * 5)
    with Admin(topics.bootstrap) as admin:
        admin.delete_records({TopicPartition(orders, 0): 3})
    with pytest.raises(PythonException, match=f"offset 0 of {orders}-0 no longer exists: its log begins at 3"):
        list(dead_letters.dead_letters(spark, {name: 5}, [None], [json.dumps({orders: {"0": 5}})]))


def test_the_error_of_a_dead_letter_is_short(spark, topics: Topics):
    """Schemas were in it whole, and the letter larger than its topic took: the query failed at each start."""
    orders, letters = topics.create(), topics.create()
    schema = ", ".join(f"field_{number} string" for number in range(200))
    read_topic(spark, orders, schema, bad_rows=letters, bootstrap=topics.bootstrap)
    name = next(reversed(dead_letters._SOURCES))
    topics.produce(orders, [(None, b"[1]")])
    [batch] = dead_letters.dead_letters(spark, {name: 1}, [None], [json.dumps({orders: {"0": 1}})])
    error = next(header["value"] for header in batch.column("headers").to_pylist()[0] if header["key"] == "error")
    assert (error[:17], error[-3:], len(error)) == (b"it does not fit s", b"...", 1_003)


def test_dead_letters_are_no_records_of_a_topic_that_was_made_again_meanwhile(spark, topics: Topics):
    """They were, where the new topic had as many: the batch's own bad rows were in no topic, and those came again with the next batch."""
    orders, letters = topics.create(), topics.create()
    names = []
    for fails in ("true", "false"):
        read_topic(spark, orders, ORDERS, bad_rows=letters, bootstrap=topics.bootstrap, options={"failOnDataLoss": fails})
        names.append(next(reversed(dead_letters._SOURCES)))
    topics.produce(orders, [(None, b"?")])
    [known] = Lookup(topics.options(orders)).selection(must_exist=True).topic_ids.values()
    end = json.dumps({orders: {"0": 1}, TOPIC_IDS: {orders: known}})

    def values(name: str) -> list[Any]:
        found = dead_letters.dead_letters(spark, {name: 1}, [None], [end])
        return [value for batch in found for value in batch.column("value").to_pylist()]

    assert values(names[0]) == [b"?"]
    topics.delete(orders)
    topics.create(name=orders)
    topics.produce(orders, [(None, b"!")])
    with pytest.raises(DataLossError, match=f"'{orders}' was deleted and made again before its bad rows were written to {letters}"):
        values(names[0])
    with pytest.warns(UserWarning, match="was deleted and made again"):
        assert values(names[1]) == []
