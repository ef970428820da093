"""Compaction, retention, rolls and reads of a log beside transactions that end in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.test_log_care import play
from tests.broker.test_waiting_fetches import KEPT, Consumer, in_a_transaction, put, soon, waits
from tests.quiet import silence
from tests.storage.batches import aborted_by_walking, batch, open_log, stage
from tests.storage.test_suspended import move
from tests.storage.test_transaction_index import end, replayed, write

from ottla.client.admin import Admin
from ottla.messages.fetch import READ_COMMITTED
from ottla.sim.cluster import SimBroker
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.compaction.job import CLEAN_JOB, CleanResult
from ottla.storage.log import replay
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.reading import LogSlice
from ottla.types import TopicPartition

LATER_MS = 10**9
"""Of delete horizons that a cleaning has set before, all have passed."""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def roll(log: PartitionLog) -> None:
    log.tail.close_segment_soon()
    run(log.flush())


def compacted_log() -> tuple[InstantDisk, PartitionLog]:
    """An aborted transaction over three segments, a committed one of the same producer after it, and an open one of another."""
    disk = InstantDisk()
    log = open_log(disk, cleanup_policy="compact", file_delete_delay_ms=0, delete_retention_ms=1000)
    stage(log, batch(b"plain", key=b"first"))
    roll(log)
    for sequence in range(2):
        write(log, 1, sequence)
        roll(log)
    end(log, 1, is_commit=False)  # at 3
    roll(log)
    stage(log, batch(b"plain", key=b"other"))
    roll(log)
    write(log, 1, 2)  # at 5
    roll(log)
    end(log, 1, is_commit=True)
    roll(log)
    write(log, 2, 0)  # at 7
    roll(log)
    run(log.sync())
    return disk, log


def cleaned(log: PartitionLog, now_ms: int) -> CleanResult | None:
    """What a cleaning has brought, not installed yet."""
    request = run(log.compaction.clean_request(now_ms, map_bytes=10_000, map_load_factor=1.0))
    return None if request is None else run(log._disk.work(CLEAN_JOB, request))


def install(log: PartitionLog, result: CleanResult | None, now_ms: int) -> None:
    if result is not None:
        run(log.compaction.install_all(result.cleaned, now_ms=now_ms))


def end_other(log: PartitionLog) -> None:
    """The open transaction is aborted."""
    end(log, 2, is_commit=False)
    run(log.flush())


def retain(log: PartitionLog) -> None:
    run(log.delete_segments_below(2))


def delete_records(log: PartitionLog) -> None:
    log.advance_log_start_offset(5)


Act = Callable[[PartitionLog], None]
ACTS: list[Act] = [end_other, retain, delete_records, move]


@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("cleaning", [0, 1])
@pytest.mark.parametrize("act", ACTS)
def test_what_comes_while_a_log_is_cleaned(act: Act, cleaning: int, is_first: bool) -> None:
    """Before what was cleaned is installed, or after it: no aborted record is there for readers, and no committed one is missing."""
    _, log = compacted_log()
    for number, now_ms in enumerate((2000, LATER_MS)):
        result = cleaned(log, now_ms)
        if is_first and number == cleaning:
            act(log)
        install(log, result, now_ms)
        if not is_first and number == cleaning:
            act(log)
        assert run(replayed(log)) == [offset for offset in (0, 4, 5) if offset >= log.log_start_offset]
        known = {(entry.producer_id, entry.last_offset) for entry in run(log.aborted.between(0, 99))}
        walked = {(entry.producer_id, entry.last_offset) for entry in aborted_by_walking(log)[0]}
        assert walked <= known, "what has its marker and a record is listed"
        log.compaction.first_dirty_offset = log.log_start_offset


def test_a_log_that_is_cleaned_while_a_coordinator_loads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The abort marker that ends what was aborted goes before it is read: what the producer has committed since is not dropped."""
    _, log = compacted_log()
    install(log, cleaned(log, 2000), 2000)  # now the marker has a horizon
    stage(log, batch(b"plain", key=b"third"))
    roll(log)
    run(log.sync())
    log.compaction.first_dirty_offset = 0
    result = cleaned(log, LATER_MS)
    assert result is not None
    assert len(log.aborted) == 1
    monkeypatch.setattr(replay, "_READ_BYTES", 1)
    read, count = PartitionLog.read, 0

    async def then_installed(self: PartitionLog, offset: int, **limits: Any) -> LogSlice | None:
        nonlocal count
        count += 1
        if count == 2:
            assert await self.compaction.install_all(result.cleaned, now_ms=LATER_MS)
            assert len(self.aborted) == 0, "the marker is gone"
        return await read(self, offset, **limits)

    monkeypatch.setattr(PartitionLog, "read", then_installed)
    assert run(replayed(log)) == [0, 4, 5, 8]
    assert count > 2


@pytest.mark.parametrize("when", ["before the marker", "after the marker"])
def test_a_segment_that_is_rolled_beside_an_end_marker_and_any_crash(when: str) -> None:
    """After a kill at any operation of the disk, and after a power cut there: what the log has is known as it is."""
    disk = InstantDisk()
    log = open_log(disk)
    write(log, 1, 0)
    write(log, 2, 0)
    run(log.flush())
    run(log.sync())
    begun = len(disk.operations)
    found: list[tuple[InstantDisk, int]] = []

    def keep(operation: str, path: str, what: str) -> None:
        cut = disk.power_cut(lambda path, durable, written: durable)
        found.append((cut, log.recovery_point))

    disk.on_step = keep
    if when == "before the marker":
        log.tail.close_segment_soon()
    end(log, 1, is_commit=False)
    run(log.flush())
    if when == "after the marker":
        roll(log)
    end(log, 2, is_commit=False)
    run(log.flush())
    run(log.sync())
    roll(log)
    run(log.sync())
    disk.on_step = lambda operation, path, what: None
    assert len(log.aborted) == 2
    assert len(found) > 10
    states = found + [(disk.replay(count), 0) for count in range(begun, len(disk.operations) + 1)]
    met = set()
    for crashed, recovery_point in states:
        opened = open_log(crashed, recovery_point=recovery_point)
        aborted, stable_offset = aborted_by_walking(opened)
        assert run(opened.aborted.between(0, 99)) == aborted
        assert opened.producers.last_stable_offset(opened.log_end_offset) == stable_offset
        met.add((len(aborted), len(opened.segments)))
    assert {count for count, _ in met} == {0, 1, 2}


@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.parametrize("is_moved", [False, True])
def test_a_committed_reader_that_waits_at_an_open_transaction_whose_records_are_deleted(is_moved: bool, is_watched: bool) -> None:
    """Its place is out of range as soon as the log begins after it; where it begins is the stable offset then."""

    async def act(broker: SimBroker) -> None:
        consumer = await Consumer.begin(broker, 3, is_watched=is_watched)
        await put(broker, 3, in_a_transaction(10), bytearray(batch()))
        reading = await consumer.ask(READ_COMMITTED)
        assert await waits(reading)
        admin = Admin(broker.client("admin"))
        key = TopicPartition("t", 3)
        if is_moved:
            assert await admin.delete_records({key: 2}) == {key: 2}
            await asyncio.sleep(1)
            assert await soon(reading) == 0, "it is answered, with no records"
        else:
            assert await admin.delete_records({key: 0}) == {key: 0}
            assert await waits(reading)

    play(act, **KEPT)
