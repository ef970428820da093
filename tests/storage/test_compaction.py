"""Compaction: what stays of a log, in what form, and through which crashes."""

from __future__ import annotations

import random

from hypothesis import given, settings
from tests.storage.compaction_model import Case, Machine, Operation, cases, play

from ottla.records.batch import iterate_batches
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import iterate_records
from ottla.sim.disk import SimDisk
from ottla.sim.loop import run
from ottla.sim.trace import Trace
from ottla.storage.compaction.job import CLEAN_JOB, CLEANED_SUFFIX, CleanResult
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog


def play_cases(count: int) -> tuple[int, int, int]:
    """So many hypothesis cases; segments put in place, records removed and crashes in all of them."""
    totals = [0, 0, 0]

    @settings(max_examples=count, report_multiple_bugs=False)
    @given(cases)
    def play_one(case: Case) -> None:
        model = play(case)
        for index, number in enumerate((model.installed, model.removed, model.crashes)):
            totals[index] += number

    play_one()
    return totals[0], totals[1], totals[2]


def test_a_compacted_log_holds_the_newest_of_each_key_through_any_crash() -> None:
    installed, removed, crashes = play_cases(max(300, settings().max_examples))
    assert (installed > 300, removed > 600, crashes > 120) == (True, True, True), "the cases had content"


def writes(count: int, *, keys: int = 5) -> list[Operation]:
    return [("plain", ([(number % keys, number % 7 == 6)], number % 5)) for number in range(count)]


def test_a_transaction_is_not_listed_as_aborted_once_its_marker_is_gone() -> None:
    """Else a reader that is told of it would wait for its end, and drop all that its producer writes later."""
    operations: list[Operation] = [("transactional", ([(0, False)], 2)), ("end", (False, 2))]
    operations += [("transactional", ([(1, False)], 2)), ("end", (True, 2))]
    for _ in range(3):
        operations += [*writes(12, keys=1), ("clean", 12), ("wait", 1000)]
    machine = Machine(1)
    run(machine.play(operations, []))
    assert machine.model.installed >= 3


WRITES_AND_CLEANINGS: list[list[Operation]] = [
    [*writes(20), ("transactional", ([(0, False), (1, False)], 2)), *writes(2), ("end", (False, 2)), *writes(6)],
    [("clean", 12)],
    [("wait", 1000), ("idempotent", ([(3, True)], 1)), *writes(12, keys=2)],
    [("clean", 2)],
    [("clean", 12)],
]


def crash_in_cleanings(*, power_cut: bool, seed_count: int) -> int:
    """At each disk operation of each cleaning, and then of the recovery; the crashes that there were."""
    machine, crashes = Machine(1), 0
    for operations in WRITES_AND_CLEANINGS:
        whole = machine.copy(1, power_cut=False)
        run(whole.play(operations, []))
        for step in range(1, whole.model.cleaning_steps + 1) if operations[0][0] == "clean" else ():
            for seed in range(seed_count):
                crashed = machine.copy(1000 * step + seed, power_cut=power_cut)
                run(crashed.play(operations, [step, 1 + (step + seed) % 12] if seed % 2 else [step]))
                crashes += crashed.model.crashes
        machine = whole
    return crashes


def test_a_process_killed_at_any_disk_operation_of_a_cleaning_loses_nothing() -> None:
    assert crash_in_cleanings(power_cut=False, seed_count=3) > 400


def test_a_power_cut_at_any_disk_operation_of_a_cleaning_loses_nothing() -> None:
    """Power cuts differ by what they keep, so each is tried in several ways."""
    assert crash_in_cleanings(power_cut=True, seed_count=4) > 600


async def _compacted_log(keys: int, rounds: int, *, segment_bytes: int = 2000) -> PartitionLog:
    """Rounds of the same keys, each of several segments and cleaned before the next."""
    disk = SimDisk(random.Random(1), Trace(), "disk", delay_ms_max=0)
    await disk.make_dirs("/data/t-0")
    config = LogConfig(cleanup_policy="compact", segment_bytes=segment_bytes, delete_retention_ms=0)
    log = await PartitionLog.open(disk, "/data/t-0", config=config, now_ms=0, clean=False)
    for round_ in range(rounds):
        for number in range(60):
            builder = BatchBuilder()
            builder.append(b"%d" % (number % keys), b"x" * 200, timestamp_ms=1000 + round_)
            log.stage(memoryview(builder.build()), leader_epoch=0, now_ms=1000, is_permitted=True)
            await log.flush()
        log.tail.close_segment_soon()
        await log.flush()
        await log.sync()
        request = await log.compaction.clean_request(2000, map_bytes=10_000, map_load_factor=1.0)
        assert request is not None
        result = await disk.work(CLEAN_JOB, request)
        assert await log.compaction.install_all(result.cleaned, now_ms=2000)
        log.compaction.first_dirty_offset = result.end_offset
    return log


def test_cleanings_leave_one_empty_batch_at_most_and_no_reader_stops_at_it() -> None:
    async def main() -> None:
        log = await _compacted_log(2, 12)
        empty = batches = 0
        offset, answers = 0, 0
        while offset < log.log_end_offset:
            part = await log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset)
            assert part is not None, "a reader gets to the end of the log"
            answers += 1
            for _, header in iterate_batches(part.region.read()):
                batches += 1
                empty += header.count == 0
                offset = header.last_offset + 1
        assert empty <= 1
        assert batches <= 4
        assert answers <= 3

    run(main())


def test_segments_become_one_by_what_stays_of_them() -> None:
    """Segments that were full, and of which little stays, do not stay as many."""

    async def main() -> None:
        log = await _compacted_log(2, 1)
        assert len(log.segments) == 2, "what is left of all, and the one that grows"
        log = await _compacted_log(30, 1)
        assert 3 < len(log.segments) <= 30 * 280 // 2000 + 3

    run(main())


async def _with_segments(*batches: tuple[bytes, bytes | None]) -> PartitionLog:
    """A compacted log of one record a segment."""
    disk = SimDisk(random.Random(1), Trace(), "disk", delay_ms_max=0)
    await disk.make_dirs("/data/t-0")
    config = LogConfig(cleanup_policy="compact", segment_bytes=100, delete_retention_ms=0, retention_ms=-1)
    log = await PartitionLog.open(disk, "/data/t-0", config=config, now_ms=0, clean=False)
    for key, value in batches:
        builder = BatchBuilder()
        builder.append(key, value, timestamp_ms=1000)
        log.stage(memoryview(builder.build()), leader_epoch=0, now_ms=1000, is_permitted=True)
        await log.flush()
    log.tail.close_segment_soon()
    await log.flush()
    await log.sync()
    return log


async def _cleaned(log: PartitionLog) -> CleanResult:
    request = await log.compaction.clean_request(2000, map_bytes=10_000, map_load_factor=1.0)
    assert request is not None
    return await log._disk.work(CLEAN_JOB, request)


def test_what_is_not_committed_is_not_compacted() -> None:
    async def main() -> None:
        log = await _with_segments((b"k", b"1"), (b"k", b"2"), (b"k", b"3"), (b"k", b"4"))
        log.tail.committed_end = lambda: 2
        request = await log.compaction.clean_request(2000, map_bytes=10_000, map_load_factor=1.0)
        assert request is not None
        assert request.end_offset == 2

    run(main())


def test_a_later_group_is_not_installed_when_an_earlier_one_cannot_be() -> None:
    """It lacks the tombstone of a value that stays in the earlier one: the deleted key was back."""

    async def main() -> None:
        log = await _with_segments((b"gone", b"1"), (b"gone", b"2"), (b"other", b"y"), (b"gone", None), (b"last", b"z"))
        result = await _cleaned(log)
        assert [source.base_offset for source in result.cleaned[0].sources][:2] == [0, 1]
        assert any(source.base_offset == 3 for source in result.cleaned[1].sources), "the tombstone is of a later group"
        await log.delete_segments_below(1)  # by retention, while the cleaning was going on
        assert not await log.compaction.install_all(result.cleaned, now_ms=2000)
        kept: dict[bytes | None, bytes | None] = {}
        for segment in log.segments:
            for position, _ in iterate_batches(data := await (await segment.opened()).pread(0, segment.size)):
                kept |= {record.key: record.value for record in iterate_records(data, position)}
        assert kept.get(b"gone") is None
        assert [name for name in await log._disk.list_dir(log.directory) if name.endswith(CLEANED_SUFFIX)] == [], (
            "nothing is left of the rest"
        )

    run(main())
