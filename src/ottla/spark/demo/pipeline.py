"""The PySpark half: mean departure delay and number of flights, by origin, airline and day.

The day is that of the event time, ``time_hour``, in UTC. There is no watermark: state is one row for each of some thirteen
thousand groups, so nothing has to be forgotten, and no flight can come too late. In update mode a micro-batch emits the groups
that it changed; under its key a later result replaces an earlier one.

The query runs while flights are being sent, so that the reported latency is that of a stream, and not the age of a backlog;
a job that came after the sending would use ``Trigger.AvailableNow``, which the source has as well. The job ends the query when
everything has been read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.demo.sending import AIRLINES, DELAYS, FLIGHTS
from ottla.spark.writer import to_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OFFSETS_PER_TRIGGER: Final = 30_000
_FLIGHT: Final = "carrier string, origin string, dep_time int, dep_delay int, time_hour timestamp"
_AIRLINE: Final = "carrier string, name string"


def start_query(spark: SparkSession, bootstrap: str, checkpoint: Path) -> StreamingQuery:
    """The running query; it resumes from the checkpoint where there is one."""
    flights = _topic(spark.readStream, bootstrap, FLIGHTS).option("startingOffsets", "earliest")
    results = delays(
        flights.option("maxOffsetsPerTrigger", str(OFFSETS_PER_TRIGGER)).load(), _topic(spark.read, bootstrap, AIRLINES).load()
    )
    writer = to_topic(results, DELAYS, key="key", value="value", bootstrap=bootstrap)
    return writer.queryName("delays").outputMode("update").option("checkpointLocation", str(checkpoint)).start()


def _topic(reader: Any, bootstrap: str, topic: str) -> Any:
    return reader.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)


def delays(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Key and JSON value of each result, from the rows of both topics."""
    from pyspark.sql import functions as F

    flown = (
        flights.select(F.from_json(F.col("value").cast("string"), _FLIGHT).alias("flight"), F.col("timestamp").alias("sent"))
        .select("flight.*", "sent")
        .where("dep_time is not null and dep_delay is not null")
    )
    names = airlines.select(F.from_json(F.col("value").cast("string"), _AIRLINE).alias("airline")).select("airline.*")
    results = (
        flown.join(F.broadcast(names), "carrier")
        .groupBy("origin", F.col("name").alias("airline"), F.to_date("time_hour").alias("day"))
        .agg(
            F.avg("dep_delay").alias("mean_departure_delay"),
            F.count("*").alias("flights"),
            F.max(F.unix_millis("sent")).alias("newest_sent_ms"),
        )
    )
    key = F.concat_ws("|", "origin", "airline", F.col("day").cast("string"))
    return results.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))
