"""Records that were not delivered, until the application has seen why.

A failure counts as seen once the record's future was asked for it: by ``await``, ``result``, ``exception`` or a callback of ``send``.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from ottla.errors import ErrorCode, KafkaError, UndeliveredRecord
from ottla.types import TopicPartition

log: Final = logging.getLogger("ottla.client")  # as in watch.py
KEPT_MAX: Final = 10_000
"""Failures beyond these are counted and not kept: a producer that never flushes must not grow without limit."""


KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""The errors of records beyond these have no record with them."""


class Pending(Protocol):
    """The result of ``send``, as the sender sees it: an asyncio future or one of another thread."""

    def done(self) -> bool: ...
    def set_exception(self, exception: BaseException, /) -> None: ...
    def exception(self) -> BaseException | None: ...

    @property
    def is_unseen(self) -> bool:
        """It has failed, and no caller has looked at its exception."""
        ...


class DeliveryError(KafkaError):
    """Records that were sent are not known to be stored; ``flush`` and ``close`` raise it. The code is the first failure's."""

    def __init__(self, failures: list[tuple[TopicPartition, KafkaError]], count: int) -> None:
        self.failures: list[tuple[TopicPartition, KafkaError]] = failures
        """The partition of each record and why it failed, in order; 10,000 at most are kept."""
        self.count: int = count
        """How many records failed."""
        partition, first = failures[0]
        others = f", and {count - 1} other records were not delivered either" if count > 1 else ""
        place = partition if partition.partition >= 0 else f"topic {partition.topic!r}"  # it had no partition yet
        super().__init__(first.code, f"a record for {place} was not delivered: {first.message or first.code.name}{others}")


def of_record(error: KafkaError, record: UndeliveredRecord) -> KafkaError:
    """Returns the same error, with the record."""
    made = type(error).__new__(type(error), *error.args)
    made.__dict__.update(error.__dict__)
    made.__cause__ = error.__cause__
    made.undelivered = record
    return made


class Failures:
    def __init__(self) -> None:
        self._kept_bytes = 0  # of records that go with their errors
        self._failed: list[tuple[TopicPartition, KafkaError, Pending]] = []
        self._dropped = 0
        self.is_over = False  # no flush follows that could raise: asyncio would print a traceback for each record
        self._at_end = 0

    def takes(self, size_bytes: int) -> bool:
        """Returns whether errors may have their records, of that size in all: what no caller looks at must not grow without limit."""
        if self.is_over:
            return True
        if self._kept_bytes + size_bytes > KEPT_BYTES_MAX:
            self._failed = [failure for failure in self._failed if failure[2].is_unseen]
            if self._failed:
                return False
            self._kept_bytes = 0
        self._kept_bytes += size_bytes
        return True

    def add(self, partition: TopicPartition, error: KafkaError, pending: Pending) -> None:
        if self.is_over:
            pending.exception()
            self._at_end += 1
            return
        if len(self._failed) >= KEPT_MAX:
            self._failed = [failure for failure in self._failed if failure[2].is_unseen]
        if len(self._failed) < KEPT_MAX:
            self._failed.append((partition, error, pending))
        else:
            self._dropped += 1

    def warn(self) -> None:
        """Warns once of all records that failed since it ``is_over``: their futures have the reason."""
        if self._at_end:
            log.warning("close ended before %d records were acknowledged; they may have been stored", self._at_end)

    def forget(self) -> None:
        """Forgets the failures: the application has decided that none of the records counts."""
        for _, _, pending in self._failed:
            pending.exception()
        self._failed.clear()
        self._dropped = self._kept_bytes = 0

    def raise_unseen(self) -> None:
        """Raises DeliveryError with the failures that the application has not seen; they count as seen from now on."""
        failed, self._failed = self._failed, []
        dropped, self._dropped, self._kept_bytes = self._dropped, 0, 0
        unseen = [(partition, error) for partition, error, pending in failed if pending.is_unseen]
        for _, _, pending in failed:
            pending.exception()
        if unseen:
            raise DeliveryError(unseen, len(unseen) + dropped)


def as_kafka_error(error: Exception) -> KafkaError:
    return error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
