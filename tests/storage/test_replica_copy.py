"""A log copied to another directory, and what was begun in the old one."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from ottla.errors import StorageError
from ottla.records.batch import iterate_batches
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import Record, iterate_records
from ottla.sim.disk import SimDisk
from ottla.sim.loop import run
from ottla.sim.trace import Trace
from ottla.storage.compaction.job import CLEAN_JOB
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.replica_copy import ReplicaCopy

OLD, NEW = "/data/t-0", "/spare/t-0"
CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=300, index_interval_bytes=100)
NOW_MS = 10_000


async def at_once() -> None:
    """No part replaces a segment."""


async def log_of(disk: SimDisk, count: int) -> PartitionLog:
    for directory in (OLD, NEW):
        await disk.make_dirs(directory)
    log = await PartitionLog.open(disk, OLD, config=CONFIG, now_ms=NOW_MS, clean=False)
    await append(log, count)
    return log


async def append(log: PartitionLog, count: int, *, leader_epoch: int = 0, value: bytes = b"value") -> None:
    for number in range(count):
        builder = BatchBuilder()
        builder.append(b"%d" % (number % 3), value + b" %d" % number, timestamp_ms=NOW_MS + number)
        log.stage(memoryview(builder.build()), leader_epoch=leader_epoch, now_ms=NOW_MS)
        await log.flush()
    await log.sync()


async def records_of(log: PartitionLog) -> list[Record]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        part = await log.read(offset, max_bytes=1, end_offset=log.log_end_offset)
        assert part is not None
        data = part.region.read()
        for position, header in iterate_batches(data, check_crc=True):
            found += iterate_records(data, position)
            offset = header.last_offset + 1
    return found


async def relocate(disk: SimDisk, log: PartitionLog) -> None:
    copy = ReplicaCopy(disk, log, NEW)
    await copy.catch_up(bytes_per_second=lambda: float("inf"), settled=at_once)
    await copy.finish()
    assert (copy.missing_bytes, copy.offset_lag) == (0, 0)
    log.relocate(NEW, await copy.open_files(NEW))
    await disk.remove_tree(OLD)


def disk_of() -> SimDisk:
    return SimDisk(random.Random(1), Trace(), "disk", delay_ms_max=0)


def test_the_copy_is_the_log_in_another_place() -> None:
    async def main() -> None:
        disk = disk_of()
        log = await log_of(disk, 20)
        names = await disk.list_dir(OLD)
        before = await records_of(log)
        await relocate(disk, log)
        assert [name for name in names if name.endswith((".log", "index", "epoch-checkpoint"))] == [
            name for name in await disk.list_dir(NEW) if not name.endswith(".snapshot")
        ]
        assert await records_of(log) == before
        found = await log.offset_for_timestamp(NOW_MS + 7)
        assert found is not None
        assert found.offset == 7
        await append(log, 20)
        await log.close()
        again = await PartitionLog.open(disk, NEW, config=CONFIG, now_ms=NOW_MS, clean=True, recovery_point=log.recovery_point)
        assert (await records_of(again))[:20] == before
        assert again.log_end_offset == 40

    run(main())


def test_a_cleaning_that_was_begun_in_the_old_place_is_not_installed() -> None:
    async def main() -> None:
        disk = disk_of()
        log = await log_of(disk, 20)
        request = await log.compaction.clean_request(NOW_MS, map_bytes=1 << 16, map_load_factor=1.0)
        assert request is not None
        result = await disk.work(CLEAN_JOB, request)
        assert result.cleaned
        before = await records_of(log)
        await relocate(disk, log)
        assert [await log.compaction.install(cleaned, now_ms=NOW_MS) for cleaned in result.cleaned] == [False] * len(result.cleaned)
        assert await records_of(log) == before
        request = await log.compaction.clean_request(NOW_MS, map_bytes=1 << 16, map_load_factor=1.0)
        assert request is not None
        for cleaned in (await disk.work(CLEAN_JOB, request)).cleaned:
            assert await log.compaction.install(cleaned, now_ms=NOW_MS)
        assert 3 <= len(await records_of(log)) < 10

    run(main())


def test_segments_that_go_while_others_are_copied_go_from_the_copy() -> None:
    async def main() -> None:
        disk = disk_of()
        log = await log_of(disk, 20)
        copy = ReplicaCopy(disk, log, NEW)
        await copy.catch_up(bytes_per_second=lambda: float("inf"), settled=at_once)
        first = log.segments[2].base_offset
        await log.delete_segments_below(first, now_ms=NOW_MS)
        await append(log, 10)
        await copy.finish()
        log.relocate(NEW, await copy.open_files(NEW))
        assert sorted(name for name in await disk.list_dir(NEW) if name.endswith(".log"))[0] == f"{first:020d}.log"
        assert [record.offset for record in await records_of(log)] == list(range(first, 30))

    run(main())


def test_the_copy_of_a_log_that_is_deleted_ends() -> None:
    """Its segments are retired: a copy that waits for them to come would hold the loop for ever."""

    async def main() -> None:
        disk = SimDisk(random.Random(1), Trace(), "disk", delay_ms_max=0)
        log = await log_of(disk, 10)
        copy = ReplicaCopy(disk, log, NEW)
        log.retire()
        with pytest.raises(StorageError):
            await copy.catch_up(bytes_per_second=lambda: float("inf"), settled=at_once)

    run(main())


def test_the_rate_of_a_copy_may_change_within_a_segment() -> None:
    """It is asked for again after five seconds of work, and a mebibyte at least."""

    async def main() -> None:
        disk = disk_of()
        for directory in (OLD, NEW):
            await disk.make_dirs(directory)
        log = await PartitionLog.open(disk, OLD, config=LogConfig(), now_ms=NOW_MS, clean=False)
        builder = BatchBuilder()
        builder.append(None, b"x" * 900_000, timestamp_ms=NOW_MS)
        for _ in range(9):
            log.stage(memoryview(bytearray(builder.build())), leader_epoch=0, now_ms=NOW_MS)
            await log.flush()
        rates = iter([100.0, 400_000.0])
        asked: list[float] = []

        def bytes_per_second() -> float:
            asked.append(next(rates, float("inf")))
            return asked[-1]

        copy = ReplicaCopy(disk, log, NEW)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await copy.catch_up(bytes_per_second=bytes_per_second, settled=at_once)
        assert asked == [100.0, 400_000.0, float("inf")]
        assert copy.missing_bytes == 0
        assert loop.time() > began + (1 << 20) / 100 - 1, "the first mebibyte at a hundred bytes a second"

    run(main())


@pytest.mark.parametrize("segment_bytes", [300, 100_000])
@pytest.mark.parametrize("is_copying", [False, True])
@pytest.mark.parametrize("count", [0, 2, 10, 20])
def test_what_a_follower_cuts_meanwhile_is_not_in_the_copy(
    monkeypatch: pytest.MonkeyPatch, segment_bytes: int, is_copying: bool, count: int
) -> None:
    """And what it fetches instead is, whether that is more or less."""

    async def main() -> None:
        disk = disk_of()
        for directory in (OLD, NEW):
            await disk.make_dirs(directory)
        config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=100)
        log = await PartitionLog.open(disk, OLD, config=config, now_ms=NOW_MS, clean=False)
        await append(log, 20)
        work = disk.work

        async def cut() -> None:
            monkeypatch.setattr(disk, "work", work)
            log.begin_truncation(9)
            await log.truncate_to(9)
            log.durability.truncation_ended()
            await append(log, count, leader_epoch=1, value=b"another and longer value")

        async def cut_meanwhile(*given: Any, **named: Any) -> Any:
            await cut()
            return await work(*given, **named)

        if is_copying:
            monkeypatch.setattr(disk, "work", cut_meanwhile)
        copy = ReplicaCopy(disk, log, NEW)
        await copy.catch_up(bytes_per_second=lambda: float("inf"), settled=at_once)
        if not is_copying:
            await cut()
            assert copy.missing_bytes > 0
            assert copy.offset_lag > 0
        before = await records_of(log)
        await copy.finish()
        assert (copy.missing_bytes, copy.offset_lag) == (0, 0)
        log.relocate(NEW, await copy.open_files(NEW))
        await append(log, 1, leader_epoch=1)
        assert (await records_of(log))[:-1] == before
        opened = await PartitionLog.open(disk, NEW, config=config, now_ms=NOW_MS, clean=False)
        assert await records_of(opened) == await records_of(log)

    run(main())


def test_an_epoch_that_is_entered_between_the_copy_and_the_switch_reaches_the_disk() -> None:
    """Its batches are synced, so that no start asks them: a follower was told that the epoch before ends where it does not."""

    async def main() -> None:
        disk = disk_of()
        log = await log_of(disk, 5)
        copy = ReplicaCopy(disk, log, NEW)
        await copy.catch_up(bytes_per_second=lambda: float("inf"), settled=at_once)
        await copy.finish()
        log.enter_epoch(5)
        log.relocate(NEW, await copy.open_files(NEW))
        await append(log, 40, leader_epoch=5)
        again = await PartitionLog.open(disk, NEW, config=CONFIG, now_ms=NOW_MS, clean=False, recovery_point=log.recovery_point)
        assert again.epochs.entries == log.epochs.entries == [(0, 0), (5, 5)]

    run(main())
