"""The images that the committed records of the metadata log make, and those who wait for them.

A replica that leads has the images that its own decisions made, and commits them; any other reads the log. What is read may end inside a
transaction, an image never does: a reader that goes on from the end of an image finds the transaction's start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol

from ottla.broker.metadata.log import MetadataBatch
from ottla.broker.tasks.slices import pause
from ottla.broker.tasks.waiters import OffsetWaiters
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.metadata.history import ImageHistory
from ottla.metadata.image import ClusterImage, CommittedImages
from ottla.metadata.transactions import Transactions
from ottla.wire.schema import Stored

ACLS_A_SLICE: Final = 500
"""Changes of ACLs that are carried out in one turn of the loop, at 5 to 10 us each."""


class RecordSource(Protocol):
    """A log of metadata records."""

    def records(self, start_offset: int, end_offset: int) -> AsyncIterator[list[MetadataBatch]]:
        """Yields the batches of one read at a time. StorageError for what cannot be read."""
        ...

    def unreadable(self, offset: int, reason: str) -> StorageError:
        """Returns the error for an unreadable log: a node must not guess its cluster."""
        ...


class AppliedImages:
    """``on_change`` is called whenever there is a newer image."""

    def __init__(self, log: RecordSource, image: ClusterImage, on_change: Callable[[], None]) -> None:
        self._log = log
        self._on_change = on_change
        self._images = ImageHistory(image)
        self._transactions = Transactions()
        self._waiters = OffsetWaiters()
        self._is_own = False
        self.end_offset = image.end_offset
        """Up to where the log was read or committed; the image ends there, too, but for an open transaction."""

    @property
    def images(self) -> CommittedImages:
        """The holder of ``committed``, for those who ask for it with every request."""
        return self._images

    @property
    def committed(self) -> ClusterImage:
        return self._images.committed

    @property
    def draft(self) -> ClusterImage:
        return self._images.draft

    # -- what this replica decides

    def begin_own(self) -> bool:
        """Makes the log this replica's own from here on. True when a transaction is open that its leader left incomplete."""
        is_open = self._transactions.is_open
        self._transactions = Transactions()
        self._is_own = True
        return is_open

    def end_own(self) -> None:
        """Ends leading: uncommitted records are dropped, and the log is read again."""
        self._is_own = False
        self._images.drop_uncommitted()
        self.end_offset = self._images.committed.end_offset
        self.fail(not_controller())

    def decide(self, records: Sequence[Stored], *, end_offset: int, epoch: int) -> None:
        """Adds the records to the draft."""
        self._images.append(records, end_offset=end_offset, epoch=epoch)

    async def seal(self) -> None:
        """Seals what was decided so far, to become visible together once it is committed."""
        await self._settle()
        self._images.seal()

    async def _settle(self) -> None:
        """Carries out in slices what was appended of thousands of ACLs. Who asks for the draft meanwhile has all the rest done at once."""
        while not self._images.settle(ACLS_A_SLICE):
            await pause()

    async def reached(self, end_offset: int | None) -> None:
        """Waits until what ends there is committed, and in the image; all that was decided before the call, for None.

        NOT_CONTROLLER when leadership was lost before that was known.
        """
        if end_offset is None:
            end_offset = self._images.draft_end_offset
        if self.committed.end_offset >= end_offset:
            return
        if not self._is_own:
            raise not_controller()
        await self._waiters.wait(end_offset)

    def fail(self, error: BaseException) -> None:
        """Fails the waiting calls: it is unknown whether their records will be committed."""
        self._waiters.fail(error)

    # -- what is committed

    async def apply(self, high_watermark: int) -> None:
        """Applies everything that is committed up to there to the image. StorageError for a log that cannot be read."""
        if self.end_offset >= high_watermark:
            return
        if self._is_own:
            self.end_offset = self._images.commit(high_watermark).end_offset
        else:
            await self._read(high_watermark)
        self._tell()

    async def _read(self, high_watermark: int) -> None:
        async for batches in self._log.records(self.end_offset, high_watermark):
            try:
                for batch in batches:
                    self._add(batch)
            except (KeyError, AssertionError) as error:
                raise self._log.unreadable(self.end_offset, repr(error)) from error
            await self._settle()
            self._images.commit(self._images.seal().end_offset)
            await pause()

    def _add(self, batch: MetadataBatch) -> None:
        records = self._transactions.counting(batch.records)
        self.end_offset = batch.end_offset
        if not self._transactions.is_open:
            self._images.append(records, end_offset=batch.end_offset, epoch=batch.epoch)

    def start_over(self, image: ClusterImage) -> None:
        """Starts over from a snapshot, which has taken the place of the log."""
        self._images.start_over(image)
        self._transactions = Transactions()
        self.end_offset = image.end_offset
        self._tell()

    async def resume(self, high_watermark: int) -> None:
        """Applies as ``apply`` does, after a cancelled one, and carries out what that had read: the followers get the newest once more."""
        await self._settle()
        self._images.commit(self._images.seal().end_offset)
        await self.apply(high_watermark)
        self._tell()

    def _tell(self) -> None:
        self._waiters.advance(self.committed.end_offset)
        self._on_change()


def not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
