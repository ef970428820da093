"""Recorded runs of all that a log does, each with what must be found after a crash at any of its disk operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.storage.batches import DIRECTORY, aborted_by_walking, append, batch, idempotent, records_of
from tests.storage.crash_states import Run

from ottla.broker.metadata.log import MetadataLog
from ottla.messages.metadata_records import ConfigRecord
from ottla.metadata.image import EMPTY_IMAGE, RESOURCE_TOPIC, ClusterImage
from ottla.metadata.replay import replay
from ottla.records.control import build_end_marker
from ottla.records.iteration import Record
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.compaction.job import CLEAN_JOB
from ottla.storage.config import LogConfig
from ottla.storage.directory.checkpoint import read_checkpoint, write_checkpoint
from ottla.storage.log.partition_log import PartitionLog
from ottla.types import TopicPartition

KEY = TopicPartition("topic", 0)
START, POINT, MARK = "/data/starts", "/data/points", "/data/clean"
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=5)


@dataclass
class Note:
    """From here on, until the next note: all below ``kept_to`` is there, the log begins at ``start``, ``records`` were written."""

    at: int
    kept_to: int
    start: int
    records: list[Record]


class Log:
    """A log whose owner writes checkpoints, and a diary of what may be expected of it."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.disk = InstantDisk()
        run(self.disk.make_dirs(DIRECTORY))
        self.config = config
        self.notes: list[Note] = [Note(0, 0, 0, [])]
        self.log = open_log(self.disk, config)
        self.kept_to = 0
        self.note()

    def note(self) -> None:
        everything = records_of(self.log)
        known = [record for record in self.notes[-1].records if record.offset < self.log.log_start_offset]
        self.notes.append(Note(len(self.disk.operations), self.kept_to, self.log.log_start_offset, known + everything))

    def write(self, *views: memoryview, sync: bool = False, leader_epoch: int = 0) -> None:
        append(self.log, *views, leader_epoch=leader_epoch)
        self.note()
        if sync:
            self.sync()

    def sync(self) -> None:
        run(self.log.sync())
        run(write_checkpoint(self.disk, POINT, {KEY: self.log.recovery_point}))
        self.kept_to = self.log.log_end_offset
        self.note()

    def recorded(self, name: str, *, is_compacted: bool = False) -> Run:
        start = InstantDisk(self.disk.directories)
        notes, config = self.notes, self.config
        return Run(name, start, self.disk.operations, lambda disk, count: check(disk, count, notes, config, is_compacted=is_compacted))


def open_log(disk: InstantDisk, config: LogConfig) -> PartitionLog:
    """As a broker does it: the mark of a clean stop goes first, checkpoints are read."""
    clean = run(disk.exists(MARK))
    if clean:
        run(disk.remove(MARK))
        run(disk.sync_dir("/data"))
    point = run(read_checkpoint(disk, POINT)).get(KEY, 0)
    start = run(read_checkpoint(disk, START)).get(KEY, 0)
    opened = PartitionLog.open(disk, DIRECTORY, config=config, now_ms=1000, clean=clean, recovery_point=point, log_start_offset=start)
    return run(opened)


def check(disk: InstantDisk, count: int, notes: list[Note], config: LogConfig, *, is_compacted: bool) -> None:
    index = max(index for index, note in enumerate(notes) if note.at <= count)
    now, then = notes[index], notes[min(index + 1, len(notes) - 1)]
    log = open_log(disk, config)
    found = records_of(log)
    assert log.log_end_offset >= min(now.kept_to, then.kept_to), "what was synced is there"
    assert now.start <= log.log_start_offset <= then.start, "the log begins where it was set to"
    if is_compacted:
        check_compacted(found, log, now, then)
    else:
        expected = [_visible(note.records, log) for note in (now, then)]
        assert found in expected, "the log is a prefix of what was written"
    for segment, following in zip(log.segments, log.segments[1:]):
        assert segment.base_offset < following.base_offset
    for record in found:
        part = run(log.read(record.offset, max_bytes=1, end_offset=log.log_end_offset))
        assert part is not None
        assert part.first_offset <= record.offset
    sequences = {key: state.batches[-1][1] for key, state in log.producers.states.items()}
    assert all(sequence >= 0 for sequence in sequences.values())
    run(log.sync())
    run(write_checkpoint(disk, POINT, {KEY: log.recovery_point}))
    again = open_log(disk.copy(), config)
    assert records_of(again) == found, "a second recovery finds the same"
    assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, log.log_end_offset)
    assert {key: state.batches[-1][1] for key, state in again.producers.states.items()} == sequences
    assert again.epochs.entries == log.epochs.entries
    for opened in () if is_compacted else (log, again):
        aborted, stable_offset = aborted_by_walking(opened)
        assert run(opened.aborted.between(0, opened.log_end_offset)) == aborted, "what was aborted is not committed"
        assert opened.producers.last_stable_offset(opened.log_end_offset) == stable_offset


def _visible(records: list[Record], log: PartitionLog) -> list[Record]:
    return [record for record in records if log.log_start_offset <= record.offset < log.log_end_offset]


def check_compacted(found: list[Record], log: PartitionLog, now: Note, then: Note) -> None:
    written = {record.offset: record for record in [*now.records, *then.records]}
    assert all(written[record.offset] == record for record in found), "nothing is invented"
    newest = {written[offset].key: offset for offset in sorted(written) if offset < log.log_end_offset}
    assert set(newest.values()) <= {record.offset for record in found}, "the newest of each key is there"


# -- the runs


def appending() -> Run:
    log = Log(LogConfig(segment_bytes=1 << 20, index_interval_bytes=100))
    for number in range(12):
        log.write(batch(b"x" * (number * 60), timestamp_ms=number), sync=number % 4 == 3)
    log.write(batch(b"y" * 9000), batch(b"z" * 5000))
    log.write(batch(b"end"), sync=True)
    return log.recorded("append")


def rolling() -> Run:
    """Segments, indexes and producer snapshots; leader epochs change."""
    log = Log()
    for number in range(24):
        view = idempotent(number // 2, producer_id=number % 2, timestamp_ms=number)
        log.write(view, leader_epoch=number // 9, sync=number % 7 == 6)
    return log.recorded("roll")


def transact(log: Log, number: int) -> None:
    """Writes as one of two producers, whose batches take turns, and whose transactions end now by a commit, now by an abort."""
    producer_id = number % 2
    if number % 6 >= 4:
        is_commit = number % 4 == 0
        view = build_end_marker(is_commit=is_commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp_ms=number)
    else:
        state = log.log.producers.states.get(producer_id)
        sequence = state.batches[-1][1] + 1 if state is not None and state.batches else 0
        view = bytearray(batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True))
    log.log.stage(memoryview(view), leader_epoch=0, now_ms=number, from_client=False)
    run(log.log.flush())
    log.note()


def transacting() -> Run:
    """Commits, aborts and segments that close: which transactions were aborted is found again."""
    log = Log()
    for number in range(24):
        transact(log, number)
        if number % 5 == 4:
            log.sync()
    return log.recorded("transact")


def transacting_over_stops() -> Run:
    """The same over clean stops."""
    log = Log()
    for number in range(24):
        transact(log, number)
        if number % 4 == 3:
            stop(log)
    return log.recorded("transact and stop")


def transacting_over_cuts(*, is_durable: bool = True) -> Run:
    """The same on a follower whose log is cut back, into segments that were closed and at their ends."""
    log = Log()
    for round_, offset in enumerate((17, 15, 9, 5, 2, 0)):
        for number in range(log.log.log_end_offset, 20):
            transact(log, number + round_)
        log.sync()
        cut(log, offset, is_durable=is_durable)
        log.note()
    return log.recorded("transact and cut")


def transacting_over_cuts_together() -> Run:
    return transacting_over_cuts(is_durable=False)


def stopping() -> Run:
    log = Log()
    for life in range(3):
        for number in range(5):
            log.write(idempotent(life * 5 + number, timestamp_ms=number))
        stop(log)
    return log.recorded("stop")


def stop(log: Log) -> None:
    run(log.log.close())
    log.kept_to = log.log.log_end_offset
    log.note()
    run(log.disk.write_file_atomic(MARK, b"{}"))
    log.log = open_log(log.disk, CONFIG)


def truncating(*, is_durable: bool = True) -> Run:
    """As a follower does it: the checkpoints are written before, and one sync of the file system may come after many logs."""
    log = Log()
    for offset in (17, 9, 3, 0):
        while log.log.log_end_offset < 20:
            log.write(batch(b"%d before %d" % (log.log.log_end_offset, offset)), leader_epoch=20 - offset)
        log.sync()
        cut(log, offset, is_durable=is_durable)
        log.note()
        log.write(batch(b"after %d" % offset), leader_epoch=21 - offset, sync=True)
    return log.recorded("truncate")


def cut(log: Log, offset: int, *, is_durable: bool) -> None:
    log.kept_to = min(log.kept_to, offset)
    assert log.log.begin_truncation(offset)
    run(write_checkpoint(log.disk, POINT, {KEY: log.log.recovery_point}))
    run(log.log.truncate_to(offset, is_durable=is_durable))
    if not is_durable:
        run(log.disk.sync_file_system(DIRECTORY))
    log.log.durability.truncation_ended()


def truncating_together() -> Run:
    return truncating(is_durable=False)


def retaining() -> Run:
    log = Log()
    for round_ in range(4):
        for number in range(9):
            log.write(idempotent(round_ * 9 + number, timestamp_ms=number))
        log.sync()
        offset = log.log.log_end_offset - 4
        log.log.advance_log_start_offset(offset)
        log.notes.append(Note(len(log.disk.operations), log.kept_to, log.notes[-1].start, log.notes[-1].records))
        run(write_checkpoint(log.disk, START, {KEY: offset}))
        log.note()
        run(log.log.delete_segments_below(offset, now_ms=round_ * 10))
        run(log.log.remove_deleted(now_ms=round_ * 10))
        log.note()
    return log.recorded("retention")


def compacting() -> Run:
    config = LogConfig(cleanup_policy="compact", segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=5)
    log = Log(config)
    written: list[Record] = []
    for round_ in range(3):
        for number in range(18):
            log.write(batch(b"%d" % number, key=b"key-%d" % (number % 5), timestamp_ms=number))
            written += [record for record in records_of(log.log) if record.offset == log.log.log_end_offset - 1]
        log.sync()
        request = run(log.log.compaction.clean_request(10_000, map_bytes=24 * 100, map_load_factor=0.9))
        assert request is not None
        result = run(log.disk.work(CLEAN_JOB, request))
        assert result.cleaned
        for cleaned in result.cleaned:
            assert run(log.log.compaction.install(cleaned, now_ms=round_ * 10))
        log.log.compaction.first_dirty_offset = result.end_offset
        log.note()
        run(log.log.remove_deleted(now_ms=round_ * 10 + 7))
        log.notes[-1].records = list(written)
    return log.recorded("compact", is_compacted=True)


def metadata() -> Run:
    disk = InstantDisk()
    run(disk.make_dirs("/data"))
    images: list[tuple[int, ClusterImage]] = []

    async def work() -> None:
        log = await MetadataLog.open(disk, "/data", now_ms=0, clean=False)
        image = EMPTY_IMAGE
        images.append((0, image))
        for number in range(25):
            record = ConfigRecord(RESOURCE_TOPIC, f"topic-{number % 4}", "retention.ms", str(number))
            await log.write_groups([[record]], epoch=1, now_ms=number)
            await log.sync()
            image = replace(replay(image, [record]), end_offset=log.end_offset, epoch=1)
            images.append((len(disk.operations), image))
            if number % 7 == 6:
                written = await log.snapshots.write(image, number)
                await log.delete_below(written.end_offset)

    run(work())

    async def image_of(found: InstantDisk) -> ClusterImage:
        log = await MetadataLog.open(found, "/data", now_ms=0, clean=False)
        image = await log.newest_image()
        async for batches in log.records(image.end_offset, log.end_offset):
            image = replay(image, [record for batch in batches for record in batch.records])
        return image

    def check_image(found: InstantDisk, count: int) -> None:
        index = max(index for index, (at, _) in enumerate(images) if at <= count)
        image = run(image_of(found))
        assert image in [image for _, image in images[index : index + 2]], "the newest committed image, or the one being committed"
        assert run(image_of(found.copy())) == image

    start = InstantDisk()
    run(start.make_dirs("/data/__cluster_metadata-0"))
    return Run("metadata", start, disk.operations, check_image)


RUNS: dict[str, Callable[[], Run]] = {
    name.__name__: name
    for name in (
        appending, rolling, transacting, transacting_over_stops, transacting_over_cuts, transacting_over_cuts_together, stopping,
        truncating, truncating_together, retaining, compacting, metadata,
    )
}  # fmt: skip
