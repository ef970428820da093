"""SQL over topics."""

import subprocess
import sys
import time

import pytest
from tests.spark.conftest import Topics
from tests.waiting import eventually

from ottla.errors import KafkaError
from ottla.spark.queries import follow, make_views, named_in
from ottla.sync import Producer

SCHEMA = "customer string, amount double"


def test_the_topics_of_a_query_are_those_whose_names_are_words_of_it():
    query = "select * from `my-orders` o join a.b on o.id = 'orders' where orders_2.x > 1"
    assert named_in(query, ["my-orders", "orders", "a.b", "a", "my", "other", "orders_2"]) == ["a.b", "my-orders", "orders"]


@pytest.mark.spark
def test_topics_are_tables_by_schema_or_as_text_and_streams(spark, topics: Topics):
    orders, plain = topics.create(2), topics.create()
    now_ms = time.time_ns() // 1_000_000
    with Producer(topics.bootstrap) as producer:
        for number, value in enumerate([b'{"customer":"ada","amount":5}', b'{"customer":"bob","amount":1}', b"?"]):
            producer.send(orders, value, key=b"k%d" % number, timestamp_ms=now_ms - 10_000 + number * 1_000)
    topics.produce(plain, [(b"ada", "Ä".encode()), (None, None)])

    def rows(query: str, **more) -> list:
        make_views(spark, [orders, plain], {orders: SCHEMA}, bootstrap=topics.bootstrap, since_ms=None, is_stream=False, **more)
        return sorted(map(tuple, spark.sql(query).collect()), key=str)

    assert rows(f"select customer, amount, key from `{orders}`") == [("ada", 5.0, "k0"), ("bob", 1.0, "k1"), (None, None, "k2")]
    assert rows(f"select p.value, o.amount from `{orders}` o join `{plain}` p on p.key = o.customer") == [("Ä", 5.0)]
    assert rows(f"select count(*) from `{plain}` where offset > 0") == [(1,)]
    make_views(spark, [orders], {}, bootstrap=topics.bootstrap, since_ms=now_ms - 8_500, is_stream=False)
    assert [row.key for row in spark.sql(f"select key from `{orders}`").collect()] == ["k2"]
    with pytest.raises(KafkaError, match="there is a schema for 'other', which is no topic that the query names"):
        make_views(spark, [orders], {"other": SCHEMA}, bootstrap=topics.bootstrap, since_ms=None, is_stream=False)

    make_views(spark, [orders], {orders: SCHEMA}, bootstrap=topics.bootstrap, since_ms=0, is_stream=True)
    said: list = []
    query = follow(spark.sql(f"select customer, sum(amount) as total from `{orders}` group by customer"), said.extend)
    try:
        eventually(lambda: {tuple(row) for row in said}, lambda found: ("ada", 5.0) in found)
        topics.produce(orders, [(None, b'{"customer":"ada","amount":2}')])
        eventually(lambda: {tuple(row) for row in said}, lambda found: ("ada", 7.0) in found)
    finally:
        query.stop()


def test_a_query_of_no_topic_is_refused_before_spark_starts(topics: Topics):
    for arguments, code, word in ((["select 1"], 1, "names no topic"), (["select 1", "--schema", "orders"], 2, "must be TOPIC=COLUMNS")):
        command = [sys.executable, "-m", "ottla", "sql", *arguments, "-B", topics.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, word in done.stderr) == (code, True), done.stderr
