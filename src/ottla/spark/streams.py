"""Topics as streams of columns: ``read_topic``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.columns import COLUMN_TYPES
from ottla.spark.dead_letters import BadRows, named
from ottla.spark.options import STREAM, Options, invalid, texts
from ottla.spark.pipelines import brokers_of
from ottla.spark.reading_options import reading_options
from ottla.spark.values import CONTENT, refusing, values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ottla.spark.registry_values import SchemasOf

_DEFAULTS_WITH_BAD_ROWS: Final = {"failOnTimestamp": "false"}
_DEFAULTS: Final = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed", "includeHeaders": "true"}
_RECORD: Final = ("key", "topic", "partition", "offset", "timestamp", "headers")


def read_topic(
    spark: SparkSession,
    topic: str,
    schema: str | StructType | SchemasOf | None = None,
    *,
    bad_rows: str | None = None,
    record: str | None = None,
    bootstrap: str | None = None,
    options: Options | None = None,
) -> DataFrame:
    """Returns a stream of the topic's committed records (topics with commas between them), from the earliest one on.

    With a ``schema`` (``"id string, amount double"``) the values are JSON objects, and the stream has its columns; a record without a
    value has nulls. With ``avro(...)`` or ``protobuf(...)`` the schema comes from a registry. ``record`` names one more column, a struct
    of key, topic, partition, offset, timestamp and headers. Without a schema the stream has the columns of ``format("ottla")``, headers
    included.

    A value that does not fit fails the query, with its place. With ``bad_rows`` such records go to the topic of that name, in the
    transaction of the rows of their batch, with the headers topic, partition, offset and error. It is ``to_topic`` and ``sink``
    that write them; other sinks do not. ``bootstrap`` names the brokers; in a pipeline it may be left out. ``options`` are the
    source's, such as startingOffsets and maxOffsetsPerTrigger; with ``bad_rows`` the time of a record that Spark cannot have is null.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.utils import is_remote

    settings = source_options(topic, bootstrap, options, _DEFAULTS if bad_rows is None else _DEFAULTS | _DEFAULTS_WITH_BAD_ROWS)
    reading_options(settings, STREAM)
    if schema is None and (bad_rows is not None or record is not None):
        raise invalid("bad_rows and record are for values with a schema; without one all columns of the record are there")
    if bad_rows is not None and bad_rows in (name.strip() for name in settings.get("subscribe", "").split(",")):
        raise invalid(f"bad_rows={bad_rows} is a topic that the stream reads: each bad row would come back, without end; name another one")
    if bad_rows is not None and is_remote():
        raise invalid("bad_rows needs a classic session: with Spark Connect the sink cannot ask what was counted")
    reader = spark.readStream.format("ottla").options(**settings)
    if schema is None:
        return reader.load()
    values = values_of(schema, topic)
    wanted = list(_RECORD) if record is not None else [] if bad_rows is not None else ["topic", "partition", "offset"]
    rows = reader.schema(
        ", ".join(f"{name} {COLUMN_TYPES[name]}" for name in ["value", *wanted])
    ).load()  # Spark leaves no column out itself
    if record is not None and record in values.names:
        raise invalid(f"record={record}: the schema has a column of that name")
    parsed: Any = values.parsed(F.col("value"))
    made = rows.select(*([F.struct(*wanted).alias("record")] if wanted else []), "value", parsed.alias("parsed"))
    is_bad = values.is_bad(F.col("value"), F.col("parsed"))
    if bad_rows is None:
        made = refusing(made, is_bad, _place_of_bad(values.reason(F.col("value"), F.col("parsed"))))
    else:
        topics = frozenset(name.strip() for name in topic.split(","))
        name = named(BadRows(topics, values, bad_rows, settings))
        made = made.observe(name, F.count_if(is_bad).alias("count")).where(~is_bad).withColumnRenamed("parsed", CONTENT)
    columns = [column.alias(field) for field, column in values.columns(F.col(CONTENT)).items()]
    return made.select(*columns, *([] if record is None else [F.col("record").alias(record)]))


def _place_of_bad(reason: Any) -> Any:
    from pyspark.sql import functions as F

    place = [F.col("record.topic"), F.lit(" partition "), F.col("record.partition"), F.lit(" offset "), F.col("record.offset")]
    text = "; bad_rows=TOPIC of read_topic sends such records to a topic and goes on"
    return F.concat(F.lit("topic "), *place, F.lit(": its value does not fit the schema: "), reason, F.lit(text))


def source_options(topic: str, bootstrap: str | None, options: Options | None, defaults: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a source; given ones take precedence over the defaults, whatever their case."""
    if not isinstance(topic, str):
        raise invalid(f"topic is a {type(topic).__name__}: give a text, several topics with commas between them: orders,payments")
    given = texts(options or {})
    said = {name.lower() for name in given}
    wanted = dict(defaults) | {"subscribe": topic} | brokers_of(bootstrap, given)
    return {name: value for name, value in wanted.items() if name.lower() not in said} | given
