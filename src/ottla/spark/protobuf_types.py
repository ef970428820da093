"""Protobuf's messages as Spark's columns, and messages as rows.

A field that has no presence (proto3 without ``optional``) is its default value where it is missing; any other one is null. An enum is its
value's name, or number where it has none; an unsigned number of 64 bits is a decimal(20,0); Timestamp is a timestamp, and Google's wrappers
(``StringValue``) are what they wrap. Messages within themselves have no columns.
Source: Protobuf language guide, "Scalar Value Types", "Well-Known Types".
"""

from __future__ import annotations

import base64
import binascii
import decimal
import importlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.options import invalid

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Convert = Callable[[Any], Any]
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ROOT: Final = "ottla/value.proto"
TIMESTAMP: Final = "google.protobuf.Timestamp"
_GOOGLES: Final = "google/protobuf/"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value" for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def file_of(texts: tuple[str, ...]) -> Any:
    """Returns the descriptor of the last file, in a pool of its own with its imports. KafkaError INVALID_CONFIG if it cannot be made."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    try:
        for text in texts:
            name, _, content = text.partition("\n")
            proto = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(content, validate=True))
            proto.name = name or ROOT
            for wanted in proto.dependency:
                _add_googles(pool, wanted, added)
            pool.Add(proto)
        return pool.FindFileByName(ROOT)
    except (KeyError, TypeError, ValueError, binascii.Error, ModuleNotFoundError) as error:
        raise invalid(f"the Protobuf schema of the values cannot be read: {error}") from None


def _add_googles(pool: Any, name: str, added: set[str]) -> None:
    """Adds a file of Protobuf's own, which no registry needs to have."""
    from google.protobuf import descriptor_pb2

    if not name.startswith(_GOOGLES) or name in added:
        return
    added.add(name)
    module: Any = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    proto = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    for wanted in proto.dependency:
        _add_googles(pool, wanted, added)
    pool.Add(proto)


def message_at(file: Any, indexes: tuple[int, ...]) -> Any:
    """Returns the message that the indexes lead to: of the file, then within each. LookupError where there is none."""
    found: Any = None
    for index in indexes:
        among = list((file.message_types_by_name if found is None else found.nested_types_by_name).values())
        if index < 0:
            raise LookupError(index)
        found = among[index]
    return found


def struct_of(message: Any, within: tuple[str, ...] = ()) -> tuple[StructType, Convert]:
    """Returns the columns of the message, and how messages become rows of them. KafkaError INVALID_CONFIG for one within itself."""
    from pyspark.sql.types import StructField, StructType

    if message.full_name in within:
        raise invalid(f"message {message.full_name} is within itself, and Spark has no column for it")
    made = [(field.name, field.has_presence, *_field(field, (*within, message.full_name))) for field in message.fields]

    def convert(found: Any) -> dict[str, Any]:
        return {name: None if has_presence and not found.HasField(name) else of(getattr(found, name)) for name, has_presence, _, of in made}

    return StructType([StructField(name, kind) for name, _, kind, _ in made]), convert


def _field(field: Any, within: tuple[str, ...]) -> tuple[DataType, Convert]:
    from pyspark.sql.types import ArrayType, MapType

    if not field.is_repeated:
        return _single(field, within)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        (key, of_key), (value, of_value) = (_single(field.message_type.fields_by_name[name], within) for name in ("key", "value"))
        return MapType(key, value), lambda found: {of_key(name): of_value(found[name]) for name in found}
    element, of = _single(field, within)
    return ArrayType(element, containsNull=False), lambda found: [of(one) for one in found]


def _single(field: Any, within: tuple[str, ...]) -> tuple[DataType, Convert]:
    from pyspark.sql import types

    if field.message_type is not None:
        name = field.message_type.full_name
        if name == TIMESTAMP:
            return types.TimestampType(), lambda found: EPOCH + timedelta(seconds=found.seconds, microseconds=found.nanos // 1000)
        if name in _WRAPPERS:
            kind, of = _single(field.message_type.fields_by_name["value"], within)
            return kind, lambda found: of(found.value)
        return struct_of(field.message_type, within)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return types.StringType(), lambda found: names.get(found, str(found))
    plain: dict[int, tuple[DataType, Convert]] = {
        field.CPPTYPE_INT32: (types.IntegerType(), _same),
        field.CPPTYPE_INT64: (types.LongType(), _same),
        field.CPPTYPE_UINT32: (types.LongType(), _same),
        field.CPPTYPE_UINT64: (types.DecimalType(20, 0), decimal.Decimal),
        field.CPPTYPE_DOUBLE: (types.DoubleType(), _same),
        field.CPPTYPE_FLOAT: (types.FloatType(), _same),
        field.CPPTYPE_BOOL: (types.BooleanType(), _same),
    }
    if field.cpp_type in plain:
        return plain[field.cpp_type]
    return (types.BinaryType(), _same) if field.type == field.TYPE_BYTES else (types.StringType(), _same)


def _same(value: Any) -> Any:
    return value
