"""Topics as tables: ``read_table``, the newest value of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from ottla.spark.options import BATCH, Options, invalid
from ottla.spark.reading_options import reading_options
from ottla.spark.streams import source_options
from ottla.spark.values import CONTENT, refusing, values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ottla.spark.registry_values import SchemasOf

_COLUMNS: Final = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
_DEFAULTS: Final = {"kafka.isolation.level": "read_committed", "endingOffsets": "follow"}


def read_table(
    spark: SparkSession,
    topic: str,
    schema: str | StructType | SchemasOf,
    *,
    key: str | None = None,
    without_key: Literal["fail", "skip"] = "fail",
    bootstrap: str | None = None,
    options: Options | None = None,
) -> DataFrame:
    """Returns the newest committed value of each key of the topic, as a batch; keys whose newest record has no value are not in it.

    Newest is the last one in its partition; of a key in several partitions, as when the topic got more, the one of the latest time.

    ``schema`` gives the columns, of JSON values or by a registry; ``key`` names one more, the record's key as text. Joined to a stream
    the table follows its topic: each batch has it as it is then. It is read from its first record on each time: it suits tables that
    are read in a moment. A value that does not fit fails the query, and so does a record without a key; ``without_key="skip"`` leaves such
    records out, as Kafka Streams does.
    """
    from pyspark.sql import functions as F

    settings = source_options(topic, bootstrap, options, _DEFAULTS)
    reading_options(settings, BATCH)
    if without_key not in ("fail", "skip"):
        raise invalid(f"without_key={without_key} is neither fail nor skip")
    values = values_of(schema, topic)
    if key is not None and key in values.names:
        raise invalid(f"key={key}: the schema has a column of that name")
    rows: Any = spark.read.format("ottla").options(**settings).schema(_COLUMNS).load()
    place = F.concat(F.lit(f"topic {topic} partition "), F.col("partition"), F.lit(" offset "), F.col("offset"))
    if without_key == "skip":
        named = F.col("key")
        rows = rows.where("key is not null")
    else:
        text = F.concat(place, F.lit(': a record of a table has no key; without_key="skip" of read_table leaves such records out'))
        named = F.when(F.col("key").isNull(), F.raise_error(text)).otherwise(F.col("key"))
    # A key that has moved to another partition, as when the topic got more of them, has its offsets in the order of neither.
    record = F.struct("value", "partition", "offset", "timestamp")
    by_place = rows.groupBy(named.alias("key"), "partition").agg(F.max_by(record, F.col("offset")).alias("newest"))
    moment = F.struct("newest.timestamp", "newest.partition")
    newest = by_place.groupBy("key").agg(F.max_by("newest", moment).alias("newest"))
    there = newest.select("key", "newest.*").where("value is not null")
    parsed = there.select("key", "value", "partition", "offset", values.parsed(F.col("value")).alias("parsed"))
    is_bad = values.is_bad(F.col("value"), F.col("parsed"))
    said = (": its value does not fit the schema: ", "; a later record of its key, one that fits or a tombstone, replaces it")
    text = F.concat(place, F.lit(said[0]), values.reason(F.col("value"), F.col("parsed")), F.lit(said[1]))
    checked_rows = refusing(parsed, is_bad, text)
    columns: list[Any] = [column.alias(field) for field, column in values.columns(F.col(CONTENT)).items()]
    made: DataFrame = checked_rows.select(*([] if key is None else [F.col("key").cast("string").alias(key)]), *columns)
    return made
