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
