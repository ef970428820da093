"""How the value of a record becomes columns: JSON, by a schema of Spark's.

A value that does not fit is bad: text that is no JSON object, a field of another type, bytes that are no UTF-8. A field that is missing is
null; one that the schema does not have, and what comes after the object, is left out, as in ``from_json``. A record without a value has no
columns either: all are null.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.options import invalid

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from ottla.spark.registry_values import RegistryValues, SchemasOf

CONTENT: Final = "__ottla_content"
_CORRUPT: Final = "__ottla_corrupt"


@dataclass(frozen=True, slots=True)
class Json:
    """Values that are JSON objects of this schema."""

    schema: StructType

    is_fixed = True
    """Whether a value that is bad now is bad for ever."""

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def parsed(self, value: Column) -> Column:
        """Returns a struct of the columns, and of what ``is_bad`` looks at."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        schema = StructType([*self.schema.fields, StructField(_CORRUPT, StringType())])
        text = F.when(F.is_valid_utf8(value.cast("string")), value.cast("string")).otherwise(F.lit(""))
        return F.from_json(text, schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})

    def is_bad(self, value: Column, parsed: Column) -> Column:
        """Returns whether the value does not fit."""
        return value.isNotNull() & (parsed.isNull() | parsed[_CORRUPT].isNotNull())

    def problem(self, value: bytes) -> str:
        """Returns what is wrong with a bad value, in words."""
        try:
            found: Any = json.loads(value.decode())
        except UnicodeDecodeError as error:
            return f"no UTF-8: {error}"
        except ValueError as error:
            return f"no JSON: {error}"
        return f"{'a field does' if isinstance(found, dict) else 'it does'} not fit {self.schema.simpleString()}"


def refusing(rows: DataFrame, is_bad: Column, text: Column) -> DataFrame:
    """Returns the rows, whose struct ``parsed`` is in ``CONTENT``, too; a bad one fails the query with the text.

    A check in an expression of columns is left out with those: ``count`` would count bad rows. Here each row is made by the check
    (``explode`` of an array of one): Spark cannot leave it out, nor parse the value twice, as it does for a filter.
    """
    from pyspark.sql import functions as F

    made: DataFrame = rows.select("*", F.explode(F.when(is_bad, F.raise_error(text)).otherwise(F.array("parsed"))).alias(CONTENT))
    return made


def values_of(schema: str | StructType | SchemasOf, topic: str) -> Json | RegistryValues:
    """Returns the form of the topic's values: JSON by DDL (``id string, amount double``) or a StructType, or what a registry has.

    KafkaError INVALID_CONFIG for another one.
    """
    from pyspark.sql.types import StructType

    from ottla.spark.registry_values import SchemasOf

    if isinstance(schema, SchemasOf):
        return schema.of_topic(topic)
    found = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(found, StructType):
        raise invalid(f"schema={schema!r} is no schema of columns, such as 'id string, amount double'")
    return Json(found)
