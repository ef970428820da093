"""SQL over topics: a view for each topic that a query names.

A topic with a schema has the columns of its JSON values, any other one ``value`` as text; both have ``key`` as text, ``topic``,
``partition``, ``offset`` and ``timestamp`` besides, unless the schema has a column of that name. Filters on the last three narrow what is
read. A value that does not fit its schema has nulls: a look at a topic does not end at its first bad record, as a pipeline does.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.options import invalid
from ottla.spark.time_travel import AsOf, without_comments
from ottla.spark.values import values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark.registry_values import SchemasOf

CASE: Final = "spark.sql.caseSensitive"
PLACE: Final = ("topic", "partition", "offset", "timestamp")


def named_in(query: str, topics: Iterable[str]) -> list[str]:
    """Returns the topics whose names are words of the query, in backquotes or without; a comment may follow a name at once."""
    words = set(re.findall(r"[\w.-]+", without_comments(query)))
    return sorted(words.intersection(topics))


def check_schemas(schemas: Iterable[str], topics: Iterable[str]) -> None:
    """Checks that each schema is of a topic that the query names. KafkaError INVALID_CONFIG otherwise."""
    others = sorted(set(schemas) - set(topics))
    if others:
        raise invalid(f"there is a schema for {others[0]!r}, which is no topic that the query names")


@contextlib.contextmanager
def with_case(spark: SparkSession, topics: Iterable[str], there: Iterable[str]) -> Iterator[None]:
    """Lets Spark distinguish upper from lower case in names where one of the topics has the name of another one in other letters.

    To Spark both are one view otherwise, of the topic that was made a view last. Names of columns are distinguished, too, meanwhile.
    """
    counts = Counter(name.lower() for name in there)
    if all(counts[topic.lower()] <= 1 for topic in topics):
        yield
        return
    before = str(spark.conf.get(CASE))
    spark.conf.set(CASE, "true")
    try:
        yield
    finally:
        spark.conf.set(CASE, before)


def make_views(
    spark: SparkSession,
    topics: Iterable[str],
    schemas: Mapping[str, str | SchemasOf],
    *,
    bootstrap: str,
    since_ms: int | None,
    is_stream: bool,
    as_of: Iterable[AsOf] = (),
    client: Mapping[str, str] | None = None,
) -> None:
    """Makes each topic a view of its name, of its committed records, and each of ``as_of`` a view of what the topic had then.

    ``client`` are options of how to reach the brokers. KafkaError INVALID_CONFIG for a schema of another topic, and for a time that is
    none.
    """
    names = list(topics)
    check_schemas(schemas, names)
    views = [(topic, topic, dict[str, str]()) for topic in names]
    views += [(found.view, found.topic, {"endingTimestamp": str(_time_ms(spark, found.time) + 1)}) for found in as_of]
    for view, topic, more in views:
        wanted = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.isolation.level": "read_committed"}
        options = {**(client or {}), **wanted, **more}
        if since_ms is not None:
            options |= {"startingTimestamp": str(since_ms), "startingOffsetsByTimestampStrategy": "latest"}
        elif is_stream:
            options["startingOffsets"] = "latest"
        reader: Any = spark.readStream if is_stream else spark.read
        _shaped(reader.format("ottla").options(**options).load(), topic, schemas.get(topic)).createOrReplaceTempView(f"`{view}`")


def _time_ms(spark: SparkSession, expression: str) -> int:
    """Returns the time that Spark makes of the expression, in milliseconds since 1970."""
    [row] = spark.sql(f"select unix_millis(try_cast(({expression}) as timestamp))").collect()
    if row[0] is None or row[0] < 0:
        raise invalid(f"timestamp as of {expression}: that is no time since 1970, such as '2026-01-01 12:00:00'")
    return int(row[0])


def topics_like(query: str, topics: Iterable[str]) -> list[str] | None:
    """Returns the answer to ``show tables [like 'a*|b']``; None for another query."""
    found = re.fullmatch(r"\s*show\s+tables(?:\s+(?:like\s+)?'([^']*)')?\s*;?\s*", query, re.IGNORECASE)
    if found is None:
        return None
    patterns = ["*"] if found[1] is None else [pattern.strip() for pattern in found[1].split("|")]
    wanted = [re.compile(".*".join(map(re.escape, pattern.split("*"))), re.IGNORECASE) for pattern in patterns]
    return sorted(topic for topic in topics if any(pattern.fullmatch(topic) for pattern in wanted))


def _shaped(rows: DataFrame, topic: str, schema: str | SchemasOf | None) -> DataFrame:
    from pyspark.sql import functions as F

    columns: dict[str, Any] = {"key": F.col("key").cast("string"), "value": F.col("value").cast("string")}
    columns |= {name: F.col(name) for name in PLACE}
    if schema is not None:
        values = values_of(schema, topic)
        parsed = values.parsed(F.col("value"))
        del columns["value"]
        columns = values.columns(parsed) | {name: found for name, found in columns.items() if name not in values.names}
    return rows.select(*(column.alias(name) for name, column in columns.items()))


def follow(frame: DataFrame, say: Callable[[list[Any]], object]) -> Any:
    """Starts a query that gives the rows of each batch to ``say``: new rows, or the changed rows of an aggregate."""

    def show(rows: DataFrame, number: int) -> None:
        found = rows.collect()
        if found:
            say(found)

    return frame.writeStream.foreachBatch(show).outputMode("update").start()
