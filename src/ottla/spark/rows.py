"""A task's writing: rows of Arrow batches to record batches, to the partitions' leaders.

The columns are those of Spark's Kafka sink: value (string or binary), and key, topic, partition, headers where they are wanted.
A key's murmur2 picks the partition, as with every Kafka client; rows without one stay together for the length of a record batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from ottla.client.partitioner import partition_for_key
from ottla.spark.delivery import Delivery
from ottla.spark.link import link_for
from ottla.spark.options import boolean, invalid
from ottla.types import Headers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

KEYS_REMEMBERED_MAX: Final = 100_000
_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": (_HEADERS_TYPE,),
}


class RowsWritten(WriterCommitMessage):
    """How many rows a task has written."""

    def __init__(self, row_count: int) -> None:
        self.row_count = row_count


def check_columns(schema: StructType, options: Mapping[str, str], *, overwrite: bool = False) -> None:
    """KafkaError INVALID_CONFIG when rows of this schema cannot be written with these options."""
    if overwrite:
        raise invalid('mode("overwrite") is refused: a topic can only be appended to; use mode("append")')
    for name in ("kafka.acks", "kafka.enable.idempotence"):
        if options.get(name, "all").lower() not in ("all", "-1", "true"):
            raise invalid(f"{name}={options[name]} is refused: the sink is idempotent, which needs acks=all")
    found = {field.name: field.dataType.simpleString() for field in schema}
    with_headers = boolean(options, "includeHeaders", False)
    for name, kind in found.items():
        if name == "headers" and not with_headers:
            raise invalid("there is a column headers; set includeHeaders=true to write it, or drop it")
        if name not in _TYPES:
            raise invalid(f"column {name!r} has no place in a record, which has {', '.join(_TYPES)}; put it into value with to_json")
        if kind not in _TYPES[name]:
            raise invalid(f"column {name} is {kind}; it must be {' or '.join(_TYPES[name])}")
    if "value" not in found:
        raise invalid("there is no column value")
    if topic_of(options) is None and "topic" not in found:
        raise invalid("no topic: give the option topic, or a column topic")


def topic_of(options: Mapping[str, str]) -> str | None:
    return options.get("topic") or options.get("path")


def write_rows(batches: Iterator[pa.RecordBatch], options: Mapping[str, str]) -> int:
    """Every row is acknowledged; how many there were. KafkaError when one could not be delivered."""
    delivery = Delivery(link_for(options), options)
    writer = _RowWriter(delivery, topic_of(options))
    try:
        row_count = 0
        for batch in batches:
            writer.write(batch)
            row_count += batch.num_rows
        delivery.flush()
    finally:
        delivery.stop()
    return row_count


class _RowWriter:
    def __init__(self, delivery: Delivery, topic: str | None) -> None:
        self._delivery = delivery
        self._topic = topic
        self._counts: dict[str, int] = {}  # partitions of each topic
        self._partitions: dict[tuple[str, bytes], int] = {}  # of keys seen before

    def write(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        count = batch.num_rows
        values = _bytes_of(batch.column("value"))
        keys = _bytes_of(batch.column("key")) if "key" in names else [None] * count
        topics = [self._topic] * count if self._topic is not None else batch.column("topic").to_pylist()
        partitions = batch.column("partition").to_pylist() if "partition" in names else [None] * count
        headers = [_headers_of(row) for row in batch.column("headers").to_pylist()] if "headers" in names else [()] * count
        for topic, partition, key, value, header in zip(topics, partitions, keys, values, headers, strict=True):
            if topic is None:
                raise invalid("a row has no topic: its column topic is null, and the option topic is not given")
            index = self._partition(topic, key, partition)
            self._delivery.add(topic, index, key, value, header)

    def _partition(self, topic: str, key: bytes | None, wanted: int | None) -> int:
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._delivery.partition_count(topic)
        if wanted is not None:
            if not 0 <= wanted < count:
                raise invalid(f"a row has partition {wanted}; topic {topic!r} has {count} partitions")
            return wanted
        if key is None:
            return self._delivery.any_partition(topic, count)
        found = self._partitions.get((topic, key))
        if found is None:
            if len(self._partitions) >= KEYS_REMEMBERED_MAX:
                self._partitions.clear()
            found = self._partitions[topic, key] = partition_for_key(key, count)
        return found


def _bytes_of(column: pa.Array) -> list[bytes | None]:
    """A string or binary column; strings as UTF-8, which is how Arrow has them."""
    import pyarrow as pa

    if pa.types.is_string(column.type):
        column = column.view(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.view(pa.large_binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _headers_of(row: list[dict[str, Any]] | None) -> Headers:
    return tuple((header["key"], header["value"]) for header in row or ())
