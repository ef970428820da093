"""The metadata log on a real disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.broker.metadata.log import FOLDER_NAME, MetadataLog
from ottla.broker.metadata.synced_mark import MARK_NAME
from ottla.errors import StorageError
from ottla.messages.metadata_records import ConfigRecord, PartitionChangeRecord, TopicRecord
from ottla.metadata.image import RESOURCE_TOPIC
from ottla.metadata.records import encode_record
from ottla.ports import Disk
from ottla.records.batch import iterate_batches
from ottla.records.builder import BatchBuilder
from ottla.runtime.world import real_world


def with_disk(body: Callable[[Disk], Awaitable[None]]) -> None:
    async def main() -> None:
        await body(real_world().disk)

    asyncio.run(main())


async def open_log(disk: Disk, folder: Path, *, snapshot_bytes: int = 1 << 30) -> MetadataLog:
    return await MetadataLog.open(disk, str(folder), now_ms=0, clean=False, bytes_between_snapshots=snapshot_bytes)


async def commit(log: MetadataLog) -> None:
    """As the only voter does."""
    log.commit(await log.flush())


def topic(number: int) -> TopicRecord:
    return TopicRecord(f"topic-{number}", number.to_bytes(16, "big"))


def test_what_was_committed_is_in_the_image_after_reopening(tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        log = await open_log(disk, tmp_path)
        log.append([topic(1), ConfigRecord(RESOURCE_TOPIC, "topic-1", "a", "b")], now_ms=5)
        log.append([topic(2)], now_ms=6)
        await commit(log)
        image = log.committed
        again = await open_log(disk, tmp_path)  # no close before: as after a crash
        assert again.committed == image
        assert again.end_offset == 3

    with_disk(body)


def test_large_groups_are_split_into_batches_and_read_back(tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        log = await open_log(disk, tmp_path)
        log.append([topic(number) for number in range(1, 5001)], now_ms=0)
        await commit(log)
        assert len((await open_log(disk, tmp_path)).committed.topics) == 5000

    with_disk(body)


def test_a_torn_group_of_records_counts_for_nothing_and_is_closed(tmp_path: Path) -> None:
    """As in Kafka a transaction that was not ended is aborted, and what follows it counts (KIP-868)."""

    async def body(disk: Disk) -> None:
        log = await open_log(disk, tmp_path / "whole")
        log.append([topic(1)], now_ms=0)
        await commit(log)
        whole = log._log.segments[-1].size
        log.append([topic(number) for number in range(2, 5002)], now_ms=0)
        await commit(log)
        segment = Path(log._log.segments[-1].file.path)
        data = segment.read_bytes()
        ends = [position + header.size_bytes for position, header in iterate_batches(data)]
        assert len(ends) == 1 + 5  # begin, three batches, end
        for at in [end for end in ends if whole <= end < len(data)]:
            folder = tmp_path / str(at)
            torn = folder / FOLDER_NAME / segment.name
            torn.parent.mkdir(parents=True)
            torn.write_bytes(data[: at + 20])
            again = await open_log(disk, folder)
            assert set(again.committed.topics) == {"topic-1"}
            again.append([topic(2)], now_ms=0)
            await commit(again)
            assert set((await open_log(disk, folder)).committed.topics) == {"topic-1", "topic-2"}

    with_disk(body)


def test_a_group_that_is_our_mistake_changes_nothing(tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        log = await open_log(disk, tmp_path)
        log.append([topic(1)], now_ms=0)
        with pytest.raises(AssertionError, match="created once"):
            log.append([topic(2), topic(1)], now_ms=0)
        assert set(log.draft.topics) == {"topic-1"}
        assert log.committed.topics == {}, "nothing is told before it is committed"
        await commit(log)
        assert set(log.committed.topics) == {"topic-1"}
        assert (await open_log(disk, tmp_path)).committed == log.committed

    with_disk(body)


def test_a_snapshot_replaces_the_log_before_it(tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        log = await open_log(disk, tmp_path, snapshot_bytes=1)
        for number in range(1, 6):
            log.append([topic(number)], now_ms=0)
            await commit(log)
            assert await log.snapshot_when_due()
        snapshots = sorted(path.name for path in (tmp_path / FOLDER_NAME).glob("*.checkpoint"))
        assert snapshots == ["00000000000000000004-0000000001.checkpoint", "00000000000000000005-0000000001.checkpoint"]
        log.append([topic(6)], now_ms=0)
        await commit(log)
        again = await open_log(disk, tmp_path)
        assert sorted(again.committed.topics) == [f"topic-{number}" for number in range(1, 7)]
        for path in (tmp_path / FOLDER_NAME).glob("*.log"):
            path.unlink()
        with pytest.raises(StorageError, match="synced up to offset 6"):
            await open_log(disk, tmp_path)
        (tmp_path / FOLDER_NAME / MARK_NAME).unlink()  # the snapshot outlived the log: what it holds is still there
        alone = await open_log(disk, tmp_path)
        assert sorted(alone.committed.topics) == [f"topic-{number}" for number in range(1, 6)]
        assert alone.end_offset == 5

    with_disk(body)


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_a_damaged_snapshot_is_refused(tmp_path: Path, damage: str) -> None:
    async def body(disk: Disk) -> None:
        log = await open_log(disk, tmp_path)
        log.append([topic(1)], now_ms=0)
        await commit(log)
        await log.write_snapshot()
        [path] = (tmp_path / FOLDER_NAME).glob("*.checkpoint")
        data = bytearray(path.read_bytes())
        data[-3] ^= 0x40
        path.write_bytes(data if damage == "flip" else data[:-3])
        with pytest.raises(StorageError, match="metadata snapshot"):
            await open_log(disk, tmp_path)

    with_disk(body)


def test_a_record_about_a_topic_that_is_not_there_keeps_the_broker_from_guessing(tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        log = await open_log(disk, tmp_path)
        stray = PartitionChangeRecord(partition_id=0, topic_id=b"\x17" * 16)
        builder = BatchBuilder()
        builder.append(None, encode_record(stray), timestamp_ms=0)
        log._log.stage(memoryview(builder.build()), leader_epoch=0, now_ms=0, from_client=False)
        await log._log.flush()
        await log.close()
        with pytest.raises(StorageError, match="cannot be replayed"):
            await open_log(disk, tmp_path)

    with_disk(body)
