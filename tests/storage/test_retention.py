"""Which segments are too old, of a log whose times do not rise."""

from __future__ import annotations

from tests.storage.batches import append, batch, open_log

from ottla.sim.instant_disk import InstantDisk, run


def test_a_young_segment_keeps_the_old_ones_after_it() -> None:
    disk, size = InstantDisk(), len(batch())
    log = open_log(disk, segment_bytes=size, retention_ms=1000)
    for timestamp_ms in (1000, 1000, 99_500, 1000, 99_000):
        append(log, batch(timestamp_ms=timestamp_ms))
    assert len(log.segments) == 5
    assert run(log.retained_from(100_000)) == 2
    assert run(log.retained_from(100_501)) == 4


def test_a_segment_is_as_old_as_its_newest_record() -> None:
    """Kafka: it expires by its largest timestamp. Its first record may be much older."""
    size = len(batch())
    log = open_log(InstantDisk(), segment_bytes=2 * size, retention_ms=1000)
    for timestamp_ms in (1000, 99_500, 1000, 2000, 1000, 1000):
        append(log, batch(timestamp_ms=timestamp_ms))
    assert [segment.size for segment in log.segments] == [2 * size] * 3
    assert run(log.retained_from(100_000)) == 0
    assert run(log.retained_from(100_501)) == 4


def test_what_is_not_committed_is_not_too_old() -> None:
    """Not by time, and not by size: no replica may begin above its leader's high watermark."""
    size = len(batch())
    for retention_ms, retention_bytes in ((1000, -1), (-1, size)):
        log = open_log(InstantDisk(), segment_bytes=size, retention_ms=retention_ms, retention_bytes=retention_bytes)
        for _ in range(5):
            append(log, batch(timestamp_ms=1000))
        log.tail.committed_end = lambda: 2
        assert run(log.retained_from(100_000)) == 2
        log.tail.committed_end = lambda: 5
        assert run(log.retained_from(100_000)) >= 4


def test_the_durable_start_offset_of_a_log_is_the_one_on_disk() -> None:
    """Deleting moves the start in memory; a checkpoint, segments that are removed durably, and a new beginning are kept."""
    disk, size = InstantDisk(), len(batch())
    log = open_log(disk, segment_bytes=size)
    for _ in range(6):
        append(log, batch())
    log.advance_log_start_offset(2)
    assert log.durability.start_offset == 0
    run(log.delete_segments_below(2))
    assert log.durability.start_offset == 0, "they are renamed, and no checkpoint says so"
    run(log.delete_segments_below(3, one_by_one=True))
    assert (log.log_start_offset, log.durability.start_offset) == (3, 3)
    log.advance_log_start_offset(4)
    log.durability.start_is_kept(4)
    run(log.truncate_fully_and_start_at(1))
    assert (log.log_start_offset, log.durability.start_offset) == (1, 1)
    run(log.truncate_fully_and_start_at(9))
    assert (log.log_start_offset, log.durability.start_offset) == (9, 9)
    run(log.truncate_fully_and_start_at(20, is_durable=False))
    assert log.durability.start_offset == 9, "the owner has yet to sync it"
    assert open_log(disk, log_start_offset=20).durability.start_offset == 20
