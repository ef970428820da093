"""A disk that lets the loop go on while it works: what may come in between; and the log on real files."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.storage.batches import append, batch, idempotent, open_log, records_of, stage

from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.ports import Buffer
from ottla.records.batch import iterate_batches
from ottla.records.compression import Codec
from ottla.runtime.files import RealDisk
from ottla.sim.disk_faults import Fault
from ottla.sim.files import SimFile
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.compaction.job import CLEAN_JOB
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.replica_copy import ReplicaCopy

SIZE = len(batch())


class Pause:
    def __await__(self) -> Generator[None, None, None]:
        yield


class SlowFile(SimFile):
    """Its appends and syncs suspend before they do anything."""

    async def append(self, buffers: Sequence[Buffer]) -> int:
        await Pause()
        return await super().append(buffers)

    async def sync(self) -> None:
        await Pause()
        await super().sync()


class ColdFile(SimFile):
    """Its first read suspends when it has read."""

    is_cold = True

    async def pread(self, offset: int, length: int) -> bytes:
        data = await super().pread(offset, length)
        if self.is_cold:
            self.is_cold = False
            await Pause()
        return data


def cold(log: PartitionLog, index: int = 0) -> PartitionLog:
    """The next read of that segment's file waits for its disk."""
    file = run(log.segments[index].opened())
    assert isinstance(file, SimFile)
    log.segments[index].file = ColdFile(file.disk, file.path, file.inode)
    return log


def slow(log: PartitionLog) -> PartitionLog:
    """The last segment's file is slow from now on."""
    file = log.segments[-1].file
    assert isinstance(file, SimFile)
    log.segments[-1].file = SlowFile(file.disk, file.path, file.inode)
    return log


def is_done(coroutine: Coroutine[Any, Any, None]) -> bool:
    """Goes on to the next pause."""
    try:
        coroutine.send(None)
    except StopIteration:
        return True
    return False


def disk_of(log: PartitionLog) -> InstantDisk:
    file = run(log.segments[-1].opened())
    assert isinstance(file, SimFile)
    assert isinstance(file.disk, InstantDisk)
    return file.disk


def move(log: PartitionLog) -> None:
    disk, other = disk_of(log), "/more/topic-0"
    run(disk.make_dirs(other))
    copied = ReplicaCopy(disk, log, other)
    run(copied.finish())
    log.relocate(other, run(copied.open_files(other)))


def compact(log: PartitionLog) -> None:
    request = run(log.compaction.clean_request(5000, map_bytes=10_000, map_load_factor=1.0))
    assert request is not None
    for cleaned in run(disk_of(log).work(CLEAN_JOB, request)).cleaned:
        assert run(log.compaction.install(cleaned, now_ms=5000))


@pytest.mark.parametrize("meanwhile", [move, compact])
def test_a_read_goes_no_further_than_it_may_whatever_happens_to_the_segment_meanwhile(meanwhile: Callable[[PartitionLog], None]) -> None:
    """What lies beyond is not committed, or belongs to an open transaction."""
    log = open_log(InstantDisk(), cleanup_policy="compact", file_delete_delay_ms=0)
    for number in range(9):
        append(log, batch(b"%d" % number, key=b"%d" % (number % 7)))
    log.tail.close_segment_soon()
    run(log.flush())
    run(log.sync())
    reading = cold(log).read(2, max_bytes=10**6, end_offset=5)
    reading.send(None)
    meanwhile(log)
    part = run(reading)
    assert part is not None
    assert [header.base_offset for _, header in iterate_batches(part.region.read()) if header.base_offset >= 5] == []
    assert part.end_offset <= 9


def test_a_read_of_what_was_deleted_meanwhile_comes_too_late() -> None:
    """Its file is still there to be sent, but which of its transactions were aborted is not known any more."""
    log = open_log(InstantDisk())
    append(log, *[batch() for _ in range(5)])
    log.tail.close_segment_soon()
    append(log, batch())
    reading = cold(log).read(2, max_bytes=10**6, end_offset=6)
    reading.send(None)
    run(log.delete_segments_below(5))
    with pytest.raises(KafkaError) as caught:
        run(reading)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_what_is_staged_during_a_flush_is_written_by_it() -> None:
    log = slow(open_log(InstantDisk()))
    stage(log, idempotent(0))
    flush = log.flush()
    assert not is_done(flush)
    assert log.tail.has_pending
    assert stage(log, idempotent(0)).is_duplicate
    assert stage(log, idempotent(1)).base_offset == 1
    assert log.log_end_offset == 0
    assert run(log.read(0, max_bytes=100, end_offset=2)) is None
    assert not is_done(flush)
    assert log.log_end_offset == 1
    assert stage(log, idempotent(1)).is_duplicate
    assert is_done(flush)
    assert (log.tail.has_pending, log.log_end_offset) == (False, 2)
    assert [record.value for record in records_of(log)] == [b"0", b"1"]


def test_a_second_flush_meanwhile_is_the_owners_mistake() -> None:
    log = slow(open_log(InstantDisk()))
    stage(log, batch())
    flush = log.flush()
    assert not is_done(flush)
    with pytest.raises(AssertionError):
        run(log.flush())
    assert is_done(flush)
    assert log.log_end_offset == 1


def test_a_flush_that_is_cancelled_fails_the_log() -> None:
    log = slow(open_log(InstantDisk()))
    stage(log, batch())
    flush = log.flush()
    assert not is_done(flush)
    with pytest.raises(KeyboardInterrupt):
        flush.throw(KeyboardInterrupt())
    assert log.is_failed
    assert log.log_end_offset == 0


def test_a_sync_covers_what_was_there_when_it_began() -> None:
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=3 * SIZE)
    append(log, batch(), batch())
    slow(log)
    sync = log.sync()
    assert not is_done(sync)
    log.segments[-1].file = run(disk.open(log.segments[-1].file.path))
    append(log, batch(), batch(), batch())  # rolls
    assert is_done(sync)
    assert (log.recovery_point, log.durability.has_unsynced_segments, log.durability.unsynced_messages) == (2, True, 3)
    run(log.sync())
    assert (log.recovery_point, log.durability.has_unsynced_segments) == (5, False)


def test_a_sync_that_fails_during_a_flush_leaves_nothing_acknowledged() -> None:
    disk = InstantDisk()
    log = slow(open_log(disk))
    stage(log, batch())
    flush = log.flush()
    assert not is_done(flush)
    sync = log.sync()
    assert not is_done(sync)
    disk.faults = [Fault("sync", "", lasts=True)]
    with pytest.raises(StorageError):
        sync.send(None)
    disk.faults.clear()
    with pytest.raises(StorageError):
        flush.send(None)


def test_the_log_works_on_real_files(tmp_path: Path) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:
            disk = RealDisk(pool)
            directory = str(tmp_path)
            config = LogConfig(segment_bytes=60_000, index_interval_bytes=1000)

            async def reopen(*, clean: bool) -> PartitionLog:
                return await PartitionLog.open(disk, directory, config=config, now_ms=1000, clean=clean)

            log = await reopen(clean=False)
            for index in range(30):
                codec = list(Codec)[index % 5]
                for _ in range(index):  # from no batch to more than one inline append takes
                    stage(log, batch(b"%d" % index * 2000, codec=codec))
                await log.flush()
            end_offset = log.log_end_offset
            assert end_offset == sum(range(30))
            assert len(log.segments) > 3
            again = log
            for clean in (False, True):
                if clean:
                    await log.close()
                again = await reopen(clean=clean)
                assert again.log_end_offset == end_offset
                for offset in range(0, end_offset, 29):
                    part = await again.read(offset, max_bytes=1, end_offset=end_offset)
                    assert part is not None
                    assert part.first_offset == offset
                    assert int.from_bytes(part.region.read()[:8], "big") == offset
            await again.truncate_to(100)
            assert again.log_end_offset == 100
            (tmp_path / f"{again.segments[-1].base_offset:020d}.log").open("ab").write(b"torn")
            assert (await reopen(clean=False)).log_end_offset == 100

    asyncio.run(main())


class SlowReads(SimFile):
    """Its reads suspend before they do anything, as those of a page that is not in the page cache."""

    async def pread(self, offset: int, length: int) -> bytes:
        await Pause()
        return await super().pread(offset, length)


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Goes on through every pause."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value


@pytest.mark.parametrize("meanwhile", ["grows", "rolls", "is truncated"])
def test_what_comes_while_a_read_waits_for_the_disk_is_read_by_the_next(meanwhile: str) -> None:
    log = open_log(InstantDisk(), segment_bytes=5 * SIZE)
    append(log, batch(b"0"), batch(b"1"), batch(b"2"))
    file = log.segments[-1].file
    assert isinstance(file, SimFile)
    log.segments[-1].file = SlowReads(file.disk, file.path, file.inode)
    log._segments.places.forget()
    reading = log.read(1, max_bytes=10**6, end_offset=3)
    reading.send(None)
    if meanwhile == "is truncated":
        finish(log.truncate_to(2))
        log._segments.places.forget()
    else:
        append(log, *[batch(b"%d" % number) for number in range(3, 4 if meanwhile == "grows" else 9)])
    found = finish(reading)
    if meanwhile != "is truncated":
        assert [header.base_offset for _, header in iterate_batches(found.region.read())] == [1, 2]
    else:
        append(log, batch(b"later"))
    offset, seen = 0, []
    while offset < log.log_end_offset:
        part = finish(log.read(offset, max_bytes=10**6, end_offset=log.log_end_offset))
        for _, header in iterate_batches(part.region.read()):
            seen.append(header.base_offset)
            offset = header.last_offset + 1
    assert seen == list(range(log.log_end_offset)), "no record is passed over"


def test_a_segment_that_is_replaced_while_its_file_is_opened_is_not_read_from_the_file_of_its_name() -> None:
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=SIZE)
    append(log, batch(), batch())
    run(log.sync())
    segment = log.segments[0]
    segment.unload()
    open_at_once = disk.open

    async def open_slowly(path: str, *, create: bool = False) -> SimFile:
        await Pause()
        return await open_at_once(path, create=create)

    disk.open = open_slowly  # type: ignore[method-assign]
    opening = segment.opened()
    opening.send(None)
    segment.is_retired = True
    with pytest.raises(FileNotFoundError):
        opening.send(None)
