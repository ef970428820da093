"""What ``ottla storage verify`` finds, and that it finds nothing where nothing is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.storage.batches import append, batch

from ottla.errors import StorageError
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.config import LogConfig
from ottla.storage.directory.checkpoint import RECOVERY_POINT, write_checkpoint
from ottla.storage.directory.directory import DirectoryIdentity, LogDirectory
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.recovery.verification import Finding, verify
from ottla.storage.segment.transaction_index import Transaction, to_bytes
from ottla.types import TopicPartition

KEY = TopicPartition("t", 0)
SEGMENT = "/data/t-0/00000000000000000006"
SIZE = len(batch())


def directory(*, clean: bool = True) -> InstantDisk:
    """Five segments, closed in order or just left."""
    disk = InstantDisk()
    ids = DirectoryIdentity("cluster", 1, "directory")
    opened = run(LogDirectory.open(disk, "/data", node_id=1, cluster_id=None, new_ids=ids))
    path = run(opened.create_partition(KEY, "topic-id"))
    config = LogConfig(segment_bytes=3 * SIZE, index_interval_bytes=10)
    log = run(PartitionLog.open(disk, path, config=config, now_ms=0, clean=False))
    for number in range(13):
        arguments: dict[str, Any] = {} if number % 2 else {"producer_id": 7, "producer_epoch": 0, "base_sequence": number // 2}
        append(log, batch(timestamp_ms=number, **arguments))
    if clean:
        run(log.close())
        run(opened.mark_clean())
    run(write_checkpoint(disk, f"/data/{RECOVERY_POINT}", {KEY: log.recovery_point}))
    return disk


def damages(disk: InstantDisk) -> list[str]:
    return [finding.path for finding in run(verify(disk, "/data")).findings if finding.is_damage]


def notes(disk: InstantDisk) -> list[Finding]:
    result = run(verify(disk, "/data"))
    assert not result.is_damaged
    return result.findings


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_that_a_broker_left_has_nothing_wrong_and_is_not_changed(clean: bool) -> None:
    disk = directory(clean=clean)
    before = disk.contents()
    result = run(verify(disk, "/data"))
    assert (result.partition_count, result.segment_count, result.batch_count, result.size_bytes) == (1, 5, 13, 13 * SIZE)
    assert result.findings == []
    assert disk.contents() == before


def test_every_flipped_byte_of_a_closed_segment_is_damage() -> None:
    disk = directory()
    for position in range(3 * SIZE):
        written = disk.files[f"{SEGMENT}.log"].written
        written[position] ^= 0x20
        if position % SIZE not in range(12, 16):  # the leader epoch is not covered by the CRC
            assert damages(disk) == ["t-0/00000000000000000006.log"], f"byte {position}"
        written[position] ^= 0x20
    assert damages(disk) == []


def test_a_segment_that_ends_too_early_and_one_that_is_missing_are_damage() -> None:
    disk = directory()
    del disk.files[f"{SEGMENT}.log"].written[-SIZE:]
    assert damages(disk) == ["t-0/00000000000000000006.log"]
    disk = directory()
    for suffix in (".log", ".index", ".timeindex"):
        del disk.files[SEGMENT + suffix]
    assert damages(disk) == ["t-0/00000000000000000003.log"]


def test_a_torn_end_is_damage_only_after_a_clean_stop() -> None:
    disk = directory(clean=False)
    disk.files["/data/t-0/00000000000000000012.log"].written[-3:] = b""
    assert [finding.path for finding in notes(disk)] == ["t-0/00000000000000000012.log"]
    disk = directory()
    disk.files["/data/t-0/00000000000000000012.log"].written[-3:] = b""
    assert damages(disk) == ["t-0/00000000000000000012.log"]


def test_a_segment_that_a_broker_has_found_damaged_is_not_called_torn() -> None:
    """A start keeps it as it is: nothing is cut off, and its partition is offline."""
    disk = directory(clean=False)
    last = "/data/t-0/00000000000000000012"
    disk.files[f"{last}.log"].written[-3] ^= 1
    [torn] = notes(disk)
    assert torn.cut_bytes == SIZE
    disk.put(f"{last}.damaged", b"-1\nthe CRC is wrong\n")
    [finding] = run(verify(disk, "/data")).findings
    assert (finding.is_damage, finding.cut_bytes) == (True, 0)
    assert finding.text.endswith("a broker has found that, and leaves the partition offline at its next start")


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_does_not_fit_is_a_note(suffix: str) -> None:
    disk = directory()
    data = disk.files[SEGMENT + suffix].written
    assert len(data) > 8
    for position in range(len(data)):
        data[position] ^= 0x01
        assert [finding.path for finding in notes(disk)] == [f"t-0/00000000000000000006{suffix}"], f"byte {position}"
        data[position] ^= 0x01
    del disk.files[SEGMENT + suffix]
    assert [finding.path for finding in notes(disk)] == [f"t-0/00000000000000000006{suffix}"]


def test_a_damaged_file_of_aborted_transactions_is_a_note() -> None:
    disk = directory()
    disk.put(f"{SEGMENT}.txnindex", to_bytes([Transaction(7, 6, 7, 8)]))
    assert notes(disk) == []
    disk.put(f"{SEGMENT}.txnindex", b"damaged")
    [finding] = notes(disk)
    assert finding.path == "t-0/00000000000000000006.txnindex"


def test_leftovers_checkpoints_epochs_and_snapshots_are_looked_at() -> None:
    disk = directory()
    for name in ("t-0/x.log.deleted", "t-0/x.log.cleaned", "t-0/x.log.swap"):
        run(disk.open(f"/data/{name}", create=True))
    run(disk.make_dirs("/data/t-1.0123-delete"))
    disk.files[f"/data/{RECOVERY_POINT}"].written[:] = b"0\n9\n"
    disk.files["/data/t-0/leader-epoch-checkpoint"].written[:] = b"?"
    disk.files["/data/t-0/00000000000000000012.snapshot"].written[-1] ^= 1
    assert {finding.path for finding in notes(disk)} == {
        *("t-0/x.log.deleted", "t-0/x.log.cleaned", "t-0/x.log.swap", "t-1.0123-delete", RECOVERY_POINT),
        *("t-0/leader-epoch-checkpoint", "t-0/00000000000000000012.snapshot"),
    }


def test_what_is_not_a_log_directory_is_refused() -> None:
    disk = InstantDisk()
    run(disk.make_dirs("/data"))
    with pytest.raises(StorageError, match="not a log directory"):
        run(verify(disk, "/data"))
