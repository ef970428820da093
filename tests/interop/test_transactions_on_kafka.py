"""Committed, aborted and open transactions on Apache Kafka 4.3.0, as each reader of ottla's sees them, beside Kafka's Java client.

They are written by librdkafka and by the Java client, several in each other's midst.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from bench.peers import Peer
from pyspark.sql import DataFrame, SparkSession
from tests.interop.tools import run

from ottla.aio import Consumer
from ottla.spark.defaults import session, stop_session
from ottla.sync import Admin, NewTopic
from ottla.types import TopicPartition

PARTITION_COUNT = 3
STEP_COUNT = 300
JAVA_TRANSACTIONS = (20, 50)  # and their records
WAIT_SECONDS_MAX = 60.0
WAIT_MS = 60_000
LEVELS = ("read_committed", "read_uncommitted")
Seen = list[tuple[int, int, bytes]]  # partition, offset, value


class Writer:
    """A transactional producer of librdkafka's, which sends a batch with each step."""

    def __init__(self, bootstrap: str, name: str, codec: str = "none") -> None:
        settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "compression.type": codec, "transaction.timeout.ms": 900_000}
        self._producer = confluent_kafka.Producer(settings)
        self._producer.init_transactions(WAIT_SECONDS_MAX)
        self.pending: list[bytes] = []  # values of the open transaction

    def write(self, topic: str, partition: int, values: list[bytes]) -> None:
        if not self.pending:
            self._producer.begin_transaction()
        for value in values:
            self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(WAIT_SECONDS_MAX) == 0
        self.pending += values

    def end(self, *, commits: bool) -> list[bytes]:
        """The values that are to be seen from now on."""
        (self._producer.commit_transaction if commits else self._producer.abort_transaction)(WAIT_SECONDS_MAX)
        ended, self.pending = self.pending, []
        return ended if commits else []


@dataclass
class Log:
    bootstrap: str
    topic: str
    seen_by_java: dict[str, Seen] = field(default_factory=dict)

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, index) for index in range(PARTITION_COUNT)]


def create(bootstrap: str, topic: str) -> Log:
    with Admin(bootstrap) as admin:
        assert admin.create_topics([NewTopic(topic, PARTITION_COUNT, 1)]) == {topic: None}
    return Log(bootstrap, topic)


def read_by_java(java_client: list[str], log: Log, level: str) -> Seen:
    lines = run(*java_client, "read", log.bootstrap, log.topic, level).splitlines()
    return sorted((int(partition), int(offset), value.encode()) for partition, offset, value in (line.split("\t") for line in lines))


@pytest.fixture(scope="module")
def log(kafka: Peer, java_client: list[str]) -> Iterator[Log]:
    """Transactions of the Java client; then those of three writers, steps of which alternate, beside records without a transaction.

    The last transaction of each writer stays open, so the last stable offsets lie below the ends.
    """
    log = create(kafka.bootstrap, "transactions")
    count, record_count = JAVA_TRANSACTIONS
    run(*java_client, "transact", log.bootstrap, log.topic, str(count), str(record_count))
    committed = {b"%d-%d" % (number, index) for number in range(count) if number % 3 for index in range(record_count)}
    rng = random.Random(1)
    writers = [Writer(log.bootstrap, f"writer-{codec}", codec) for codec in ("none", "lz4", "zstd")]
    plain = confluent_kafka.Producer({"bootstrap.servers": log.bootstrap})
    for step in range(STEP_COUNT):
        values = [b"step-%d-%d" % (step, index) + bytes([120] * rng.randrange(200)) for index in range(rng.choice((1, 3, 60)))]
        partition = rng.randrange(PARTITION_COUNT)
        writer = rng.choice([*writers, None])
        if writer is None:
            for value in values:
                plain.produce(log.topic, value, partition=partition)
            assert plain.flush(WAIT_SECONDS_MAX) == 0
            committed.update(values)
            continue
        writer.write(log.topic, partition, values)
        if rng.random() < 0.3:
            committed.update(writer.end(commits=rng.random() < 0.5))
    for number, writer in enumerate(writers):
        for partition in range(PARTITION_COUNT):
            writer.write(log.topic, partition, [b"open-%d-%d" % (number, partition)])
    log.seen_by_java = {level: read_by_java(java_client, log, level) for level in LEVELS}
    stable_ends: dict[int, int] = {}
    for partition, offset, value in reversed(log.seen_by_java["read_uncommitted"]):
        if any(value in writer.pending for writer in writers):
            stable_ends[partition] = offset
    assert log.seen_by_java["read_committed"] == [
        (partition, offset, value)
        for partition, offset, value in log.seen_by_java["read_uncommitted"]
        if value in committed and offset < stable_ends[partition]
    ]
    yield log
    for writer in writers:
        writer.end(commits=False)


async def read(log: Log, level: Any, start: dict[TopicPartition, int] | None = None, **settings: Any) -> Seen:
    """What ottla's consumer gets up to the end that it is given."""
    seen: Seen = []
    async with Consumer(log.bootstrap, isolation_level=level, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign(log.partitions)
        for partition, offset in (start or {}).items():
            consumer.seek(partition, offset)
        ends = await consumer.end_offsets(log.partitions)
        while [partition for partition in log.partitions if await consumer.position(partition) < ends[partition]]:
            seen += [(record.partition, record.offset, record.value) for record in await consumer.poll(100)]
    return sorted(seen)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fetch_bytes", [1_048_576, 2_000, 1], ids=["whole", "parts", "batch-by-batch"])
def test_the_consumer_sees_what_javas_sees(log: Log, level: str, fetch_bytes: int) -> None:
    assert asyncio.run(read(log, level, max_partition_fetch_bytes=fetch_bytes)) == log.seen_by_java[level]


def test_the_consumer_sees_what_javas_sees_from_wherever_it_starts(log: Log) -> None:
    async def body() -> None:
        committed = log.seen_by_java["read_committed"]
        ends = {partition: offset + 1 for partition, offset, _ in committed}
        for first in range(0, min(ends.values()), 41):
            start = dict.fromkeys(log.partitions, first)
            assert await read(log, "read_committed", start, max_partition_fetch_bytes=5_000) == [
                row for row in committed if row[1] >= first
            ]

    asyncio.run(body())


@pytest.mark.parametrize("level", LEVELS)
def test_the_command_line_prints_what_java_sees(log: Log, level: str) -> None:
    command = [sys.executable, "-m", "ottla", "consume", log.topic, "-B", log.bootstrap, "--exit", "-f", "%p %o %v\\n"]
    printed = run(*command, *(["--read-committed"] if level == "read_committed" else []))
    lines = [line.split(" ") for line in printed.splitlines()]
    assert sorted((int(partition), int(offset), value.encode()) for partition, offset, value in lines) == log.seen_by_java[level]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    yield session("transactions", master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
    stop_session()


def source(reader: Any, log: Log, **options: str) -> DataFrame:
    frame: DataFrame = (
        reader.format("ottla").options(**{"kafka.bootstrap.servers": log.bootstrap, "subscribe": log.topic}, **options).load()
    )
    return frame.select("partition", "offset", "value")


def seen_in(rows: list[Any]) -> Seen:
    return sorted((row.partition, row.offset, bytes(row.value)) for row in rows)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("options", [{}, {"minPartitions": "20", "kafka.max.partition.fetch.bytes": "2000"}], ids=["whole", "parts"])
def test_sparks_batch_has_what_java_sees(spark: SparkSession, log: Log, level: str, options: dict[str, str]) -> None:
    frame = source(spark.read, log, **{"kafka.isolation.level": level}, **options)
    assert seen_in(frame.collect()) == log.seen_by_java[level]


def stream_of(spark: SparkSession, log: Log, checkpoint: Path, **options: str) -> Seen:
    """What a run of a stream takes that ends with what is there."""
    rows: list[Any] = []
    frame = source(spark.readStream, log, startingOffsets="earliest", **options)
    writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    assert writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination(120)
    return seen_in(rows)


@pytest.mark.parametrize("level", LEVELS)
def test_sparks_stream_has_what_java_sees(spark: SparkSession, log: Log, level: str, tmp_path: Path) -> None:
    options = {"kafka.isolation.level": level, "maxOffsetsPerTrigger": "1500"}
    assert stream_of(spark, log, tmp_path, **options) == log.seen_by_java[level]


def test_what_an_open_transaction_holds_back_comes_when_it_ends(
    spark: SparkSession, kafka: Peer, java_client: list[str], tmp_path: Path
) -> None:
    log = create(kafka.bootstrap, "held-back")
    first, second = Writer(log.bootstrap, "held-back-1"), Writer(log.bootstrap, "held-back-2")
    for writer, values in ((first, [b"a"]), (second, [b"b"]), (first, [b"c"]), (second, [b"d"])):
        writer.write(log.topic, 0, values)
    first.end(commits=True)
    committed = {"kafka.isolation.level": "read_committed"}

    async def consume() -> None:
        async with Consumer(log.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign(log.partitions)
            assert [record.offset for record in await consumer.poll(WAIT_MS)] == [0]
            await asyncio.to_thread(second.end, commits=False)
            assert [record.offset for record in await consumer.poll(WAIT_MS)] == [2]

    assert stream_of(spark, log, tmp_path, **committed) == read_by_java(java_client, log, "read_committed") == [(0, 0, b"a")]
    asyncio.run(consume())
    assert stream_of(spark, log, tmp_path, **committed) == [(0, 2, b"c")]
    assert read_by_java(java_client, log, "read_committed") == [(0, 0, b"a"), (0, 2, b"c")]
