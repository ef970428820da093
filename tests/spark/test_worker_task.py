"""What a Python worker of Spark keeps between tasks, and how tasks and the JVM talk."""

import gc
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.spark.conftest import Topics

from ottla.spark import sink
from ottla.spark.batch_reader import TopicReader
from ottla.spark.source import TopicWriter
from ottla.spark.stream_reader import TopicStreamReader
from ottla.spark.stream_writer import TopicStreamWriter
from ottla.spark.worker_task import worker_task

SCHEMA = StructType([StructField("value", BinaryType())])
ROWS = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def read(reader: TopicReader | TopicStreamReader, tasks: list[Any]) -> None:
    for task in tasks:
        assert sum(batch.num_rows for batch in reader.read(task)) == 2


def read_batch(topics: Topics, topic: str) -> None:
    reader = TopicReader(topics.options(topic), SCHEMA)
    read(reader, reader.partitions())


def read_stream(topics: Topics, topic: str) -> None:
    reader = TopicStreamReader(topics.options(topic), SCHEMA)
    read(reader, reader.partitions({topic: {"0": 0}}, {topic: {"0": 2}}))


def write_batch(topics: Topics, topic: str) -> None:
    TopicWriter(topics.sink_options(topic)).write(iter([ROWS]))


def write_stream(topics: Topics, topic: str) -> None:
    TopicStreamWriter(topics.sink_options(topic)).write(iter([ROWS]))


def write_for_each_batch(topics: Topics, topic: str) -> None:
    """Spark runs the function that the sink maps the rows with in a worker."""

    def mapped(task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> Any:
        return SimpleNamespace(collect=lambda: [row for batch in task(iter([ROWS])) for row in batch.to_pylist()])

    rows: Any = SimpleNamespace(schema=SCHEMA, columns=["value"], sparkSession=None, select=lambda *_: SimpleNamespace(mapInArrow=mapped))
    sink(topics.sink_options(topic) | {"delivery": "at_least_once"})(rows, 0)


@pytest.mark.parametrize("task", [read_batch, read_stream, write_batch, write_stream, write_for_each_batch])
def test_a_task_takes_what_it_has_imported_out_of_later_collections(topics: Topics, task: Callable[[Topics, str], None]):
    """There are a hundred thousand objects of modules, and the daemon looks for garbage among them after each task."""
    topic = topics.create()
    topics.produce(topic, [(None, b"a"), (None, b"b")])
    task(topics, topic)
    assert gc.get_freeze_count() > 50_000


def test_what_came_after_the_first_task_is_collected():
    with worker_task():
        assert gc.get_freeze_count() == 0, "the task's own garbage is still to come"
    kept = [gc.get_freeze_count()]
    made: list[Any] = [[] for _ in range(1_000)]
    with worker_task():
        kept.append(gc.get_freeze_count())
    assert kept[1] <= kept[0]
    assert gc.get_freeze_count() <= kept[0], f"the {len(made)} of after are not among them"


@pytest.mark.spark
def test_tasks_talk_to_the_jvm_by_unix_sockets(spark):
    """Over TCP the first bytes of each task wait for an acknowledgement that the system delays by 40 ms."""

    def shown(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"unix": [os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false").lower()]})

    assert {row.unix for row in spark.range(1).mapInArrow(shown, "unix string").collect()} == {"true"}
