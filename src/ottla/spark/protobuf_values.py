"""Protobuf values of a schema registry, in Confluent's wire format: a zero, the schema's id in four bytes, the message's indexes, itself.

``read_topic(spark, "orders", protobuf("http://localhost:8081"))``: the columns come from a message of the subject's newest schema when
the query starts; a value of another version is read by it, as Protobuf reads one, by the numbers of fields. ``to_topic(...,
values=protobuf(...))`` writes that message, or registers one of the frame's columns where the subject has no schema. A value is bad, too,
that is another message. The indexes say which message of the file it is: how many there are, then each of them, as numbers of variable
length with their signs folded; a zero alone is the first message. Needs ``pip install 'ottla[protobuf]'``.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.options import invalid
from ottla.spark.registry import PROTOBUF, Registry, RegistryError
from ottla.spark.registry_values import HEAD, BadValueError, Decoder, RegistryValues, SchemasOf, arrow_udf, id_of

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

INDEXES_MAX: Final = 32
_DECODERS: Final[dict[tuple[str, tuple[str, ...], tuple[int, ...]], ProtobufDecoder]] = {}


@dataclass(frozen=True, slots=True)
class ProtobufRegistry(SchemasOf):
    """Values in Protobuf, with their schemas in a registry."""

    message: str | None  # its full name; None: the first one of the file

    def of_topic(self, topic: str) -> ProtobufValues:
        _check_installed()
        from ottla.spark.protobuf_types import file_of, message_at, struct_of

        texts = Registry(self.address, kind=PROTOBUF).newest(self.subject_of(topic)).texts
        file = file_of(texts)
        indexes = _indexes_of(file, self.message)
        return ProtobufValues(self.address, texts, struct_of(message_at(file, indexes))[0], indexes)

    def written(self, columns: Column, schema: StructType, topic: str) -> Column:
        _check_installed()
        from ottla.spark.protobuf_rows import check_columns, described
        from ottla.spark.protobuf_types import file_of, message_at

        registry, subject = Registry(self.address, kind=PROTOBUF), self.subject_of(topic)
        try:
            found = registry.newest(subject)
            schema_id, texts = found.schema_id, found.texts
        except RegistryError as error:
            if error.status != 404:
                raise
            text = base64.b64encode(described(schema, re.sub(r"\W", "_", topic)).SerializeToString()).decode()
            schema_id, texts = registry.register(subject, text), (f"\n{text}",)
        file = file_of(texts)
        indexes = _indexes_of(file, self.message)
        check_columns(schema, message_at(file, indexes))

        def encode(rows: Any) -> Any:
            import pyarrow

            encoder = Encoder(schema_id, texts, indexes)
            return pyarrow.array([encoder.value(row) for row in rows.to_pylist()], pyarrow.binary())

        encoded: Column = arrow_udf(encode, "binary")(columns)
        return encoded


def protobuf(registry: str, *, subject: str | None = None, message: str | None = None) -> ProtobufRegistry:
    """Declares values in Protobuf, with schemas of the registry at this address (``http://host:8081``, with ``name:password@`` if needed).

    ``subject`` defaults to ``TOPIC-value``; ``message`` is the full name of a message in the schema's file, by default the first one.
    """
    Registry(registry)
    return ProtobufRegistry(registry, subject, message)


@dataclass(frozen=True, slots=True)
class ProtobufValues(RegistryValues):
    """Values that are messages of Protobuf."""

    indexes: tuple[int, ...]  # of the message in the last file

    def decoder(self) -> ProtobufDecoder:
        key = self.address, self.texts, self.indexes
        found = _DECODERS.get(key)
        if found is None:
            found = _DECODERS[key] = ProtobufDecoder(Registry(self.address, kind=PROTOBUF), self.texts, self.indexes)
        return found


class ProtobufDecoder(Decoder):
    """Values of the wire format to rows of one message."""

    def __init__(self, registry: Registry, texts: tuple[str, ...], indexes: tuple[int, ...]) -> None:
        from google.protobuf.message_factory import GetMessageClass

        from ottla.spark.protobuf_types import file_of, message_at, struct_of

        super().__init__(registry)
        message = message_at(file_of(texts), indexes)
        self._name: str = message.full_name
        self._convert = struct_of(message)[1]
        self._class: Any = GetMessageClass(message)
        self._files: dict[int, Any] = {}

    def row(self, value: bytes) -> dict[str, Any]:
        from google.protobuf.message import DecodeError

        file = self._file(id_of(value, "Protobuf"))
        indexes, begin = indexes_from(value, HEAD.size)
        name = self._name_at(file, indexes)
        if name != self._name:
            raise BadValueError(f"it is a message {name}, and {self._name} is read")
        try:
            row: dict[str, Any] = self._convert(self._class.FromString(value[begin:]))
        except (DecodeError, OverflowError, ValueError) as error:
            raise BadValueError(f"no {self._name} of Protobuf: {error}") from None
        return row

    def _file(self, schema_id: int) -> Any:
        from ottla.spark.protobuf_types import file_of

        found = self._files.get(schema_id)
        if found is None:
            found = self._files[schema_id] = self._parsed(schema_id, file_of)
        return found

    def _name_at(self, file: Any, indexes: tuple[int, ...]) -> str:
        from ottla.spark.protobuf_types import message_at

        try:
            return str(message_at(file, indexes).full_name)
        except LookupError:
            raise BadValueError(f"its schema has no message at {list(indexes)}") from None


class Encoder:
    """Rows to values of the wire format."""

    def __init__(self, schema_id: int, texts: tuple[str, ...], indexes: tuple[int, ...]) -> None:
        from google.protobuf.message_factory import GetMessageClass

        from ottla.spark.protobuf_types import file_of, message_at

        self._head = HEAD.pack(0, schema_id) + indexes_as_bytes(indexes)
        self._class: Any = GetMessageClass(message_at(file_of(texts), indexes))

    def value(self, row: Any) -> bytes | None:
        """Returns the value; None for a row that is none."""
        from ottla.spark.protobuf_rows import fill

        if row is None:
            return None
        made = self._class()
        fill(made, row)
        content: bytes = made.SerializeToString()
        return self._head + content


def indexes_from(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Returns the indexes of a message, and where it starts. BadValueError where there are none."""
    count, at = _number(value, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= INDEXES_MAX:
        raise BadValueError(f"no Protobuf of a schema registry: {count} indexes of a message")
    found = []
    for _ in range(count):
        index, at = _number(value, at)
        found.append(index)
    return tuple(found), at


def indexes_as_bytes(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return b"\0"
    content = bytearray()
    for number in (len(indexes), *indexes):
        left = number << 1
        while left > 0x7F:
            content.append(left & 0x7F | 0x80)
            left >>= 7
        content.append(left)
    return bytes(content)


def _number(value: bytes, at: int) -> tuple[int, int]:
    """Returns a number of variable length, with its sign folded, and where it ends."""
    found = 0
    for shift in range(0, 35, 7):
        if at >= len(value):
            break
        found |= (value[at] & 0x7F) << shift
        at += 1
        if value[at - 1] < 0x80:
            return (found >> 1) ^ -(found & 1), at
    raise BadValueError("no Protobuf of a schema registry: it has no indexes of a message")


def _indexes_of(file: Any, name: str | None) -> tuple[int, ...]:
    """Returns where the message of this name is, or the first one. KafkaError INVALID_CONFIG where there is none."""
    if name is None and file.message_types_by_name:
        return (0,)
    waiting: list[tuple[tuple[int, ...], Any]] = [((index,), message) for index, message in enumerate(file.message_types_by_name.values())]
    names = []
    for indexes, message in waiting:
        if message.full_name == name:
            return indexes
        names.append(message.full_name)
        waiting += [((*indexes, index), inner) for index, inner in enumerate(message.nested_types)]
    raise invalid(f"message={name}: the schema has {', '.join(names) or 'no message'}")


def _check_installed() -> None:
    try:
        import google.protobuf.message_factory  # noqa: F401
    except ModuleNotFoundError:
        raise invalid("protobuf needs Google's package: install it with pip install 'ottla[protobuf]'; executors need it, too") from None
