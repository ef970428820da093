"""The driver's side of a streaming read, without Spark: which offsets it answers."""

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.spark.conftest import Topics

from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode, KafkaError
from ottla.spark import stream_reader
from ottla.spark.batch_reader import TopicReader
from ottla.spark.lookup import Lookup
from ottla.spark.offsets import as_json, from_json, ids_of
from ottla.spark.planning import TASKS_VARIABLE
from ottla.spark.reading import DataLossError
from ottla.spark.runner import MADE_AGAIN
from ottla.spark.stream_reader import TopicStreamReader
from ottla.sync import Admin, NewTopic
from ottla.types import TopicPartition

VALUE = StructType([StructField("value", BinaryType())])
ROW = (None, b"v")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that has nothing says so at once."""
    monkeypatch.setattr(stream_reader, "IDLE_MS", 0)


def reader(topics: Topics, topic: str, **options: str) -> TopicStreamReader:
    return TopicStreamReader(topics.options(topic, **options), VALUE)


def read_between(stream: TopicStreamReader, start: dict, end: dict) -> dict:
    """The offsets of each partition that the batch's tasks read."""
    tasks = stream.partitions(start, end)
    return {piece.partition.partition: (piece.start, piece.end) for task in tasks for piece in task.ranges}


def plain(end: dict) -> dict:
    """The offsets of an end, without the ids of its topics."""
    return as_json(from_json(end))


def test_the_latest_offset_stays_the_start_until_the_first_batch_is_done(topics: Topics):
    topic = topics.create(2)
    topics.produce(topic, [ROW] * 3, partition=0)
    first = reader(topics, topic)
    start = first.initialOffset()
    assert start == {topic: {"0": 3, "1": 0}}
    topics.produce(topic, [ROW] * 4, partition=0)
    topics.produce(topic, [ROW] * 1, partition=1)
    assert first.initialOffset() == start  # asked again in the first batch
    kept = json.loads(json.dumps(first.latestOffset(start, ReadAllAvailable())))  # what the checkpoint says of batch 0
    assert read_between(first, start, kept) == {0: (3, 7), 1: (0, 1)}
    topics.produce(topic, [ROW] * 5, partition=0)
    restarted = reader(topics, topic)
    assert restarted.initialOffset() == {topic: {"0": 12, "1": 1}}  # asked again after a restart before batch 0 was committed
    assert read_between(restarted, restarted.initialOffset(), kept) == {0: (3, 7), 1: (0, 1)}
    end = restarted.latestOffset(kept, ReadAllAvailable())
    assert plain(end) == {topic: {"0": 12, "1": 1}}
    assert read_between(restarted, kept, end) == {0: (7, 12)}


def test_offsets_that_no_longer_exist_take_no_share_of_a_limited_batch(topics: Topics):
    """They did: a query that goes on without lost records had a batch without rows for each limit of them."""
    topic = topics.create(2)
    for partition in range(2):
        topics.produce(topic, [ROW] * 40, partition=partition)
    with Admin(topics.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 30})
    start = {topic: {"0": 10, "1": 10}}
    lossy = reader(topics, topic, failOnDataLoss="false")
    assert plain(lossy.latestOffset(start, ReadMaxRows(20))) == {topic: {"0": 35, "1": 25}}
    assert plain(lossy.latestOffset({topic: {"0": 40, "1": 10}}, ReadMaxRows(20))) == {topic: {"0": 40, "1": 30}}
    assert plain(reader(topics, topic).latestOffset(start, ReadMaxRows(20))) == {topic: {"0": 20, "1": 20}}  # its read fails


def test_a_first_batch_that_is_empty_keeps_the_start_and_is_not_read_again(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [ROW] * 3)
    first = reader(topics, topic)
    start = first.initialOffset()
    kept = first.latestOffset(start, ReadAllAvailable())
    assert first.latestOffset(kept, ReadAllAvailable()) == kept  # as Spark has it, or it would run another empty batch
    topics.produce(topic, [ROW] * 2)
    assert read_between(first, start, kept) == {}
    assert read_between(first, kept, kept) == {}
    assert read_between(first, kept, first.latestOffset(kept, ReadAllAvailable())) == {0: (3, 5)}


def test_a_batch_without_news_does_not_begin_where_the_first_one_did(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [ROW] * 3)
    first = reader(topics, topic, startingOffsets="earliest")
    kept = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    assert read_between(first, first.initialOffset(), kept) == {0: (0, 3)}
    assert read_between(first, kept, kept) == {}


def test_a_query_leaves_nothing_in_the_cluster(topics: Topics):
    topic = topics.create()
    one, other = reader(topics, topic), reader(topics, topic)
    one.latestOffset(one.initialOffset(), ReadAllAvailable())
    topics.produce(topic, [ROW] * 3)
    assert other.initialOffset() == {topic: {"0": 3}}  # a new query of the same options has a start of its own
    with Admin(topics.bootstrap) as admin:
        assert admin.list_groups() == []


def test_a_start_is_earliest_or_given_or_both_by_partition(topics: Topics):
    topic = topics.create(2)
    topics.produce(topic, [ROW] * 5, partition=0)
    topics.produce(topic, [ROW] * 5, partition=1)
    assert reader(topics, topic, startingOffsets="earliest").initialOffset() == {topic: {"0": 0, "1": 0}}
    given = f'{{"{topic}": {{"0": 2, "1": -1}}}}'
    assert reader(topics, topic, startingOffsets=given).initialOffset() == {topic: {"0": 2, "1": 5}}
    with pytest.raises(KafkaError, match=f"{topic}-1"):
        reader(topics, topic, startingOffsets=f'{{"{topic}": {{"0": 2}}}}').initialOffset()


def test_a_start_by_time_that_no_record_reaches_is_an_error_or_the_end(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [ROW] * 2)
    far = {"startingTimestamp": str(2**45)}
    with pytest.raises(KafkaError, match="startingOffsetsByTimestampStrategy=latest"):
        reader(topics, topic, **far).initialOffset()
    assert reader(topics, topic, startingOffsetsByTimestampStrategy="latest", **far).initialOffset() == {topic: {"0": 2}}
    assert reader(topics, topic, startingTimestamp="1").initialOffset() == {topic: {"0": 0}}


def test_a_limit_is_the_default_read_limit_and_is_kept(topics: Topics):
    topic = topics.create(2)
    topics.produce(topic, [ROW] * 30, partition=0)
    topics.produce(topic, [ROW] * 10, partition=1)
    limited = reader(topics, topic, maxOffsetsPerTrigger="8")
    assert limited.getDefaultReadLimit() == ReadMaxRows(8)
    start = {topic: {"0": 0, "1": 0}}
    assert plain(limited.latestOffset(start, ReadMaxRows(8))) == {topic: {"0": 6, "1": 2}}
    assert plain(limited.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 30, "1": 10}}
    assert limited.reportLatestOffset() == {topic: {"0": 30, "1": 10}}
    assert reader(topics, topic).getDefaultReadLimit() == ReadMaxRows(200_000)  # a backlog is not one transaction
    assert reader(topics, topic, minOffsetsPerTrigger="300000").getDefaultReadLimit() == ReadMaxRows(300_000)


def test_a_minimum_holds_back_a_batch_until_enough_is_there_or_the_delay_is_over(topics: Topics):
    topic = topics.create()
    start = {topic: {"0": 0}}
    waiting = reader(topics, topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    topics.produce(topic, [ROW] * 9)
    assert waiting.latestOffset(start, ReadAllAvailable()) == start
    assert plain(reader(topics, topic, minOffsetsPerTrigger="10", maxTriggerDelay="0ms").latestOffset(start, ReadAllAvailable())) == {
        topic: {"0": 9}
    }
    topics.produce(topic, [ROW])
    assert plain(waiting.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 10}}


def test_a_query_triggered_available_now_ends_where_the_topic_ended(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [ROW] * 5)
    now = reader(topics, topic, minOffsetsPerTrigger="100")
    now.prepareForTriggerAvailableNow()
    topics.produce(topic, [ROW] * 5)
    assert plain(now.latestOffset({topic: {"0": 0}}, ReadMaxRows(3))) == {topic: {"0": 3}}
    assert plain(now.latestOffset({topic: {"0": 3}}, ReadAllAvailable())) == {topic: {"0": 5}}
    assert plain(now.latestOffset({topic: {"0": 5}}, ReadAllAvailable())) == {topic: {"0": 5}}
    assert plain(now.latestOffset({topic: {"0": 7}}, ReadAllAvailable())) == {topic: {"0": 7}}  # a checkpoint that is further on


def test_an_end_that_went_back_is_asked_for_again_before_it_is_data_loss(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    topic = topics.create()
    topics.produce(topic, [ROW] * 5)
    partition = TopicPartition(topic, 0)
    answers = [{partition: end} for end in (3, 4, 5, 3, 3, 3, 3)]
    monkeypatch.setattr(Lookup, "latest", lambda lookup, partitions: answers.pop(0))
    patient = {"fetchOffset.retryIntervalMs": "0"}
    assert plain(reader(topics, topic, **patient).latestOffset({topic: {"0": 5}}, ReadAllAvailable())) == {topic: {"0": 5}}
    assert len(answers) == 4
    with pytest.raises(DataLossError, match=f"ends at 3, before offset 5 .*: {MADE_AGAIN}, or its log"):
        reader(topics, topic, **patient).latestOffset({topic: {"0": 5}}, ReadAllAvailable())
    assert answers == []


class Asked(list):
    """What this process's clients ask, by the names of the requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        ask = ClientConnection.ask

        async def noted(connection, request, *arguments, **settings):
            self.append(type(request).__name__.removesuffix("Request"))
            return await ask(connection, request, *arguments, **settings)

        monkeypatch.setattr(ClientConnection, "ask", noted)


def test_an_idle_query_asks_for_new_partitions_and_waits_at_the_ends(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    topic = topics.create(2)
    topics.produce(topic, [ROW] * 3, partition=0)
    monkeypatch.setattr(stream_reader, "IDLE_MS", 50)
    idle, start = reader(topics, topic), {topic: {"0": 3, "1": 0}}
    assert idle.latestOffset(start, ReadAllAvailable()) == start
    asked = Asked(monkeypatch)
    for _ in range(4):
        assert idle.latestOffset(start, ReadAllAvailable()) == start
    assert asked == ["Metadata", "Fetch"] * 4
    with Admin(topics.bootstrap) as admin:
        admin.create_partitions({topic: 3})
    assert plain(idle.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 3, "1": 0, "2": 0}}


def test_a_record_ends_the_wait_of_an_idle_query(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    topic = topics.create(2)
    monkeypatch.setattr(stream_reader, "IDLE_MS", 3_600_000)
    asked = Asked(monkeypatch)
    idle, start = reader(topics, topic), {topic: {"0": 0, "1": 0}}
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(idle.latestOffset, start, ReadAllAvailable())
        while "Fetch" not in asked:
            os.sched_yield()
        topics.produce(topic, [ROW], partition=1)
        assert plain(waiting.result()) == {topic: {"0": 0, "1": 1}}
    assert asked.count("Fetch") == 1


def test_large_records_have_more_tasks_than_their_number_asks_for(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(TASKS_VARIABLE, "4")
    topic = topics.create(4)
    for partition in range(4):
        topics.produce(topic, [(None, bytes(900_000))] * 8, partition=partition)
    start = {topic: dict.fromkeys("0123", 0)}
    stream = reader(topics, topic)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert stream._cluster.weigh(dict.fromkeys(from_json(end), 0)) == pytest.approx(dict.fromkeys(from_json(end), 900_000), rel=0.01)
    assert len(stream.partitions(start, end)) == 4
    assert len(TopicReader(topics.options(topic), VALUE).partitions()) == 4
    assert stream._cluster.weigh(from_json(end)) == {}


def test_new_topics_and_partitions_begin_at_their_earliest_record(topics: Topics):
    one = topics.create(1, "pattern-one")
    topics.produce(one, [ROW] * 5)
    stream = TopicStreamReader({"kafka.bootstrap.servers": topics.bootstrap, "subscribePattern": "pattern-.*"}, VALUE)
    start = stream.initialOffset()
    assert start == {one: {"0": 5}}
    two = topics.create(2, "pattern-two")
    topics.produce(two, [ROW] * 2, partition=1)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert as_json(from_json(end)) == {one: {"0": 5}, two: {"0": 0, "1": 2}}
    [task] = stream.partitions(start, end)
    [piece] = task.ranges
    assert (piece.partition.topic, piece.partition.partition, piece.start, piece.end) == (two, 1, 0, 2)


def test_a_partition_that_comes_later_without_its_first_records_is_data_loss(topics: Topics):
    topic = topics.create()
    strict, lenient = reader(topics, topic), reader(topics, topic, failOnDataLoss="false")
    start = strict.initialOffset()
    with Admin(topics.bootstrap) as admin:
        admin.create_partitions({topic: 2})
        topics.produce(topic, [ROW] * 5, partition=1)
        admin.delete_records({TopicPartition(topic, 1): 2})
    with pytest.raises(DataLossError, match=f"{topic}-1 is new to the query and its log begins at 2"):
        strict.latestOffset(start, ReadAllAvailable())
    with pytest.warns(UserWarning, match="its log begins at 2"):
        end = lenient.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLossError, match="its log begins at 2"):
        strict.partitions(start, end)
    with pytest.warns(UserWarning, match="its log begins at 2"):
        assert read_between(lenient, start, end) == {1: (2, 5)}


def test_a_pattern_does_not_select_internal_topics(own_broker):
    topics = own_broker()
    topic = topics.create()
    with Admin(topics.bootstrap) as admin:
        admin.set_offsets("some-group", {TopicPartition(topic, 0): 0})
        assert "__consumer_offsets" in admin.list_topics()
    options = {"kafka.bootstrap.servers": topics.bootstrap, "startingOffsets": "earliest"}
    assert TopicStreamReader(options | {"subscribePattern": ".*"}, VALUE).initialOffset() == {topic: {"0": 0}}
    by_name = TopicStreamReader(options | {"subscribe": "__consumer_offsets"}, VALUE)
    assert by_name.initialOffset() == {"__consumer_offsets": {"0": 0}}


def test_a_limit_goes_round_over_the_batches_of_a_query(topics: Topics):
    topic = topics.create(3)
    for partition, count in enumerate((300, 3, 3)):
        topics.produce(topic, [ROW] * count, partition=partition)
    limited = reader(topics, topic, startingOffsets="earliest")
    offsets = limited.initialOffset()
    for _ in range(9):
        offsets = limited.latestOffset(offsets, ReadMaxRows(1))
    assert plain(offsets) == {topic: {"0": 3, "1": 3, "2": 3}}


def test_a_topic_of_the_checkpoint_that_the_query_does_not_read_any_more_is_said_to_be_so(topics: Topics):
    before, now = topics.create(), topics.create()
    topics.produce(before, [ROW])
    text = f"the checkpoint has offsets of {before}-0, which the query does not read any more: other topics need another checkpoint"
    for changes in ({}, {"subscribePattern": now}):
        with pytest.raises(DataLossError, match=f"{text}. That is another checkpointLocation, or another --app") as raised:
            reader(topics, now, **changes).latestOffset({before: {"0": 1}}, ReadAllAvailable())
        assert "the lost records" not in str(raised.value), "none is lost"
    with pytest.warns(UserWarning, match=text):
        assert plain(reader(topics, now, failOnDataLoss="false").latestOffset({before: {"0": 1}}, ReadAllAvailable())) == {now: {"0": 0}}


def make_again(topics: Topics, topic: str, count: int) -> None:
    """Deletes the topic of one partition and creates one of its name, with this number of records."""
    with Admin(topics.bootstrap) as admin:
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, 1, 1)])
    topics.produce(topic, [ROW] * count)


@pytest.mark.parametrize("count", [2, 3])
def test_a_topic_that_was_made_again_is_data_loss_however_many_records_it_has(topics: Topics, count: int):
    topic = topics.create()
    topics.produce(topic, [ROW] * 2)
    at_once = {"fetchOffset.retryIntervalMs": "0", "startingOffsets": "earliest"}
    strict, lenient = reader(topics, topic, **at_once), reader(topics, topic, failOnDataLoss="false", **at_once)
    kept = json.loads(json.dumps(strict.latestOffset(strict.initialOffset(), ReadAllAvailable())))
    make_again(topics, topic, count)
    for again in (strict, reader(topics, topic, **at_once)):  # one that runs on, and one that was started again
        with pytest.raises(DataLossError, match=f"topic '{topic}' was deleted and made again"):
            again.latestOffset(kept, ReadAllAvailable())
    with pytest.warns(UserWarning, match="made again"):
        end = lenient.latestOffset(kept, ReadAllAvailable())
    assert read_between(lenient, kept, end) == {0: (0, count)}, "from its start: it is another topic"
    assert lenient.latestOffset(end, ReadAllAvailable()) == end, "and that is known from now on"


def test_a_checkpoint_without_ids_of_topics_gets_them_with_its_next_batch(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [ROW] * 2)
    before = {topic: {"0": 2}}
    stream = reader(topics, topic)
    assert stream.latestOffset(before, ReadAllAvailable()) == before
    topics.produce(topic, [ROW])
    end = stream.latestOffset(before, ReadAllAvailable())
    assert plain(end) == {topic: {"0": 3}}
    assert list(ids_of(end)) == [topic]


def test_a_batch_is_not_read_from_a_topic_that_was_made_again_after_its_plan(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [ROW] * 2)
    stream = reader(topics, topic, startingOffsets="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    make_again(topics, topic, 2)
    [task] = stream.partitions(start, end)
    with pytest.raises(DataLossError, match=f"{topic}-0 no longer exists: its topic was deleted and made again"):
        list(stream.read(task))
    with pytest.warns(UserWarning, match="made again"):
        assert list(reader(topics, topic, failOnDataLoss="false").read(task)) == []


def test_a_task_of_the_newest_topic_asks_again_where_it_knows_the_one_before(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [ROW] * 2)
    stream = reader(topics, topic, startingOffsets="earliest")
    stream.initialOffset()
    kept = stream._cluster.link.cluster.topics[topic]
    make_again(topics, topic, 2)
    [task] = stream.partitions({}, stream.latestOffset({}, ReadAllAvailable()))
    stream._cluster.link.cluster.topics[topic] = kept
    assert sum(batch.num_rows for batch in stream.read(task)) == 2


def test_a_topic_that_no_longer_exists_or_was_recreated_is_data_loss(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [ROW] * 5)
    at_once = {"fetchOffset.retryIntervalMs": "0"}
    strict, lenient = reader(topics, topic, **at_once), reader(topics, topic, failOnDataLoss="false", **at_once)
    start = {topic: {"0": 5}}
    topics.delete(topic)
    with pytest.raises(DataLossError, match="no longer exists"):
        strict.latestOffset(start, ReadAllAvailable())
    with pytest.warns(UserWarning, match="no longer exists"):
        assert lenient.latestOffset(start, ReadAllAvailable()) == {}
    with Admin(topics.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    topics.produce(topic, [ROW] * 2)
    with pytest.raises(DataLossError, match="ends at 2, before offset 5"):
        strict.latestOffset(start, ReadAllAvailable())
    with pytest.warns(UserWarning, match="ends at 2"):
        assert plain(lenient.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 2}}


def test_a_topic_that_was_never_there_is_an_error(topics: Topics):
    for read in (reader(topics, "no-such-topic").initialOffset, TopicReader(topics.options("no-such-topic"), VALUE).partitions):
        with pytest.raises(KafkaError) as missing:
            read()
        way_out = "create it first, with ottla topic create no-such-topic, or correct the option that names it"
        assert str(missing.value).endswith(f"topic 'no-such-topic' does not exist: {way_out}")
        assert missing.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_only_the_assigned_partitions_are_read(topics: Topics):
    topic = topics.create(3)
    options = {"kafka.bootstrap.servers": topics.bootstrap, "assign": f'{{"{topic}": [2, 0]}}', "startingOffsets": "earliest"}
    assert TopicStreamReader(options, VALUE).initialOffset() == {topic: {"0": 0, "2": 0}}
    with pytest.raises(KafkaError, match=f"{topic}-7"):
        TopicStreamReader(options | {"assign": f'{{"{topic}": [7]}}'}, VALUE).initialOffset()


def test_a_start_of_a_partition_that_does_not_exist_is_refused(topics: Topics):
    topic = topics.create(2)
    starts = f'{{"{topic}": {{"0": 0, "1": 0, "2": 0}}}}'
    with pytest.raises(KafkaError, match=f"startingOffsets names {topic}-2, which does not exist or is not read"):
        reader(topics, topic, startingOffsets=starts).initialOffset()


def test_a_reader_that_is_in_use_can_be_pickled(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [ROW] * 3)
    used = reader(topics, topic, startingOffsets="earliest")
    start = used.initialOffset()
    end = used.latestOffset(start, ReadAllAvailable())
    [task] = used.partitions(start, end)
    assert list(used.getCache(start, end))
    copy = pickle.loads(pickle.dumps(used))
    assert sum(batch.num_rows for batch in copy.read(pickle.loads(pickle.dumps(task)))) == 3


def batch_size(topics: Topics, topic: str, **options: str) -> int:
    """How many offsets a batch read would have."""
    return sum(piece.size for task in TopicReader(topics.options(topic, **options), VALUE).partitions() for piece in task.ranges)


@pytest.mark.parametrize("ending", [{}, {"endingOffsets": "follow"}])
def test_a_batch_that_starts_after_the_end_of_a_log_is_data_loss(topics: Topics, ending: dict[str, str]):
    topic = topics.create(2)
    topics.produce(topic, [ROW] * 3, partition=0)
    topics.produce(topic, [ROW] * 2, partition=1)
    at_the_end, after = (json.dumps({topic: {"0": offset, "1": 0}}) for offset in (3, 4))
    assert batch_size(topics, topic, startingOffsets=at_the_end, **ending) == 2
    with pytest.raises(DataLossError, match=rf"startingOffsets of {topic}-0 is 4, and its log ends at 3: .* failOnDataLoss=false"):
        batch_size(topics, topic, startingOffsets=after, **ending)
    with pytest.warns(UserWarning, match=f"{topic}-0 is 4, and its log ends at 3"):
        assert batch_size(topics, topic, startingOffsets=after, failOnDataLoss="false", **ending) == 2


def test_a_batch_whose_end_is_before_its_start_is_refused(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [ROW] * 5)
    options = {"startingOffsets": json.dumps({topic: {"0": 4}}), "endingOffsets": json.dumps({topic: {"0": 2}})}
    with pytest.raises(KafkaError, match=rf"startingOffsets of {topic}-0 is offset 4, and endingOffsets is offset 2, before it: nothing"):
        batch_size(topics, topic, **options, failOnDataLoss="false")
    with pytest.raises(KafkaError, match=r"startingTimestamp of .* endingTimestamp is offset 0, before it: nothing would be read"):
        batch_size(topics, topic, startingTimestamp="9000000000000", endingTimestamp="1000", startingOffsetsByTimestampStrategy="latest")
    assert batch_size(topics, topic, endingOffsets=json.dumps({topic: {"0": 2}})) == 2


def test_a_batch_of_what_retention_has_left_may_be_empty(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [ROW] * 5)
    with Admin(topics.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 4})
    assert batch_size(topics, topic, endingOffsets=json.dumps({topic: {"0": 2}})) == 0, (
        "the earliest record is after the end that was asked for"
    )


LEFT = """
import socket
from ottla.spark.stream_reader import TopicStreamReader
from pyspark.serializers import read_int, write_int
from pyspark.sql.types import StructType

reader = TopicStreamReader({}, StructType([]))
here, there = socket.socketpair()
stream = here.makefile("rwb", 65536)

def converse():
    if CASE != "a question":
        write_int(1, stream)
    if CASE == "a reset":
        stream.flush()
    there.close()  # as the JVM does with a query that is stopped
    if CASE == "an error":
        reader.latestOffset({}, None)
    if CASE == "an answer":
        stream.flush()
    read_int(stream)

try:
    try:
        converse()
    finally:
        reader.stop()
except BaseException as error:
    print("said", type(error).__name__)
"""


@pytest.mark.parametrize("case", ["a question", "an answer", "a reset", "an error"])
def test_a_reader_whose_query_was_stopped_ends_without_a_word(case: str):
    """PySpark prints forty lines on stderr otherwise: by Unix sockets it learns at once that its answer is not read."""
    script = LEFT.replace("CASE", repr(case))
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == ("said KeyError\n" if case == "an error" else "", "")
