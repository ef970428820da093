"""What the produce requests of one burst have staged: one write for each log that was touched, then the answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ottla.broker.requests.context import RequestContext, fail, fail_loudly
from ottla.broker.requests.large import Workload
from ottla.broker.tasks import eager
from ottla.errors import KafkaError, StorageError
from ottla.loggers import get_logger

log = get_logger(__name__)


class Flushable(Protocol):
    """A partition that has something staged."""

    topic: str
    index: int

    async def flush(self) -> None:
        """Writes what was staged. StorageError when the disk refused it, another KafkaError when the leader epoch ended."""
        ...

    def fail(self) -> None:
        """Takes the partition offline."""
        ...


class Staged(Protocol):
    """A produce request whose batches have their offsets."""

    context: RequestContext

    @property
    def staged(self) -> Sequence[tuple[Flushable, int, object]]:
        """The partitions, each with what its request remembers of it."""
        ...

    def finish(self, failed: Collection[Flushable]) -> None:
        """Finishes: what it staged is written, except these, and it can be answered."""
        ...


class ProduceBurst:
    """The burst of one loop. It belongs to one connection; its end flushes it, and so does a request that must see its writes."""

    __slots__ = ("_dirty", "_workload", "keeps_received", "staged")

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.staged: list[Staged] = []
        """To be looked at only."""
        self._dirty: dict[Flushable, None] = {}
        self.keeps_received = False  # a write still needs the bytes that the burst received

    def stage(self, produce: Staged) -> None:
        """Stages the request: the burst's logs will be flushed before it is answered."""
        self.staged.append(produce)
        for partition, _, _ in produce.staged:
            self._dirty[partition] = None

    def flush(self) -> None:
        """Writes each touched log once, then answers."""
        staged, self.staged = self.staged, []
        dirty, self._dirty = self._dirty, {}
        flush = _flush(next(iter(dirty))) if len(dirty) == 1 else _flush_all(list(dirty))
        connection = staged[0].context.connection
        counted = 0

        def finished(failed: frozenset[Flushable] | None, error: BaseException | None) -> None:
            if counted:
                self._workload.end_work(counted)
            if error is not None:
                fail_loudly("produce", error)
                failed = frozenset(dirty)
            if counted:
                connection.gather_answers()
            for produce in staged:
                try:
                    produce.finish(failed or ())
                except Exception as error:  # noqa: BLE001 - the others of the burst are answered all the same
                    fail(produce.context, error)
            if counted:
                connection.send_answers()
                connection.written(counted)

        if not eager.run(flush, finished):
            self.keeps_received = True
            counted = len(staged)
            self._workload.begin_work(counted)
            connection.expect_write(counted)


async def _flush(partition: Flushable) -> frozenset[Flushable]:
    """Returns the partitions that did not take what was staged. Whatever happens, no log keeps what was staged for this flush."""
    try:
        await partition.flush()
    except StorageError as error:
        log.error("log_append_failed", topic=partition.topic, partition=partition.index, error=error.message)
        return frozenset((partition,))
    except KafkaError:
        return frozenset((partition,))
    except Exception as error:  # noqa: BLE001 - the other logs of the burst must be flushed before its memory is used again
        fail_loudly("produce", error)
        partition.fail()
        return frozenset((partition,))
    return frozenset()


async def _flush_all(partitions: Sequence[Flushable]) -> frozenset[Flushable]:
    failed: frozenset[Flushable] = frozenset()
    for partition in partitions:
        failed |= await _flush(partition)
    return failed
