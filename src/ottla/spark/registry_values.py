"""Values whose schemas are in a registry, as columns, whatever their form: Avro or Protobuf.

A value is bad when it does not have the form, or its schema is unknown, of another kind or cannot be parsed, or does not fit. That the
registry cannot be reached is no fault of a value: it fails the query.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.spark.options import invalid
from ottla.spark.registry import NOT_FOUND, WRONG_KIND, Registry, RegistryError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

T = TypeVar("T")
CORRUPT: Final = "__ottla_corrupt"
HEAD: Final = struct.Struct(">bi")
"""The head of Confluent's wire format: a zero, and the schema's id."""


class BadValueError(ValueError):
    """A value that is no record of a schema that is known."""


@dataclass(frozen=True, slots=True)
class SchemasOf:
    """A registry's schemas, for the values of topics."""

    address: str
    subject: str | None  # None: that of the topic, TOPIC-value

    def of_topic(self, topic: str) -> RegistryValues:
        """Returns the form of the topic's values, by the newest schema. RegistryError where there is none."""
        raise NotImplementedError

    def written(self, columns: Column, schema: StructType, topic: str) -> Column:
        """Returns the columns, a struct of them, as values of the topic; their schema is registered."""
        raise NotImplementedError

    def subject_of(self, topic: str) -> str:
        """Returns the subject. KafkaError INVALID_CONFIG for several topics, which have a subject each."""
        if self.subject is None and "," in topic:
            raise invalid(f"topics {topic} have a subject each in the registry; name one with subject=")
        return self.subject or f"{topic}-value"


@dataclass(frozen=True, slots=True)
class RegistryValues:
    """Values that are read by this schema: the last text, with those that it refers to before it."""

    address: str
    texts: tuple[str, ...]
    schema: StructType

    @property
    def is_fixed(self) -> bool:
        """A registry may lose a schema, or get one, between two looks at the same value."""
        return False

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def decoder(self) -> Decoder:
        """Returns the process's decoder, which keeps the schemas that it has seen."""
        raise NotImplementedError

    def parsed(self, value: Column) -> Column:
        """Returns a struct of the columns, and of what ``is_bad`` looks at."""
        from pyspark.sql.pandas.types import to_arrow_type
        from pyspark.sql.types import StringType, StructField, StructType

        made = StructType([*self.schema.fields, StructField(CORRUPT, StringType())])

        def decode(values: Any) -> Any:
            return self.decoder().column(values.to_pylist(), to_arrow_type(made, timezone="UTC"))

        # So Spark computes it once, and not for each column and each filter again.
        decoded: Column = arrow_udf(decode, made).asNondeterministic()(value)
        return decoded

    def columns(self, parsed: Column) -> dict[str, Column]:
        """Returns the columns of what was parsed, by name."""
        return {name: parsed[name] for name in self.names}

    def is_bad(self, value: Column, parsed: Column) -> Column:
        """Returns whether the value does not fit."""
        return value.isNotNull() & parsed[CORRUPT].isNotNull()

    def reason(self, value: Column, parsed: Column) -> Column:
        """Returns what is wrong with a bad value, in words."""
        return parsed[CORRUPT]

    def misfit(self, value: Column) -> Column:
        """Returns null: ``problem`` finds the field itself."""
        from pyspark.sql import functions as F

        return F.lit(None).cast("string")

    def problem(self, value: bytes, misfit: str | None = None) -> str:
        """Returns what is wrong with a bad value, in words."""
        try:
            self.decoder().row(value)
        except BadValueError as error:
            return str(error)
        return "it does not fit the schema's types"


class Decoder:
    """Values of the wire format to records of one schema."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._unusable: dict[int, str] = {}  # ids of schemas that no value can be read by, each with the reason: an id means one for ever

    def row(self, value: bytes) -> dict[str, Any]:
        """Returns the record. BadValueError where it is none; RegistryError where the registry does not say."""
        raise NotImplementedError

    def column(self, values: list[bytes | None], kind: Any) -> Any:
        """Returns Arrow's array of the records, and of what is wrong with those that are none."""
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

    def _parsed(self, schema_id: int, parse: Callable[[tuple[str, ...]], T]) -> T:
        """Returns the schema of this id. BadValueError where there is none, or none of this kind, or one that cannot be parsed."""
        known = self._unusable.get(schema_id)
        if known is not None:
            raise BadValueError(known)
        try:
            texts = self._registry.texts(schema_id)
        except RegistryError as error:
            if error.status == WRONG_KIND:
                raise self._unusable_by(schema_id, "is of another kind than the one that is read") from None
            if error.status != NOT_FOUND:
                raise
            raise BadValueError(f"the registry has no schema {schema_id}") from None
        try:
            return parse(texts)
        except Exception as error:  # noqa: BLE001 - whatever a parser makes of a stranger's schema
            raise self._unusable_by(schema_id, f"cannot be parsed: {error!r}") from None

    def _unusable_by(self, schema_id: int, problem: str) -> BadValueError:
        said = self._unusable[schema_id] = f"schema {schema_id} of the registry {problem}"
        return BadValueError(said)


def id_of(value: bytes, form: str) -> int:
    """Returns the schema's id. BadValueError for a value that has none."""
    if len(value) < HEAD.size or value[0] != 0:
        raise BadValueError(f"no {form} of a schema registry: it does not begin with a zero and a schema's id")
    number: int = HEAD.unpack_from(value)[1]
    return number


def arrow_udf(function: Callable[[Any], Any], kind: Any) -> Any:
    """Returns a function of one Arrow array as PySpark's own, which reads its annotations."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf as of_arrow

    made: Any = of_arrow
    name = function.__code__.co_varnames[0]
    function.__annotations__ = {name: pa.Array, "return": pa.Array}
    return made(function, kind)


def _fitting(row: Any, kind: Any) -> Any:
    import pyarrow as pa

    try:
        pa.array([row], kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        return {CORRUPT: f"it does not fit the schema's types: {error}"}
    return row
