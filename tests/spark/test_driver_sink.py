"""The exactly-once sink without Spark: what one application writes, against a broker."""

import gc
import json
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.conftest import PROPERTIES, Topics
from tests.spark.test_rows import stored
from tests.waiting import eventually

from ottla.client.transaction_errors import CommitOutcomeUnknownError
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.spark.checkpoint import PlannedBatch, begin_of, ends_of, read_from
from ottla.spark.driver_sink import Application, BatchTooLargeError, DriverSink, collected
from ottla.spark.exactly_once import Seal, StopError
from ottla.spark.link import WaitInterruptedError
from ottla.spark.marker import Marker, hash_of, marker_of
from ottla.spark.source import OttlaDataSource
from ottla.spark.stream_writer import ExactlyOnceStreamWriter, TopicStreamWriter
from ottla.spark.transactor import Transactor
from ottla.spark.writer import sink
from ottla.sync import Admin
from ottla.types import TopicPartition

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
US = pa.timestamp("us", "UTC")


def read(topics: Topics, *names: str, isolation_level: Any = "read_committed") -> list:
    """All records of the topics, as this level sees them."""
    with Admin(topics.bootstrap) as admin:
        counts = {name: len(admin.describe_topic(name).partitions) for name in names}
    return [record for name in names for found in stored(topics, name, counts[name], isolation_level).values() for record in found]


class Query:
    """A query that reads a topic, as its checkpoint has it."""

    def __init__(self, topics: Topics, source: str, query: str = "q", **options: str) -> None:
        self.topics, self.source, self.query = topics, source, query
        self.options = {"kafka.bootstrap.servers": topics.bootstrap} | options
        self.application = Application(self.options)

    def restart(self) -> "Query":
        """Another process: nothing but the checkpoint is left of this one."""
        self.application = Application(self.options)
        return self

    def planned(self, number: int, end: int, begin: int | None = None) -> PlannedBatch:
        value: dict = {self.source: {"0": end}}
        if begin is not None:
            value["began at"] = {f"{self.source}-0": begin}
        return PlannedBatch(self.query, [json.dumps(value)], False)

    def run(self, number: int, end: int, values: list, *, begin: int | None = None, **columns: Any) -> int | None:
        rows = pa.RecordBatch.from_pydict({"value": values} | columns)
        return self.application.deliver(self.planned(number, end, begin), number, lambda: [rows])

    def committed(self) -> dict:
        with Admin(self.topics.bootstrap) as admin:
            return admin.committed_offsets(self.options.get("app") or f"to-{self.options['topic']}")


def values_of(topics: Topics, topic: str) -> list:
    return sorted(record.value for record in read(topics, topic))


def test_an_application_that_is_closed_leaves_nothing_open_and_is_not_kept(topics: Topics):
    query = Query(topics, topics.create(), topic=topics.create())
    assert query.run(0, 1, [b"0"], begin=0) == 1
    producer, kept = query.application._transactor.producer, weakref.ref(query.application)
    closing = DriverSink(query.options)
    closing._application = query.application
    closing.close()
    closing.close()
    assert producer._is_closed
    assert query.restart().run(1, 2, [b"1"]) == 1
    gc.collect()
    assert kept() is None, "not even for the end of the process"


def test_all_of_a_batch_is_in_one_transaction_with_the_offsets_and_its_marker(topics: Topics):
    source, one, other = topics.create(), topics.create(2), topics.create(3)
    query = Query(topics, source, app="several")
    columns = {
        "topic": [one, other, one, other],
        "key": pa.array([b"a", None, None, b"b"], pa.binary()),
        "partition": pa.array([None, 2, None, None], pa.int32()),
        "headers": pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], [], None, None], HEADERS),
        "timestamp": pa.array([1_000, None, 5_000_999, 7_000], US),
    }
    assert query.run(0, 4, [b"1", b"2", None, b"4"], begin=0, **columns) == 4
    records = {record.value: record for record in read(topics, one, other)}
    assert {value: (record.topic, record.key) for value, record in records.items()} == {
        b"1": (one, b"a"), b"2": (other, None), None: (one, None), b"4": (other, b"b"),
    }  # fmt: skip
    assert records[b"2"].partition == 2
    assert records[b"1"].headers == (("h", b"1"), ("h", None))
    assert [records[value].timestamp_ms for value in (b"1", None, b"4")] == [1, 5_000, 7]
    [(partition, place)] = query.committed().items()
    assert (partition, place.offset) == (TopicPartition(source, 0), 4)
    assert marker_of(place.metadata) == Marker("q", 0, hash_of(query.planned(0, 4, 0).sources), 0)


def test_a_batch_that_comes_again_is_skipped_and_the_next_one_is_written(topics: Topics):
    source, target = topics.create(), topics.create()
    query = Query(topics, source, topic=target)
    assert query.run(0, 2, [b"1", b"2"], begin=0) == 2
    assert query.run(0, 2, [b"1", b"2"], begin=0) is None
    assert query.restart().run(0, 2, [b"1", b"2"], begin=0) is None
    assert query.run(1, 3, [b"3"]) == 1
    assert query.restart().run(2, 3, []) == 0  # sealed, though it has no rows
    assert query.restart().run(2, 3, []) is None
    assert values_of(topics, target) == [b"1", b"2", b"3"]


class Crash(Exception):
    """Where the process ends: nothing is aborted, closed or asked any more."""


@pytest.mark.parametrize("place", ["begin", "write", "seal", "commit"])
def test_a_process_that_ends_at_any_step_leaves_nothing_behind_but_what_it_committed(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, place: str
):
    source, target = topics.create(), topics.create()
    query = Query(topics, source, topic=target)
    query.run(0, 1, [b"0"], begin=0)
    perform = Transactor.perform
    died: list[str] = []

    async def perform_until(transactor, asked):
        if died:
            raise Crash  # not even the abort
        answer = await perform(transactor, asked)
        name = "seal" if isinstance(asked, Seal) else asked.value
        if name == place or (place == "write" and name == "seal"):
            await transactor.producer.flush()
            died.append(name)
            raise Crash
        return answer

    monkeypatch.setattr(Transactor, "perform", perform_until)
    with pytest.raises(Crash):
        query.run(1, 3, [b"1", b"2"])
    monkeypatch.undo()
    assert query.restart().run(1, 3, [b"1", b"2"]) == (None if place == "commit" else 2)
    assert query.run(2, 4, [b"3"]) == 1
    assert values_of(topics, target) == [b"0", b"1", b"2", b"3"]
    written = [record.value for record in read(topics, target, isolation_level="read_uncommitted")]
    assert len(written) == (4 if place in ("begin", "commit") else 6)


def test_the_earlier_of_two_running_copies_of_a_query_stops_for_good(topics: Topics):
    source, target = topics.create(), topics.create()
    earlier, later = Query(topics, source, topic=target), Query(topics, source, topic=target)
    assert earlier.run(0, 1, [b"0"], begin=0) == 1
    assert later.run(1, 2, [b"1"]) == 1
    for _ in range(2):
        with pytest.raises(StopError, match="another producer has its transactional id"):
            earlier.run(1, 2, [b"1"])
    assert later.run(2, 3, [b"2"]) == 1
    assert values_of(topics, target) == [b"0", b"1", b"2"]


def test_a_batch_that_comes_while_it_is_being_written_waits_and_is_skipped(topics: Topics):
    source, target = topics.create(), topics.create()
    query = Query(topics, source, topic=target)
    is_collecting, may_go_on = threading.Event(), threading.Event()

    def collect():
        is_collecting.set()
        may_go_on.wait()
        return [pa.RecordBatch.from_pydict({"value": [b"0", b"1"]})]

    with ThreadPoolExecutor() as pool:
        first = pool.submit(query.application.deliver, query.planned(0, 2, 0), 0, collect)
        is_collecting.wait()
        second = pool.submit(query.run, 0, 2, [b"0", b"1"], begin=0)
        may_go_on.set()
        assert (first.result(), second.result()) == (2, None)
    assert values_of(topics, target) == [b"0", b"1"]


def interrupt_waiting(query: Query, pool: ThreadPoolExecutor) -> None:
    """Interrupts the second batch, which waits without an end."""
    waiting = pool.submit(query.run, 1, 2, [b"2"])
    eventually(lambda: query.application._thread, bool)
    with pytest.raises(TimeoutError):
        waiting.result(1)
    query.application.interrupt()
    with pytest.raises((CommitOutcomeUnknownError, WaitInterruptedError)):
        waiting.result(10)


def test_a_batch_that_waits_for_a_topic_that_is_gone_is_interrupted_and_comes_again(topics: Topics):
    source, target = topics.create(), topics.create()
    query = Query(topics, source, topic=target)
    assert query.run(0, 1, [b"1"], begin=0) == 1
    topics.delete(target)
    with ThreadPoolExecutor(1) as pool:
        interrupt_waiting(query, pool)
        topics.create(name=target)
        assert pool.submit(query.run, 1, 2, [b"2"]).result(30) == 1  # in the same thread, which may wait again
    assert query.restart().run(1, 2, [b"2"]) is None
    assert values_of(topics, target) == [b"2"]
    query.application.interrupt()  # there is nothing to interrupt


def test_a_batch_that_waits_for_a_broker_that_is_away_is_interrupted(tmp_path: Path):
    broker = BrokerThread(PROPERTIES | {"log.dirs": str(tmp_path)}).start()
    topics = Topics(broker.bootstrap)
    source, target = topics.create(), topics.create()
    query = Query(topics, source, topic=target)
    assert query.run(0, 1, [b"1"], begin=0) == 1
    broker.stop()
    with ThreadPoolExecutor(1) as pool:
        interrupt_waiting(query, pool)


def test_a_new_checkpoint_goes_on_where_the_last_one_ended_and_nowhere_else(topics: Topics):
    source, target = topics.create(), topics.create()
    first = Query(topics, source, "first", topic=target)
    first.run(0, 2, [b"0", b"1"], begin=0)
    with pytest.raises(StopError, match=f'startingOffsets=\'{{"{source}": {{"0": 2}}}}\'.* ottla group delete to-{target} --yes'):
        Query(topics, source, "lost", topic=target).run(0, 3, [b"0", b"1", b"2"], begin=0)
    assert Query(topics, source, "next", topic=target).run(0, 3, [b"2"], begin=2) == 1
    with pytest.raises(StopError, match="another checkpoint of the application has written since"):
        first.restart().run(1, 3, [b"2"])
    assert values_of(topics, target) == [b"0", b"1", b"2"]
    with Admin(topics.bootstrap) as admin:
        admin.delete_groups([f"to-{target}"])
    with pytest.raises(StopError, match="has no marker"):
        Query(topics, source, "next", topic=target).run(1, 4, [b"3"])


def test_a_new_checkpoint_reads_partitions_that_came_after_the_last_one_from_their_first_record(topics: Topics):
    source, target = topics.create(), topics.create()
    Query(topics, source, "first", topic=target).run(0, 2, [b"0", b"1"], begin=0)
    with Admin(topics.bootstrap) as admin:
        admin.create_partitions({source: 2})

    def deliver(query: str, read: dict, begin: dict) -> int | None:
        value = {source: read, "began at": {f"{source}-{index}": offset for index, offset in begin.items()}}
        rows = [pa.RecordBatch.from_pydict({"value": [b"2"]})]
        return Query(topics, source, query, topic=target).application.deliver(
            PlannedBatch(query, [json.dumps(value)], False), 0, lambda: rows
        )

    with pytest.raises(StopError, match="does not begin where that one ended"):
        deliver("leaves one out", {"0": 2, "1": 3}, {"0": 2, "1": 1})
    assert deliver("next", {"0": 2, "1": 3, "2": 7}, {"0": 2, "1": 0, "2": 0}) == 1
    with pytest.raises(StopError, match="does not begin where that one ended") as stopped:  # the group lacks a partition that was read
        deliver("after a part", {"0": 2, "1": 3, "2": 7}, {"0": 2, "1": 3, "2": 0})
    assert "startingOffsets" not in str(stopped.value)
    assert values_of(topics, target) == [b"0", b"1", b"2"]


def test_a_timeout_that_the_brokers_do_not_allow_is_an_option_that_is_wrong(own_broker: Callable[..., Topics]):
    topics = own_broker(**{"transaction.max.timeout.ms": "60000"})
    source, target = topics.create(), topics.create()
    with pytest.raises(KafkaError, match=r"^INVALID_CONFIG: kafka\.transaction\.timeout\.ms=120000 .*transaction\.max\.timeout\.ms"):
        Query(topics, source, topic=target).run(0, 1, [b"0"], begin=0)
    assert Query(topics, source, topic=target, **{"kafka.transaction.timeout.ms": "60000"}).run(0, 1, [b"0"], begin=0) == 1


def test_a_batch_of_no_topic_has_its_marker_for_the_topic_that_it_goes_to(topics: Topics):
    target = topics.create()
    query = Query(topics, "elsewhere", topic=target)  # a topic of another cluster
    assert query.run(0, 5, [b"0"], begin=0) == 1
    assert query.run(1, 9, [b"1"]) == 1
    assert query.restart().run(1, 9, [b"1"]) is None
    assert {str(partition): place.offset for partition, place in query.committed().items()} == {f"{target}-0": 2}
    with pytest.raises(KafkaError, match="there is none of them"):
        Query(topics, "elsewhere", app="nowhere").run(0, 5, [b"0"], begin=0, topic=[target])


def test_a_record_that_the_broker_refuses_aborts_its_batch(topics: Topics):
    source, target = topics.create(), topics.create(1, None, **{"max.message.bytes": "1000"})
    query = Query(topics, source, topic=target)
    with pytest.raises(KafkaError) as refused:
        query.run(0, 2, [b"small", bytes(5_000)], begin=0)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert f"MESSAGE_TOO_LARGE: {target}-0" in str(refused.value), "a batch may go to many topics"
    assert "ottla config set max.message.bytes=BYTES --topic TOPIC" in str(refused.value)
    assert query.run(0, 2, [b"small", b"smaller"], begin=0) == 2
    assert values_of(topics, target) == [b"small", b"smaller"]


def test_many_rows_over_many_partitions_keep_their_order_in_each(topics: Topics):
    source, target = topics.create(), topics.create(7)
    query = Query(
        topics, source, topic=target, **{"kafka.batch.size": "2000", "kafka.buffer.memory": "50000", "kafka.compression.type": "lz4"}
    )
    keys = [b"%d" % (index % 50) for index in range(20_000)]
    assert query.run(0, 1, [b"%05d" % index for index in range(20_000)], begin=0, key=keys) == 20_000
    by_key: dict = {}
    for record in read(topics, target):
        by_key.setdefault(record.key, []).append(int(record.value))
    assert by_key == {b"%d" % key: list(range(key, 20_000, 50)) for key in range(50)}


def test_the_error_for_a_batch_that_is_too_large_names_the_remedies():
    def fail():
        raise RuntimeError("Total size of serialized results of 4 tasks (1.2 GiB) is bigger than spark.driver.maxResultSize (1024.0 MiB)")

    rows: Any = SimpleNamespace(columns=["value"], toArrow=fail)
    with pytest.raises(BatchTooLargeError, match=r"batch 7 .*raise spark\.driver\.maxResultSize.*maxOffsetsPerTrigger.*at_least_once"):
        collected(rows, 7)


def test_a_writer_of_its_own_carries_the_rows_to_the_commit(topics: Topics, tmp_path: Path):
    source, target = topics.create(), topics.create()
    options = topics.sink_options(target) | {"checkpointLocation": tmp_path.as_uri()}
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"the-query"}')
    offsets = json.dumps({source: {"0": 9}, "began at": {f"{source}-0": 0}})
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{offsets}")
    writer = OttlaDataSource(options).streamWriter(SCHEMA, False)
    assert isinstance(writer, ExactlyOnceStreamWriter)
    rows = [pa.RecordBatch.from_pydict({"value": [b"%d" % index], "offset": [1]}) for index in range(3)]
    messages = [writer.write(iter(rows[:2])), writer.write(iter([])), writer.write(iter(rows[2:]))]
    assert values_of(topics, target) == []
    for _ in range(2):
        writer.commit(messages, 0)
    assert values_of(topics, target) == [b"0", b"1", b"2"]
    with Admin(topics.bootstrap) as admin:
        assert [marker_of(place.metadata).query for place in admin.committed_offsets(f"to-{target}").values()] == ["the-query"]  # type: ignore[union-attr]
    assert isinstance(OttlaDataSource(options | {"delivery": "at_least_once"}).streamWriter(SCHEMA, False), TopicStreamWriter)


def test_a_task_does_not_carry_more_than_a_message_may(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ottla.spark.stream_writer.MESSAGE_BYTES_MAX", 10_000)
    writer = ExactlyOnceStreamWriter(topics.sink_options("t"))
    with pytest.raises(BatchTooLargeError, match="maxOffsetsPerTrigger"):
        writer.write(iter([pa.RecordBatch.from_pydict({"value": [bytes(6_000)]})] * 2))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, "give the option app"),
        ({"topic": "t", "delivery": "exactly-once"}, "delivery=exactly-once is neither"),
        ({"topic": "t", "kafka.transactional.id": "x"}, "app names the transactional id"),
    ],
)
def test_a_sink_without_a_name_or_of_an_unknown_delivery_is_refused_at_once(options: dict, word: str):
    with pytest.raises(KafkaError, match=word):
        sink({"kafka.bootstrap.servers": "127.0.0.1:1"} | options)


def test_a_batch_write_is_not_exactly_once():
    source = OttlaDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "delivery": "exactly_once"})
    with pytest.raises(KafkaError, match="for streams"):
        source.writer(SCHEMA, False)


def test_a_checkpoint_that_cannot_be_read_names_the_ways_out(tmp_path: Path):
    for location, word in ((None, "give the sink the option checkpointLocation"), ("s3a://bucket/c", "is not on this machine")):
        with pytest.raises(KafkaError, match=f"{word}.*at_least_once"):
            read_from(location, 0)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    (tmp_path / "offsets" / "0").write_text("v2\n{}\n{}")
    with pytest.raises(KafkaError, match="in form v2"):
        read_from(str(tmp_path), 0)
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n-\n{"t": {"0": 5}}')
    assert read_from(str(tmp_path), 0) == PlannedBatch("q", [None, '{"t": {"0": 5}}'], False, str(tmp_path))
    (tmp_path / "state").mkdir()
    assert read_from(tmp_path.as_uri(), 0).has_state


OURS = '{"a": {"0": 5, "1": 7}, "began at": {"a-0": 1, "a-1": 0}}'
OTHER = '{"b-c": {"0": 3}, "began at": {"b-c-0": 3}}'
A0, A1, BC = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b-c", 0)


@pytest.mark.parametrize(
    ("sources", "ends", "begin"),
    [
        ([OURS], {A0: 5, A1: 7}, {A0: 1, A1: 0}),
        ([OURS, OTHER], {A0: 5, A1: 7, BC: 3}, {A0: 1, A1: 0, BC: 3}),
        ([OURS, '{"a": {"0": 4}, "began at": {"a-0": 0}}'], {A0: 4, A1: 7}, None),  # two places of one partition
        (['{"a": {"0": 5}}'], {A0: 5}, None),  # of Spark's own connector, which keeps its start elsewhere
        ([OURS, "17"], {A0: 5, A1: 7}, None),  # a rate beside it
        ([OURS, None], {A0: 5, A1: 7}, None),
        (['{"logOffset":0}', "text", "[]", "{}", '{"a": {"x": 1}}', '{"a": {"0": null}}'], {}, None),
    ],
)
def test_the_offsets_of_a_batch_are_those_of_its_topics(sources: list, ends: dict, begin: dict | None):
    assert ends_of(sources) == ends
    assert begin_of(sources) == begin


def schema():
    from pyspark.sql.types import BinaryType, StructField, StructType

    return StructType([StructField("value", BinaryType())])


SCHEMA = schema()
