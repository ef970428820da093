"""What is found after a crash: always a prefix of what was written, with everything that had been synced.

Small logs, so that every place can be damaged and every operation of the disk be the last one.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.storage.batches import DIRECTORY, append, batch, idempotent, open_log, read, records_of

from ottla.errors import DecodeError
from ottla.records.batch import iterate_batches
from ottla.records.iteration import Record, iterate_records
from ottla.sim.instant_disk import InstantDisk, run
from ottla.sim.process import PowerCut
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segment.offset_index import OffsetIndex
from ottla.storage.segment.time_index import TimeIndex

CONFIG: dict[str, Any] = {"segment_bytes": 500, "index_interval_bytes": 100}


def filled(disk: InstantDisk, *, sync_every: int = 10**9) -> PartitionLog:
    """Three segments, three leader epochs, flushes of one to three batches, each of one to three records."""
    log = open_log(disk, **CONFIG)
    sequence = 0
    for round_ in range(8):
        views = []
        for _ in range(round_ % 3 + 1):
            count = sequence % 3 + 1
            views.append(idempotent(sequence, count, timestamp_ms=1000 + 10 * (sequence + sequence % 5)))
            sequence += count
        append(log, *views, leader_epoch=round_ // 3)
        if round_ % sync_every == sync_every - 1:
            run(log.sync())
    return log


def state_of(log: PartitionLog) -> tuple[object, ...]:
    producers = {key: (state.epoch, state.batches) for key, state in log.producers.states.items()}
    return records_of(log), log.epochs.entries, producers, log.log_start_offset, log.log_end_offset


def check_found(disk: InstantDisk, everything: list[Record], *, at_least: int = 0, recovery_point: int = 0) -> PartitionLog:
    """Recovers, checks the prefix property, recovers again and a third time, and appends."""
    log = open_log(disk, recovery_point=recovery_point, **CONFIG)
    found = records_of(log)
    assert found == everything[: len(found)]
    assert at_least <= len(found) == log.log_end_offset
    state = state_of(log)
    files = disk.contents()
    assert state_of(open_log(disk, recovery_point=recovery_point, **CONFIG)) == state
    assert disk.contents() == files
    check_lookups(log)
    append(log, batch(b"new"), leader_epoch=9)
    run(log.close())
    again = open_log(disk, clean=True, **CONFIG)
    assert [record.value for record in records_of(again)] == [record.value for record in found] + [b"new"]
    return log


def check_lookups(log: PartitionLog) -> None:
    for segment in log.segments:
        index, times = run(segment.load())
        found = {offset: run(segment.find(offset)) or (-1, None) for offset, _ in index.entries}
        assert [(offset, place[0]) for offset, place in found.items()] == index.entries
        for time, offset in times.entries:
            place = run(segment.find(offset))
            assert place is not None
            assert place[1].max_timestamp == time


def test_recovery_of_an_undamaged_log_finds_all_of_it() -> None:
    disk = InstantDisk()
    log = filled(disk)
    assert len(log.segments) >= 3
    assert state_of(open_log(disk.copy(), **CONFIG)) == state_of(log)
    check_found(disk, records_of(log), at_least=log.log_end_offset)


def log_files(disk: InstantDisk) -> list[str]:
    return sorted(path for path in disk.files if path.endswith(".log"))


@pytest.mark.slow
def test_mechanism_50_a_log_cut_at_any_byte_is_recovered_to_complete_batches() -> None:
    disk = InstantDisk()
    everything = records_of(filled(disk))
    lengths = set()
    for path in log_files(disk):
        for size in range(len(disk.files[path].written)):
            damaged = disk.copy()
            del damaged.files[path].written[size:]
            lengths.add(check_found(damaged, everything).log_end_offset)
    assert len(lengths) > 12


@pytest.mark.slow
def test_mechanism_50_a_log_with_any_byte_flipped_is_cut_before_it() -> None:
    disk = InstantDisk()
    log = filled(disk)
    everything = records_of(log)
    cut = 0
    for _segment, path in zip(log.segments, log_files(disk)):
        stored = bytes(disk.files[path].written)
        starts = [(position, header) for position, header in iterate_batches(stored)]
        for position in range(len(stored)):
            start, header = next(found for found in reversed(starts) if found[0] <= position)
            if position - start < 8 or 12 <= position - start < 16:
                continue  # base offset and leader epoch, which leaders set: the CRC does not cover them
            damaged = disk.copy()
            damaged.files[path].written[position] ^= 0xFF
            found = check_found(damaged, everything)
            assert records_of(found)[: header.base_offset] == everything[: header.base_offset]
            assert found.log_end_offset == header.base_offset + 1  # one was appended by check_found
            cut += 1
    assert cut > 500


@pytest.mark.parametrize("fill", [b"\x00", b"\xff", b"batch"])
def test_a_tail_of_garbage_is_cut(fill: bytes) -> None:
    disk = InstantDisk()
    log = filled(disk)
    everything = records_of(log)
    for size in (1, 11, 12, 60, 61, 62, 500):
        damaged = disk.copy()
        damaged.files[log_files(disk)[-1]].written += (fill * size)[:size]
        check_found(damaged, everything, at_least=len(everything))


def test_a_batch_of_an_earlier_life_after_the_cut_is_not_served_again() -> None:
    disk = InstantDisk()
    log = open_log(disk)
    append(log, batch(b"one"))
    append(log, batch(b"two"))
    append(log, batch(b"six"))
    size = log.size_bytes // 3
    disk.files[log_files(disk)[0]].written[size + 70] ^= 1  # "two" is torn, "six" after it is intact
    disk = disk.copy()
    recovered = open_log(disk)
    assert recovered.log_end_offset == 1
    append(recovered, batch(b"TWO"))
    # The new batch reached the disk page by page; a cut that was not durable would bring "six" back after it.
    found = open_log(disk.power_cut(lambda path, durable, written: written[: 2 * size] + durable[2 * size :]))
    assert [record.value for record in records_of(found)] == [b"one", b"TWO"]


def test_a_segment_that_does_not_follow_the_one_before_it_is_removed() -> None:
    disk = InstantDisk()
    log = filled(disk)
    everything = records_of(log)
    middle = log.segments[1]
    del disk.files[log_files(disk)[1]].written[middle.size // 2 :]
    found = check_found(disk, everything)
    assert middle.base_offset <= found.log_end_offset < log.segments[2].base_offset
    assert len(log_files(disk)) == 2


# -- indexes


def index_files(disk: InstantDisk) -> list[str]:
    return sorted(path for path in disk.files if path.endswith((".index", ".timeindex")))


@pytest.mark.parametrize("clean", [True, False])
def test_mechanism_43_deleted_indexes_are_rebuilt(clean: bool) -> None:
    disk = InstantDisk()
    log = filled(disk)
    run(log.close())
    before = disk.contents()
    for path in index_files(disk):
        del disk.files[path]
    again = open_log(disk, clean=clean, recovery_point=log.log_end_offset, **CONFIG)
    assert state_of(again) == state_of(log)
    check_lookups(again)
    run(again.close())
    assert {path: disk.contents()[path] for path in index_files(disk)} == {path: before[path] for path in index_files(disk)}


@pytest.mark.parametrize("clean", [True, False])
def test_mechanism_43_indexes_damaged_anywhere_never_mislead(clean: bool) -> None:
    disk = InstantDisk()
    log = filled(disk)
    run(log.close())
    everything = records_of(log)
    damaged_entries = 0
    for path in index_files(disk):
        for position in range(len(disk.files[path].written)):
            damaged = disk.copy()
            damaged.files[path].written[position] ^= 0x55
            damaged_entries += 1
            found = open_log(damaged, clean=clean, recovery_point=log.log_end_offset, **CONFIG)
            check_reads(found, everything)
    assert damaged_entries > 50


@pytest.mark.parametrize("clean", [True, False])
def test_mechanism_43_index_entries_that_look_right_and_are_wrong_never_mislead(clean: bool) -> None:
    disk = InstantDisk()
    log = filled(disk)
    run(log.close())
    everything = records_of(log)
    cases = 0
    for path in index_files(disk):
        data = bytes(disk.files[path].written)
        size = 8 if path.endswith(".index") else 12
        starts = [position for position, _ in iterate_batches(bytes(disk.files[path.rsplit(".", 1)[0] + ".log"].written))]
        for entry in range(0, len(data), size):
            column = entry + size - 4  # position, or offset
            others = [data[:entry] + data[entry + size :]]
            if path.endswith(".timeindex") and entry + size == len(data):
                others = []  # that the newest time is missing is the one thing that only the whole segment could tell
            others += [data[:column] + start.to_bytes(4, "big") + data[column + 4 :] for start in starts]
            for step in (-1, 1):
                value = int.from_bytes(data[entry:column], "big") + step
                others.append(data[:entry] + value.to_bytes(column - entry, "big") + data[column:])
            for other in others:
                damaged = disk.copy()
                damaged.files[path].written[:] = other
                cases += 1
                check_reads(open_log(damaged, clean=clean, recovery_point=log.log_end_offset, **CONFIG), everything)
    assert cases > 50


def check_reads(log: PartitionLog, everything: list[Record]) -> None:
    """Every offset and every time is found where it is."""
    assert log.log_end_offset == len(everything)
    for record in everything:
        part = read(log, record.offset, max_bytes=1, end_offset=log.log_end_offset)
        assert record in list(records_in(part.region.read()))
        assert part.first_offset == next(records_in(part.region.read())).offset
    for time in sorted({record.timestamp_ms for record in everything}):
        first = next(record for record in everything if record.timestamp_ms >= time)
        assert (run(log.offset_for_timestamp(time)) or ())[:2] == (first.timestamp_ms, first.offset)
    largest = max(everything, key=lambda record: (record.timestamp_ms, -record.offset))
    assert (run(log.offset_of_max_timestamp()) or ())[:2] == (largest.timestamp_ms, largest.offset)


def records_in(data: bytes) -> Iterator[Record]:
    for position, _ in iterate_batches(data):
        yield from iterate_records(data, position)


def test_mechanism_43_a_newest_time_that_is_missing_from_the_last_segment_is_noticed() -> None:
    disk = InstantDisk()
    log = open_log(disk)
    append(log, batch(timestamp_ms=500), batch(timestamp_ms=900), batch(timestamp_ms=700))
    run(log.close())
    disk.files[f"{DIRECTORY}/{0:020d}.timeindex"].written.clear()
    again = open_log(disk, clean=True)
    assert run(again.offset_of_max_timestamp()) == (900, 1, 0)


def test_indexes_of_removed_segments_are_removed() -> None:
    disk = InstantDisk()
    log = filled(disk)
    run(log.close())
    del disk.files[log_files(disk)[-1]]
    open_log(disk, **CONFIG)
    stems = {path.rsplit("/", 1)[1].split(".")[0] for path in log_files(disk)}
    assert {path.rsplit("/", 1)[1].split(".")[0] for path in index_files(disk)} <= stems


def test_index_files_have_kafkas_format() -> None:
    index = OffsetIndex(1000)
    index.append(1002, 50)
    index.append(1009, 4500)
    assert index.to_bytes().hex() == "00000002" + "00000032" + "00000009" + "00001194"
    assert OffsetIndex.from_bytes(index.to_bytes(), 1000, log_size=5000).entries == index.entries
    assert [index.lookup(offset) for offset in (1001, 1002, 1008, 1009, 5000)] == [None, (1002, 50), (1002, 50), (1009, 4500), (1009, 4500)]
    times = TimeIndex(1000)
    times.append(1_700_000_000_000, 1002)
    times.append(1_700_000_000_000, 1005)  # not larger: no entry
    times.append(1_700_000_000_001, 1009)
    assert times.to_bytes().hex() == "0000018bcfe56800" + "00000002" + "0000018bcfe56801" + "00000009"
    assert TimeIndex.from_bytes(times.to_bytes(), 1000).entries == times.entries
    for data in (index.to_bytes()[:-1], index.to_bytes() * 2):
        with pytest.raises(DecodeError):
            OffsetIndex.from_bytes(data, 1000, log_size=5000)
    with pytest.raises(DecodeError):
        OffsetIndex.from_bytes(index.to_bytes(), 1000, log_size=4500)
    for data in (times.to_bytes()[:-1], times.to_bytes() * 2):
        with pytest.raises(DecodeError):
            TimeIndex.from_bytes(data, 1000)


# -- epochs and snapshots


@pytest.mark.parametrize("text", [None, b"", b"0\n1\n", b"\xff"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_or_damaged_epoch_file_is_rebuilt_from_the_batches(text: bytes | None, clean: bool) -> None:
    disk = InstantDisk()
    log = filled(disk)
    run(log.close())
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    del disk.files[path]
    if text is not None:
        run(disk.write_file_atomic(path, text))
    again = open_log(disk, clean=clean, recovery_point=log.log_end_offset, **CONFIG)
    assert again.epochs.entries == log.epochs.entries == [(0, 0), (1, 9), (2, 18)]
    run(again.close())
    assert open_log(disk, clean=True, **CONFIG).epochs.entries == log.epochs.entries


def test_damaged_snapshots_only_make_recovery_longer() -> None:
    disk = InstantDisk()
    log = filled(disk)
    run(log.close())
    snapshots = sorted(path for path in disk.files if path.endswith(".snapshot"))
    assert len(snapshots) >= 3
    for count in range(len(snapshots) + 1):
        damaged = disk.copy()
        for path in snapshots[len(snapshots) - count :]:
            damaged.files[path].written[-1] ^= 1
        assert state_of(open_log(damaged, clean=True, **CONFIG)) == state_of(log)


def test_a_log_that_lost_all_below_its_start_begins_there() -> None:
    log = open_log(InstantDisk(), log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    disk = InstantDisk()
    append(open_log(disk), batch(), batch())
    again = open_log(disk, log_start_offset=10)
    assert (again.log_start_offset, again.log_end_offset) == (10, 10)
    assert append(again, batch())[0].base_offset == 10


# -- crashes


def acknowledged(trace: list[tuple[object, ...]], sizes: list[tuple[int, int]], count: int) -> int:
    return max((offset for operations, offset in sizes if operations <= count), default=0)


def test_mechanism_50_a_process_killed_at_any_operation_loses_nothing_acknowledged() -> None:
    disk = InstantDisk()
    log = open_log(disk, **CONFIG)
    ends = []  # operations done and end offset, after each flush: what could have been acknowledged
    sequence = 0
    for round_ in range(12):
        append(log, *[idempotent(sequence + index) for index in range(round_ % 4 + 1)], leader_epoch=round_ // 5)
        sequence += round_ % 4 + 1
        ends.append((len(disk.operations), log.log_end_offset))
        if round_ % 4 == 3:
            run(log.sync())
    everything = records_of(log)
    assert len(disk.operations) > 30
    for count in range(len(disk.operations) + 1):
        check_found(disk.replay(count), everything, at_least=acknowledged(disk.operations, ends, count))


def half(path: str, durable: bytes, written: bytes) -> bytes:
    return written[: (len(durable) + len(written)) // 2] if len(written) > len(durable) else durable


def every_other_page(path: str, durable: bytes, written: bytes) -> bytes:
    return bytes(byte if index < len(durable) or index // 64 % 2 else 0 for index, byte in enumerate(written))


SURVIVORS = {
    "only what was synced": lambda path, durable, written: durable,
    "all of it": lambda path, durable, written: written,
    "a size that grew, without the content": lambda path, durable, written: durable + bytes(max(0, len(written) - len(durable))),
    "half of the rest": half,
    "every other page of the rest": every_other_page,
}


@pytest.mark.parametrize("name", SURVIVORS)
def test_a_power_cut_at_any_operation_loses_nothing_synced(name: str) -> None:
    disk = InstantDisk()
    log = open_log(disk, **CONFIG)
    points = []  # operations done and recovery point, after each sync
    sequence = 0
    for round_ in range(10):
        append(log, *[idempotent(sequence + index) for index in range(round_ % 4 + 1)], leader_epoch=round_ // 5)
        sequence += round_ % 4 + 1
        if round_ % 3 == 2:
            run(log.sync())
            points.append((len(disk.operations), log.recovery_point))
    everything = records_of(log)
    for count in range(len(disk.operations) + 1):
        point = acknowledged(disk.operations, points, count)
        found = disk.replay(count).power_cut(SURVIVORS[name])
        check_found(found, everything, at_least=point, recovery_point=point)


def test_a_crash_during_recovery_is_recovered_from() -> None:
    disk = InstantDisk()
    log = filled(disk, sync_every=3)
    everything = records_of(log)
    first = disk.copy()
    first.files[log_files(first)[1]].written[200] ^= 1
    original = first.copy()
    found = open_log(first, **CONFIG)
    expected = state_of(found)
    assert 0 < found.log_end_offset < len(everything)
    assert first.operations
    for step in range(1, first.steps + 1):
        crashed = original.copy()
        crashed.crash_at = step
        with pytest.raises(PowerCut):
            open_log(crashed, **CONFIG)
        crashed.restart()
        assert state_of(open_log(crashed, **CONFIG)) == expected
    assert state_of(open_log(first, **CONFIG)) == expected


def test_a_clean_stop_needs_no_walk() -> None:
    disk = InstantDisk()
    log = open_log(disk, index_interval_bytes=1000)
    for _ in range(50):
        append(log, *[batch(b"x" * 100) for _ in range(50)])
    run(log.close())
    disk.preads = 0
    again = open_log(disk, clean=True, index_interval_bytes=1000)
    assert again.log_end_offset == 2500
    assert disk.preads < 10
    append(again, batch())
    assert run(again.offset_of_max_timestamp()) == (1000, 0, 0)


def test_a_mark_of_a_clean_stop_on_files_that_do_not_fit_is_not_believed() -> None:
    disk = InstantDisk()
    log = filled(disk)
    run(log.close())
    everything = records_of(log)
    del disk.files[log_files(disk)[-1]].written[-5:]
    again = open_log(disk, clean=True, **CONFIG)
    found = records_of(again)
    assert found == everything[: len(found)]
    assert len(everything) - 3 <= len(found) < len(everything)


def test_a_batch_that_goes_back_in_offsets_ends_the_log() -> None:
    disk = InstantDisk()
    log = open_log(disk)
    append(log, batch(b"one"))
    append(log, batch(b"two"))
    path = log_files(disk)[0]
    first = bytes(disk.files[path].written[: log.size_bytes // 2])
    disk.files[path].written += first
    assert [record.value for record in records_of(open_log(disk, recovery_point=0))] == [b"one", b"two"]
    assert len(disk.files[path].written) == 2 * len(first)


def test_a_snapshot_of_what_was_truncated_does_not_come_back_after_a_power_cut() -> None:
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=400)
    for sequence in range(8):
        append(log, idempotent(sequence))
    run(log.sync())
    snapshot = log.segments[-1].base_offset
    assert snapshot > 3
    run(log.truncate_to(3))
    for sequence in range(8):
        append(log, idempotent(sequence, producer_id=8))
    assert log.log_end_offset > snapshot
    for path in [path for path in disk.files if path.endswith(".snapshot")]:
        del disk.files[path]  # the new ones had not been written back when the power went
    found = open_log(disk.power_cut(lambda path, durable, written: written), segment_bytes=400)
    assert found.producers.states.get(7) is None or found.producers.states[7].batches[-1][1] == 2


def test_epochs_of_deleted_segments_are_not_known_after_a_restart() -> None:
    disk = InstantDisk()
    log = filled(disk)
    run(log.sync())
    start = log.segments[1].base_offset
    log.advance_log_start_offset(start)
    run(log.delete_segments_below(start))
    assert open_log(disk.copy(), log_start_offset=start, recovery_point=log.recovery_point, **CONFIG).epochs.entries == log.epochs.entries
    assert log.epochs.entries[0][1] == start


def test_a_hole_that_an_interrupted_deletion_left_below_the_start_does_not_end_the_log() -> None:
    disk = InstantDisk()
    log = filled(disk)
    expected = records_of(log)
    bases = [segment.base_offset for segment in log.segments]
    for suffix in (".log", ".index", ".timeindex"):
        disk.files.pop(f"{DIRECTORY}/{bases[1]:020d}{suffix}", None)
    disk.files.pop(f"{DIRECTORY}/leader-epoch-checkpoint", None)  # so that every segment is walked
    again = open_log(disk, log_start_offset=bases[2])
    assert records_of(again) == [record for record in expected if record.offset >= bases[2]]
    assert f"{bases[0]:020d}.log" not in run(disk.list_dir(DIRECTORY))
