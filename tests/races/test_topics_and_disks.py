"""What becomes of a decided transaction's topics, logs and disks before its end markers come, and after."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from tests.broker.principals import until
from tests.broker.test_transactions import BOTH, begun, read, settled
from tests.client.simulated import KEY, create, with_broker
from tests.quiet import silence
from tests.races.gates import Gate, gate_after, gate_before
from tests.races.one_broker import nothing_is_open, partition_of, parts_of

from ottla.broker.coordinators import end_markers
from ottla.broker.tasks.slices import Slices
from ottla.client.admin import Admin
from ottla.errors import ErrorCode, KafkaError
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
        await settled(producer)
        assert await read(broker, KEY) == ([b"a"] if is_commit else [])
        assert nothing_is_open(broker, KEY)
        assert await producer.committed("g", KEY, require_stable=True) == ((5, 0) if is_commit else (-1, 0))
        assert producer.epoch == before + (level == 2)

    with_broker(body)


def halted_slices(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Markers of several partitions are worked off in slices of one partition each, after which others have their turn at this gate."""
    halt = Gate()

    class Halting(Slices):
        async def over(self, items: Iterable[Any]) -> AsyncIterator[Any]:
            for number, item in enumerate(items):
                if number:
                    await halt.passed()
                yield item

    monkeypatch.setattr(end_markers, "Slices", Halting)
    return halt


KEYS = [KEY, TopicPartition("t", 1)]


@BOTH
@OUTCOMES
def test_a_marker_that_its_log_drops_while_others_are_staged_is_written_again(
    is_commit: bool, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is staged in one of the logs by then is flushed by whoever writes there, who cannot."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        producer = await begun(broker, level)
        for key in KEYS:
            assert await producer.write(key, b"a") == 0
        halt = halted_slices(monkeypatch)
        assert await producer.end(is_commit=is_commit) == 0
        await halt.reached()
        log = partition_of(broker, KEY).log
        broker.machine.disk.faults.append(Fault("append", ".log", errno.ENOSPC, lasts=True, within=log.directory))
        with pytest.raises(KafkaError):
            await partition_of(broker, KEY).flush()
        broker.machine.disk.faults.clear()
        await halt.open()
        await settled(producer)
        for key in KEYS:
            assert nothing_is_open(broker, key)
            assert await read(broker, key) == ([b"a"] if is_commit else [])

    with_broker(body)


def test_markers_are_written_to_their_logs_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of 5,000 partitions would keep everybody waiting for some 150 ms."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        producer = await begun(broker, 2)
        for key in KEYS:
            assert await producer.write(key, b"a") == 0
        halt = halted_slices(monkeypatch)
        assert await producer.end(is_commit=True) == 0
        await halt.reached(1)
        assert [nothing_is_open(broker, key) for key in KEYS] == [False, False]
        await halt.open(0)
        await halt.reached(2)
        await until(lambda: nothing_is_open(broker, KEY))
        assert not nothing_is_open(broker, KEYS[1])
        await halt.open()
        await settled(producer)
        assert [nothing_is_open(broker, key) for key in KEYS] == [True, True]

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
