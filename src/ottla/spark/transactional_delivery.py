"""Rows to a transactional producer, from the driver's thread to the producer's loop, some thousand at a time.

Whether a record was stored is asked of the transaction as a whole: its commit fails when one was not. So records have no futures.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import repeat
from typing import Any, Final

from ottla.client.accumulator import Acknowledgement, RecordMetadata, row_bytes_max
from ottla.client.outgoing import Outgoing
from ottla.client.producer import Producer
from ottla.spark.delivery import partition_counts
from ottla.spark.link import Link
from ottla.spark.row_slice import RowSlice
from ottla.types import Headers

ROWS_AT_ONCE: Final = 2_000
ROWS_TOGETHER_MIN: Final = 4
"""Of neighbours of one partition and one time: so many are encoded by column."""


class _Unasked:
    """The future of every record: it is done, and says nothing."""

    is_unseen: Final = False

    def done(self) -> bool:
        return True

    def exception(self) -> BaseException | None:
        return None

    @staticmethod
    def land(records: Iterable[Any], places: Iterable[RecordMetadata]) -> None:
        """Does nothing: they are done."""

    def set_exception(self, exception: BaseException, /) -> None:
        raise AssertionError("it is done")


_UNASKED: Final[Acknowledgement] = _Unasked()


class TransactionalDelivery:
    """Records of one transaction. ``flush`` must be called at its end."""

    def __init__(self, link: Link, producer: Producer, *, batch_bytes: int) -> None:
        self._link = link
        self._producer = producer
        self._batch_bytes = batch_bytes
        self._waiting: list[RowSlice] = []
        self._waiting_count = 0

    @property
    def batch_bytes(self) -> int:
        return self._batch_bytes

    def partition_counts(self, topics: list[str], *, is_new: bool = False) -> list[int]:
        """Returns how many partitions each topic has. A topic is created where the broker does so by itself."""
        return self._link.run(partition_counts(self._link.cluster, topics, is_new=is_new))

    def any_partition(self, topic: str, count: int) -> int:
        """Returns the partition that records without a key go to at present: another one for each slice of rows."""
        return random.randrange(count)

    def add(self, rows: RowSlice) -> None:
        """Adds the rows to their partition's batches, now or with the next call."""
        self._waiting.append(rows)
        self._waiting_count += rows.end - rows.start
        if self._waiting_count >= ROWS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Adds every row to its partition's batch; the commit waits until all are stored. KafkaError where the transaction has failed."""
        waiting, self._waiting, self._waiting_count = self._waiting, [], 0
        if waiting:
            self._link.run(self._send(waiting))

    async def _send(self, waiting: list[RowSlice]) -> None:
        producer: Any = self._producer
        for rows in waiting:
            longest = _longest_of(rows)
            topic, partition = rows.target.topic, rows.target.partition
            row = rows.start
            while row < rows.end:
                if not producer._is_admitted(topic, partition):
                    await producer._admit(topic, partition)
                if longest is not None and longest <= row_bytes_max(self._batch_bytes):
                    given = {"start": row, "end": rows.end, "size_bytes_max": longest, "timestamp_ms": rows.timestamp_ms}
                    row = producer._extend(rows.target, rows.keys, rows.values, repeat(_UNASKED), **given)
                else:
                    producer._add(_record_of(rows, row), _UNASKED)
                    row += 1


def _longest_of(rows: RowSlice) -> int | None:
    """Returns how many bytes a row has at most; None where rows have headers, or are so few that each is added alone."""
    if rows.headers is not None or rows.end - rows.start < ROWS_TOGETHER_MIN:
        return None
    columns = (rows.keys, rows.values)
    return sum(max(map(len, filter(None, column[rows.start : rows.end])), default=0) for column in columns)


def _record_of(rows: RowSlice, row: int) -> Outgoing:
    key, value = rows.keys[row], rows.values[row]
    of_row: Headers = rows.headers[row] if rows.headers is not None else ()
    size = len(key or b"") + len(value or b"") + sum(len(name) + len(content or b"") for name, content in of_row)
    return Outgoing(rows.target.topic, rows.target.partition, key, value, of_row, rows.timestamp_ms, size)
