"""Groups of metadata records that are larger than a batch: all of a group counts, or nothing of it.

A group that fits into one batch is complete because the batch is. A larger one is framed: BeginTransactionRecord, the records,
EndTransactionRecord. A crash may leave a frame without its end; its records never counted, and an AbortTransactionRecord
closes it before anything else is appended. Source: KIP-868.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.messages.metadata_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from ottla.wire.schema import Stored


class Transactions:
    """A reader of a log's records in order, which knows transactions of metadata."""

    def __init__(self) -> None:
        self._waiting: list[Stored] | None = None  # of the transaction that has started

    @property
    def is_open(self) -> bool:
        """A transaction has started, and not ended."""
        return self._waiting is not None

    def counting(self, records: Iterable[Stored]) -> list[Stored]:
        """Returns the records that take effect now, once these have been read."""
        found: list[Stored] = []
        for record in records:
            match record:
                case BeginTransactionRecord():
                    assert self._waiting is None, "a transaction begins after the one before it has ended"
                    self._waiting = []
                case EndTransactionRecord():
                    assert self._waiting is not None, "a transaction that ends has begun"
                    found += self._waiting
                    self._waiting = None
                case AbortTransactionRecord():
                    assert self._waiting is not None, "a transaction that is aborted has begun"
                    self._waiting = None
                case _:
                    (found if self._waiting is None else self._waiting).append(record)
        return found
