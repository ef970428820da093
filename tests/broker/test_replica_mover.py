"""A replica moves to another log directory while it is served, through crashes and with what else happens to a log. Simulated."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from tests.broker.test_log_care import SMALL, create, directory_of, log_of, records_of, send
from tests.quiet import silence
from tests.waiting import eventually_is

from ottla.admin_http.kafka_names import broker_families
from ottla.client.admin import Admin
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.disk_faults import Fault, Slow
from ottla.sim.loop import run
from ottla.types import TopicPartition

KEY = TopicPartition("t", 0)
WAIT_SECONDS_MAX = 60
DIRECTORIES = SMALL | {"log.dirs": "/data,/spare"}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


async def move(broker: SimBroker, path: str, key: TopicPartition = KEY) -> ErrorCode | int:
    admin = Admin(broker.client("admin"))
    [error] = (await admin.alter_replica_log_dirs(1, {key: path})).values()
    await admin.close()
    return ErrorCode.NONE if error is None else error.code


async def futures(broker: SimBroker) -> dict[str, tuple[int, int]]:
    """Replicas on their way, by directory: size and lag."""
    admin = Admin(broker.client("admin"))
    found = {
        directory.path: (replica.size_bytes, replica.offset_lag)
        for directory in (await admin.describe_log_dirs())[1]
        for replica in directory.replicas
        if replica.is_future
    }
    await admin.close()
    return found


async def settled(broker: SimBroker) -> None:
    """No replica is on its way."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while await futures(broker):
            await asyncio.sleep(0.05)


def other(path: str) -> str:
    return {"data": "/spare", "spare": "/data"}[path]


async def directories_on_disk(broker: SimBroker) -> list[str]:
    """The log directories that have anything of the partition but what waits to be deleted."""
    disk = broker.machine.disk
    return [
        path
        for path in ("/data", "/spare")
        for name in await disk.list_dir(path)
        if name.startswith("t-0") and not name.endswith("-delete")
    ]


def test_a_new_replica_is_made_where_there_is_room_and_are_fewest() -> None:
    """One was made in a full directory, beside one with room, and was out of sync from its first record on."""

    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES)
        await broker.start()
        assert broker.broker is not None
        data, spare = broker.broker.partitions.directories
        spare.room.is_full = True
        await create(broker, "t", 3)
        assert {directory_of(broker, "t", index) for index in range(3)} == {"data"}, "whatever the numbers"
        spare.room.is_full = False
        await create(broker, "u", 3)
        assert {directory_of(broker, "u", index) for index in range(3)} == {"spare"}
        data.room.is_full = spare.room.is_full = True
        await create(broker, "v", 2)
        assert {directory_of(broker, "v", index) for index in range(2)} == {"data", "spare"}, "where none has room, as before"
        await broker.stop()

    run(main())


def test_a_replica_moves_while_records_come_in() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES)
        await broker.start()
        await create(broker, "t")
        source = directory_of(broker, "t", 0)
        await send(broker, "t", [(None, b"%d" % number) for number in range(50)])
        producer = Producer(broker.client("producer"), ProducerSettings(linger_ms=0))

        async def go_on() -> None:
            for number in range(50, 400):
                await (await producer.send("t", b"%d" % number, partition=0))

        sending = asyncio.ensure_future(go_on())
        assert await move(broker, other(source)) == ErrorCode.NONE
        await settled(broker)
        assert not sending.done(), "it was moved while records came"
        assert directory_of(broker, "t", 0) == other(source).strip("/")
        await sending
        await producer.close()
        assert await directories_on_disk(broker) == [other(source)]
        for power_cut in (None, False):
            records = await records_of(log_of(broker, "t"))
            assert [record.value for record in records] == [b"%d" % number for number in range(400)]
            assert [record.offset for record in records] == list(range(400))
            if power_cut is None:
                await broker.stop()
            else:
                broker.kill(power_cut=power_cut)
            await broker.start()
            assert await directories_on_disk(broker) == [other(source)]
        assert await move(broker, "/" + source) == ErrorCode.NONE
        await settled(broker)
        assert len(await records_of(log_of(broker, "t"))) == 400

    run(main())


async def moved_with_a_crash(step: int, *, power_cut: bool, seed: int) -> int:
    """Crashed so many disk operations after the move began; how many of them the move had left."""
    broker = SimBroker(Simulation(seed), DIRECTORIES | {"log.flush.interval.messages": "1"})
    await broker.start()
    await create(broker, "t")
    source = directory_of(broker, "t", 0)
    await send(broker, "t", [(None, b"%d" % number) for number in range(30)])
    crashed: list[bool] = []

    def crash() -> None:
        crashed.append(True)
        broker.kill(power_cut=power_cut)

    disk = broker.machine.disk
    begun = disk.steps
    assert broker.broker is not None
    disk.crash_at, disk.on_crash = begun + step, crash
    broker.broker.mover.move(broker.broker.partitions.by_name["t"][0], broker.broker.partitions.directories[1 if source == "data" else 0])
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not crashed and directory_of(broker, "t", 0) == source:
            await asyncio.sleep(0.01)
    left = 0 if crashed else step - (disk.steps - begun)
    if not crashed:
        disk.crash_at = None
        broker.kill(power_cut=power_cut)
    await asyncio.sleep(1)  # whatever still ran on the machine has noticed
    await broker.start()
    await settled(broker)
    assert len(await directories_on_disk(broker)) == 1
    assert [record.value for record in await records_of(log_of(broker, "t"))] == [b"%d" % number for number in range(30)]
    await send(broker, "t", [(None, b"after")])
    await broker.stop()
    await broker.start()
    assert [record.offset for record in await records_of(log_of(broker, "t"))] == list(range(31))
    return left


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_at_any_disk_operation_of_a_move_loses_nothing_and_leaves_one_replica(power_cut: bool) -> None:
    step = 1
    for seed in range(3 if power_cut else 1):  # power cuts differ by what they keep
        step = 1
        while run(moved_with_a_crash(step, power_cut=power_cut, seed=100 * seed + step)) <= 0:
            step += 1
    assert step > 30, "a move has many steps"


def test_directories_left_by_a_move_are_removed_soon() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES)
        await broker.start()
        await create(broker, "t")
        source = directory_of(broker, "t", 0)
        await send(broker, "t", [(None, b"x")])
        assert await move(broker, other(source)) == ErrorCode.NONE
        await settled(broker)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while any(name.startswith("t-0") for name in await broker.machine.disk.list_dir(f"/{source}")):
                await asyncio.sleep(0.1)

    run(main())


def test_a_copy_that_could_not_be_switched_to_is_removed_before_the_next_try() -> None:
    """Each try left one on the disk that refused it, until the next start."""

    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES)
        await broker.start()
        await create(broker, "t")
        source = directory_of(broker, "t", 0)
        target, disk = other(source), broker.machine.disk
        await send(broker, "t", [(None, b"x")])
        dropped = asyncio.Event()

        def stepped(operation: str, path: str, what: str) -> None:
            if operation == "rename" and path.endswith("-future") and not dropped.is_set():
                disk.faults.append(Fault("sync_dir", target, errno.ENOSPC))
            elif operation == "rename" and (path, what[-7:]) == (f"{target}/t-0", "-delete"):
                dropped.set()

        disk.on_step = stepped
        assert await move(broker, target) == ErrorCode.NONE
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await dropped.wait()
            while [name for name in await disk.list_dir(target) if name.startswith("t-0")]:
                await asyncio.sleep(0.1)
        assert await directories_on_disk(broker) == [f"/{source}"]
        await settled(broker)
        assert await directories_on_disk(broker) == [target]
        assert [record.value for record in await records_of(log_of(broker, "t"))] == [b"x"]

    run(main())


def test_a_replica_that_comes_back_waits_until_what_it_left_there_is_out_of_the_way() -> None:
    """The full disk that it left renamed its directory, and not durably: what is tried again must not be the replica that is back."""

    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES)
        await broker.start()
        await create(broker, "t")
        source = directory_of(broker, "t", 0)
        disk = broker.machine.disk
        await send(broker, "t", [(None, b"a")])
        disk.faults.append(Fault("sync_dir", f"/{source}", errno.ENOSPC))
        again = Slow("rename", f"/{source}/t-0", 20_000)

        def stepped(operation: str, path: str, _: str) -> None:
            if (operation, path) == ("sync_dir", f"/{source}") and again not in disk.slow:
                disk.slow.append(again)

        disk.on_step = stepped
        assert await move(broker, other(source)) == ErrorCode.NONE
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while again not in disk.slow:
                await asyncio.sleep(0.01)
            while again in disk.slow:
                await asyncio.sleep(0.01)
        assert await move(broker, f"/{source}") == ErrorCode.NONE
        await settled(broker)

        async def has_some() -> bool:
            assert broker.broker is not None
            return broker.broker.partitions.departures.has_some

        await eventually_is(has_some, False)
        assert await directories_on_disk(broker) == [f"/{source}"]
        await send(broker, "t", [(None, b"b")])
        assert [record.value for record in await records_of(log_of(broker, "t"))] == [b"a", b"b"]

    run(main())


def test_a_move_whose_worker_dies_is_made_by_the_next_one() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES)
        await broker.start()
        await create(broker, "t")
        source = directory_of(broker, "t", 0)
        await send(broker, "t", [(None, b"x" * 300)] * 20)
        fault = Fault("work", "COPY_JOB", errno.EIO)
        broker.machine.disk.faults.append(fault)
        assert await move(broker, other(source)) == ErrorCode.NONE
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while directory_of(broker, "t", 0) == source:
                await asyncio.sleep(0.1)
        assert fault not in broker.machine.disk.faults

    run(main())


def test_a_move_continues_after_a_restart() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES | {"replica.alter.log.dirs.io.max.bytes.per.second": "100"})
        await broker.start()
        await create(broker, "t")
        source = directory_of(broker, "t", 0)
        await send(broker, "t", [(None, b"x" * 100)] * 50)
        assert await move(broker, other(source)) == ErrorCode.NONE
        assert await move(broker, other(source)) == ErrorCode.NONE, "asked twice is once"
        await asyncio.sleep(10)
        [(path, (size, lag))] = (await futures(broker)).items()
        assert (path, 0 < size < 5000, 0 < lag <= 50) == (other(source), True, True)
        await broker.stop()
        await broker.start()
        assert list(await futures(broker)) == [other(source)]
        await asyncio.sleep(120)
        await settled(broker)
        assert directory_of(broker, "t", 0) == other(source).strip("/")

    run(main())


def test_a_move_is_cancelled_by_asking_for_the_old_directory() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES | {"replica.alter.log.dirs.io.max.bytes.per.second": "100"})
        await broker.start()
        await create(broker, "t")
        source = directory_of(broker, "t", 0)
        await send(broker, "t", [(None, b"x" * 100)] * 50)
        assert await move(broker, other(source)) == ErrorCode.NONE
        await asyncio.sleep(10)
        assert await move(broker, "/" + source) == ErrorCode.NONE
        await asyncio.sleep(1)
        assert await futures(broker) == {}
        assert await directories_on_disk(broker) == ["/" + source]

    run(main())


@pytest.mark.parametrize("what", ["compact", "delete"])
def test_compaction_and_retention_go_on_while_a_replica_moves(what: str) -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES | {"replica.alter.log.dirs.io.max.bytes.per.second": "2000"})
        await broker.start()
        configs = {"cleanup_policy": what, "min_cleanable_dirty_ratio": "0.01", "retention_bytes": "3000"}
        await create(broker, "t", 1, **configs)
        source = directory_of(broker, "t", 0)
        for _ in range(3):
            await send(broker, "t", [(b"%d" % (number % 3), b"%d" % number + b"x" * 100) for number in range(40)])
            assert await move(broker, other(directory_of(broker, "t", 0))) == ErrorCode.NONE
            await asyncio.sleep(3)
            await send(broker, "t", [(b"%d" % (number % 3), b"%d" % number + b"x" * 100) for number in range(40)])
            await settled(broker)
        assert directory_of(broker, "t", 0) == other(source).strip("/")
        await asyncio.sleep(60)
        before = await records_of(log_of(broker, "t"))
        assert 3 <= len(before) < 60, "little is left of 240"
        broker.kill(power_cut=False)
        await broker.start()
        assert await records_of(log_of(broker, "t")) == before
        assert await directories_on_disk(broker) == [other(source)]

    run(main())


def test_a_topic_deleted_on_its_way_no_longer_exists() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES | {"replica.alter.log.dirs.io.max.bytes.per.second": "100"})
        await broker.start()
        await create(broker, "t")
        await send(broker, "t", [(None, b"x" * 100)] * 50)
        assert await move(broker, other(directory_of(broker, "t", 0))) == ErrorCode.NONE
        await asyncio.sleep(5)
        admin = Admin(broker.client("admin"))
        await admin.delete_topics(["t"])
        await asyncio.sleep(120)
        assert await futures(broker) == {}
        assert await directories_on_disk(broker) == []
        assert (await admin.describe_log_dirs())[1][0].error is None
        await admin.close()

    run(main())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_target_that_refuses_leaves_the_replica_where_it_was_until_the_next_try(code: int) -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES)
        await broker.start()
        await create(broker, "t")
        source = directory_of(broker, "t", 0)
        await send(broker, "t", [(None, b"x" * 100)] * 50)
        broker.machine.disk.faults.append(Fault("append", f"-future/{0:020d}.log", code))
        assert await move(broker, other(source)) == ErrorCode.NONE
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while broker.machine.disk.faults or len(await directories_on_disk(broker)) > 1:
                await asyncio.sleep(0.05)
        assert await directories_on_disk(broker) == ["/" + source]
        await send(broker, "t", [(None, b"after")])
        await settled(broker)
        assert await directories_on_disk(broker) == [other(source)]
        assert len(await records_of(log_of(broker, "t"))) == 51

    run(main())


def test_each_replica_that_cannot_be_moved_has_its_own_error() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES)
        await broker.start()
        await create(broker, "t", 2)
        assert await move(broker, "/elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await move(broker, "/" + directory_of(broker, "t", 0)) == ErrorCode.NONE
        assert await futures(broker) == {}
        for path in ("/spare", "/data"):
            new = TopicPartition(f"new{path.strip('/')}", 0)
            assert await move(broker, path, new) == ErrorCode.REPLICA_NOT_AVAILABLE
            await create(broker, new.topic)
            assert directory_of(broker, new.topic, 0) == path.strip("/"), "it was wanted there"
        assert broker.broker is not None
        broker.broker.partitions.fail_directory(broker.broker.partitions.directories[1], "a test")
        key = TopicPartition("t", next(index for index in range(2) if directory_of(broker, "t", index) == "data"))
        assert await move(broker, "/spare", key) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await move(broker, "/data", TopicPartition("t", 1 - key.partition)) == ErrorCode.KAFKA_STORAGE_ERROR
        admin = Admin(broker.client("admin"))
        errors = {
            directory.path: directory.error.code if directory.error else ErrorCode.NONE
            for directory in (await admin.describe_log_dirs())[1]
        }
        assert errors == {"/data": ErrorCode.NONE, "/spare": ErrorCode.KAFKA_STORAGE_ERROR}
        await admin.close()

    run(main())


def test_a_replica_that_moves_while_directories_are_described_is_listed_once() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES)
        await broker.start()
        await create(broker, "t")
        assert broker.broker is not None
        partitions = broker.broker.partitions
        disk: Any = broker.machine.disk
        really = disk.space

        async def space(path: str) -> tuple[int, int]:
            """The move ends while the disk is asked."""
            partition = partitions.by_name["t"][0]
            partitions.directory_of[partition] = next(
                found for found in partitions.directories if found is not partitions.directory_of[partition]
            )
            found: tuple[int, int] = await really(path)
            return found

        disk.space = space
        admin = Admin(broker.client("admin"))
        told = [replica for directory in (await admin.describe_log_dirs())[1] for replica in directory.replicas]
        assert [replica.partition.topic for replica in told] == ["t"]
        await admin.close()

    run(main())


def test_how_fast_replicas_move_is_shown() -> None:
    """In one window of the rate; and what was copied is no news when the windows have passed."""

    def rate(broker: SimBroker) -> float:
        assert broker.broker is not None
        name = "kafka_server_alterlogdirsreplication_byte_rate"
        return next(float(found.samples[0].value) for found in broker_families(broker.broker.status, idle_share=0.0) if found.name == name)

    async def main() -> None:
        broker = SimBroker(Simulation(1), DIRECTORIES | {"alter.log.dirs.replication.quota.window.size.seconds": "2"})
        await broker.start()
        await create(broker, "t")
        await send(broker, "t", [(None, bytes(500))] * 40)
        assert rate(broker) == 0
        size_bytes = log_of(broker, "t").size_bytes
        assert await move(broker, other(directory_of(broker, "t", 0))) == ErrorCode.NONE
        await settled(broker)
        assert size_bytes / 2 * 0.8 < rate(broker) <= size_bytes / 2, "bytes over two seconds"
        await asyncio.sleep(30)
        assert rate(broker) == 0

    run(main())
