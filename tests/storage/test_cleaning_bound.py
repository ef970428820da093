"""How far a log may be compacted."""

from __future__ import annotations

import pytest
from tests.storage.batches import batch, open_log, stage

from ottla.records.control import build_end_marker
from ottla.sim.instant_disk import InstantDisk, run


@pytest.mark.parametrize(("committed_end", "wanted"), [(1, 1), (2, 1), (3, 1), (4, 4), (None, 4)])
def test_what_a_marker_decides_that_is_not_committed_is_not_compacted(committed_end: int | None, wanted: int) -> None:
    """Another leader may not have it: the aborted records would be gone where the transaction is open again."""
    log = open_log(InstantDisk())
    if committed_end is not None:
        log.tail.committed_end = lambda: committed_end
    for view in (
        batch(b"before"),
        batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
        batch(b"plain"),
        memoryview(build_end_marker(is_commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1000)),
    ):
        stage(log, view, from_client=False)
        log.tail.close_segment_soon()
        run(log.flush())
    log.tail.close_segment_soon()
    run(log.flush())
    run(log.sync())
    request = run(log.compaction.clean_request(5000, map_bytes=10_000, map_load_factor=1.0))
    assert request is not None
    assert request.end_offset == wanted


def test_records_of_an_open_transaction_are_not_compacted() -> None:
    log = open_log(InstantDisk())
    for view in (batch(b"before"), batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True), batch(b"plain")):
        stage(log, view, from_client=False)
        log.tail.close_segment_soon()
        run(log.flush())
    run(log.sync())
    request = run(log.compaction.clean_request(5000, map_bytes=10_000, map_load_factor=1.0))
    assert request is not None
    assert request.end_offset == 1
