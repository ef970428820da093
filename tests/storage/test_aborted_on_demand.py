"""Aborted transactions of closed segments: read from their files when they are asked for, beside whatever happens to those files."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections.abc import Callable

import pytest
from tests.storage.batches import DIRECTORY, append, batch, open_log
from tests.storage.test_suspended import Pause, compact, disk_of, move
from tests.storage.test_transaction_index import end, pairs, write

from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import iterate_batches
from ottla.sim.files import SimFile
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.log import aborted as aborted_in_log
from ottla.storage.log.aborted import HELD_BLOCKS_MAX, AbortedInLog
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.reading import LogSlice
from ottla.storage.log.replay import Aborted
from ottla.storage.segment import transaction_blocks, transaction_index
from ottla.storage.segment.files import TRANSACTION_INDEX_SUFFIX
from ottla.storage.segment.transaction_blocks import BLOCK_ENTRIES, Block
from ottla.storage.segment.transaction_index import ENTRY, Transaction, TransactionIndex, to_bytes


class Files:
    """Of closed segments, by the offsets at which they start."""

    def __init__(self) -> None:
        self.data: dict[int, bytes] = {}
        self.read_count = 0

    async def read(self, block: Block) -> bytes:
        self.read_count += 1
        return self.data[block.base_offset][block.position : block.position + block.size_bytes]


class Model:
    """All entries of a log, by segment, beside the index."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files = Files()
        self.index = AbortedInLog(self.files.read)
        self.segments: dict[int, list[Transaction]] = {0: []}  # the last one grows
        self.end_offset = self.stable_offset = 0

    @property
    def entries(self) -> list[Transaction]:
        return [entry for entries in self.segments.values() for entry in entries]

    def add(self) -> None:
        """Each began after what is stable, and may be a long one."""
        first = self.rng.randrange(self.stable_offset, self.end_offset + 1)
        if self.rng.random() < 0.1:
            self.stable_offset = self.end_offset
        self.end_offset += 1 + self.rng.randrange(3)
        entry = Transaction(self.rng.randrange(3), first, self.end_offset - 1, min(self.stable_offset, self.end_offset))
        list(self.segments.values())[-1].append(entry)
        self.index.tail.add(entry)

    def roll(self) -> None:
        base_offset, entries = list(self.segments.items())[-1]
        if self.end_offset > base_offset:
            self.files.data[base_offset] = to_bytes(entries)
            assert self.index.tail.to_bytes() == self.files.data[base_offset]
            self.index.close_segment(base_offset)
            self.segments[self.end_offset] = []

    def truncate(self) -> None:
        last = list(self.segments)[-1]
        self.end_offset = self.rng.randrange(max(min(self.segments), self.end_offset - 60), self.end_offset + 1)
        self.segments = {base: found for base, found in self.segments.items() if base < self.end_offset or base == min(self.segments)}
        kept, entries = list(self.segments.items())[-1]
        if kept == last:
            self.index.tail.truncate(self.end_offset)
        else:
            self.index.open_segment(kept, TransactionIndex(entries), self.end_offset)
        entries[:] = [entry for entry in entries if entry.last_offset < self.end_offset]
        self.stable_offset = min(self.stable_offset, self.end_offset)

    def drop(self) -> None:
        base = self.rng.choice(list(self.segments))
        self.segments = {other: found for other, found in self.segments.items() if other >= base}
        self.index.drop_below(base)

    def replace(self) -> None:
        """Some closed segments by one, which has some of the entries."""
        bases = list(self.segments)
        if len(bases) < 3:
            return
        first, after = sorted(self.rng.sample(range(len(bases)), 2))
        taken = bases[first:after]
        kept = [entry for base in taken for entry in self.segments[base] if self.rng.random() < 0.7]
        rest = {base: found for base, found in self.segments.items() if base not in taken}
        self.segments = dict(sorted((rest | {taken[0]: kept}).items()))
        self.index.replace(taken[0], bases[after], to_bytes(kept))
        self.look_up()
        self.files.data[taken[0]] = to_bytes(kept)
        self.index.has_arrived()

    def look_up(self) -> None:
        for _ in range(3):
            start = self.rng.randrange(self.end_offset + 2)
            stop = start + self.rng.randrange(80)
            wanted = [
                (entry.producer_id, entry.first_offset)
                for entry in self.entries
                if entry.last_offset >= start and entry.first_offset < stop
            ]
            assert pairs(run(self.index.beginnings(start, stop))) == wanted
            assert run(self.index.between(start, stop)) == [entry for entry in self.entries if start <= entry.last_offset < stop]
        assert len(self.index) == len(self.entries)
        assert len(self.index._held) <= HELD_BLOCKS_MAX


@pytest.mark.parametrize("looked_at", [transaction_index.LOOKED_AT, 3])
@pytest.mark.parametrize("seed", range(12))
def test_transactions_found_in_files_are_those_that_were_aborted(seed: int, looked_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_blocks, "BLOCK_ENTRIES", 4)
    monkeypatch.setattr(aborted_in_log, "LOOKED_AT", looked_at)
    model = Model(seed)
    for _ in range(600):
        kind = model.rng.random()
        if kind < 0.8:
            model.add()
        elif kind < 0.93:
            model.roll()
        else:
            model.rng.choice([model.truncate, model.drop, model.replace])()
        model.look_up()


def test_a_million_aborted_transactions_take_no_memory_to_speak_of() -> None:
    """A fifth of them, and a fifth of ten bytes each: one block in memory would be 34 bytes for each of its entries."""
    files, count, of_segment = Files(), 200_000, 20_000
    index = AbortedInLog(files.read)
    for base in range(0, count, of_segment):
        entries = (Transaction(number % 7, 2 * number, 2 * number + 1, 2 * number + 2) for number in range(base, base + of_segment))
        files.data[2 * base] = to_bytes(entries)
    tracemalloc.start()
    for base, data in files.data.items():
        index.tail = TransactionIndex.from_bytes(data)
        index.close_segment(base)
    for offset in range(0, 2 * count, 1000):
        assert len(pairs(run(index.beginnings(offset, offset + 10)))) == 5
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 2 * count + HELD_BLOCKS_MAX * BLOCK_ENTRIES * ENTRY.size


def test_a_look_up_reads_the_blocks_that_it_needs() -> None:
    """However many there are: a fetch at the end of a long log, and one within a long transaction."""
    files = Files()
    index = AbortedInLog(files.read)
    short = [Transaction(1, 10 * number, 10 * number + 5, 3) for number in range(1, 100_000)]
    long = Transaction(2, 3, 1_000_000, 1_000_001)
    for number, entries in enumerate(chunks(short, 10_000)):
        base = entries[0].first_offset if number else 0
        files.data[base] = to_bytes(entries)
        index.tail = TransactionIndex(entries)
        index.close_segment(base)
    index.tail.add(long)
    index.close_segment(999_999)
    files.data[999_999] = to_bytes([long])
    for at in (10, 500_000, 999_000):
        files.read_count = 0
        assert pairs(run(index.beginnings(at, at + 10))) == [(1, at), (2, 3)]
        assert files.read_count <= 2
        assert pairs(run(index.beginnings(at, at + 10))) == [(1, at), (2, 3)]
        assert files.read_count <= 2, "they are held"


def chunks(entries: list[Transaction], size: int) -> list[list[Transaction]]:
    return [entries[at : at + size] for at in range(0, len(entries), size)]


# -- beside what happens to the files


class SlowDisk(InstantDisk):
    """Files of aborted transactions are opened, or have been read, after a pause."""

    pauses = ""

    async def open(self, path: str, *, create: bool = False) -> SimFile:
        is_meant = path.endswith(TRANSACTION_INDEX_SUFFIX) and bool(self.pauses)
        if is_meant and self.pauses == "before":
            self.pauses = ""
            await Pause()
        found = await super().open(path, create=create)
        if is_meant and self.pauses == "after":
            self.pauses = ""
            await Pause()
        return found


KEY = {"cleanup_policy": "compact", "file_delete_delay_ms": 0}


def with_aborted(disk: InstantDisk) -> PartitionLog:
    """Aborted transactions of one producer in three closed segments, each before a record that counts; and one that is growing."""
    log = open_log(disk, **KEY)  # type: ignore[arg-type]
    for sequence in range(3):
        write(log, 1, sequence)
        end(log, 1, is_commit=False)
        append(log, batch(b"%d" % sequence, key=b"%d" % sequence))
        log.tail.close_segment_soon()
        run(log.flush())
    append(log, batch(b"last"))
    run(log.sync())
    return log


def visible(part: LogSlice | None) -> list[int]:
    """The offsets of what a committed reader is given."""
    assert part is not None
    data, aborted = part.region.read(), AbortedTransactions(list(itertools.starmap(Aborted, pairs(part.aborted))))
    return [
        header.base_offset
        for at, header in iterate_batches(data)
        if aborted.admits(data, at, header) and not header.is_control and header.count
    ]


def retain(log: PartitionLog) -> None:
    run(log.delete_segments_below(log.segments[2].base_offset))


def cut(log: PartitionLog) -> None:
    log.begin_truncation(4)
    run(log.truncate_to(4))
    log.durability.truncation_ended()


def cut_and_write_others(log: PartitionLog) -> None:
    """The segment is closed once more, with other transactions at the same offsets."""
    cut(log)
    write(log, 2, 0)
    end(log, 2, is_commit=False)
    log.tail.close_segment_soon()
    append(log, batch(b"new"), batch(b"new"))


@pytest.mark.parametrize("pauses", ["before", "after"])
@pytest.mark.parametrize("meanwhile", [compact, move, retain, cut, cut_and_write_others])
def test_a_reader_is_not_given_what_was_aborted_whatever_becomes_of_the_file(
    meanwhile: Callable[[PartitionLog], None], pauses: str
) -> None:
    disk = SlowDisk()
    log = with_aborted(disk)
    wanted = visible(run(log.read(3, max_bytes=10**6, end_offset=6, with_aborted=True)))
    assert wanted == [5]
    run(log.close())
    log = open_log(disk, clean=True, recovery_point=log.recovery_point, **KEY)  # type: ignore[arg-type]
    disk.pauses = pauses
    reading = log.read(3, max_bytes=10**6, end_offset=min(6, log.log_end_offset), with_aborted=True)
    reading.send(None)
    meanwhile(log)
    if meanwhile is retain:
        with pytest.raises(KafkaError) as caught:
            run(reading)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert not log.is_failed
        return
    found = visible(run(reading))
    assert found == visible(read_all(log))
    assert found == ([3] if meanwhile in (cut, cut_and_write_others) else [5]), "what was cut above its records is open again"
    assert not log.is_failed


def read_all(log: PartitionLog) -> LogSlice | None:
    return run(log.read(3, max_bytes=10**6, end_offset=min(6, log.log_end_offset), with_aborted=True))


def test_a_block_that_is_read_when_its_segment_is_gone_is_not_held() -> None:
    """Another segment has come to its place, with the same extremes: the same markers in another order."""
    disk = SlowDisk()
    log = open_log(disk)
    write(log, 1, 0)
    write(log, 2, 0)
    run(log.flush())

    def close_with(*producer_ids: int) -> None:
        log.tail.close_segment_soon()
        append(log, batch())
        for producer_id in producer_ids:
            end(log, producer_id, is_commit=False)
        run(log.flush())
        log.tail.close_segment_soon()
        append(log, batch())

    close_with(1, 2)
    disk.pauses = "after"
    looking = log.aborted.beginnings(4, 5)
    looking.send(None)
    log.begin_truncation(2)
    run(log.truncate_to(2))
    log.durability.truncation_ended()
    close_with(2, 1)
    with pytest.raises(StopIteration):
        looking.send(None)
    assert pairs(run(log.aborted.beginnings(4, 5))) == [(1, 0)]


def test_a_segment_that_is_closed_while_a_block_is_read_hides_nothing() -> None:
    """What it has was in memory when the look-up began, and is in a block when that ends."""
    disk = SlowDisk()
    log = open_log(disk)
    write(log, 3, 0)
    write(log, 1, 0)
    end(log, 1, is_commit=False)
    run(log.flush())
    log.tail.close_segment_soon()
    append(log, batch())
    end(log, 3, is_commit=False)
    run(log.flush())
    disk.pauses = "after"
    looking = log.aborted.beginnings(0, 2)
    looking.send(None)
    log.tail.close_segment_soon()
    append(log, batch())
    with pytest.raises(StopIteration) as found:
        looking.send(None)
    assert pairs(found.value.value) == [(1, 1), (3, 0)]
    assert pairs(run(log.aborted.beginnings(0, 2))) == [(1, 1), (3, 0)]


def test_a_file_that_ends_too_early_fails_its_log_and_shows_nothing() -> None:
    """It was whole when the log was opened; what it lacks would count as committed."""
    disk = InstantDisk()
    log = with_aborted(disk)
    path = f"{DIRECTORY}/{3:020d}{TRANSACTION_INDEX_SUFFIX}"
    run(run(disk.open(path)).truncate(ENTRY.size - 1))
    with pytest.raises(StorageError):
        run(log.read(3, max_bytes=10**6, end_offset=6, with_aborted=True))
    assert log.is_failed
    assert disk_of(log) is disk
