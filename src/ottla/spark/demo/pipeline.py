"""The PySpark half: two queries over the flights, exactly once, with their checkpoints in topics.

``delays``: mean departure delay and number of flights, by origin, airline and day, a window of the event time ``time_hour`` in UTC; the
names of the airlines are a table that follows its topic. There is no watermark: state is one row for each of some thirteen thousand
groups, so nothing has to be forgotten, and no flight can come too late. In update mode a micro-batch emits the groups that it changed;
under its key a later result replaces an earlier one. What was typed wrong by hand goes to a topic of its own, in the transaction of its
batch.

``longest``: each time that a flight of an airline is later than all before it, by a processor whose state any client reads in a topic.

The queries run while flights are being sent, so that the reported latency is that of a stream, and not the age of a backlog;
a job that came after the sending would use ``Trigger.AvailableNow``, which the source has as well. The job ends the queries when
everything has been read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ottla.spark.changelogs import changelogged
from ottla.spark.demo.sending import AIRLINES, DELAYS, FLIGHTS, LONGEST, TYPED, UNREADABLE
from ottla.spark.streams import read_topic
from ottla.spark.tables import read_table
from ottla.spark.writer import to_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OFFSETS_PER_TRIGGER: Final = 60_000
LATE_MIN: Final = 120
"""Minutes: flights that are later are few, and each of the longest delays is among them."""
_FLIGHT: Final = "carrier string, origin string, flight int, dep_time int, dep_delay int, time_hour timestamp"


QUERIES: Final = ("delays", "longest")
"""By their names; the first one reads all flights."""


def start_query(spark: SparkSession, bootstrap: str, checkpoints: Path, name: str) -> StreamingQuery:
    """Starts the query; it goes on from its checkpoint, in the directory or in its topic."""
    options = {"maxOffsetsPerTrigger": str(OFFSETS_PER_TRIGGER)}
    if name == "delays":
        topics = f"{FLIGHTS},{TYPED}"
        flights = read_topic(spark, topics, _FLIGHT, bad_rows=UNREADABLE, record="record", bootstrap=bootstrap, options=options)
        frame, target = delays(flights, read_table(spark, AIRLINES, "name string", key="carrier", bootstrap=bootstrap)), DELAYS
    else:
        frame, target = longest(read_topic(spark, FLIGHTS, _FLIGHT, bootstrap=bootstrap, options=options)), LONGEST
    kept = {"checkpointLocation": str(checkpoints / name)}
    value = "value" if "value" in frame.columns else None
    writer = to_topic(frame, target, key="key", value=value, bootstrap=bootstrap, checkpoint="topic", options=kept)
    return writer.queryName(name).outputMode("update").start()


def delays(flights: DataFrame, names: DataFrame) -> DataFrame:
    """Returns key and JSON value of each result, from the flights with their records, and the airlines."""
    from pyspark.sql import functions as F

    flown = flights.where("dep_time is not null and dep_delay is not null")
    results = (
        flown.join(F.broadcast(names), "carrier")
        .groupBy("origin", F.col("name").alias("airline"), F.window("time_hour", "1 day"))
        .agg(
            F.avg("dep_delay").alias("mean_departure_delay"),
            F.count("*").alias("flights"),
            F.max(F.unix_millis("record.timestamp")).alias("newest_sent_ms"),
        )
        .withColumn("day", F.to_date("window.start"))
        .drop("window")
    )
    key = F.concat_ws("|", "origin", "airline", F.col("day").cast("string"))
    return results.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))


class Longest(StatefulProcessor):
    """The longest delay of an airline so far."""

    def init(self, handle: Any) -> None:
        self._longest = handle.getValueState("longest", "minutes int, flight int, origin string")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        found = max(rows, key=lambda row: (row["dep_delay"], -row["flight"], row["origin"]))
        before = self._longest.get()
        if before is None or found["dep_delay"] > before[0]:
            self._longest.update((found["dep_delay"], found["flight"], found["origin"]))
            yield Row(key=key[0], minutes=found["dep_delay"], flight=found["flight"], origin=found["origin"])

    def close(self) -> None:
        """Does nothing, since nothing is open."""


def longest(flights: DataFrame) -> DataFrame:
    """Returns each delay that is longer than all earlier ones of its airline, and the changes of the state."""
    late = flights.where(f"dep_delay >= {LATE_MIN}")
    return changelogged(late.groupBy("carrier"), Longest(), "key string, minutes int, flight int, origin string")
