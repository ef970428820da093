"""The metadata log on a real disk, as the only voter has it."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.metadata_replica import LoneReplica

from ottla.broker.metadata.log import DIRECTORY_NAME, MetadataLog
from ottla.broker.metadata.synced_mark import MARK_NAME
from ottla.consensus.calls import Answer, Fetch, FetchAnswer, FetchSnapshot, Request
from ottla.errors import ErrorCode, StorageError
from ottla.messages.metadata_records import ConfigRecord, PartitionChangeRecord, TopicRecord
from ottla.metadata.image import RESOURCE_TOPIC
from ottla.ports import Disk
from ottla.records.batch import iterate_batches
from ottla.records.control import ControlType, control_type_of
from ottla.records.iteration import iterate_records
from ottla.runtime.world import real_world


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await body()

    asyncio.run(main())


def topic(number: int) -> TopicRecord:
    return TopicRecord(f"topic-{number}", number.to_bytes(16, "big"))


def log_file(directory: Path) -> Path:
    return sorted((directory / DIRECTORY_NAME).glob("*.log"))[-1]


def test_what_was_committed_is_in_the_image_after_reopening(tmp_path: Path) -> None:
    async def body() -> None:
        log = await LoneReplica.open(tmp_path)
        await log.record(topic(1), ConfigRecord(RESOURCE_TOPIC, "topic-1", "a", "b"))
        await log.record(topic(2))
        assert (log.image.end_offset, log.image.epoch) == (4, 1), "the first record says who leads"
        again = await LoneReplica.open(tmp_path)  # no stop before: as after a crash
        assert again.image == log.image
        assert (again.image.end_offset, again.image.epoch) == (5, 2)

    run(body)


def test_large_groups_are_split_into_batches_and_read_back(tmp_path: Path) -> None:
    async def body() -> None:
        log = await LoneReplica.open(tmp_path)
        await log.record(*[topic(number) for number in range(1, 5001)])
        assert len(log.image.topics) == 5000
        again = await LoneReplica.open(tmp_path)
        assert len(again.image.topics) == 5000
        assert again.image.end_offset == log.image.end_offset + 1

    run(body)


def test_a_torn_group_of_records_counts_for_nothing_and_is_closed(tmp_path: Path) -> None:
    """As in Kafka a transaction that was not ended is aborted, and what follows it counts (KIP-868)."""

    async def body() -> None:
        log = await LoneReplica.open(tmp_path / "whole")
        await log.record(topic(1))
        file = log_file(tmp_path / "whole")
        whole = file.stat().st_size
        await log.record(*[topic(number) for number in range(2, 5002)])
        data = file.read_bytes()
        ends = [position + header.size_bytes for position, header in iterate_batches(data)]
        assert len(ends) == 2 + 5  # who leads, the first group; begin, three batches, end
        for at in [end for end in ends if whole <= end < len(data)]:
            directory = tmp_path / str(at)
            torn = directory / DIRECTORY_NAME / file.name
            torn.parent.mkdir(parents=True)
            torn.write_bytes(data[: at + 20])
            again = await LoneReplica.open(directory)
            assert set(again.image.topics) == {"topic-1"}
            await again.record(topic(2))
            assert set((await LoneReplica.open(directory)).image.topics) == {"topic-1", "topic-2"}

    run(body)


def test_a_group_that_is_our_mistake_changes_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        log = await LoneReplica.open(tmp_path)
        end_offset = log.replica.append([topic(1)])
        with pytest.raises(AssertionError, match="created once"):
            log.replica.append([topic(2), topic(1)])
        assert set(log.replica.draft.topics) == {"topic-1"}
        assert log.image.topics == {}, "nothing is told before it is committed"
        await log.replica.committed(end_offset)
        assert set(log.image.topics) == {"topic-1"}
        assert (await LoneReplica.open(tmp_path)).image == log.image

    run(body)


def test_a_snapshot_replaces_the_log_before_it(tmp_path: Path) -> None:
    async def body() -> None:
        log = await LoneReplica.open(tmp_path)
        for number in range(1, 6):
            await log.record(topic(number))
            await log.replica.write_snapshot()
        await log.record(topic(6))  # which is written after what the snapshot has is deleted
        snapshots = sorted(path.name for path in (tmp_path / DIRECTORY_NAME).glob("*.checkpoint"))
        assert snapshots == ["00000000000000000005-0000000001.checkpoint", "00000000000000000006-0000000001.checkpoint"]
        again = await LoneReplica.open(tmp_path)
        assert sorted(again.image.topics) == [f"topic-{number}" for number in range(1, 7)]
        for path in (tmp_path / DIRECTORY_NAME).glob("*.log"):
            path.unlink()
        with pytest.raises(StorageError, match="synced up to offset 8"):
            await LoneReplica.open(tmp_path)
        (tmp_path / DIRECTORY_NAME / MARK_NAME).unlink()  # the snapshot outlived the log: what it holds is still there
        alone = await LoneReplica.open(tmp_path)
        assert sorted(alone.image.topics) == [f"topic-{number}" for number in range(1, 6)]

    run(body)


def test_snapshots_are_written_when_enough_has_come_since_the_last(tmp_path: Path) -> None:
    async def body() -> None:
        log = await LoneReplica.open(tmp_path, bytes_between_snapshots=2000)
        for number in range(1, 101):
            await log.record(topic(number))
        await log.replica.stop()
        found = sorted((tmp_path / DIRECTORY_NAME).glob("*.checkpoint"))
        assert len(found) == 2, "the newest two are kept"
        batches = [(header, iterate_records(found[-1].read_bytes(), at)) for at, header in iterate_batches(found[-1].read_bytes())]
        kinds = [control_type_of(records[0]) for header, records in batches if header.is_control]
        assert kinds == [ControlType.SNAPSHOT_HEADER, ControlType.SNAPSHOT_FOOTER]
        assert [header.base_offset for header, _ in batches] == [0, 1, 1 + batches[1][0].count], "offsets as in Kafka's snapshots"
        assert len((await LoneReplica.open(tmp_path)).image.topics) == 100

    run(body)


def test_what_came_before_a_start_counts_for_the_next_snapshot(tmp_path: Path) -> None:
    """A node that is restarted often would never write one, and read more at each start."""

    async def body() -> None:
        for number in range(1, 41):
            log = await LoneReplica.open(tmp_path, bytes_between_snapshots=2000)
            await log.record(topic(number))
            await log.replica.stop()
        assert len(list((tmp_path / DIRECTORY_NAME).glob("*.checkpoint"))) in (2, 3), "an older one may wait for its removal"
        assert len((await LoneReplica.open(tmp_path)).image.topics) == 40

    run(body)


class AdjustableClock:
    def __init__(self) -> None:
        self._clock = real_world().clock
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


def test_snapshots_are_written_after_a_time_if_something_has_come(tmp_path: Path) -> None:
    async def body() -> None:
        clock, hour = AdjustableClock(), 3_600_000
        world = msgspec.structs.replace(real_world(), clock=clock)
        for never, count in ((hour, 1), (0, 0)):
            clock.ahead_ms = 0
            directory = tmp_path / str(never)
            log = await LoneReplica.open(directory, world=world, snapshot_interval_ms=never)
            await log.record(topic(1))
            assert list((directory / DIRECTORY_NAME).glob("*.checkpoint")) == []
            clock.ahead_ms = 2 * hour
            await log.record(topic(2))
            await log.replica.stop()
            assert len(list((directory / DIRECTORY_NAME).glob("*.checkpoint"))) == count
            again = await LoneReplica.open(directory, world=world, snapshot_interval_ms=never)
            await again.replica.stop()
            assert len(list((directory / DIRECTORY_NAME).glob("*.checkpoint"))) <= 2

    run(body)


def test_the_log_has_segments_and_those_before_a_snapshot_are_deleted(tmp_path: Path) -> None:
    async def body() -> None:
        log = await LoneReplica.open(tmp_path, segment_bytes=1000)
        for number in range(1, 41):
            await log.record(topic(number))
        assert len(list((tmp_path / DIRECTORY_NAME).glob("*.log"))) > 3
        await log.replica.write_snapshot()
        await log.record(topic(41))
        await log.replica.stop()
        assert len(list((tmp_path / DIRECTORY_NAME).glob("*.log"))) == 1
        assert len((await LoneReplica.open(tmp_path)).image.topics) == 41

    run(body)


@pytest.mark.parametrize("damage", ["flip", "cut", "footer"])
def test_a_damaged_snapshot_is_refused(tmp_path: Path, damage: str) -> None:
    async def body() -> None:
        log = await LoneReplica.open(tmp_path)
        await log.record(topic(1))
        await log.replica.write_snapshot()
        [path] = (tmp_path / DIRECTORY_NAME).glob("*.checkpoint")
        data = bytearray(path.read_bytes())
        data[-3] ^= 0x40
        whole = path.read_bytes()
        footer = [position for position, _ in iterate_batches(whole)][-1]
        path.write_bytes({"flip": bytes(data), "cut": whole[:-3], "footer": whole[:footer]}[damage])
        with pytest.raises(StorageError, match="metadata snapshot"):
            await LoneReplica.open(tmp_path)

    run(body)


def test_a_record_about_a_topic_that_is_not_there_keeps_the_broker_from_guessing(tmp_path: Path) -> None:
    async def body() -> None:
        disk: Disk = real_world().disk
        log = await MetadataLog.open(disk, str(tmp_path), now_ms=0, clean=False)
        await log.write_groups([[PartitionChangeRecord(partition_id=0, topic_id=b"\x17" * 16)]], epoch=1, now_ms=0)
        await log.close()
        with pytest.raises(StorageError, match="cannot be replayed"):
            await LoneReplica.open(tmp_path)

    run(body)


def test_a_log_from_before_there_were_elections_is_taken_over(tmp_path: Path) -> None:
    """Without a quorum-state, the only voter goes on in the epoch after that of its last record."""

    async def body() -> None:
        log = await MetadataLog.open(real_world().disk, str(tmp_path), now_ms=0, clean=False)
        await log.write_groups([[topic(1)], [topic(2)]], epoch=1, now_ms=0)
        await log.close()
        again = await LoneReplica.open(tmp_path)
        assert set(again.image.topics) == {"topic-1", "topic-2"}
        assert (again.image.end_offset, again.image.epoch) == (3, 2)

    run(body)


async def asked(log: LoneReplica, request: Request) -> Answer:
    """The answer; what the replica fails with is raised."""
    answers: list[Answer] = []
    log.replica.on_request(request, answers.append)
    while not answers:
        assert log.error is None, log.error
        await asyncio.sleep(0)
    return answers[0]


def test_a_failed_read_for_another_replica_is_answered_with_an_error_and_does_not_end_this_one(tmp_path: Path) -> None:
    async def body() -> None:
        log = await LoneReplica.open(tmp_path)
        await log.record(topic(1))
        await log.replica.write_snapshot()
        await log.record(topic(2))
        [path] = (tmp_path / DIRECTORY_NAME).glob("*.checkpoint")
        found = log.replica.quorum.log.snapshots[-1][0]
        for max_bytes, error in ((-1, ErrorCode.INVALID_REQUEST), (100, ErrorCode.NONE)):
            assert (await asked(log, FetchSnapshot(1, 9, found, 0, max_bytes))).error == error
        path.unlink()
        path.mkdir()
        assert (await asked(log, FetchSnapshot(1, 9, found, 0))).error == ErrorCode.KAFKA_STORAGE_ERROR
        path.rmdir()
        await log.record(topic(3))
        assert len(log.image.topics) == 3
        os.truncate(log_file(tmp_path), 10)  # it will take no more records, but the replica ends by those only
        answer = await asked(log, Fetch(1, 9, found.end_offset, 1))
        assert isinstance(answer, FetchAnswer)
        assert (answer.error, answer.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
        assert log.replica.is_active

    run(body)


def test_what_is_written_while_an_fsync_runs_is_durable_with_the_next_one_only(tmp_path: Path) -> None:
    async def body() -> None:
        log = await LoneReplica.open(tmp_path)
        sync, syncs, gates = log.replica.log.sync, 0, [asyncio.Event(), asyncio.Event()]

        async def slow() -> None:
            nonlocal syncs
            syncs += 1
            gate = gates[syncs - 1]
            await sync()
            await gate.wait()

        log.replica.log.sync = slow  # type: ignore[method-assign]
        first = log.replica.append([topic(1)])
        while syncs == 0:
            await asyncio.sleep(0)
        second = log.replica.append([topic(2)])
        while log.replica.log.end_offset < second:
            await asyncio.sleep(0)
        durable: list[int] = []
        on_flushed = log.replica.quorum.log

        gates[0].set()
        await log.replica.committed(first)
        durable.append(on_flushed.flushed_offset)
        assert durable == [first], "the second one was written after that fsync had begun"
        gates[1].set()
        await log.replica.committed(second)
        assert (on_flushed.flushed_offset, syncs) == (second, 2)

    run(body)


def test_what_a_process_left_half_written_is_removed_at_the_next_start(tmp_path: Path) -> None:
    async def body() -> None:
        await (await LoneReplica.open(tmp_path)).replica.stop()
        left = [tmp_path / DIRECTORY_NAME / name for name in ("00000000000000000009-0000000001.checkpoint.tmp", "arriving.part")]
        for path in left:
            path.write_bytes(b"half")
        await LoneReplica.open(tmp_path)
        assert not any(path.exists() for path in left)

    run(body)


def test_a_snapshot_that_finds_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    async def body() -> None:
        log = await LoneReplica.open(tmp_path)
        await log.record(*[topic(number) for number in range(1, 500)])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                await log.replica.log.snapshots.write(log.image, 0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        assert not list((tmp_path / DIRECTORY_NAME).glob("*.tmp"))

    run(body)
