"""Two queries over one topic, as a program that kills itself and its JVM at a named point: ``python -m tests.spark.doomed_queries JSON``.

``copy`` appends the rows to two topics, with their keys, headers and times; ``totals`` counts by key, in update mode; ``plain``, where it
is wanted, appends with ``writeStream.format("ottla")``; those of ``operators`` are queries of these names, over a topic of events. The JSON
names the broker, the directory of the checkpoints, the queries, whether checkpoints are in topics, too, and the point: the application,
how many batches it has written before, and where it is.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.spark.operators import OPERATORS, UPDATING, read_events

from ottla.spark import driver_sink
from ottla.spark.exactly_once import Seal, Step
from ottla.spark.transactor import Transactor

POINTS = ("collected", "half produced", "produced", "offsets sent", "committed", "before commits/N")
SOURCE, EVEN, ODD, TOTALS, PLAIN, EVENTS = "in", "even", "odd", "totals", "plain", "events"
MASTER = "local[2]"
ROWS_PER_BATCH, ROWS_PER_LAST_BATCH = 40, 4_000


class Doom:
    """The process and its JVM get SIGKILL when the application comes to the point in its ``after``-th batch of this process."""

    def __init__(self, app: str, after: int, point: str) -> None:
        self.app, self.after, self.point = app, after, point
        self.begun: Counter[str] = Counter()  # batches that are being written, by application

    def at(self, app: str, point: str) -> None:
        if (app, self.begun[app] - 1, point) == (self.app, self.after, self.point):
            os.killpg(os.getpid(), signal.SIGKILL)

    def plant(self) -> None:
        """The sink comes by here."""
        perform, write, call = Transactor.perform, driver_sink.Application._write, driver_sink.DriverSink.__call__

        async def performed(transactor: Transactor, asked: Any) -> Any:
            if asked is Step.BEGIN:  # it comes after COLLECT, and asks the coordinator for nothing yet
                self.begun[transactor._app] += 1
                self.at(transactor._app, "collected")
            answer = await perform(transactor, asked)
            if isinstance(asked, Seal):
                self.at(transactor._app, "offsets sent")
            elif asked is Step.COMMIT:
                self.at(transactor._app, "committed")
            return answer

        def written(application: Any, batches: Any, **more: Any) -> int:
            if more:
                return int(write(application, batches, **more))  # dead letters
            app = application._transactor._app
            rows = [batch for found in batches for batch in (found.slice(0, found.num_rows // 2), found.slice(found.num_rows // 2))]
            count = write(application, rows[: len(rows) // 2])
            application._link.run(application._transactor.producer.flush())
            self.at(app, "half produced")
            count += write(application, rows[len(rows) // 2 :])
            application._link.run(application._transactor.producer.flush())
            self.at(app, "produced")
            return count

        def called(sink: Any, rows: Any, number: int) -> None:
            call(sink, rows, number)
            self.at(driver_sink.app_of(sink._settings), "before commits/N")

        planted: Any = driver_sink
        planted.Transactor.perform = performed
        planted.Application._write = written
        planted.DriverSink.__call__ = called


def start(
    spark: Any, bootstrap: str, directory: Path, names: Sequence[str], rows_per_batch: int, checkpoint: str, **sink_options: str
) -> list[Any]:
    """The running queries; each ends when it has read all that is there."""
    from pyspark.sql import functions as F

    from ottla.spark import sink, to_topic

    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": SOURCE, "startingOffsets": "earliest", "includeHeaders": "true"}
    rows = spark.readStream.format("ottla").options(maxOffsetsPerTrigger=str(rows_per_batch), **options).load()
    copied = rows.withColumn("topic", F.when(F.crc32("value") % 2 == 0, EVEN).otherwise(ODD)).drop("partition")

    def kept(name: str) -> dict[str, str]:
        return {"app": name, "checkpoint": checkpoint, "checkpointLocation": str(directory / name), **sink_options}

    copier: Any = sink({"kafka.bootstrap.servers": bootstrap} | kept("copy"))
    if "copy" in names:
        copier.prepare(str(directory / "copy"))
    copy = copied.writeStream.foreachBatch(copier)
    counts = rows.groupBy(F.col("key").cast("string").alias("name")).count()

    def operator(name: str) -> Any:
        frame = OPERATORS[name](read_events(spark, bootstrap, EVENTS, rows_per_batch))
        return to_topic(frame, name, bootstrap=bootstrap, options=kept(name)).outputMode("update" if name in UPDATING else "append")

    def totals() -> Any:
        return to_topic(counts, TOTALS, key="name", bootstrap=bootstrap, options=kept("totals")).outputMode("update")

    plain = (
        rows.drop("partition").writeStream.format("ottla").options(**{"kafka.bootstrap.servers": bootstrap, "topic": PLAIN, **sink_options})
    )
    writers = {"copy": lambda: copy, "totals": totals, "plain": lambda: plain}
    made = {name: writers[name]() if name in writers else operator(name) for name in names}
    return [made[name].option("checkpointLocation", str(directory / name)).trigger(availableNow=True).start() for name in names]


def main() -> None:
    given = json.loads(sys.argv[1])
    if given["doom"] is not None:
        Doom(*given["doom"]).plant()
    from ottla.spark.defaults import session, stop_session

    spark = session("doomed", master=MASTER, config={"spark.sql.shuffle.partitions": "1"} | given["config"])
    queries = start(spark, given["bootstrap"], Path(given["directory"]), given["queries"], given["rows_per_batch"], given["checkpoint"])
    print("queries run", flush=True)
    for query in queries:
        query.awaitTermination()
    stop_session()


if __name__ == "__main__":
    main()
