"""Images of what is committed: by this replica's own decisions, or read from the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ottla.broker.metadata.applied import ACLS_A_SLICE, AppliedImages
from ottla.broker.metadata.log import MetadataBatch
from ottla.errors import StorageError
from ottla.messages.metadata_records import AccessControlEntryRecord, BeginTransactionRecord, EndTransactionRecord, TopicRecord
from ottla.metadata.image import EMPTY_IMAGE
from ottla.metadata.replay import replay


class Source:
    """A log of one record a batch; a ``RecordSource``."""

    def __init__(self, *records: object) -> None:
        self.records_there = list(records)

    async def records(self, start_offset: int, end_offset: int) -> AsyncIterator[list[MetadataBatch]]:
        for offset in range(start_offset, min(end_offset, len(self.records_there))):
            yield [MetadataBatch(offset + 1, 1, [self.records_there[offset]])]  # type: ignore[list-item]

    def unreadable(self, offset: int, reason: str) -> StorageError:
        return StorageError(f"{offset}: {reason}")


def topic(number: int) -> TopicRecord:
    return TopicRecord(f"topic-{number}", number.to_bytes(16, "big"))


def test_what_a_cancelled_reader_had_read_is_carried_out_by_the_one_that_resumes() -> None:
    """As of a broker whose session ends while it carries out thousands of ACLs: those took no effect before the next decision."""

    class OneBatch(Source):
        async def records(self, start_offset: int, end_offset: int) -> AsyncIterator[list[MetadataBatch]]:
            if start_offset == 0:
                yield [MetadataBatch(end_offset, 1, self.records_there)]  # type: ignore[arg-type]

    async def body() -> None:
        count = 2 * ACLS_A_SLICE + 1
        entries = [AccessControlEntryRecord(number.to_bytes(16, "big"), 2, "t", 3, f"User:{number}", "*", 3, 3) for number in range(count)]
        applied = AppliedImages(OneBatch(*entries), EMPTY_IMAGE, lambda: None)
        reading = asyncio.create_task(applied.apply(count))
        await asyncio.sleep(0)
        assert not reading.done(), "it pauses between slices"
        reading.cancel()
        await asyncio.wait([reading])
        await applied.resume(count)
        assert (applied.committed.end_offset, len(applied.committed.acls)) == (count, count)

    asyncio.run(body())


def test_a_controller_that_was_deposed_reads_a_transaction_again_from_its_beginning() -> None:
    """It led for a moment, while a transaction of the leader before was open, and committed nothing: another leader ends that one."""

    async def body() -> None:
        source = Source(topic(1), BeginTransactionRecord(), topic(2))
        applied = AppliedImages(source, EMPTY_IMAGE, lambda: None)
        await applied.apply(3)
        assert (applied.end_offset, applied.committed.end_offset) == (3, 1)
        assert applied.begin_own(), "a transaction is open"
        applied.end_own()
        assert applied.end_offset == 1
        source.records_there += [topic(3), EndTransactionRecord()]
        await applied.apply(5)
        assert set(applied.committed.topics) == {"topic-1", "topic-2", "topic-3"}

    asyncio.run(body())


def test_a_controller_that_was_deposed_keeps_nothing_of_its_uncommitted_decisions() -> None:
    """It is elected once more, and goes on from what was committed meanwhile."""

    async def body() -> None:
        source = Source(topic(1))
        applied = AppliedImages(source, EMPTY_IMAGE, lambda: None)
        await applied.apply(1)
        assert not applied.begin_own()
        applied.decide([topic(2)], end_offset=2, epoch=1)
        await applied.seal()
        assert set(applied.draft.topics) == {"topic-1", "topic-2"}
        applied.end_own()
        assert set(applied.draft.topics) == {"topic-1"}
        source.records_there.append(topic(3))  # another leader's, in its place
        await applied.apply(2)
        assert set(applied.committed.topics) == set(applied.draft.topics) == {"topic-1", "topic-3"}

    asyncio.run(body())


def test_who_holds_the_images_sees_those_of_a_snapshot_too() -> None:
    """The holder stays the same: an authorizer asks it with every request."""
    applied = AppliedImages(Source(), EMPTY_IMAGE, lambda: None)
    images, image = applied.images, replay(EMPTY_IMAGE, [topic(1)])
    applied.start_over(image)
    assert images.committed is applied.committed is applied.draft is image
