"""How the value of a record becomes columns: JSON, by a schema of Spark's.

A value that does not fit is bad: text that is no JSON object, a field of another type, bytes that are no UTF-8, a field that is NOT NULL in
the schema and missing or null, and text after the object. Any other field that is missing is null; one that the schema does not have is
left out, as in ``from_json``. A record without a value has no columns either: all are null.

``from_json`` stops reading where the object ends. So the value is parsed as the first entry of a list of two, whose other one is null: text
after it breaks the list, or changes its length. That costs a copy of the text; a second look at it would cost a second parser.
"""

from __future__ import annotations

import functools
import json
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.options import invalid

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from ottla.spark.registry_values import RegistryValues, SchemasOf

CONTENT: Final = "__ottla_content"
_CORRUPT: Final = "__ottla_corrupt"
_ENTRIES: Final = "__ottla_entries"
_EXTRA: Final = "Extra data"  # in the error of Python's json
_TEXTS: Final = "map<string, string>"
_SHOWN_MAX: Final = 80


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
        from pyspark.sql.types import ArrayType, StringType, StructField, StructType

        schema = StructType([StructField(_ENTRIES, ArrayType(self.schema)), StructField(_CORRUPT, StringType())])
        text = F.coalesce(F.try_validate_utf8(value.cast("string")), F.lit(""))  # is_valid_utf8 looks up a method for each row
        listed = F.concat(F.lit(f'{{"{_ENTRIES}":['), text, F.lit(",null]}"))
        return F.from_json(listed, schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})

    def columns(self, parsed: Column) -> dict[str, Column]:
        """Returns the columns of what was parsed, by name; where a value is bad, they may be null."""
        entry = _entry(parsed)
        return {name: entry[name] for name in self.names}

    def is_bad(self, value: Column, parsed: Column) -> Column:
        """Returns whether the value does not fit."""
        entry = _entry(parsed)
        is_bad = parsed.isNull() | parsed[_CORRUPT].isNotNull() | entry.isNull()
        if _has_required(self.schema):
            is_bad = is_bad | _lacks_required(entry, self.schema)
        return value.isNotNull() & is_bad

    def reason(self, value: Column, parsed: Column) -> Column:
        """Returns what is wrong with a bad value, in words, as ``problem`` has them.

        What Spark's parser could not take is null in what was parsed, and is there where the fields are read as texts. It is the body of a
        lambda, which Spark does not compile: code that is never run would make that of each row larger.
        """
        from pyspark.sql import functions as F

        def read(row: Column) -> Column:
            text, entry = row["value"].cast("string"), _entry(row["parsed"])
            raw = F.from_json(text, _TEXTS)
            kept = F.map_keys(F.from_json(F.coalesce(F.to_json(entry), F.lit("{}")), _TEXTS))
            return F.struct(text.alias("text"), raw.alias("raw"), kept.alias("kept"), entry.isNull().alias("is_none"))

        both = F.array(F.struct(value.alias("value"), parsed.alias("parsed")))
        said = F.transform(F.transform(both, read), lambda row: self._reason(row["text"], row["raw"], row["kept"], row["is_none"]))
        return F.get(said, F.lit(0))

    def _reason(self, text: Column, raw: Column, kept: Column, is_none: Column) -> Column:
        from pyspark.sql import functions as F

        # Each of these is one constant, however many fields there are: Spark plans them again for each batch.
        types = F.from_json(F.lit(json.dumps({field.name: field.dataType.simpleString() for field in self.schema.fields})), _TEXTS)
        required = F.from_json(F.lit(json.dumps([field.name for field in self.schema.fields if not field.nullable])), "array<string>")
        found = F.filter(
            F.map_keys(types),
            lambda name: ~F.array_contains(kept, name) & (raw[name].isNotNull() | F.array_contains(required, name)),
        )
        name = F.get(found, F.lit(0))
        lacks = F.when(F.map_contains_key(raw, name), " is null").otherwise(" is missing")
        misfit = (
            F.when(raw[name].isNull(), F.concat(lacks, F.lit(", and NOT NULL in the schema")))
            .otherwise(F.concat(F.lit(" does not fit "), types[name], F.lit(": "), _start_of(raw[name])))
        )  # fmt: skip
        return (
            F.when(~F.is_valid_utf8(text), F.lit("no UTF-8"))
            .when(raw.isNull(), F.concat(F.lit("no JSON object: "), _start_of(text)))
            .when(is_none, F.concat(F.lit("text after the JSON object: "), _start_of(text)))
            .when(name.isNull(), F.lit(f"a field within another one does not fit {self.schema.simpleString()}"))
            .otherwise(F.concat(F.lit("field "), name, misfit))
        )

    def misfit(self, value: Column) -> Column:
        """Returns the name of the first field that does not fit; null where each one does."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        alone = [Json(StructType([field])) for field in self.schema.fields]
        checks = [F.when(one.is_bad(value, one.parsed(value)), F.lit(one.names[0])) for one in alone]
        return F.coalesce(*checks, F.lit(None).cast("string"))

    def problem(self, value: bytes, misfit: str | None = None) -> str:
        """Returns what is wrong with a bad value, in words; ``misfit`` is the field that does not fit."""
        try:
            found: Any = json.loads(value.decode())
        except UnicodeDecodeError as error:
            return f"no UTF-8: {error}"
        except json.JSONDecodeError as error:
            if error.msg == _EXTRA:
                return f"text after the JSON value at character {error.pos}: {_shortened(error.doc[error.pos :])}"
            return f"no JSON: {error}"
        except ValueError as error:
            return f"no JSON: {error}"
        if isinstance(found, dict) and misfit is not None:
            field = self.schema[misfit]
            if found.get(misfit) is None and not field.nullable:
                return f"field {misfit} is {'null' if misfit in found else 'missing'}, and NOT NULL in the schema"
            return f"field {misfit} does not fit {field.dataType.simpleString()}: {_shortened(json.dumps(found.get(misfit)))}"
        return f"{'a field does' if isinstance(found, dict) else 'it does'} not fit {self.schema.simpleString()}"


def _entry(parsed: Column) -> Column:
    """Returns the struct of the value; null where the list does not have the two entries that it was given."""
    from pyspark.sql import functions as F

    return F.when(F.size(parsed[_ENTRIES]) == 2, F.get(parsed[_ENTRIES], F.lit(0)))


def _has_required(kind: DataType) -> bool:
    """Returns whether the type has a field that is NOT NULL, at any depth."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case StructType():
            return any(not field.nullable or _has_required(field.dataType) for field in kind.fields)
        case ArrayType():
            return _has_required(kind.elementType)
        case MapType():
            return _has_required(kind.valueType)
    return False


def _lacks_required(column: Column, kind: DataType) -> Column:
    """Returns whether a column of such a type, where it is not null, has a null in a field that is NOT NULL."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType | MapType):
        entries, inner = (column, kind.elementType) if isinstance(kind, ArrayType) else (F.map_values(column), kind.valueType)
        return F.exists(entries, lambda entry: entry.isNotNull() & _lacks_required(entry, inner))
    assert isinstance(kind, StructType), "other types have no fields"
    found = [column[field.name].isNull() for field in kind.fields if not field.nullable]
    nested = [field for field in kind.fields if _has_required(field.dataType)]
    found += [column[field.name].isNotNull() & _lacks_required(column[field.name], field.dataType) for field in nested]
    return functools.reduce(operator.or_, found)


def _start_of(text: Column) -> Column:
    from pyspark.sql import functions as F

    return F.when(F.length(text) <= _SHOWN_MAX, text).otherwise(F.concat(F.substring(text, 1, _SHOWN_MAX), F.lit("...")))


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


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
