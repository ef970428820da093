"""Parts of a broker that use one partition's files at the same time: none takes the other's work for a failing disk."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest
import structlog
from tests.broker.test_log_care import create, directory_of, files_of, log_of, records_of, send
from tests.quiet import silence
from tests.waiting import eventually_is

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.tasks.slices import Slices
from ottla.broker.upkeep import housekeeping
from ottla.broker.upkeep.scrubber import Scrubber
from ottla.client.admin import Admin
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.ports import Clock
from ottla.records.builder import BatchBuilder
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.disk_faults import ANY, Fault, Slow
from ottla.sim.loop import run
from ottla.storage.log.partition_log import PartitionLog
from ottla.types import TopicPartition

SMALL = {"log.segment.bytes": "1024", "log.retention.check.interval.ms": "1000", "log.cleaner.backoff.ms": "500"}
Act = Callable[[SimBroker], Awaitable[None]]
WAIT_SECONDS_MAX = 300
SCATTERED = [(b"same" if number % 4 else b"%d" % number, b"x" * 300) for number in range(40)]
"""Compaction leaves segments of these that end before the next one begins."""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def play(act: Act, seed: int = 1, **properties: str) -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(seed), SMALL | {name.replace("_", "."): value for name, value in properties.items()})
        await broker.start()
        await act(broker)

    run(main())


async def delete(broker: SimBroker, *topics: str) -> None:
    admin = Admin(broker.client("admin"))
    assert set((await admin.delete_topics(topics)).values()) == {None}
    await admin.close()


def failure_of(broker: SimBroker) -> str | None:
    assert broker.broker is not None
    assert broker.broker.partitions.offline_directory_count == 0
    return broker.broker.failure


async def working_on(broker: SimBroker, name: str) -> None:
    """A worker has begun such a job."""
    disk, begun = broker.machine.disk, asyncio.Event()
    work = disk.work

    async def watched(job: Any, request: Any, **more: Any) -> Any:
        if name in job.name:
            begun.set()
        return await work(job, request, **more)

    disk.work = watched  # type: ignore[method-assign]
    await asyncio.wait_for(begun.wait(), WAIT_SECONDS_MAX)


@pytest.mark.parametrize("seed", range(5))
def test_a_topic_that_is_deleted_while_it_is_scrubbed_costs_nothing_but_the_topic(seed: int) -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await create(broker, "kept")
        await send(broker, "t", [(None, b"x" * 300)] * 12)
        await send(broker, "kept", [(None, b"x" * 300)] * 12)
        await working_on(broker, "SCRUB_JOB")
        await asyncio.sleep(seed * 0.3)
        await delete(broker, "t")
        await asyncio.sleep(120)
        assert failure_of(broker) is None
        assert len(await records_of(log_of(broker, "kept"))) == 12

    play(act, seed, ottla_log_scrub_bytes_per_second="2000")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("what", ["delete", "retain"])
def test_a_log_whose_files_are_removed_while_it_is_compacted_stays_in_use(what: str, seed: int) -> None:
    async def act(broker: SimBroker) -> None:
        await create(
            broker, "t", cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0.01", retention_ms="30000", file_delete_delay_ms="0"
        )
        await create(broker, "kept")
        await send(broker, "kept", [(None, b"x")])
        await send(broker, "t", [(b"%d" % (number % 3), b"x" * 300) for number in range(40)])
        await working_on(broker, "CLEAN_JOB")
        if what == "delete":
            await delete(broker, "t")
        await asyncio.sleep(60)
        assert failure_of(broker) is None
        assert len(await records_of(log_of(broker, "kept"))) == 1
        if what == "retain":
            assert not log_of(broker, "t").is_failed
            await send(broker, "t", [(b"0", b"after")])

    play(act, seed, log_cleaner_io_max_bytes_per_second="500")


@pytest.mark.parametrize("file", [".log.cleaned", ".timeindex.cleaned"])
def test_a_cleaning_that_a_full_disk_refuses_leaves_it_no_fuller(file: str) -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        disk, refused = broker.machine.disk, asyncio.Event()
        disk.faults.append(Fault("append", file, errno.ENOSPC, lasts=True))  # a later cleaning that succeeds would take the files, too
        disk.on_step = lambda operation, path, what: refused.set() if operation == "append" and path.endswith(file) else None
        await send(broker, "t", [(b"%d" % (number % 3), b"x" * 300) for number in range(40)])
        await asyncio.wait_for(refused.wait(), WAIT_SECONDS_MAX)

        async def is_left() -> bool:
            return bool(await files_of(broker, "t-0", ".cleaned"))

        await eventually_is(is_left, False)

    play(act)


@pytest.mark.parametrize("end", [".swap", ".deleted", ".index", ".log"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_log_whose_segments_could_not_be_replaced_for_want_of_room_is_opened_again(
    monkeypatch: pytest.MonkeyPatch, end: str, code: int
) -> None:
    """It has one replica: nobody else could serve it until the next start."""
    open_log, are_clean = PartitionLog.open, list[bool]()

    async def opening(*arguments: Any, clean: bool, **more: Any) -> PartitionLog:
        are_clean.append(clean)
        return await open_log(*arguments, clean=clean, **more)

    monkeypatch.setattr(PartitionLog, "open", opening)

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0.01", file_delete_delay_ms="1000")
        await broker.stop()
        await broker.start()
        disk, log, refused = broker.machine.disk, log_of(broker, "t"), list[str]()
        rename = disk.rename

        async def renaming(source: str, target: str) -> None:
            counts = source.endswith(".log.cleaned") or any(path.endswith(".swap") and ".log." in path for path in disk.files)
            if "/t-0/" in source and target.endswith(end) and counts and not refused:
                refused.append(target)
                raise OSError(code, "refused", target)
            await rename(source, target)

        await send(broker, "t", [(b"early", b"x" * 300)] * 12)
        admin = Admin(broker.client("admin"))
        await admin.delete_records({TopicPartition("t", 0): 5})
        await admin.close()
        disk.rename = renaming  # type: ignore[method-assign]
        await send(broker, "t", [(b"%d" % (number % 3), b"%d" % number * 100) for number in range(40)])

        async def is_opened_again() -> bool:
            partition = broker.broker.partitions.find("t", 0) if broker.broker is not None else None
            return partition is not None and partition.log is not log and not await files_of(broker, "t-0", ".swap")

        await eventually_is(is_opened_again, True)
        assert refused
        assert log.is_failed
        opened = log_of(broker, "t")
        assert not opened.is_failed
        assert opened.log_start_offset >= 5, "what was deleted does not come back"
        assert {record.key: record.value for record in await records_of(opened) if record.key != b"early"} == {
            b"%d" % (number % 3): b"%d" % number * 100 for number in range(40)
        }
        assert opened.log_end_offset == 52
        assert are_clean[-2:] == [True, False], "the start found it closed in order, which it is no longer"
        await send(broker, "t", [(b"0", b"after")])

    play(act)


@pytest.mark.parametrize("held", [".index", ".timeindex"])
def test_indexes_rebuilt_during_compaction_are_not_taken_for_the_new_segments(held: str) -> None:
    """The first of several segments has an earlier newest time than what replaces them all: retention would believe it."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        disk, log, is_rebuilding = broker.machine.disk, log_of(broker, "t"), asyncio.Event()
        open_file, work = disk.open, disk.work

        async def working(job: Any, request: Any, **more: Any) -> Any:
            if "CLEAN_JOB" in job.name:
                await is_rebuilding.wait()
            return await work(job, request, **more)

        async def opening(path: str, *, create: bool = False) -> Any:
            if create and path.endswith(f"{0:020d}{held}"):
                is_rebuilding.set()
                while log.segments[0] is old or log.segments[0].is_arriving:
                    await asyncio.sleep(0.1)
            return await open_file(path, create=create)

        disk.work = working  # type: ignore[method-assign]
        await send(broker, "t", [(b"%d" % number, b"kept") if number in (2, 5) else (b"often", b"x" * 300) for number in range(40)])
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while log.durability.has_unsynced_segments:
                await asyncio.sleep(0.1)
            old = log.segments[0]
            old.unload()
            await disk.remove(f"/data/t-0/{0:020d}.timeindex")
            disk.open = opening  # type: ignore[method-assign]
            await old.load()
        fresh = log.segments[0]
        assert fresh is not old
        counted = await fresh.count(fresh.size, is_recovery=False)
        assert counted.max_timestamp > old.max_timestamp
        fresh.unload()
        await fresh.load()
        assert fresh.max_timestamp == counted.max_timestamp
        assert failure_of(broker) is None

    play(act, log_flush_interval_messages="1")


def test_a_topic_that_is_deleted_while_deleted_files_of_it_are_removed_costs_nothing_else() -> None:
    async def act(broker: SimBroker) -> None:
        for _ in range(10):
            await create(broker, "t", retention_bytes="1", file_delete_delay_ms="3000")
            await send(broker, "t", [(None, b"x" * 300)] * 30)
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while not await files_of(broker, "t-0", ".deleted"):
                    await asyncio.sleep(0.1)
                while await files_of(broker, "t-0", ".deleted"):
                    await asyncio.sleep(0.001)
                    if len(await files_of(broker, "t-0", ".deleted")) < 3:
                        break
            await delete(broker, "t")
            assert failure_of(broker) is None

    play(act)


def test_a_full_disk_is_freed_by_retention() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", retention_ms="600000")
        await send(broker, "t", [(None, b"x" * 300)] * 30)
        disk = broker.machine.disk
        full = [Fault(operation, "", errno.ENOSPC, lasts=True) for operation in ("append", "create", "make_dirs")]
        disk.faults += full
        await asyncio.sleep(700)
        log = log_of(broker, "t")
        assert log.log_start_offset > 20
        assert len(await files_of(broker, "t-0", ".log")) <= 2, "there was no room for a checkpoint, and files went all the same"
        disk.faults.clear()
        await send(broker, "t", [(None, b"again")])
        broker.kill(power_cut=True)
        await broker.start()
        assert log_of(broker, "t").log_start_offset > 20

    play(act, log_flush_interval_messages="1")


def test_a_topic_of_a_full_disk_can_be_deleted_and_later_topics_be_created() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 3)
        await create(broker, "other")
        await send(broker, "t", [(None, b"x" * 300)] * 12)
        disk = broker.machine.disk
        full = [Fault(operation, suffix, errno.ENOSPC, lasts=True) for operation in ("append", "create") for suffix in (
            ".index", ".timeindex", ".snapshot", ".tmp", "t-0/00000000000000000011.log")]  # fmt: skip
        disk.faults += full
        await delete(broker, "t")
        await asyncio.sleep(5)
        assert not [name for name in await disk.list_dir("/data") if name.startswith("t-")]
        disk.faults.clear()
        await create(broker, "u")
        await send(broker, "u", [(None, b"x")])
        assert failure_of(broker) is None

    play(act)


def test_a_partition_that_found_no_room_is_opened_once_there_is_some() -> None:
    async def act(broker: SimBroker) -> None:
        disk = broker.machine.disk
        disk.faults.append(Fault("create", "full-0/00000000000000000000.log", errno.EMFILE, lasts=True))
        await create(broker, "full")
        await create(broker, "t")
        await send(broker, "t", [(None, b"x")])
        assert broker.broker is not None
        assert broker.broker.partitions.is_offline("full", 0)
        disk.faults.clear()
        await asyncio.sleep(15)
        await send(broker, "full", [(None, b"x")])
        assert failure_of(broker) is None

    play(act)


def test_a_partition_opened_late_is_as_it_was_when_closed() -> None:
    """It lies where it lay, begins where it began, and lacks what compaction took: nothing of it is cut or created again."""

    async def main() -> None:
        broker = SimBroker(Simulation(1), SMALL | {"log.dirs": "/data,/spare"})
        await broker.start()
        await create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        await send(broker, "t", SCATTERED)
        await asyncio.sleep(20)
        directory, before = directory_of(broker, "t", 0), await records_of(log_of(broker, "t"))
        assert len(before) < 20
        disk = broker.machine.disk
        broker.kill(power_cut=False)
        inode = disk.files[max(path for path in disk.files if path.startswith(f"/{directory}/t-0/") and path.endswith(".log"))]
        inode.written += b"torn"
        disk.faults.append(Fault("truncate", ".log", errno.EMFILE, lasts=True))
        await broker.start()
        assert broker.broker is not None
        assert broker.broker.partitions.is_offline("t", 0)
        await broker.broker.partitions.write_checkpoints()
        disk.faults.clear()
        await asyncio.sleep(30)
        assert directory_of(broker, "t", 0) == directory
        assert await records_of(log_of(broker, "t")) == before

    run(main())


@pytest.mark.parametrize("state", ["found", "offline", "tried again"])
def test_checkpoints_keep_the_offsets_of_partitions_that_are_not_open(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only they know that its log starts within a segment; the broker dies soon after it has written them without opening the log."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"x" * 300)] * 20)
        admin = Admin(broker.client("admin"))
        await admin.delete_records({TopicPartition("t", 0): 5})
        await admin.close()
        broker.kill(power_cut=False)
        disk = broker.machine.disk

        async def write_and_fail(store: PartitionStore, delta: object) -> None:
            await store.write_checkpoints()
            raise ZeroDivisionError

        if state == "found":
            with monkeypatch.context() as planted:
                planted.setattr(PartitionStore, "on_image", write_and_fail)
                with pytest.raises(ZeroDivisionError):
                    await broker.start()
        else:
            inode = disk.files[max(path for path in disk.files if path.startswith("/data/t-0/") and path.endswith(".log"))]
            inode.written += b"torn"
            disk.faults.append(Fault("truncate", ".log", errno.EMFILE, lasts=True))
            await broker.start()
            assert broker.broker is not None
            store = broker.broker.partitions
            assert store.is_offline("t", 0)
            if state == "tried again":
                assert store.unopened.retry()
            await store.write_checkpoints()
            disk.faults.clear()
        broker.kill(power_cut=False)
        await broker.start()
        assert log_of(broker, "t").log_start_offset == 5

    play(act)


@pytest.mark.parametrize("steps", range(24))
def test_a_compacted_replica_is_intact_after_a_crash_soon_after_its_move(steps: int) -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), SMALL | {"log.dirs": "/data,/spare"})
        await broker.start()
        await create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        await send(broker, "t", SCATTERED)
        await asyncio.sleep(20)
        before = await records_of(log_of(broker, "t"))
        assert len(before) < 20
        assert broker.broker is not None
        store, mover, disk = broker.broker.partitions, broker.broker.mover, broker.machine.disk
        partition = store.by_name["t"][0]
        died = asyncio.Event()

        def strike() -> None:
            broker.kill(power_cut=False)
            died.set()

        def near(operation: str, path: str, what: str) -> None:
            if operation == "rename" and path.endswith("-future"):
                disk.crash_at, disk.on_crash = disk.steps + 1 + steps, strike

        disk.on_step = near
        mover.move(partition, next(directory for directory in store.directories if directory is not store.directory_of[partition]))
        await asyncio.wait_for(died.wait(), WAIT_SECONDS_MAX)
        await broker.start()
        assert await records_of(log_of(broker, "t")) == before

    run(main())


def test_a_deleted_topic_whose_partition_could_not_be_opened_leaves_no_directory() -> None:
    async def act(broker: SimBroker) -> None:
        disk = broker.machine.disk
        disk.faults.append(Fault("create", "t-0/00000000000000000000.log", errno.EMFILE, lasts=True))
        await create(broker, "t")
        await delete(broker, "t")
        disk.faults.clear()
        await asyncio.sleep(5)
        assert not [name for name in await disk.list_dir("/data") if name.startswith("t-")]
        await create(broker, "t")
        await send(broker, "t", [(None, b"x")])

    play(act)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_want_of_descriptors_or_memory_is_no_failing_disk(code: int) -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        broker.machine.disk.faults += [Fault("create", "", code, lasts=True)]
        with pytest.raises(KafkaError) as caught:
            await asyncio.wait_for(send(broker, "t", [(None, b"x" * 300)] * 12), 300)
        assert caught.value.code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)
        await asyncio.sleep(130)  # a checkpoint is due
        assert failure_of(broker) is None
        broker.machine.disk.faults.clear()
        await send(broker, "t", [(None, b"after")])

    play(act)


# -- what a start finds


def test_a_start_keeps_what_the_metadata_does_not_name() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"x")] * 5)
        await broker.stop()
        disk = broker.machine.disk
        await disk.rename("/data/__cluster_metadata-0", "/data/elsewhere")
        await broker.start()
        [stray] = [name for name in await disk.list_dir("/data") if name.startswith("t-0") and not name.endswith("-delete")]
        assert stray.endswith("-stray")
        assert (await disk.read_file(f"/data/{stray}/{0:020d}.log")) != b""

    play(act)


def test_a_metadata_log_damaged_below_what_was_synced_is_refused() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await create(broker, "u")
        await send(broker, "u", [(None, b"x")] * 5)
        disk = broker.machine.disk
        broker.kill(power_cut=False)
        inode = disk.files[f"/data/__cluster_metadata-0/{0:020d}.log"]
        whole = bytes(inode.written)
        for position in (len(whole) // 2, len(whole) - 1):
            inode.written[position] ^= 1
            with pytest.raises(StorageError, match=r"damaged.*restore a good copy"):
                await broker.start()
            assert len(inode.written) == len(whole), "nothing was cut"
            inode.written[position] ^= 1
            disk.restart()
        await broker.start()
        assert len(await records_of(log_of(broker, "u"))) == 5

    play(act)


@pytest.mark.parametrize("is_gone", [True, False])
def test_an_empty_first_log_directory_beside_filled_ones_is_refused(is_gone: bool) -> None:
    async def main() -> None:
        simulation = Simulation(1)
        directories = {"log.dirs": "/data,/spare", "cluster.id": "MkU3OEVBNTcwNTJENDM2Qk"}
        broker = SimBroker(simulation, SMALL | directories)
        await broker.start()
        await create(broker, "t", 2)
        await broker.stop()
        disk = broker.machine.disk
        if is_gone:
            await disk.remove_tree("/data")
        else:
            broker._properties = SMALL | directories | {"log.dirs": "/spare,/data", "listeners": f"PLAINTEXT://{broker.bootstrap}"}
        before = sorted(disk.files)
        with pytest.raises(StorageError, match=r"the directory of the metadata log, "):
            await broker.start()
        assert sorted(disk.files) == before

    run(main())


@pytest.mark.parametrize("position", [0, 70])  # an offset, which no CRC covers, and a record
def test_a_recovery_that_would_cut_what_was_synced_takes_the_partition_offline_and_keeps_it(position: int) -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 2)
        await send(broker, "t", [(None, b"x" * 100)] * 4)
        await asyncio.sleep(70)  # a checkpoint
        broker.kill(power_cut=False)
        disk = broker.machine.disk
        inode = disk.files[f"/data/t-0/{0:020d}.log"]
        size = len(inode.written)
        inode.written[size // 2 + position] ^= 1
        await broker.start()
        assert broker.broker is not None
        assert broker.broker.partitions.is_offline("t", 0)
        assert not broker.broker.partitions.is_offline("t", 1)
        assert len(inode.written) == size

    play(act, log_flush_interval_messages="1")


def test_every_cut_of_a_recovery_is_reported() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"x" * 100)] * 4)
        broker.kill(power_cut=False)
        inode = broker.machine.disk.files[f"/data/t-0/{0:020d}.log"]
        size = len(inode.written)
        del inode.written[size - 1 :]
        await broker.start()
        [cut] = log_of(broker, "t").cuts
        assert (cut.path, cut.end_offset, cut.size, cut.lost_bytes) == (f"/data/t-0/{0:020d}.log", 3, size // 4 * 3, size // 4 - 1)

    play(act)


# -- moves


def test_after_a_move_whose_source_could_not_be_removed_the_copy_counts() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), SMALL | {"log.dirs": "/data,/spare", "log.retention.bytes": "1"})
        await broker.start()
        await create(broker, "t")
        await send(broker, "t", [(None, b"x" * 300)] * 20)
        source = directory_of(broker, "t", 0)
        target = {"data": "/spare", "spare": "/data"}[source]
        disk = broker.machine.disk
        disk.faults.append(Fault("rename", f"/{source}/t-0", errno.ENOSPC, lasts=True))
        admin = Admin(broker.client("admin"))
        await admin.alter_replica_log_dirs(1, {TopicPartition("t", 0): target})
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while directory_of(broker, "t", 0) == source:
                await asyncio.sleep(0.05)
        await admin.close()
        await send(broker, "t", [(None, b"after")] * 5)
        await asyncio.sleep(120)  # retention makes the new copy the smaller one
        await broker.stop()
        disk.faults.clear()
        await broker.start()
        assert directory_of(broker, "t", 0) == target.strip("/")
        assert log_of(broker, "t").log_end_offset == 25
        assert log_of(broker, "t").log_start_offset > 20

    run(main())


def test_a_replica_that_is_sent_back_while_it_arrives_goes_back() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), SMALL | {"log.dirs": "/data,/spare"})
        await broker.start()
        await create(broker, "t")
        await send(broker, "t", [(None, b"x" * 300)] * 20)
        assert broker.broker is not None
        source = directory_of(broker, "t", 0)
        store, mover = broker.broker.partitions, broker.broker.mover
        partition = store.by_name["t"][0]
        old = store.directory_of[partition]
        new = next(directory for directory in store.directories if directory is not old)
        mover.move(partition, new)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not mover._is_finishing:
                await asyncio.sleep(0.0001)
            mover.move(partition, old)
            while mover._task is not None:
                await asyncio.sleep(0.05)
        assert directory_of(broker, "t", 0) == source
        assert len(await records_of(log_of(broker, "t"))) == 20

    run(main())


@pytest.mark.parametrize("steps", range(12))
def test_a_topic_that_is_deleted_while_its_replica_arrives_is_removed_from_both_directories(steps: int) -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), SMALL | {"log.dirs": "/data,/spare"})
        await broker.start()
        await create(broker, "t")
        await send(broker, "t", [(None, b"x" * 300)] * 20)
        assert broker.broker is not None
        store, mover, disk = broker.broker.partitions, broker.broker.mover, broker.machine.disk
        partition = store.by_name["t"][0]
        target = next(directory for directory in store.directories if directory is not store.directory_of[partition])
        mover.move(partition, target)
        deleting: list[asyncio.Future[None]] = []
        begun = 0

        def near(operation: str, path: str, what: str) -> None:
            nonlocal begun
            begun += mover._is_finishing
            if begun == steps + 1 and not deleting:
                deleting.append(asyncio.ensure_future(delete(broker, "t")))
                disk.slow.append(Slow(ANY, "", 1000, within=target.path))  # the deletion is to come before the move has ended

        disk.on_step = near
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while mover._task is not None:
                await asyncio.sleep(0.05)
        await asyncio.gather(*deleting)
        await asyncio.sleep(5)
        assert not [name for directory in ("/data", "/spare") for name in await disk.list_dir(directory) if name.startswith("t-0")]
        assert failure_of(broker) is None
        await create(broker, "t")
        await send(broker, "t", [(None, b"x")])

    with structlog.testing.capture_logs() as events:
        run(main())
    assert [event for event in events if event["event"] == "replica_mover_failed"] == []


def test_a_deleted_replica_is_removed_however_long_its_renaming_takes() -> None:
    """Others were removed meanwhile, and this one, which was counted with them, stayed until the next start."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await create(broker, "other")
        disk = broker.machine.disk
        disk.slow.append(Slow("rename", "/t-0", 5000))
        deleting = asyncio.ensure_future(delete(broker, "t"))
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while disk.slow:  # until the renaming has begun
                await asyncio.sleep(0.01)
            assert broker.broker is not None
            await broker.broker.partitions.remove_departed()
            assert "t-0" in await disk.list_dir("/data")
            await deleting
            while [name for name in await disk.list_dir("/data") if name.startswith("t-0")]:
                await asyncio.sleep(0.1)

    play(act)


def test_the_last_part_of_a_move_waits_for_no_worker() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), SMALL | {"log.dirs": "/data,/spare"})
        await broker.start()
        await create(broker, "t")
        await send(broker, "t", [(None, b"x" * 300)] * 20)
        assert broker.broker is not None
        partition = broker.broker.partitions.by_name["t"][0]
        jobs: list[str] = []
        work, disk = broker.machine.disk.work, broker.machine.disk

        async def watched(job: object, *rest: object, **more: object) -> object:
            if partition.changing.locked():
                jobs.append(str(job))
            return await work(job, *rest, **more)  # type: ignore[arg-type]

        disk.work = watched  # type: ignore[method-assign, assignment]
        source = directory_of(broker, "t", 0)
        store = broker.broker.partitions
        broker.broker.mover.move(partition, next(directory for directory in store.directories if directory.path != "/" + source))
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while directory_of(broker, "t", 0) == source:
                await asyncio.sleep(0.05)
        assert jobs == []

    run(main())


# -- the end of a broker


@pytest.mark.parametrize("seed", range(30))
def test_an_orderly_stop_during_a_deletion_keeps_what_other_topics_deleted(seed: int) -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(seed), SMALL)
        await broker.start()
        await create(broker, "kept")
        for name in ("a", "b", "c"):
            await create(broker, name, 2)
        await send(broker, "kept", [(None, b"x")] * 10)
        admin = Admin(broker.client("admin"))
        await admin.delete_records({TopicPartition("kept", 0): 7})
        deleting = asyncio.ensure_future(admin.delete_topics(["a", "b", "c"]))
        await asyncio.sleep(0.001 * seed)
        await broker.stop()
        deleting.cancel()
        await asyncio.gather(deleting, return_exceptions=True)
        await admin.close()
        await broker.start()
        assert log_of(broker, "kept").log_start_offset == 7

    run(main())


# -- waiting readers, and syncs that fail


def test_an_acknowledgement_waits_for_the_sync_that_an_earlier_try_did_not_get() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", flush_messages="1")
        await send(broker, "t", [(None, b"first")])
        assert broker.broker is not None
        partition = broker.broker.partitions.by_name["t"][0]
        partition.log._epoch_file.is_changed = True
        broker.machine.disk.faults.append(Fault("append", "leader-epoch-checkpoint.tmp", errno.ENOSPC))
        await send(broker, "t", [(None, b"second")])
        assert not broker.machine.disk.faults
        assert partition.log.recovery_point == 2, "what was acknowledged is synced"

    play(act)


def test_a_topic_that_is_deleted_while_its_log_rolls_keeps_no_later_change_back() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"x" * 300)] * 2)  # a third one is for the next segment
        assert broker.broker is not None
        partition, disk = broker.broker.partitions.by_name["t"][0], broker.machine.disk
        builder = BatchBuilder()
        builder.append(None, b"x" * 300, timestamp_ms=0)
        partition.stage(memoryview(builder.build()), now_ms=0)
        disk.slow.append(Slow("create", ".log", 1000, within=partition.log.directory))
        writing = asyncio.ensure_future(partition.flush())
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while disk.slow:
                await asyncio.sleep(0.001)
        await delete(broker, "t")
        with pytest.raises(KafkaError):
            await writing
        assert partition not in broker.broker.partitions.directory_of, "it has left its directory"
        await create(broker, "t")
        await send(broker, "t", [(None, b"y")])
        assert [record.value for record in await records_of(log_of(broker, "t"))] == [b"y"]

    play(act)


@pytest.mark.parametrize("walk", range(3), ids=["syncing", "retention", "deleted files"])
def test_a_topic_may_be_deleted_while_a_round_over_very_many_logs_pauses(monkeypatch: pytest.MonkeyPatch, walk: int) -> None:
    """A pause before the second log makes three of them very many."""
    paused, deleted = asyncio.Event(), asyncio.Event()

    class Pausing(Slices):
        def __init__(self, clock: Clock) -> None:
            super().__init__(clock)
            self._walks = 0

        async def over(self, items: Iterable[Any]) -> AsyncIterator[Any]:
            number, self._walks = self._walks, self._walks + 1
            for item in items:
                if number == walk and isinstance(item, Partition) and (item.topic, item.index) == ("t", 1):
                    paused.set()
                    await deleted.wait()
                yield item

    async def act(broker: SimBroker) -> None:
        await create(broker, "other", retention_ms="1000")
        await create(broker, "t", 3, retention_ms="1000", segment_ms="1000")
        await send(broker, "t", [(None, b"x" * 300)] * 12)
        monkeypatch.setattr(housekeeping, "Slices", Pausing)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await paused.wait()
        await delete(broker, "t")
        deleted.set()
        await send(broker, "other", [(None, b"x" * 300)] * 12)
        log = log_of(broker, "other")

        async def start_offset() -> int:
            return log.log_start_offset

        await eventually_is(start_offset, 12)  # later rounds do their work
        assert failure_of(broker) is None

    with structlog.testing.capture_logs() as events:
        play(act)
    assert [event for event in events if event["log_level"] in ("error", "warning")] == []


def test_a_deletion_beside_a_write_wakes_no_reader_with_a_negative_growth() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", retention_bytes="1", retention_ms="-1")
        assert broker.broker is not None
        partition = broker.broker.partitions.by_name["t"][0]
        heard: list[int] = []

        class Waiter:
            def on_append(self, size_bytes: int) -> None:
                heard.append(size_bytes)

        partition.waiters[Waiter()] = None
        await send(broker, "t", [(None, b"x" * 300)] * 60)
        assert len(heard) >= 60
        assert min(heard) > 0

    play(act)


def test_one_waiters_mistake_keeps_no_other_from_hearing() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        assert broker.broker is not None
        partition = broker.broker.partitions.by_name["t"][0]
        heard: list[int] = []

        class Waiter:
            def __init__(self, fails: bool) -> None:
                self.fails = fails

            def on_append(self, size_bytes: int) -> None:
                if self.fails:
                    raise RuntimeError("a mistake")
                heard.append(size_bytes)

        partition.waiters |= {Waiter(True): None, Waiter(False): None, Waiter(True): None, Waiter(False): None}
        await send(broker, "t", [(None, b"x")])
        assert len(heard) == 2

    play(act)


def test_a_new_topic_does_not_inherit_where_an_earlier_one_of_its_name_began() -> None:
    """A crash between the deletion of a topic and the checkpoints leaves what they said of it; a second one after its re-creation."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"x")] * 10)
        admin = Admin(broker.client("admin"))
        await admin.delete_records({TopicPartition("t", 0): 7})
        await admin.close()
        await asyncio.sleep(70)  # the recovery point is checkpointed, too
        disk = broker.machine.disk
        names = ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint")
        stale = {name: bytes(disk.files[f"/data/{name}"].written) for name in names}
        await delete(broker, "t")
        broker.kill(power_cut=False)
        for name, data in stale.items():
            disk.files[f"/data/{name}"].written[:] = data
        await broker.start()
        await create(broker, "t")
        await send(broker, "t", [(None, b"new")] * 3)
        broker.kill(power_cut=False)
        await broker.start()
        assert broker.broker is not None
        assert not broker.broker.partitions.is_offline("t", 0)
        log = log_of(broker, "t")
        assert (log.log_start_offset, log.log_end_offset) == (0, 3)

    play(act, log_flush_interval_messages="1")


def test_no_checkpoint_names_a_deleted_topic_when_its_files_go() -> None:
    """A broker that crashed in between, and found a new topic of that name, said that a replica with the old one's records was missing."""
    named: list[list[str]] = []

    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"x")] * 10)
        disk = broker.machine.disk

        def checkpoints() -> list[str]:
            return [path for path, file in disk.files.items() if path.endswith("-checkpoint") and b"\nt 0 " in bytes(file.written)]

        def near(operation: str, path: str, what: str) -> None:
            if operation == "rename" and path == "/data/t-0":
                named.append(checkpoints())

        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not checkpoints():
                await asyncio.sleep(1)
        disk.on_step = near
        await delete(broker, "t")

    play(act, log_flush_interval_messages="1")
    assert named == [[]]


@pytest.mark.parametrize("seed", range(6))
def test_a_segment_is_not_scrubbed_while_another_one_has_its_name(seed: int) -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        scrubs: list[asyncio.Future[None]] = []

        def near(operation: str, path: str, what: str) -> None:
            if operation == "rename" and ".swap" in path and broker.broker is not None:
                scrubs.append(asyncio.ensure_future(broker.broker.part(Scrubber)._scrub_all()))

        broker.machine.disk.on_step = near
        for _ in range(4):
            await send(broker, "t", SCATTERED)
            await asyncio.sleep(2)
        await asyncio.gather(*scrubs)
        assert len(scrubs) > 5
        assert not log_of(broker, "t").is_failed

    play(act, seed)


@pytest.mark.parametrize("is_being_read", [False, True])
def test_a_log_that_is_cut_while_it_is_scrubbed_is_not_damaged(is_being_read: bool) -> None:
    """Before one of its segments is read, or just then; what ends there began the next segment when the round began."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"x" * 300)] * 12)
        assert broker.broker is not None
        partition, disk = broker.broker.partitions.by_name["t"][0], broker.machine.disk
        log, work = partition.log, disk.work
        second = log.segments[1]
        offset = second.base_offset + 1

        async def cut() -> None:
            disk.work = work  # type: ignore[method-assign]
            async with partition.changing:  # as a follower does
                log.begin_truncation(offset)
                await log.truncate_to(offset)
                log.durability.truncation_ended()

        async def cut_then_work(job: Any, request: Any, **more: Any) -> Any:
            if (request.path == second.path) == is_being_read:
                await cut()
            return await work(job, request, **more)

        disk.work = cut_then_work  # type: ignore[method-assign]
        await broker.broker.part(Scrubber)._scrub_all()
        assert log.log_end_offset == offset
        assert not log.is_failed

    play(act, log_retention_check_interval_ms="3600000")


def test_records_cut_from_a_follower_during_compaction_do_not_come_back() -> None:
    """Though what it has instead fills segments of the same sizes."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        assert broker.broker is not None
        partition, disk = broker.broker.partitions.by_name["t"][0], broker.machine.disk
        log, work, cut_at = partition.log, disk.work, 1

        async def write(offsets: range, value: bytes) -> None:
            for number in offsets:
                builder = BatchBuilder()
                builder.append(b"%d" % (number % 4), value * 300, timestamp_ms=1)
                log.stage(memoryview(builder.build()), leader_epoch=0, now_ms=1)
                await log.flush()

        async def cut_then_work(job: Any, request: Any, **more: Any) -> Any:
            result = await work(job, request, **more)
            if job.name.endswith("CLEAN_JOB"):
                disk.work = work  # type: ignore[method-assign]
                async with partition.changing:
                    log.begin_truncation(cut_at)
                    await log.truncate_to(cut_at)
                    log.durability.truncation_ended()
                    await write(range(cut_at, 40), b"y")
            return result

        disk.work = cut_then_work  # type: ignore[method-assign]
        await write(range(40), b"x")
        await asyncio.sleep(10)
        assert disk.work is work, "it was compacted"
        found = await records_of(log)
        assert {record.value[:1] for record in found if record.offset >= cut_at and record.value} == {b"y"}
        assert not log.is_failed

    play(act)


# -- looking into a log while its segments are replaced and deleted


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_look_up_in_segments_that_are_replaced_or_deleted_finds_what_came_instead(policy: str, seed: int) -> None:
    async def act(broker: SimBroker) -> None:
        lag = str(10**15)  # never overdue, and looked at for that
        await create(
            broker, "t", cleanup_policy=policy, min_cleanable_dirty_ratio="0.01", retention_bytes="2000", file_delete_delay_ms="0",
            max_compaction_lag_ms=lag,
        )  # fmt: skip
        log = log_of(broker, "t")
        is_over = False

        async def look() -> None:
            while not is_over:
                await asyncio.sleep(0.0001)
                now_ms = broker.machine.clock.now_ms()
                offset = log.log_start_offset
                while offset < log.log_end_offset:
                    await asyncio.sleep(0)
                    offset = max(offset, log.log_start_offset)
                    try:
                        found = await log.read(offset, max_bytes=1, end_offset=log.log_end_offset)
                    except KafkaError:
                        if offset < log.log_start_offset:  # retention has passed it meanwhile
                            continue
                        raise
                    offset = log.log_end_offset if found is None else max(offset, found.first_offset) + 1
                await log.offset_for_timestamp(now_ms - 500)
                await log.offset_of_max_timestamp()
                await log.retained_from(now_ms)
                await log.compaction.dirtiness("t", now_ms)

        looking = [asyncio.ensure_future(look()) for _ in range(3)]
        for _ in range(8):
            await send(broker, "t", [(b"%d" % (number % 7), b"x" * 300) for number in range(20)])
            await asyncio.sleep(0.5)
        is_over = True
        await asyncio.gather(*looking)
        assert not log.is_failed
        assert failure_of(broker) is None

    play(act, seed, log_retention_check_interval_ms="300", log_cleaner_backoff_ms="100")


@pytest.mark.parametrize("how", ["read", "time"])
def test_a_file_that_another_program_removed_takes_its_partition_offline_and_no_other(how: str) -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await create(broker, "kept")
        await send(broker, "t", [(None, b"x" * 300)] * 12)
        log = log_of(broker, "t")
        await log.sync()
        for segment in log.segments[:-1]:
            segment.unload()
        log._segments.places.forget()
        await broker.machine.disk.remove(log.segments[0].path)
        with pytest.raises(StorageError):
            await (log.read(0, max_bytes=1, end_offset=12) if how == "read" else log.offset_for_timestamp(0))
        assert log.is_failed
        assert failure_of(broker) is None
        await send(broker, "kept", [(None, b"x")])

    play(act)
