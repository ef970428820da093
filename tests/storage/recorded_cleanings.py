"""A recorded run of transactions in a compacted log, and what readers of committed records must find of it after a crash."""

from __future__ import annotations

from typing import Any

from tests.storage.batches import batch
from tests.storage.crash_states import Run
from tests.storage.recorded_runs import Log, open_log

from ottla.records.batch import iterate_batches
from ottla.records.control import build_end_marker
from ottla.records.iteration import iterate_records
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.compaction.job import CLEAN_JOB
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog

CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=5, delete_retention_ms=20)
ROUNDS, WRITES = 4, 24
KEYS = 5
COMMIT, ABORT = b"commit", b"abort"

Written = dict[int, tuple[int, bytes | None, bytes]]
"""By offset: the producer, the key and the value; of an end marker no key, and how it ends."""


def transacting_and_cleaning() -> Run:
    """Two producers whose transactions end now by a commit, now by an abort; their records, and later their markers, are removed."""
    log = Log(CONFIG)
    written: Written = {}
    number = 0
    for round_ in range(ROUNDS):
        now_ms = round_ * 100
        for _ in range(WRITES):
            offset = log.log.log_end_offset
            written[offset] = _write(log, number, now_ms)
            number += 1
        log.sync()
        request = run(log.log.compaction.clean_request(now_ms, map_bytes=24 * 100, map_load_factor=0.9))
        assert request is not None
        for cleaned in run(log.disk.work(CLEAN_JOB, request)).cleaned:
            assert run(log.log.compaction.install(cleaned, now_ms=now_ms))
        log.log.compaction.first_dirty_offset = request.end_offset
        run(log.log.remove_deleted(now_ms=now_ms + 7))
    return Run("transact and clean", InstantDisk(log.disk.directories), log.disk.operations, lambda disk, _: check(disk, written))


def _write(log: Log, number: int, now_ms: int) -> tuple[int, bytes | None, bytes]:
    producer_id = number % 2
    if number % 6 >= 4:
        is_commit = number % 4 == 0
        view = build_end_marker(is_commit=is_commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp_ms=now_ms)
        entry: tuple[int, bytes | None, bytes] = (producer_id, None, COMMIT if is_commit else ABORT)
    else:
        state = log.log.producers.states.get(producer_id)
        sequence = state.batches[-1][1] + 1 if state is not None and state.batches else 0
        entry = (producer_id, b"key-%d" % (number % KEYS), b"%d" % number)
        given: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "is_transactional": True}
        view = bytearray(batch(entry[2], key=entry[1], timestamp_ms=now_ms, **given))
    log.log.stage(memoryview(view), leader_epoch=0, now_ms=now_ms, from_client=False)
    run(log.log.flush())
    return entry


def check(disk: InstantDisk, written: Written) -> None:
    """Readers find no record that was not committed, each as it was written, and the newest of each key."""
    log = open_log(disk, CONFIG)
    committed, stable_offset = _committed(written, log.log_end_offset)
    found = _read(log, stable_offset)
    assert found.items() <= committed.items(), "only what was committed is read"
    newest = {key: offset for offset, (key, _) in sorted(committed.items())}
    assert set(newest.values()) <= found.keys(), "the newest of each key is read"


def _committed(written: Written, end_offset: int) -> tuple[dict[int, tuple[bytes | None, bytes]], int]:
    """What of a log that ends there is committed, by offset, and its last stable offset."""
    begun: dict[int, list[int]] = {}
    committed: dict[int, tuple[bytes | None, bytes]] = {}
    for offset in range(end_offset):
        producer_id, key, value = written[offset]
        if key is not None:
            begun.setdefault(producer_id, []).append(offset)
            continue
        ended = begun.pop(producer_id, [])
        if value == COMMIT:
            committed |= {at: (written[at][1], written[at][2]) for at in ended}
    stable_offset = min([end_offset, *(offsets[0] for offsets in begun.values())])
    return {offset: entry for offset, entry in committed.items() if offset < stable_offset}, stable_offset


def _read(log: PartitionLog, end_offset: int) -> dict[int, tuple[bytes | None, bytes]]:
    """What a reader of committed records is given: all batches, and what of them was aborted."""
    aborted = run(log.aborted.between(0, log.log_end_offset))
    found: dict[int, tuple[bytes | None, bytes]] = {}
    for segment in log.segments:
        data = run(run(segment.opened()).pread(0, segment.size))
        for position, header in iterate_batches(data):
            is_aborted = any(
                ended.producer_id == header.producer_id and ended.first_offset <= header.last_offset <= ended.last_offset
                for ended in aborted
            )
            if header.is_control or is_aborted:
                continue
            for record in iterate_records(data, position):
                if record.offset < end_offset:
                    assert record.value is not None
                    found[record.offset] = (record.key, record.value)
    return found
