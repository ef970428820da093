"""Avro values of a schema registry, in Confluent's wire format: a zero, the schema's id in four bytes, the record.

``read_topic(spark, "orders", avro("http://localhost:8081"))``: the columns come from the subject's newest schema when the query starts,
and what was written with another one is resolved to it, as Avro says. ``to_topic(..., values=avro(...))`` registers the schema of the
frame's columns. A value is bad, too, when bytes are left. Needs ``pip install 'ottla[avro]'``.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.avro_types import schema_of, struct_of, without_logical_types
from ottla.spark.options import invalid
from ottla.spark.registry import Registry
from ottla.spark.registry_values import HEAD, BadValueError, Decoder, RegistryValues, SchemasOf, arrow_udf, id_of

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_DECODERS: Final[dict[tuple[str, tuple[str, ...]], AvroDecoder]] = {}


@dataclass(frozen=True, slots=True)
class AvroRegistry(SchemasOf):
    """Values in Avro, with their schemas in a registry."""

    def of_topic(self, topic: str) -> AvroValues:
        _check_installed()
        texts = Registry(self.address).newest(self.subject_of(topic)).texts
        return AvroValues(self.address, texts, struct_of([json.loads(text) for text in texts])[0])

    def written(self, columns: Column, schema: StructType, topic: str) -> Column:
        _check_installed()
        made, _ = schema_of(schema, re.sub(r"\W", "_", topic))
        text = json.dumps(made)
        schema_id = Registry(self.address).register(self.subject_of(topic), text)

        def encode(rows: Any) -> Any:
            import pyarrow

            encoder = Encoder(schema_id, text, schema)
            return pyarrow.array([encoder.value(row) for row in rows.to_pylist()], pyarrow.binary())

        encoded: Column = arrow_udf(encode, "binary")(columns)
        return encoded


def avro(registry: str, *, subject: str | None = None) -> AvroRegistry:
    """Declares values in Avro, with schemas of the registry at this address (``http://host:8081``, with ``name:password@`` if needed).

    ``subject`` defaults to ``TOPIC-value``.
    """
    Registry(registry)
    return AvroRegistry(registry, subject)


@dataclass(frozen=True, slots=True)
class AvroValues(RegistryValues):
    """Values that are records of Avro."""

    def decoder(self) -> AvroDecoder:
        found = _DECODERS.get((self.address, self.texts))
        if found is None:
            found = _DECODERS[self.address, self.texts] = AvroDecoder(Registry(self.address), self.texts)
        return found


class AvroDecoder(Decoder):
    """Values of the wire format to records of one schema."""

    def __init__(self, registry: Registry, texts: tuple[str, ...]) -> None:
        super().__init__(registry)
        self._read_by = texts
        self._reader = _parsed(texts)
        self._convert = struct_of([json.loads(text) for text in texts])[1]
        self._writers: dict[int, Any] = {}

    def row(self, value: bytes) -> dict[str, Any]:
        import fastavro
        from fastavro.read import SchemaResolutionError

        writer = self._writer(id_of(value, "Avro"))
        content = io.BytesIO(value[HEAD.size :])
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

    def _writer(self, schema_id: int) -> Any:
        found = self._writers.get(schema_id)
        if found is None:
            found = self._writers[schema_id] = self._parsed(schema_id, self._written_by)
        return found

    def _written_by(self, texts: tuple[str, ...]) -> Any:
        return self._reader if texts == self._read_by else _parsed(texts)


class Encoder:
    """Rows to values of the wire format."""

    def __init__(self, schema_id: int, text: str, schema: StructType) -> None:
        import fastavro

        self._head = HEAD.pack(0, schema_id)
        self._schema = fastavro.parse_schema(json.loads(text))
        self._convert = schema_of(schema, "x")[1]

    def value(self, row: Any) -> bytes | None:
        """Returns the value; None for a row that is none."""
        import fastavro

        if row is None:
            return None
        content = io.BytesIO()
        content.write(self._head)
        fastavro.schemaless_writer(content, self._schema, self._convert(row))
        return content.getvalue()


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
