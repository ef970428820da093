"""Avro values of a schema registry, in Confluent's wire format: a zero, the schema's id in four bytes, the record.

``read_topic(spark, "orders", avro("http://localhost:8081"))``: the columns are those of the subject's newest schema when the query starts,
and what was written with another one is resolved to it, as Avro says. ``to_topic(..., values=avro(...))`` registers the schema of the
frame's columns. A value is bad when it does not have the form, its schema is unknown or does not resolve, or bytes are left. That the
registry cannot be reached is no fault of a value: it fails the query. Needs ``pip install 'ottla[avro]'``.
"""

from __future__ import annotations

import io
import json
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.avro_types import schema_of, struct_of, without_logical_types
from ottla.spark.options import invalid
from ottla.spark.registry import Registry, RegistryError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

CORRUPT: Final = "__ottla_corrupt"
_HEAD: Final = struct.Struct(">bi")
_NOT_FOUND: Final = 404
_DECODERS: Final[dict[tuple[str, tuple[str, ...]], Decoder]] = {}


class BadValueError(ValueError):
    """A value that is no record of a schema that is known."""


@dataclass(frozen=True, slots=True)
class AvroRegistry:
    """Values in Avro, with their schemas in a registry."""

    address: str
    subject: str | None  # None: that of the topic, TOPIC-value

    def of_topic(self, topic: str) -> AvroValues:
        """The form of the topic's values, as the newest schema has it. RegistryError where there is none."""
        _check_installed()
        if self.subject is None and "," in topic:
            raise invalid(f"avro: topics {topic} have a subject each; name one with subject=")
        texts = Registry(self.address).newest(self.subject or f"{topic}-value").texts
        return AvroValues(self.address, texts, struct_of([json.loads(text) for text in texts])[0])

    def written(self, columns: Column, schema: StructType, topic: str) -> Column:
        """The columns, a struct of them, as values of the topic; their schema is registered."""
        _check_installed()
        made, _ = schema_of(schema, re.sub(r"\W", "_", topic))
        text = json.dumps(made)
        schema_id = Registry(self.address).register(self.subject or f"{topic}-value", text)

        def encode(rows: Any) -> Any:
            import pyarrow

            encoder = Encoder(schema_id, text, schema)
            return pyarrow.array([encoder.value(row) for row in rows.to_pylist()], pyarrow.binary())

        encoded: Column = _arrow_udf(encode, "binary")(columns)
        return encoded


def avro(registry: str, *, subject: str | None = None) -> AvroRegistry:
    """Values in Avro, with the schemas of the registry at this address (``http://host:8081``, with ``name:password@`` where it asks).

    They are those of the subject, ``TOPIC-value`` without one.
    """
    Registry(registry)
    return AvroRegistry(registry, subject)


@dataclass(frozen=True, slots=True)
class AvroValues:
    """Values that are records of Avro, read by this schema: the last text, with those that it refers to before it."""

    address: str
    texts: tuple[str, ...]
    schema: StructType

    is_fixed = False
    """A registry may lose a schema, or get one, between two looks at the same value."""

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def parsed(self, value: Column) -> Column:
        """A struct of the columns, and of what ``is_bad`` looks at."""
        from pyspark.sql.pandas.types import to_arrow_type
        from pyspark.sql.types import StringType, StructField, StructType

        made = StructType([*self.schema.fields, StructField(CORRUPT, StringType())])
        address, texts = self.address, self.texts

        def decode(values: Any) -> Any:
            return decoder_of(address, texts).column(values.to_pylist(), to_arrow_type(made, timezone="UTC"))

        # So Spark computes it once, and not for each column and each filter again.
        decoded: Column = _arrow_udf(decode, made).asNondeterministic()(value)
        return decoded

    def is_bad(self, value: Column, parsed: Column) -> Column:
        """Whether the value does not fit."""
        return value.isNotNull() & parsed[CORRUPT].isNotNull()

    def problem(self, value: bytes) -> str:
        """In words, of a value that is bad."""
        try:
            decoder_of(self.address, self.texts).row(value)
        except BadValueError as error:
            return str(error)
        return "it does not fit the schema's types"


def decoder_of(address: str, texts: tuple[str, ...]) -> Decoder:
    """The process's one: it keeps the schemas that it has seen."""
    found = _DECODERS.get((address, texts))
    if found is None:
        found = _DECODERS[address, texts] = Decoder(Registry(address), texts)
    return found


class Decoder:
    """Values of the wire format to records of one schema."""

    def __init__(self, registry: Registry, texts: tuple[str, ...]) -> None:
        self._registry = registry
        self._texts = texts
        self._reader = _parsed(texts)
        self._convert = struct_of([json.loads(text) for text in texts])[1]
        self._writers: dict[int, Any] = {}

    def row(self, value: bytes) -> dict[str, Any]:
        """The record. BadValueError where it is none; RegistryError where the registry does not say."""
        import fastavro
        from fastavro.read import SchemaResolutionError

        if len(value) < _HEAD.size or value[0] != 0:
            raise BadValueError("no Avro of a schema registry: it does not begin with a zero and a schema's id")
        writer = self._writer(_HEAD.unpack_from(value)[1])
        content = io.BytesIO(value[_HEAD.size :])
        try:
            # A reader that is the writer's schema is left out: nothing is resolved then.
            record = fastavro.schemaless_reader(content, writer, None if writer is self._reader else self._reader)
            row: dict[str, Any] = self._convert(record)
        except SchemaResolutionError as error:
            raise BadValueError(f"its schema does not resolve to the one that is read: {error}") from None
        except (EOFError, LookupError, ValueError, TypeError, ArithmeticError, AttributeError, MemoryError, RecursionError) as error:
            raise BadValueError(f"no Avro of its schema: {error!r}") from None
        if content.read(1):
            raise BadValueError("no Avro of its schema: bytes are left")
        return row

    def column(self, values: list[bytes | None], kind: Any) -> Any:
        """Arrow's array of the records, and of what is wrong with those that are none."""
        import pyarrow as pa

        rows = [None if value is None else self._row_or_problem(value) for value in values]
        try:
            return pa.array(rows, kind)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return pa.array([_fitting(row, kind) for row in rows], kind)

    def _row_or_problem(self, value: bytes) -> dict[str, Any]:
        try:
            return self.row(value)
        except BadValueError as error:
            return {CORRUPT: str(error)}

    def _writer(self, schema_id: int) -> Any:
        found = self._writers.get(schema_id)
        if found is None:
            try:
                texts = self._registry.texts(schema_id)
            except RegistryError as error:
                if error.status != _NOT_FOUND:
                    raise
                raise BadValueError(f"the registry has no schema {schema_id}") from None
            found = self._writers[schema_id] = self._reader if texts == self._texts else _parsed(texts)
        return found


def _fitting(row: Any, kind: Any) -> Any:
    import pyarrow as pa

    try:
        pa.array([row], kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        return {CORRUPT: f"it does not fit the schema's types: {error}"}
    return row


class Encoder:
    """Rows to values of the wire format."""

    def __init__(self, schema_id: int, text: str, schema: StructType) -> None:
        import fastavro

        self._head = _HEAD.pack(0, schema_id)
        self._schema = fastavro.parse_schema(json.loads(text))
        self._convert = schema_of(schema, "x")[1]

    def value(self, row: Any) -> bytes | None:
        """None for a row that is none."""
        import fastavro

        if row is None:
            return None
        content = io.BytesIO()
        content.write(self._head)
        fastavro.schemaless_writer(content, self._schema, self._convert(row))
        return content.getvalue()


def _arrow_udf(function: Any, kind: Any) -> Any:
    """A function of one Arrow array as PySpark's own, which reads its annotations."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    name = function.__code__.co_varnames[0]
    function.__annotations__ = {name: pa.Array, "return": pa.Array}
    return arrow_udf(function, kind)


def _parsed(texts: tuple[str, ...]) -> Any:
    import fastavro

    named: dict[str, Any] = {}
    found: Any = None
    for text in texts:
        found = fastavro.parse_schema(without_logical_types(json.loads(text)), named_schemas=named)
    return found


def _check_installed() -> None:
    try:
        import fastavro  # noqa: F401
    except ModuleNotFoundError:
        raise invalid("avro needs fastavro: install it with pip install 'ottla[avro]'; executors need it, too") from None
