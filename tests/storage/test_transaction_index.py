"""Aborted transactions and the last stable offset of a log, through rolls, starts, cuts, deletions and moves, beside a walk over it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.storage.batches import DIRECTORY, aborted_by_walking, append, batch, open_log, stage

from ottla.errors import DecodeError
from ottla.records.batch import iterate_batches
from ottla.records.control import build_end_marker, end_marker_of
from ottla.records.iteration import iterate_records
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.replay import Ended, replayed_between
from ottla.storage.log.replica_copy import ReplicaCopy
from ottla.storage.producers import ProducerStates
from ottla.storage.segment import transaction_index
from ottla.storage.segment.files import INDEX_SUFFIX, LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, offsets_of
from ottla.storage.segment.transaction_index import START, Transaction, TransactionIndex, from_bytes, to_bytes

PRODUCERS = range(3)
SMALL: Any = {"segment_bytes": 400, "file_delete_delay_ms": 0}


class Transactions:
    """Writes, commits and aborts of a few producers, each with sequences of its own."""

    def __init__(self, log: PartitionLog, seed: int) -> None:
        self.log = log
        self.rng = random.Random(seed)

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            producer_id = self.rng.choice(PRODUCERS)
            state = self.log.producers.states.get(producer_id)
            if self.rng.random() < 0.2:
                stage(self.log, batch(b"plain"))
            elif state is not None and state.transaction_first_offset >= 0 and self.rng.random() < 0.4:
                end(self.log, producer_id, is_commit=self.rng.random() < 0.5)
            else:
                sequence = state.batches[-1][1] + 1 if state is not None and state.batches else 0
                write(self.log, producer_id, sequence)
            run(self.log.flush())


def write(log: PartitionLog, producer_id: int, sequence: int) -> None:
    view = batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    stage(log, view, from_client=False)


def end(log: PartitionLog, producer_id: int, *, is_commit: bool) -> None:
    marker = build_end_marker(is_commit=is_commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp_ms=1)
    stage(log, memoryview(marker), from_client=False)


def pairs(beginnings: bytes | bytearray) -> list[tuple[int, int]]:
    """Their producer ids and first offsets."""
    return list(START.iter_unpack(beginnings))


def check(log: PartitionLog) -> None:
    aborted, stable_offset = aborted_by_walking(log)
    assert run(log.aborted.between(0, log.log_end_offset)) == aborted
    assert log.producers.last_stable_offset(log.log_end_offset) == stable_offset


def written_by(seed: int, steps: int = 150) -> tuple[InstantDisk, PartitionLog]:
    disk = InstantDisk()
    log = open_log(disk, **SMALL)
    Transactions(log, seed).go_on(steps)
    check(log)
    assert len(log.segments) > 10
    assert len(log.aborted) > 10
    return disk, log


@pytest.mark.parametrize("seed", range(5))
def test_a_start_finds_what_was_aborted(seed: int) -> None:
    """After a clean stop, after a kill, and after a kill when most of it was synced."""
    disk, log = written_by(seed)
    run(log.sync())
    recovery_point = log.recovery_point
    Transactions(log, seed).go_on(20)
    for found in (open_log(disk.copy(), **SMALL), open_log(disk.copy(), recovery_point=recovery_point, **SMALL)):
        check(found)
        Transactions(found, seed).go_on(20)
        check(found)
    run(log.close())
    check(open_log(disk.copy(), clean=True, recovery_point=log.recovery_point, **SMALL))


@pytest.mark.parametrize("seed", range(5))
def test_what_is_cut_was_never_aborted(seed: int) -> None:
    disk, log = written_by(seed)
    rng = random.Random(seed)
    while log.log_end_offset > 20:
        cut_at = max(0, log.log_end_offset - rng.randrange(9, 40))
        log.begin_truncation(cut_at)
        run(log.truncate_to(cut_at))
        log.durability.truncation_ended()
        check(log)
        Transactions(log, seed).go_on(8)
        check(log)
        run(log.sync())
        check(open_log(disk.copy(), recovery_point=log.recovery_point, **SMALL))
    run(log.truncate_fully_and_start_at(7))
    assert len(log.aborted) == 0
    Transactions(log, seed).go_on(30)
    check(log)
    run(log.close())
    check(open_log(disk.copy(), clean=True, recovery_point=log.recovery_point, log_start_offset=7, **SMALL))


def test_what_is_deleted_leaves_no_file() -> None:
    disk, log = written_by(1)
    offset = log.segments[6].base_offset
    run(log.delete_segments_below(offset))
    assert all(entry.last_offset >= offset for entry in run(log.aborted.between(0, log.log_end_offset)))
    bases = [run(offsets_of(disk, DIRECTORY, suffix)) for suffix in (TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX)]
    assert bases[0]
    assert set(bases[0]) <= set(bases[1])


def test_a_damaged_file_is_made_again() -> None:
    disk, log = written_by(2)
    run(log.close())
    damaged = run(offsets_of(disk, DIRECTORY, TRANSACTION_INDEX_SUFFIX))[3]
    path = f"{DIRECTORY}/{damaged:020d}{TRANSACTION_INDEX_SUFFIX}"
    intact = run(disk.read_file(path))
    run(run(disk.open(path)).truncate(len(intact) - 5))
    check(open_log(disk, clean=True, recovery_point=log.recovery_point, **SMALL))
    assert run(disk.read_file(path)) == intact


def test_a_segment_that_comes_back_is_still_aborted() -> None:
    """Without a checkpoint of the log's start, a deletion that is cut short leaves it, and what it has must not become committed."""
    disk = InstantDisk()
    log = open_log(disk)
    write(log, 1, 0)
    end(log, 1, is_commit=False)
    run(log.flush())
    log.tail.close_segment_soon()
    append(log, batch())
    run(log.sync())
    begun = len(disk.operations)
    run(log.delete_segments_below(log.segments[1].base_offset, one_by_one=True))
    came_back = 0
    for count in range(begun, len(disk.operations) + 1):
        found = open_log(disk.replay(count), recovery_point=log.recovery_point)
        if found.log_start_offset == 0:
            came_back += 1
            assert len(found.aborted) == 1
    assert came_back >= 2


def test_a_damaged_file_beside_a_missing_index_is_made_again_too() -> None:
    disk, log = written_by(2)
    run(log.close())
    stem = f"{DIRECTORY}/{run(offsets_of(disk, DIRECTORY, TRANSACTION_INDEX_SUFFIX))[3]:020d}"
    run(run(disk.open(stem + TRANSACTION_INDEX_SUFFIX)).truncate(5))
    run(disk.remove(stem + INDEX_SUFFIX))
    check(open_log(disk, clean=True, recovery_point=log.recovery_point, **SMALL))


def test_a_copy_in_another_directory_has_them() -> None:
    disk, log = written_by(3)
    run(log.sync())
    run(disk.make_dirs("/more/topic-0"))
    run(ReplicaCopy(disk, log, "/more/topic-0").finish())
    before = run(log.aborted.between(0, log.segments[-1].base_offset))
    found = run(
        PartitionLog.open(disk, "/more/topic-0", config=log.config, now_ms=1, clean=False, recovery_point=log.segments[-1].base_offset)
    )
    assert run(found.aborted.between(0, log.segments[-1].base_offset)) == before


def test_only_transactions_that_overlap_the_range_read_are_found() -> None:
    first, second = Transaction(1, 10, 19, 5), Transaction(2, 5, 29, 30)
    third, fourth = Transaction(3, 40, 49, 35), Transaction(4, 35, 59, 60)
    index = TransactionIndex([first, second, third, fourth])
    assert pairs(index.beginnings(0, 4)) == []
    assert pairs(index.beginnings(0, 6)) == [(2, 5)]
    assert pairs(index.beginnings(20, 36)) == [(2, 5), (4, 35)]
    assert pairs(index.beginnings(50, 99)) == [(4, 35)]


class Counted(int):
    """A bound that knows how often it was compared with."""

    count = 0

    def __gt__(self, other: int) -> bool:
        Counted.count += 1
        return int(self) > other


@pytest.mark.parametrize("looked_at", [transaction_index.LOOKED_AT, 4])
@pytest.mark.parametrize("seed", range(5))
def test_transactions_found_by_the_index_do_not_depend_on_its_history(seed: int, looked_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_index, "LOOKED_AT", looked_at)
    rng, index, entries = random.Random(seed), TransactionIndex(), list[Transaction]()
    for _ in range(400):
        end = entries[-1].last_offset if entries else 0
        if rng.random() < 0.9:
            for _ in range(rng.choice((1, 1, 40))):
                end += rng.randrange(1, 4)
                entries.append(Transaction(1, rng.randrange(max(0, end - rng.choice((3, 500))), end), end, max(0, end - 500)))
                index.add(entries[-1])
        else:
            cut_at = end - rng.randrange(200)
            entries = [entry for entry in entries if entry.last_offset < cut_at]
            index.truncate(cut_at)
        start = rng.randrange(end + 2)
        stop = start + rng.randrange(60)
        wanted = [entry for entry in entries if entry.last_offset >= start and entry.first_offset < stop]
        assert pairs(index.beginnings(start, stop)) == [(one.producer_id, one.first_offset) for one in wanted]
        assert len(index) == len(entries)


def test_transactions_that_ended_within_a_long_one_are_not_looked_at() -> None:
    """A fetch took milliseconds of the loop where 100,000 had ended."""
    short = [Transaction(1, 10 * number, 10 * number + 5, 0) for number in range(1, 50_000)]
    long = Transaction(2, 3, 10 * 50_000, 10 * 50_000)
    index = TransactionIndex([*short, long])
    for at in (0, 100, 30_000, 499_000):
        Counted.count = 0
        found = pairs(index.beginnings(at, Counted(at + 10)))
        assert found[-1] == (2, 3)
        assert len(found) <= 3
        assert Counted.count < 1_000


def test_nothing_is_stable_before_the_marker_is_committed() -> None:
    log = open_log(InstantDisk())
    write(log, 1, 0)
    write(log, 2, 0)
    end(log, 1, is_commit=True)
    run(log.flush())
    stable = log.producers.last_stable_offset
    assert (stable(0), stable(1), stable(2), stable(3)) == (0, 0, 0, 1)
    end(log, 2, is_commit=False)
    run(log.flush())
    assert (stable(3), stable(4)) == (1, 4)


def test_the_last_stable_offset_is_known_however_many_transactions_have_ended() -> None:
    """The high watermark may be thousands of transactions behind, and nobody ask a follower."""
    producers, rng = ProducerStates(), random.Random(1)
    ended = [Transaction(1, rng.randrange(max(0, offset - 40), offset), offset, 0) for offset in range(1, 5000)]
    for number, transaction in enumerate(ended):
        committed_end = max(0, transaction.last_offset - 2000)
        producers.commit_is_awaited(transaction, committed_end)
        if number % 97 == 0:
            awaited = [other.first_offset for other in ended[: number + 1] if other.last_offset >= committed_end]
            assert producers.last_stable_offset(committed_end) == min([committed_end, *awaited])
    assert len(producers._ended) <= 2000
    assert producers.last_stable_offset(5000) == 5000


def test_the_file_is_kafkas() -> None:
    entry = Transaction(7, 10, 20, 15)
    assert to_bytes([entry]).hex() == "0000" + "".join(f"{number:016x}" for number in (7, 10, 20, 15))
    assert from_bytes(to_bytes([entry])) == [entry]
    swapped, twice = to_bytes([Transaction(7, 21, 20, 15)]), to_bytes([entry, entry])
    for wrong in (to_bytes([entry])[:-1], b"\0\1" + to_bytes([entry])[2:], twice, swapped):
        with pytest.raises(DecodeError):
            from_bytes(wrong)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_replayed_is_what_was_decided_in_the_order_of_the_decisions(seed: int) -> None:
    """A machine that took records of aborted transactions would know what never was; of open ones, what may never be."""
    log = open_log(InstantDisk(), **SMALL)
    transactions = Transactions(log, seed)
    transactions.go_on(60)
    wanted, batch_count = list[int](), 0
    waiting: dict[int, list[int]] = {}
    for segment in log.segments:
        data = run(run(segment.opened()).pread(0, segment.size))
        for position, header in iterate_batches(data):
            batch_count += 1
            if header.is_control:
                marker = end_marker_of(iterate_records(data, position)[0])
                decided = waiting.pop(header.producer_id, [])
                wanted += decided if marker is not None and marker.is_commit else []
            elif header.is_transactional:
                waiting.setdefault(header.producer_id, []).append(header.base_offset)
            else:
                wanted.append(header.base_offset)
    assert run(replayed(log)) == wanted
    assert 0 < len(wanted) < batch_count - 10


async def replayed(log: PartitionLog) -> list[int]:
    pending: dict[int, list[int]] = {}
    offsets: list[int] = []
    async for found in replayed_between(log, log.log_start_offset, log.log_end_offset):
        if isinstance(found, Ended):
            offsets += pending.pop(found.producer_id, []) if found.is_commit else []
        elif found.producer_id is None:
            offsets += [record.offset for record in found.records]
        else:
            pending.setdefault(found.producer_id, []).extend(record.offset for record in found.records)
    return offsets


def test_a_transaction_whose_marker_was_compacted_away_counts() -> None:
    log = open_log(InstantDisk())
    write(log, 1, 0)
    run(log.flush())
    assert run(replayed(log)) == [], "it is open"
    log.producers.states[1].transaction_first_offset = -1
    assert run(replayed(log)) == [0]
