"""Rows as messages of Protobuf: a schema of a frame's columns where there is none yet, and messages that are filled from rows.

Null is a field that is not set, so each field of a schema that is made here is optional. Null within an array or a map has no form.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ottla.spark.options import invalid
from ottla.spark.protobuf_types import EPOCH, TIMESTAMP, struct_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def described(schema: StructType, name: str) -> Any:
    """Returns a file of one message with the columns as its fields. KafkaError INVALID_CONFIG for a column that no field has room for."""
    from google.protobuf import descriptor_pb2

    made = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", syntax="proto3")
    _describe(schema, made.message_type.add(name=name), name, made)
    return made


def _describe(schema: StructType, message: Any, path: str, file: Any) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from pyspark.sql.types import ArrayType, MapType

    for number, column in enumerate(schema.fields, start=1):
        field = message.field.add(name=column.name, number=number, label=Field.LABEL_OPTIONAL)
        where = f"{path}.{column.name}"
        if isinstance(column.dataType, ArrayType):
            field.label = Field.LABEL_REPEATED
            _set_type(field, column.dataType.elementType, message, where, file)
        elif isinstance(column.dataType, MapType):
            field.label = Field.LABEL_REPEATED
            entry = message.nested_type.add(name="".join(part.capitalize() for part in column.name.split("_")) + "Entry")
            entry.options.map_entry = True
            for index, (inner, kind) in enumerate((("key", column.dataType.keyType), ("value", column.dataType.valueType)), start=1):
                _set_type(entry.field.add(name=inner, number=index, label=Field.LABEL_OPTIONAL), kind, message, where, file)
            field.type, field.type_name = Field.TYPE_MESSAGE, f".{path}.{entry.name}"
        else:
            _set_type(field, column.dataType, message, where, file)
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{column.name}")


def _set_type(field: Any, kind: DataType, message: Any, where: str, file: Any) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from pyspark.sql import types

    plain = {
        types.StringType: Field.TYPE_STRING,
        types.BinaryType: Field.TYPE_BYTES,
        types.BooleanType: Field.TYPE_BOOL,
        types.IntegerType: Field.TYPE_INT32,
        types.LongType: Field.TYPE_INT64,
        types.FloatType: Field.TYPE_FLOAT,
        types.DoubleType: Field.TYPE_DOUBLE,
    }
    if type(kind) in plain:
        field.type = plain[type(kind)]
    elif isinstance(kind, types.TimestampType):
        field.type, field.type_name = Field.TYPE_MESSAGE, f".{TIMESTAMP}"
        if "google/protobuf/timestamp.proto" not in file.dependency:
            file.dependency.append("google/protobuf/timestamp.proto")
    elif isinstance(kind, types.StructType):
        name = f"Of_{where.rpartition('.')[2]}"
        path = f"{where.rpartition('.')[0]}.{name}"
        field.type, field.type_name = Field.TYPE_MESSAGE, f".{path}"
        _describe(kind, message.nested_type.add(name=name), path, file)
    else:
        raise invalid(f"column {where} is {kind.simpleString()}, and Protobuf has no such type; cast it, to string for example")


def check_columns(schema: StructType, message: Any) -> None:
    """Checks that each column is a field of the message, of its type. KafkaError INVALID_CONFIG otherwise."""
    there = {field.name: field.dataType.simpleString() for field in struct_of(message)[0].fields}
    for column in schema.fields:
        kind = column.dataType.simpleString()
        if there.get(column.name) != kind:
            is_what = f"{there[column.name]} there" if column.name in there else f"no field; it has {', '.join(there)}"
            raise invalid(f"column {column.name} is {kind}, and in the schema's message {message.full_name} it is {is_what}")


def fill(message: Any, row: dict[str, Any]) -> None:
    """Fills the message's fields from the row, where they are not null."""
    for name, value in row.items():
        if value is None:
            continue
        field = message.DESCRIPTOR.fields_by_name[name]
        if not field.is_repeated:
            _set(message, field, value)
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            target, is_message = getattr(message, name), field.message_type.fields_by_name["value"].message_type is not None
            for key, of_key in value:
                if is_message:
                    _fill_message(target[key], of_key)
                else:
                    target[key] = of_key
        elif field.message_type is not None:
            for one in value:
                _fill_message(getattr(message, name).add(), one)
        else:
            getattr(message, name).extend(_plain(field, one) for one in value)


def _set(message: Any, field: Any, value: Any) -> None:
    if field.message_type is None:
        setattr(message, field.name, _plain(field, value))
        return
    inner = getattr(message, field.name)
    inner.SetInParent()
    _fill_message(inner, value)


def _fill_message(message: Any, value: Any) -> None:
    """Fills a message from a struct, a time, or what a wrapper holds."""
    name = message.DESCRIPTOR.full_name
    if name == TIMESTAMP:
        since = value - EPOCH
        message.seconds, message.nanos = since // timedelta(seconds=1), since % timedelta(seconds=1) // timedelta(microseconds=1) * 1000
    elif isinstance(value, dict):
        fill(message, value)
    else:
        message.value = _plain(message.DESCRIPTOR.fields_by_name["value"], value)


def _plain(field: Any, value: Any) -> Any:
    """Returns an enum's number by its name, a whole number out of a decimal, anything else as it is."""
    if field.enum_type is not None:
        found = field.enum_type.values_by_name.get(value)
        return int(value) if found is None else found.number
    return int(value) if field.cpp_type == field.CPPTYPE_UINT64 else value
