"""What becomes of a decided transaction's topics, logs and disks before its end markers come, and after."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.broker.test_transactions import BOTH, begun, read, settled
from tests.client.simulated import KEY, create, with_broker
from tests.quiet import silence
from tests.races.gates import gate_after, gate_before
from tests.races.one_broker import nothing_is_open, partition_of, parts_of

from ottla.client.admin import Admin
from ottla.errors import ErrorCode
from ottla.sim.cluster import SimBroker
from ottla.sim.disk_faults import Fault
from ottla.storage.log.replica_copy import ReplicaCopy
from ottla.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition

OTHER = TopicPartition("u", 0)
OUTCOMES = pytest.mark.parametrize("is_commit", [True, False])


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


@BOTH
@OUTCOMES
@pytest.mark.parametrize("is_made_again", [True, False])
def test_a_topic_that_is_deleted_before_its_marker_comes_keeps_no_transaction(is_made_again: bool, is_commit: bool, level: int) -> None:
    """Its other partitions end as was decided. In a topic of the same name the marker ends nothing, and keeps no reader waiting."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await create(broker, "u")
        producer = await begun(broker, level)
        for key in (KEY, OTHER):
            assert await producer.write(key, b"a") == 0
        with gate_before(parts_of(broker).end_markers, "write") as arriving:
            assert await producer.end(is_commit=is_commit) == 0
            await arriving.reached()
            admin = Admin(broker.client("admin"))
            assert await admin.delete_topics(["t"]) == {"t": None}
            if is_made_again:
                await create(broker)
            await arriving.open()
        async with asyncio.timeout(60):  # simulated
            await settled(producer)
        assert await read(broker, OTHER) == ([b"a"] if is_commit else [])
        assert nothing_is_open(broker, OTHER)
        if is_made_again:
            assert nothing_is_open(broker, KEY)
            assert await read(broker, KEY) == []
            producer.cluster.forget(["t"])
            producer._sequences.clear()
            assert await producer.write(KEY, b"b") == 0
            assert await producer.end(is_commit=True) == 0
            await settled(producer)
            assert await read(broker, KEY) == [b"b"]

    with_broker(body)


@BOTH
def test_a_topic_that_is_deleted_after_its_marker_was_written_keeps_no_transaction(level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await create(broker, "u")
        producer = await begun(broker, level)
        for key in (KEY, OTHER):
            assert await producer.write(key, b"a") == 0
        end = partition_of(broker, KEY).log.log_end_offset
        with gate_before(parts_of(broker).end_markers, "write") as arriving:
            assert await producer.end(is_commit=True) == 0
            await arriving.reached()
            version = 2 if level == 2 else 0
            marking = producer.mark(KEY, is_commit=True, epoch=producer.epoch, transaction_version=version)
            marked = asyncio.get_running_loop().create_task(marking)
            await arriving.reached(2)
            await arriving.open(1)
            assert await marked == 0
            assert partition_of(broker, KEY).log.log_end_offset == end + 1
            assert await Admin(broker.client("admin")).delete_topics(["t"]) == {"t": None}
            await arriving.open()
        async with asyncio.timeout(60):  # simulated
            await settled(producer)
        assert await read(broker, OTHER) == [b"a"]

    with_broker(body)


TOPICS = {"data": "t", "offsets": GROUP_METADATA_TOPIC, "coordinator": TRANSACTION_STATE_TOPIC}


@BOTH
@OUTCOMES
@pytest.mark.parametrize("what", TOPICS)
@pytest.mark.parametrize("when", ["before the decision", "after the decision"])
def test_a_log_that_takes_nothing_for_a_while_beside_the_end_of_a_transaction(when: str, what: str, is_commit: bool, level: int) -> None:
    """For want of room. What was decided is done when there is room; what could not be decided is decided then."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level)
        assert await producer.write(KEY, b"a") == 0
        assert await producer.commit_offsets("g", {KEY: 5}) == 0
        before = producer.epoch
        disk, topic = broker.machine.disk, TOPICS[what]
        full = [
            Fault("append", ".log", errno.ENOSPC, lasts=True, within=partition.log.directory)
            for partition in parts_of(broker).partitions.all()
            if partition.topic == topic
        ]
        with gate_before(parts_of(broker).end_markers, "write") as arriving:
            if when == "before the decision":
                disk.faults += full
            code = await producer.end(is_commit=is_commit)
            if when == "after the decision":
                assert code == 0
                await arriving.reached()
                disk.faults += full
            await arriving.open()
        await asyncio.sleep(5)  # simulated: the disk is full for so long
        if what != "coordinator":
            assert code == 0
            assert (await producer.describe()).transaction_state.startswith("Prepare")
        elif code:
            assert code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        disk.faults.clear()
        if code:
            async with asyncio.timeout(60):  # simulated
                while await producer.end(is_commit=is_commit):
                    await asyncio.sleep(0.1)
        async with asyncio.timeout(60):  # simulated
            await settled(producer)
        assert await read(broker, KEY) == ([b"a"] if is_commit else [])
        assert nothing_is_open(broker, KEY)
        assert await producer.committed("g", KEY, require_stable=True) == ((5, 0) if is_commit else (-1, 0))
        assert producer.epoch == before + (level == 2)

    with_broker(body)


@BOTH
@OUTCOMES
@pytest.mark.parametrize("when", ["before", "meanwhile", "after"])
def test_a_replica_that_moves_to_another_directory_beside_the_end_of_a_transaction(when: str, is_commit: bool, level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, configs={"segment.ms": str(2**62)})  # records of 1970 and a marker of today are in one segment
        producer = await begun(broker, level)
        assert await producer.write(KEY, b"a") == 0
        assert broker.broker is not None
        store, mover = broker.broker.partitions, broker.broker.mover
        partition = partition_of(broker, KEY)
        old = store.directory_of[partition]

        async def end() -> None:
            assert await producer.end(is_commit=is_commit) == 0
            await settled(producer)

        with gate_after(ReplicaCopy, "catch_up") as copying:
            if when == "before":
                await end()
            mover.move(partition, next(directory for directory in store.directories if directory is not old))
            await copying.reached()
            if when == "meanwhile":
                await end()
            await copying.open()
            async with asyncio.timeout(60):  # simulated
                while store.directory_of[partition] is old:
                    await asyncio.sleep(0.05)
        if when == "after":
            assert partition.last_stable_offset == 0
            await end()
        for _ in range(2):
            assert nothing_is_open(broker, KEY)
            async with asyncio.timeout(60):  # simulated
                assert await read(broker, KEY) == ([b"a"] if is_commit else [])
            await broker.stop()
            await broker.start()

    with_broker(body, log_dirs="/data,/spare")
