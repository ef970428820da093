"""The second half of ``make bench-spark``: what a micro-batch of a stream costs, by how it is written, with ottla as the broker.

Batches of 200 rows of 100 bytes are copied from topic to topic, as fast as they come: to the noop sink, at least once, exactly once, and
exactly once with the checkpoint in a topic; and counts of 10,000 keys in update mode in the last two ways, and with the
keys alone read. Beside what is written exactly
once, Spark's own Kafka connector reads and writes the same at least once, which is the most that it has. A figure is the median of a
query's batches but the first ones, which warm; queries take turns over the rounds. Besides: how many bytes the checkpoint's topic gets for
each byte of changes that Spark's state store writes, and how long a checkpoint of 100 MB takes to come back from its topic.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.interop.connector import jars

from bench.goals import SPARK_STREAM_GOALS
from bench.measures import Figures, until_served
from bench.peers import Kafka, Ottla, Peer
from bench.report import Rounds, note, report
from ottla.records.kernel import FORM
from ottla.spark.checkpoint import PlannedBatch
from ottla.spark.driver_sink import Application, DriverSink
from ottla.spark.writer import sink
from ottla.sync import Admin, NewTopic, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS: Final = 3
BATCHES, WARM_BATCHES = 40, 10
ROWS: Final = 200
COUNT_ROWS, KEYS = 20_000, 10_000
COUNT_BATCHES: Final = 15
VALUE: Final = bytes(100)
STATE_FILES, STATE_FILE_BYTES = 100, 1_000_000
COPY: Final = f"ms a batch of {ROWS} rows, {{}}"
COUNT: Final = f"ms a batch of {COUNT_ROWS:,} rows, counts of {KEYS:,} keys, {{}}"
KINDS: Final = {
    "noop": {},
    "at least once": {"delivery": "at_least_once"},
    "exactly once": {"checkpoint": "directory"},
    "exactly once, checkpoint in a topic": {"checkpoint": "topic"},
}
COUNTED: Final = tuple(KINDS)[2:]
CONNECTOR: Final = "JVM connector"
COMPARED: Final = "exactly once"
"""The kind beside which the connector's at-least-once figures stand."""
ALONE: Final = f"{COMPARED}, keys alone read"
"""As ``read_topic`` reads what a query uses: Spark leaves no column out by itself, and the connector has no option for it."""


def main() -> None:
    from ottla.spark import session

    why_not = Kafka.why_not()
    config = {"spark.sql.shuffle.partitions": "2"} | ({"spark.jars": jars()} if why_not is None else {})
    with contextlib.ExitStack() as stack:
        peer = stack.enter_context(Ottla())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-bench-")))
        _fill(peer)
        spark = session("bench", master="local[2]", config=config)
        stack.callback(spark.stop)
        found: Rounds = {"ottla": []}
        if why_not is None:
            found[CONNECTOR] = []
        for number in range(ROUNDS):
            figures: Figures = {}
            for kind, options in KINDS.items():
                figures[COPY.format(kind)] = _copy(spark, peer, directory / f"{number} {kind}", options)
            for kind in COUNTED:
                figures[COUNT.format(kind)], written = _count(spark, peer, directory / f"{number} count {kind}", KINDS[kind])
                if written is not None:
                    figures["bytes in the checkpoint's topic for each byte of changed state"] = written
            figures[COUNT.format(ALONE)], _ = _count(spark, peer, directory / f"{number} count alone", KINDS[COMPARED], "key binary")
            figures[f"s to restore a checkpoint of {STATE_FILES * STATE_FILE_BYTES // 1_000_000} MB"] = _restore(peer, directory, number)
            found["ottla"].append(figures)
            if why_not is None:
                found[CONNECTOR].append(_by_connector(spark, peer, directory / f"{number} connector"))
            note(f"round {number + 1} of {ROUNDS}")
    beside = "spark-sql-kafka-0-10 4.2.0, at least once" if why_not is None else f"none: {why_not}"
    report("spark_streams", found, beside=f"{beside}; record kernel {FORM}", goals=SPARK_STREAM_GOALS)


def _fill(peer: Peer) -> None:
    """The topics are there, and have their rows."""

    def create() -> None:
        with Admin(peer.bootstrap) as admin:
            problems = admin.create_topics([NewTopic(name, 1, 1) for name in ("rows", "keyed", "written")])
        assert set(problems.values()) == {None}, problems

    until_served(create)
    with Producer(peer.bootstrap) as producer:
        for _ in range(BATCHES * ROWS):
            producer.send("rows", VALUE)
        for number in range(COUNT_BATCHES * COUNT_ROWS):
            producer.send("keyed", VALUE, key=b"%08d" % (number * 7919 % KEYS))
        producer.flush()


def _rows(spark: SparkSession, peer: Peer, topic: str, rows_per_batch: int, source: str = "ottla", columns: str | None = None) -> DataFrame:
    options = {"kafka.bootstrap.servers": peer.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    reader = spark.readStream.format(source)
    if columns is not None:
        reader = reader.schema(columns)
    return reader.options(maxOffsetsPerTrigger=str(rows_per_batch), **options).load()


def _copy(spark: SparkSession, peer: Peer, directory: Path, options: dict[str, str]) -> float:
    """Milliseconds a batch."""
    rows = _rows(spark, peer, "rows", ROWS).select("key", "value")
    writer = rows.writeStream.foreachBatch(_sink(peer, directory, options)) if options else rows.writeStream.format("noop")
    return _batch_ms(writer, directory, BATCHES)


def _count(
    spark: SparkSession, peer: Peer, directory: Path, options: dict[str, str], columns: str | None = None
) -> tuple[float, float | None]:
    """Milliseconds a batch; and where the checkpoint is in a topic, its bytes for each byte of changed state."""
    counts = _counts(_rows(spark, peer, "keyed", COUNT_ROWS, columns=columns))
    made = _sink(peer, directory, options)
    spent_ms = _batch_ms(counts.writeStream.foreachBatch(made).outputMode("update"), directory, COUNT_BATCHES)
    mirror = made._application._mirror
    changed = sum(path.stat().st_size for path in directory.rglob("*.changelog"))
    return spent_ms, None if mirror is None else mirror.sent_bytes / changed


def _counts(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").count().selectExpr("key", "cast(count as string) as value")


def _by_connector(spark: SparkSession, peer: Peer, directory: Path) -> Figures:
    """What the connector's source and sink take for the same, under the names of ottla's figures."""
    spent = {}
    for name, rows, batches in (
        (COPY, _rows(spark, peer, "rows", ROWS, "kafka").select("key", "value"), BATCHES),
        (COUNT, _counts(_rows(spark, peer, "keyed", COUNT_ROWS, "kafka")), COUNT_BATCHES),
    ):
        writer = rows.writeStream.format("kafka").outputMode("append" if name is COPY else "update")
        writer = writer.option("kafka.bootstrap.servers", peer.bootstrap).option("topic", "written")
        spent[name.format(COMPARED)] = _batch_ms(writer, directory / f"{batches}", batches)
    return spent | {COUNT.format(ALONE): spent[COUNT.format(COMPARED)]}


def _sink(peer: Peer, directory: Path, options: dict[str, str]) -> Any:
    app = "".join(character if character.isalnum() else "-" for character in directory.name)
    return sink({"kafka.bootstrap.servers": peer.bootstrap, "topic": "written", "app": app} | options)


def _batch_ms(writer: Any, directory: Path, batches: int) -> float:
    query = writer.option("checkpointLocation", str(directory)).trigger(availableNow=True).start()
    query.awaitTermination()
    spent = [progress.durationMs["triggerExecution"] for progress in query.recentProgress if progress.numInputRows]
    assert len(spent) == batches, f"{len(spent)} batches"
    return statistics.median(spent[min(WARM_BATCHES, batches // 3) :])


def _restore(peer: Peer, directory: Path, number: int) -> float:
    """Seconds, of files as one batch has written them."""
    app, root = f"restored-{number}", directory / f"restored-{number}"
    options = {"kafka.bootstrap.servers": peer.bootstrap, "topic": "written", "app": app, "checkpoint": "topic"}
    planned = PlannedBatch("q", [json.dumps({"rows": {"0": 1}, "began at": {"rows-0": 0}})], True, str(root))
    rng = random.Random(number)
    files = {"metadata": b'{"id":"q"}', "offsets/0": b"v1"}
    files |= {f"state/0/{index}/1.changelog": rng.randbytes(STATE_FILE_BYTES) for index in range(STATE_FILES)}
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    application = Application(options)
    assert application.deliver(planned, 0, tuple) == 0, "it is written"
    application.close()
    root.rename(directory / f"kept-{number}")
    begin = time.perf_counter()
    assert DriverSink(options).prepare(str(root)) == len(files), "all of it comes back"
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
