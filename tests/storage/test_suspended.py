"""A disk that lets the loop go on while it works: what may come in between; and the log on real files."""

import asyncio
from collections.abc import Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.storage.batches import append, batch, idempotent, open_log, records_of, stage

from ottla.errors import StorageError
from ottla.ports import Buffer
from ottla.records.batch import iterate_batches
from ottla.records.compression import Codec
from ottla.runtime.files import RealDisk
from ottla.sim.faults import Fault
from ottla.sim.files import SimFile
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog

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


def test_what_is_staged_during_a_flush_is_written_by_it() -> None:
    log = slow(open_log(InstantDisk()))
    stage(log, idempotent(0))
    flush = log.flush()
    assert not is_done(flush)
    assert log.has_pending
    assert stage(log, idempotent(0)).is_duplicate
    assert stage(log, idempotent(1)).base_offset == 1
    assert log.log_end_offset == 0
    assert run(log.read(0, max_bytes=100, end_offset=2)) is None
    assert not is_done(flush)
    assert log.log_end_offset == 1
    assert stage(log, idempotent(1)).is_duplicate
    assert is_done(flush)
    assert (log.has_pending, log.log_end_offset) == (False, 2)
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
            folder = str(tmp_path)
            config = LogConfig(segment_bytes=60_000, index_interval_bytes=1000)

            async def reopen(*, clean: bool) -> PartitionLog:
                return await PartitionLog.open(disk, folder, config=config, now_ms=1000, clean=clean)

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
