"""Avro's types as Spark's, and values of the one as values of the other.

Logical types are taken off a schema before anything is decoded, and put on again by the reader's: what a writer called a time has, in the
reader's column, the reader's meaning. Times of the day are numbers, since Spark has no such type; a union is a type that may be null.
Source: Avro specification 1.12, "Logical types", "Unions".
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.options import invalid

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Convert = Callable[[Any], Any]
_PLAIN: Final = {
    "boolean": "BooleanType",
    "int": "IntegerType",
    "long": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "bytes": "BinaryType",
    "string": "StringType",
}
_TIMES: Final = {
    "timestamp-millis": ("timestamp", 1000),
    "timestamp-micros": ("timestamp", 1),
    "local-timestamp-millis": ("timestamp_ntz", 1000),
    "local-timestamp-micros": ("timestamp_ntz", 1),
}
_DIGITS_MAX: Final = 38


def without_logical_types(schema: Any) -> Any:
    """Returns the schema with plain types alone."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: value for name, value in schema.items() if name != "logicalType"}
    if isinstance(plain.get("type"), dict | list):
        plain["type"] = without_logical_types(plain["type"])
    for name in ("items", "values"):
        if name in plain:
            plain[name] = without_logical_types(plain[name])
    if "fields" in plain:
        plain["fields"] = [field | {"type": without_logical_types(field["type"])} for field in plain["fields"]]
    return plain


def struct_of(schemas: list[Any]) -> tuple[StructType, Convert]:
    """Returns the columns of the last schema, which may name types of earlier ones, and the conversion of its records.

    KafkaError INVALID_CONFIG where it is no record, or has a type that Spark has no column for.
    """
    from pyspark.sql.types import StructType

    mapping = _Mapping()
    for schema in schemas[:-1]:
        mapping.note_names(schema, "")
    found, convert = mapping.of(schemas[-1], "value", "")
    if not isinstance(found, StructType):
        raise invalid("the schema of the values is no record: only the fields of a record are columns")
    return found, convert or (lambda value: value)


class _Mapping:
    """The names of a schema's types, while it is walked."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []  # the records that are being walked

    def note_names(self, schema: Any, namespace: str) -> None:
        """Notes the named types within."""
        if isinstance(schema, list):
            for branch in schema:
                self.note_names(branch, namespace)
        elif isinstance(schema, dict):
            if schema.get("type") in ("record", "enum", "fixed", "error"):
                name, namespace = full_name(schema["name"], schema.get("namespace", namespace))
                self._named[name] = schema, namespace
            for inner in (schema.get("items"), schema.get("values"), schema.get("type"), *(f["type"] for f in schema.get("fields", ()))):
                if isinstance(inner, dict | list):
                    self.note_names(inner, namespace)

    def of(self, schema: Any, place: str, namespace: str) -> tuple[DataType, Convert | None]:
        """Returns Spark's type, and what makes its values of Avro's; None where they are the same."""
        from pyspark.sql import types

        if isinstance(schema, list):
            return self._union(schema, place, namespace)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.of(kind, place, namespace)
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        if logical in _TIMES and kind == "long":
            name, factor = _TIMES[logical]
            made = types.TimestampType() if name == "timestamp" else types.TimestampNTZType()
            return made, None if factor == 1 else lambda value: value * factor
        if logical == "date" and kind == "int":
            return types.DateType(), None
        if logical == "decimal" and kind in ("bytes", "fixed") and 0 < schema["precision"] <= _DIGITS_MAX:
            return types.DecimalType(schema["precision"], schema.get("scale", 0)), _decimal(schema.get("scale", 0))
        if kind in _PLAIN:
            return getattr(types, _PLAIN[kind])(), None
        if kind in ("fixed", "enum"):
            self.note_names(schema, namespace)
            return (types.BinaryType() if kind == "fixed" else types.StringType()), None
        if kind == "array":
            item, convert = self.of(schema["items"], f"{place}[]", namespace)
            return types.ArrayType(item), convert and (lambda value: [_or_null(convert, one) for one in value])
        if kind == "map":
            item, convert = self.of(schema["values"], f"{place}{{}}", namespace)
            return types.MapType(types.StringType(), item), lambda value: [(key, _or_null(convert, one)) for key, one in value.items()]
        if kind in ("record", "error"):
            return self._record(schema, place, namespace)
        return self._of_name(kind, place, namespace)

    def _of_name(self, kind: str, place: str, namespace: str) -> tuple[DataType, Convert | None]:
        name, _ = full_name(kind, namespace)
        found = self._named.get(name) or self._named.get(kind)
        if found is None:
            raise invalid(f"{place}: Avro's type {kind} has no column of Spark")
        if name in self._open:
            raise invalid(f"{place}: a record within itself ({name}) has no columns; read the values without a schema")
        return self.of(found[0], place, found[1])

    def _record(self, schema: Any, place: str, namespace: str) -> tuple[DataType, Convert | None]:
        from pyspark.sql import types

        self.note_names(schema, namespace)
        name, namespace = full_name(schema["name"], schema.get("namespace", namespace))
        self._open.append(name)
        fields, converts = [], {}
        for field in schema["fields"]:
            kind, convert = self.of(field["type"], f"{place}.{field['name']}", namespace)
            fields.append(types.StructField(field["name"], kind))
            if convert is not None:
                converts[field["name"]] = convert
        self._open.pop()
        if not converts:
            return types.StructType(fields), None

        def convert_all(value: Mapping[str, Any]) -> Any:
            return {**value, **{name: _or_null(convert, value[name]) for name, convert in converts.items()}}

        return types.StructType(fields), convert_all

    def _union(self, schema: list[Any], place: str, namespace: str) -> tuple[DataType, Convert | None]:
        branches = [branch for branch in schema if branch not in ("null", {"type": "null"})]
        if len(branches) != 1:
            raise invalid(f"{place}: a union of several types has no column of Spark; only one type that may be null has")
        return self.of(branches[0], place, namespace)


def full_name(name: str, namespace: str | None) -> tuple[str, str]:
    """Returns the full name of a named type, and the namespace of what is within it."""
    if "." in name:
        return name, name.rpartition(".")[0]
    return (f"{namespace}.{name}", namespace) if namespace else (name, "")


def _or_null(convert: Convert | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _decimal(scale: int) -> Convert:
    context = decimal.Context(prec=_DIGITS_MAX)
    return lambda value: decimal.Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, context)


def schema_of(struct: StructType, name: str) -> tuple[dict[str, Any], Convert]:
    """Returns Avro's schema of these columns, each of which may be null, and how a row becomes a value of it.

    KafkaError INVALID_CONFIG for a column that Avro has no type for.
    """
    schema, convert = _written(struct, name)
    return schema, convert or (lambda value: value)


def _written(kind: Any, place: str) -> tuple[Any, Convert | None]:
    from pyspark.sql import types

    plain = {
        types.BooleanType: "boolean", types.ByteType: "int", types.ShortType: "int", types.IntegerType: "int", types.LongType: "long",
        types.FloatType: "float", types.DoubleType: "double", types.BinaryType: "bytes", types.StringType: "string",
    }  # fmt: skip
    logical = {
        types.DateType: ("int", "date"),
        types.TimestampType: ("long", "timestamp-micros"),
        types.TimestampNTZType: ("long", "local-timestamp-micros"),
    }
    if type(kind) in plain:
        return plain[type(kind)], None
    if type(kind) in logical:
        base, name = logical[type(kind)]
        return {"type": base, "logicalType": name}, None
    if isinstance(kind, types.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}, None
    if isinstance(kind, types.ArrayType):
        item, convert = _written(kind.elementType, place)
        return {"type": "array", "items": ["null", item]}, convert and (lambda value: [_or_null(convert, one) for one in value])
    if isinstance(kind, types.MapType) and isinstance(kind.keyType, types.StringType):
        item, convert = _written(kind.valueType, place)
        return {"type": "map", "values": ["null", item]}, lambda value: {key: _or_null(convert, one) for key, one in value}
    if not isinstance(kind, types.StructType):
        raise invalid(f"column {place} is {kind.simpleString()}, which Avro has no type for")
    fields, converts = [], {}
    for field in kind.fields:
        inner, convert = _written(field.dataType, f"{place}_{field.name}")
        fields.append({"name": field.name, "type": ["null", inner], "default": None})
        if convert is not None:
            converts[field.name] = convert
    made = {"type": "record", "name": place, "fields": fields}
    if not converts:
        return made, None
    return made, lambda value: {**value, **{name: _or_null(convert, value[name]) for name, convert in converts.items()}}
