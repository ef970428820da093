"""A log that is cut: what it costs, and that what is left is as if it had never been longer."""

from __future__ import annotations

import errno
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.batches import DIRECTORY, append, idempotent, open_log, records_of

from ottla.errors import StorageError
from ottla.records.builder import BatchBuilder
from ottla.records.epochs import CHECKPOINT_NAME
from ottla.sim.disk import SimDisk
from ottla.sim.disk_faults import Fault
from ottla.sim.files import SimFile
from ottla.sim.instant_disk import InstantDisk, run
from ottla.sim.loop import run as simulate
from ottla.sim.trace import Trace
from ottla.storage.config import LogConfig
from ottla.storage.directory.epoch_file import read_epochs
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.remembered_producers import MARKS_MAX, PRODUCERS_MAX, RememberedProducers
from ottla.storage.producers import ProducerStates

NOW_MS = 10_000


def timed(timestamp_ms: int, count: int) -> memoryview:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(None, b"value %d" % number, timestamp_ms=timestamp_ms)
    return memoryview(bytearray(builder.build()))


@given(
    times=st.lists(st.integers(0, 30), min_size=2, max_size=40),
    share=st.floats(0.05, 1),
    segment_bytes=st.sampled_from([400, 1000, 10**6]),
    is_reloaded=st.booleans(),
)
def test_the_last_segment_counts_what_is_left_of_it_and_nothing_else(
    times: list[int], share: float, segment_bytes: int, is_reloaded: bool
) -> None:
    """As a walk over all of it would; an index file that was closed before may have one entry more, which is true as well."""
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=segment_bytes, index_interval_bytes=150)
    append(log, *[timed(1000 + time, 1 + time % 3) for time in times])
    if is_reloaded:
        run(log.close())
        log = open_log(disk, clean=True, segment_bytes=segment_bytes, index_interval_bytes=150)
    run(log.truncate_to(max(1, int(log.log_end_offset * share))))
    segment = log.segments[-1]
    counted = run(segment.count(segment.size, is_recovery=False))
    assert counted.end_offset == log.log_end_offset
    found = (segment.size, segment.first_timestamp, segment.max_timestamp, segment.max_timestamp_offset, segment._bytes_since_entry)
    walked = (counted.size, counted.first_timestamp, counted.max_timestamp, counted.max_timestamp_offset, counted.bytes_since_entry)
    assert found == walked
    assert segment._indexes is not None
    offset_index, time_index = segment._indexes
    assert offset_index.to_bytes() == counted.offset_index
    entries = [counted.time_index[at : at + 12] for at in range(0, len(counted.time_index), 12)]
    kept = [time_index.to_bytes()[at : at + 12] for at in range(0, len(time_index.to_bytes()), 12)]
    assert [entry for entry in kept if entry in entries] == entries
    assert len(kept) <= len(entries) + 1
    append(log, timed(2000, 1))
    assert run(log.offset_of_max_timestamp()) is not None


class Counting:
    """What a truncation reads, in bytes, and what it does to the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read_bytes, self.is_on = 0, False
        self.steps: Counter[str] = Counter()
        pread = SimFile.pread

        async def counting(file: SimFile, position: int, size: int) -> bytes:
            found = await pread(file, position, size)
            self.read_bytes += len(found) * self.is_on
            return found

        monkeypatch.setattr(SimFile, "pread", counting)

    def note(self, operation: str, path: str, what: str) -> None:
        self.steps[operation] += self.is_on


def cost(monkeypatch: pytest.MonkeyPatch, batches: int, *, is_durable: bool) -> Counting:
    """Of cutting one batch from the end of a log of so many, by five producers, which was checkpointed two batches earlier."""
    counting = Counting(monkeypatch)

    async def main() -> None:
        disk = SimDisk(random.Random(1), Trace(), "disk", delay_ms_max=0)
        await disk.make_dirs(DIRECTORY)
        log = await PartitionLog.open(disk, DIRECTORY, config=LogConfig(), now_ms=NOW_MS, clean=False)
        for number in range(batches):
            log.stage(idempotent(number // 5, producer_id=number % 5), leader_epoch=0, now_ms=NOW_MS)
            await log.flush()
            if number == batches - 3:
                log.tail.remember_producers()
        assert not log.begin_truncation(batches - 1), "nothing was synced"
        counting.is_on = True
        disk.on_step = counting.note
        await log.truncate_to(batches - 1, is_durable=is_durable)
        counting.is_on = False
        assert log.log_end_offset == batches - 1
        again = await PartitionLog.open(disk, DIRECTORY, config=LogConfig(), now_ms=NOW_MS, clean=False)
        assert again.producers.states == log.producers.states

    simulate(main())
    return counting


@pytest.mark.parametrize("is_durable", [True, False])
def test_cutting_a_batch_costs_the_same_in_a_short_and_a_long_log(monkeypatch: pytest.MonkeyPatch, is_durable: bool) -> None:
    with monkeypatch.context() as patch:
        few = cost(patch, 100, is_durable=is_durable)
    with monkeypatch.context() as patch:
        many = cost(patch, 3000, is_durable=is_durable)
    interval, chunk = 4096, 8192
    assert many.read_bytes <= 4 * (interval + chunk), "the segment has some 300 kB"
    assert few.steps == many.steps
    if not is_durable:
        assert not any("sync" in step for step in many.steps), many.steps


def test_producers_from_before_the_cut_are_not_remembered_as_those_of_its_end() -> None:
    """The checkpoints are written while a log is being cut: it ends before a batch by then that its producers still know."""

    class Checkpointing(InstantDisk):
        log: PartitionLog | None = None

        async def step(self, operation: str, path: str, *arguments: Any) -> None:
            await super().step(operation, path, *arguments)
            if self.log is not None:
                self.log.tail.remember_producers()

    disk = Checkpointing()
    log = open_log(disk)
    append(log, idempotent(0), idempotent(1))
    disk.log = log
    run(log.truncate_to(1))
    run(log.truncate_to(1))
    append(log, idempotent(1))
    assert log.log_end_offset == 2, "what was cut is no duplicate"


def test_what_was_remembered_after_the_cut_is_forgotten_and_what_is_too_much_is_not_kept() -> None:
    remembered, producers = RememberedProducers(), ProducerStates()
    assert remembered.at(10) is None
    for offset in range(0, 10 * (MARKS_MAX + 2), 10):
        producers.apply(7, 0, (offset, offset, offset, offset, -1), NOW_MS)
        remembered.remember(offset, producers)
    assert remembered.at(19) is None, "only the newest are kept"
    remembered = RememberedProducers()
    remembered.remember(0, ProducerStates())
    remembered.remember(10, producers)
    found = remembered.at(12)
    assert found is not None
    assert found[0] == 10
    assert ProducerStates.from_snapshot(found[1]).states == producers.states
    assert remembered.at(9) == (0, ProducerStates().to_snapshot())
    assert remembered.at(12) == (0, ProducerStates().to_snapshot()), "the other one was of what is cut"
    for producer_id in range(PRODUCERS_MAX + 1):
        producers.apply(producer_id, 0, (0, 0, 0, 0, -1), NOW_MS)
    remembered.remember(50, producers)
    assert remembered.at(60) == (0, ProducerStates().to_snapshot())


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=3, max_size=30), st.data())
def test_producers_after_a_cut_are_those_of_the_batches_that_are_left(steps: list[tuple[int, bool]], data: st.DataObject) -> None:
    log = open_log(InstantDisk(), segment_bytes=700)
    sequences: Counter[int] = Counter()
    for producer_id, is_remembered in steps:
        append(log, idempotent(sequences[producer_id], producer_id=producer_id))
        sequences[producer_id] += 1
        if is_remembered:
            log.tail.remember_producers()
    end = data.draw(st.integers(0, len(steps)))
    run(log.truncate_to(end))
    expected = Counter(producer_id for producer_id, _ in steps[:end])
    assert {producer_id: state.batches[-1][1] + 1 for producer_id, state in log.producers.states.items()} == expected
    assert len(records_of(log)) == end


def three_segments(disk: InstantDisk) -> PartitionLog:
    """Which begin at 10, 13 and 16; the log ends at 18."""
    log = open_log(disk, segment_bytes=3 * len(idempotent(0)))
    run(log.truncate_fully_and_start_at(10))
    append(log, *[idempotent(index) for index in range(8)], leader_epoch=1)
    assert [segment.base_offset for segment in log.segments] == [10, 13, 16]
    return log


@pytest.mark.parametrize("offset", [0, 10, 13, 16, 17, 18, 100])
@pytest.mark.parametrize("is_durable", [True, False])
def test_a_log_that_starts_over_is_empty_and_a_crash_on_the_way_leaves_what_it_was_or_a_beginning_of_it(
    offset: int, is_durable: bool
) -> None:
    disk = InstantDisk()
    log = three_segments(disk)
    before, first = records_of(log), len(disk.operations)
    run(log.truncate_fully_and_start_at(offset, is_durable=is_durable))
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, log.epochs.entries) == (offset, offset, 0, [])
    assert append(log, timed(1, 1))[0].base_offset == offset
    for count in range(first, len(disk.operations) + 1):
        found = records_of(open_log(disk.replay(count)))
        assert found in ([*(before[:end] for end in range(len(before) + 1))]) or [record.offset for record in found] == [offset], count


def test_a_log_that_has_no_room_to_start_over_is_as_it_was() -> None:
    """It was left without any segment (seed 3 of the simulation in ZooKeeper mode), and its follower failed for good."""
    disk = InstantDisk()
    log = three_segments(disk)
    before = records_of(log)
    disk.faults.append(Fault("create", ".log", errno.ENOSPC))
    with pytest.raises(StorageError):
        run(log.truncate_fully_and_start_at(100))
    assert (records_of(log), log.log_end_offset) == (before, 18)
    run(log.truncate_fully_and_start_at(100))
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (100, 100, 0)


@pytest.mark.parametrize("suffix", [f"{CHECKPOINT_NAME}.tmp", ".log"])
def test_a_cut_that_its_disk_refuses_is_no_cut(suffix: str) -> None:
    """Its follower counts the disk as failed. What there is no room for is another matter."""
    disk = InstantDisk()
    log = three_segments(disk)
    run(log.sync())
    fault = Fault("truncate" if suffix == ".log" else "append", suffix, errno.EIO)
    disk.faults.append(fault)
    with pytest.raises(OSError, match="injected") as refused:
        run(log.truncate_to(17))
    assert refused.value.errno == errno.EIO
    assert fault not in disk.faults


def test_epochs_for_which_there_is_no_room_when_a_log_is_cut_are_written_by_the_next_sync() -> None:
    disk = InstantDisk()
    log = open_log(disk)
    append(log, idempotent(0), leader_epoch=1)
    append(log, idempotent(1), leader_epoch=2)
    run(log.sync())
    disk.faults.append(Fault("append", f"{CHECKPOINT_NAME}.tmp", errno.ENOSPC))
    log.begin_truncation(1)
    run(log.truncate_to(1))
    log.durability.truncation_ended()
    assert (log.log_end_offset, log.epochs.entries, disk.faults) == (1, [(1, 0)], [])
    assert open_log(disk.copy()).epochs.entries == [(1, 0)]
    run(log.sync())
    assert run(read_epochs(disk, DIRECTORY)).entries == [(1, 0)]  # type: ignore[union-attr]
