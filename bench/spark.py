"""``make bench-spark``: the Spark source and sink beside Spark's own Kafka connector, both on ottla and both on Apache Kafka.

Source: a batch read of all seven columns to the noop sink. Sink: a batch write of key and value, at least once (acks=all,
idempotent, no compression), of rows that Spark has in memory. A batch and not a stream, for both: a stream adds the same
checkpoints to either. Values of 100 bytes, keys of 8, two partitions of the topic and so two tasks for either connector,
local[2], one session; rounds are interleaved, and the first one only warms. A topic of 60 partitions with 30,000 records each is
read besides: that is more partitions for a task than a response has room for, and 60 tasks for the JVM connector.

Exactly once: the driver collects rows that Spark has in memory and writes them in a transaction with offsets, as it does a micro-batch,
beside the same rows written at least once by the JVM connector's tasks: as many as a batch has at most, and as an aggregate of 10,000
keys has.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.interop.connector import jars

from bench.generator import connect, create_topic, end_offset, exchange, frame
from bench.goals import SPARK_GOALS
from bench.measures import Figures, until_served
from bench.peers import Kafka, Ottla, Peer
from bench.report import Rounds, note, report
from ottla.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.builder import BatchBuilder
from ottla.records.kernel import FORM
from ottla.spark.checkpoint import PlannedBatch
from ottla.spark.driver_sink import Application, collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS: Final = 3
PARTITIONS: Final = 2
SOURCE_ROWS: Final = 2_000_000
WIDE_PARTITIONS: Final = 60
WIDE_ROWS: Final = WIDE_PARTITIONS * 30_000
SINK_ROWS: Final = 1_000_000
TRANSACTION_ROWS: Final = (200_000, 10_000)
TRANSACTIONS: Final = 5
BATCH_ROWS: Final = 1000
KEY_BYTES, VALUE_BYTES = 8, 100
SIDES: Final = {"ottla": "ottla", "JVM connector": "kafka"}  # Spark's name of each format


def main() -> None:
    from ottla.spark import session

    why_not = Kafka.why_not()
    kinds: list[type[Peer]] = [Ottla] if why_not is not None else [Ottla, Kafka]
    sides = SIDES if why_not is None else {"ottla": SIDES["ottla"]}
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(kind()) for kind in kinds]
        for peer in peers:
            _prepare(peer)
        config = {"spark.driver.memory": "2g"} | ({"spark.jars": jars()} if why_not is None else {})
        spark = session("bench", master="local[2]", config=config)
        stack.callback(spark.stop)
        figures = _rounds(spark, peers, sides)
    beside = "spark-sql-kafka-0-10 4.2.0 with kafka-clients 3.9.2" if why_not is None else f"none: {why_not}"
    report("spark", figures, beside=f"{beside}; record kernel {FORM}", goals=SPARK_GOALS)


def _rounds(spark: SparkSession, peers: list[Peer], sides: dict[str, str]) -> Rounds:
    rows, batches = _rows(spark, SINK_ROWS), {count: _rows(spark, count) for count in TRANSACTION_ROWS}
    exactly_once = {peer.name: ExactlyOnceBatches(peer) for peer in peers}
    found: Rounds = {side: [] for side in sides}
    for number in range(ROUNDS + 1):
        figures: dict[str, Figures] = {side: {} for side in sides}
        for peer in peers:
            for side, format_name in sides.items():
                figures[side][f"source rows/s, on {peer.name}"] = SOURCE_ROWS / _read(
                    spark, peer, format_name, "rows", is_checked=number == 0
                )
                figures[side][f"60 partitions x 30,000, source rows/s, on {peer.name}"] = WIDE_ROWS / _read(
                    spark, peer, format_name, "wide", is_checked=number == 0
                )
                figures[side][f"sink rows/s, on {peer.name}"] = SINK_ROWS / _write(rows, peer, format_name, SINK_ROWS)
                for count, batch in batches.items():
                    spent = [
                        exactly_once[peer.name].write(batch, count) if side == "ottla" else _write(batch, peer, format_name, count)
                        for _ in range(TRANSACTIONS)
                    ]
                    figures[side][f"exactly once beside at least once, batches of {count:,}: rows/s, on {peer.name}"] = (
                        count * TRANSACTIONS / sum(spent)
                    )
        if number:  # the first round warms
            for side, round_figures in figures.items():
                found[side].append(round_figures)
        note(f"round {number} of {ROUNDS}")
    return found


def _prepare(peer: Peer) -> None:
    """All topics are there, those to read from with their rows."""
    until_served(lambda: create_topic(peer.address, "rows", PARTITIONS))
    create_topic(peer.address, "wide", WIDE_PARTITIONS)
    create_topic(peer.address, "written", PARTITIONS)
    until_served(lambda: _served(peer))
    _fill(peer, "rows", PARTITIONS, SOURCE_ROWS)
    _fill(peer, "wide", WIDE_PARTITIONS, WIDE_ROWS)


def _fill(peer: Peer, topic: str, partition_count: int, row_count: int) -> None:
    """The topic has so many rows, as many in each partition."""
    builder = BatchBuilder()
    for number in range(BATCH_ROWS):
        builder.append(b"%08d" % number, bytes(VALUE_BYTES), timestamp_ms=time.time_ns() // 1_000_000)
    batch = builder.build()
    requests = [
        frame(ProduceRequest(None, 1, 30_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(index, batch)])]), 7)
        for index in range(partition_count)
    ]
    with connect(peer.address) as sock:
        while (missing := row_count - _end(peer, topic, partition_count)) > 0:
            for number in range(missing // BATCH_ROWS):
                exchange(sock, requests[number % partition_count])


def _served(peer: Peer) -> None:
    """AssertionError while a leader of a topic does not know yet that it is one."""
    with connect(peer.address) as sock:
        for topic, partition_count in (("rows", PARTITIONS), ("wide", WIDE_PARTITIONS), ("written", PARTITIONS)):
            for index in range(partition_count):
                assert end_offset(sock, topic, index) == 0, f"{topic}-{index} is empty and served"


def _end(peer: Peer, topic: str, partition_count: int = PARTITIONS) -> int:
    """Records of the topic."""
    with connect(peer.address) as sock:
        return sum(end_offset(sock, topic, index) for index in range(partition_count))


class ExactlyOnceBatches:
    """Micro-batches of one query, one after the other, as the exactly-once sink gets them."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._application = Application({"kafka.bootstrap.servers": peer.bootstrap, "topic": "written", "app": "bench"})
        self._number = 0

    def write(self, rows: DataFrame, row_count: int) -> float:
        """Seconds until the batch is committed."""
        number = self._number
        self._number += 1
        planned = PlannedBatch("q", [json.dumps({"rows": {"0": number + 1}, "began at": {"rows-0": 0}})], False)
        found: list[int | None] = []
        seconds = _seconds(lambda: found.append(self._application.deliver(planned, number, lambda: collected(rows, number))))
        assert found == [row_count], f"{found} rows were written"
        return seconds


def _rows(spark: SparkSession, row_count: int) -> DataFrame:
    """In memory, in as many parts as the topic has."""
    columns = [
        f"cast(lpad(cast(id as string), {size}, '0') as binary) as {name}" for name, size in (("key", KEY_BYTES), ("value", VALUE_BYTES))
    ]
    rows = spark.range(0, row_count, 1, PARTITIONS).selectExpr(*columns).persist()
    assert rows.count() == row_count, "the rows are in memory"
    return rows


def _read(spark: SparkSession, peer: Peer, format_name: str, topic: str, *, is_checked: bool) -> float:
    """Seconds."""
    source = spark.read.format(format_name).option("kafka.bootstrap.servers", peer.bootstrap).option("subscribe", topic).load()
    if is_checked:
        assert len(source.columns) == 7, source.columns
        if topic == "rows":
            assert source.rdd.getNumPartitions() == PARTITIONS, f"{source.rdd.getNumPartitions()} tasks"
        assert source.count() == {"rows": SOURCE_ROWS, "wide": WIDE_ROWS}[topic], "every row comes"
    return _seconds(lambda: source.write.format("noop").mode("overwrite").save())


def _write(rows: DataFrame, peer: Peer, format_name: str, row_count: int) -> float:
    """Seconds."""
    before = _end(peer, "written")
    sink = rows.write.format(format_name).option("kafka.bootstrap.servers", peer.bootstrap).option("topic", "written").mode("append")
    seconds = _seconds(sink.save)
    written = _end(peer, "written") - before
    assert written >= row_count, f"{written} of {row_count} rows were written"
    return seconds


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
