"""Rows to the topics that their conditions name, in one pass: ``route``; and keys as records have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.options import invalid
from ottla.spark.state_changes import CHANGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ottla.spark.registry_values import SchemasOf

_PLAIN: Final = ("string", "binary", "boolean", "tinyint", "smallint", "int", "bigint", "date", "decimal", "char", "varchar")
_NESTED: Final = ("struct", "array", "map")


def route(
    frame: DataFrame, topics: Mapping[str, Column] | None = None, *, key: str | None = None, value: str | None = None, **more: Column
) -> DataFrame:
    """Returns a row of topic, key and value for each topic whose condition is true of a row; a row for none is left out.

    ``key`` and ``value`` name columns, as in ``to_topic``, which writes the result where it is given no topic. ``topics`` is for names
    that are no Python names.
    """
    from pyspark.sql import functions as F

    conditions = dict(topics or {}) | more
    if not conditions:
        raise invalid("route needs a topic with its condition, such as big=F.col('amount') > 1000")
    for name, condition in conditions.items():
        _check_condition(frame, name, condition)
    each = [F.struct(F.lit(name).alias("topic"), condition.alias("is_meant")) for name, condition in conditions.items()]
    meant = F.filter(F.array(*each), lambda one: one["is_meant"])
    columns = record_columns(frame, key=key, value=value)
    if CHANGE in frame.columns:  # a change of state has a topic of its own
        columns.append(F.col(CHANGE))
        none = F.array(F.struct(F.lit(None).cast("string").alias("topic"), F.lit(True).alias("is_meant")))
        meant = F.when(F.col(CHANGE).isNull(), meant).otherwise(none)
    made = frame.select(F.explode(meant).alias("meant"), *columns)
    return made.select("meant.topic", *(name for name in ("key", "value", CHANGE) if name in made.columns))


def _check_condition(frame: DataFrame, name: str, condition: Any) -> None:
    """Checks that rows of the frame can be routed by it. KafkaError INVALID_CONFIG otherwise."""
    from pyspark.sql import Column

    way_out = f"a column that is true for the rows that go to {name!r}, such as F.col('amount') > 1000, or F.lit(True) for all"
    if not isinstance(condition, Column):
        raise invalid(f"the condition of topic {name!r} is a {type(condition).__name__}: give {way_out}")
    kind = frame.select(condition.alias("is_meant")).schema["is_meant"].dataType.simpleString()
    if kind not in ("boolean", "void"):
        raise invalid(f"the condition of topic {name!r} is {kind}, not boolean: give {way_out}")


def record_columns(
    frame: DataFrame, *, key: str | None, value: str | None, values: SchemasOf | None = None, topic: str = ""
) -> list[Column]:
    """Returns the columns value, and key where one is named.

    Without one that is named, the value is a JSON object of all columns, or a record of Avro, of the topic.
    """
    from pyspark.sql import functions as F

    names = [name for name in frame.columns if name != CHANGE]
    if value is not None and not {value.lower(), value.lower().partition(".")[0].strip("`")} & {name.lower() for name in names}:
        raise invalid(f"value={value} is no column of the frame, which has {', '.join(names)}")
    if value is not None:
        kind = frame.select(F.col(value).alias("value")).schema["value"].dataType.simpleString()
        if kind not in ("string", "binary"):
            made = f"F.to_json({value!r})" if kind.partition("<")[0] in _NESTED else f"F.col({value!r}).cast('string')"
            raise invalid(f"value={value} is {kind}: give a column of text or bytes, such as {made}")
    every = F.struct(*(F.col(f"`{name}`") for name in names))
    if values is not None:
        columns = [values.written(every, frame.select(*(f"`{name}`" for name in names)).schema, topic).alias("value")]
    else:
        columns = [F.to_json(every).alias("value") if value is None else F.col(value).alias("value")]
    return columns if key is None else [*columns, key_column(frame, key)]


def key_column(frame: DataFrame, key: str) -> Column:
    """Returns the column as a record's key, text or binary. KafkaError INVALID_CONFIG for one that is no plain value, or not there."""
    from pyspark.sql import functions as F

    if key not in frame.columns:
        raise invalid(f"key={key} is no column of the frame, which has {', '.join(frame.columns)}")
    kind: Any = frame.schema[key].dataType.simpleString()
    if kind.partition("(")[0] not in _PLAIN:
        raise invalid(
            f"key={key} is {kind}, which has no text that all clients would write: give a column of {', '.join(_PLAIN[:8])}, "
            f"such as F.to_json({key!r}) or F.date_format({key!r}, ...)"
        )
    return (F.col(key) if kind == "binary" else F.col(key).cast("string")).alias("key")
