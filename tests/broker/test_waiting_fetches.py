"""Fetches that wait for records: each is woken, and by as much as it still lacks."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from tests.broker.test_consumer_sessions import Watched
from tests.broker.test_log_care import create, play, send
from tests.quiet import silence
from tests.storage.batches import batch

from ottla.broker.handlers.list_offsets import LATEST
from ottla.broker.replicas.partition import Partition
from ottla.messages.fetch import READ_COMMITTED, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.metadata.image import PartitionImage
from ottla.records.builder import BatchBuilder
from ottla.records.control import build_end_marker
from ottla.sim.cluster import SimBroker

FOR_EVER_MS = 600_000
SOON_SECONDS = 5.0


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


async def fetch(broker: SimBroker, name: str, offset: int, min_bytes: int) -> float:
    """When the answer came, with at least so many bytes."""
    cluster = broker.client(name)
    assert broker.broker is not None
    topic_id = broker.broker.partitions.by_name["t"][0].topic_id
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=FOR_EVER_MS, min_bytes=min_bytes, topics=[FetchTopic("t", topic_id, [wanted])])
    answer = await cluster.ask(None, request, FetchResponse, timeout_ms=2 * FOR_EVER_MS)
    records = answer.responses[0].partitions[0].records
    assert records is not None
    assert len(records) >= min_bytes
    await cluster.close()
    return asyncio.get_running_loop().time()


def test_all_fetches_that_wait_for_a_partition_are_woken() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        waiting = [asyncio.ensure_future(fetch(broker, f"reader-{number}", 0, 1)) for number in range(3)]
        await asyncio.sleep(1)
        await send(broker, "t", [(None, b"x")])
        sent = asyncio.get_running_loop().time()
        assert max(await asyncio.gather(*waiting)) < sent + SOON_SECONDS

    play(act)


def test_a_fetch_waits_for_what_it_lacks_and_not_for_what_it_has_read() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"x" * 300)])
        assert broker.broker is not None
        size = broker.broker.partitions.by_name["t"][0].log.size_bytes
        waiting = asyncio.ensure_future(fetch(broker, "reader", 0, size + 1))
        await asyncio.sleep(1)
        assert not waiting.done()
        await send(broker, "t", [(None, b"x")])
        sent = asyncio.get_running_loop().time()
        assert await waiting < sent + SOON_SECONDS

    play(act)


# -- of what is committed step by step, and of transactions

KEPT: Final = {"log_retention_ms": "-1", "log_retention_bytes": "-1"}
MARKER: Final[Any] = {"is_commit": True, "producer_id": 1, "producer_epoch": 0, "coordinator_epoch": 0, "timestamp_ms": 1}


def partition_of(broker: SimBroker, index: int = 0) -> Partition:
    assert broker.broker is not None
    return broker.broker.partitions.by_name["t"][index]


def in_a_transaction(size: int) -> bytearray:
    builder = BatchBuilder()
    builder.append(None, b"x" * size, timestamp_ms=1)
    return builder.build(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)


async def put(broker: SimBroker, index: int, *batches: bytearray) -> None:
    async def run() -> None:
        found = partition_of(broker, index)
        for view in batches:
            found.stage_own(memoryview(view), leader_epoch=found.led_epoch, now_ms=1)
            await found.flush()

    await broker.machine.run(run())


class Follower:
    """Of a partition that has a second replica from now on, which fetches when it is told to."""

    def __init__(self, broker: SimBroker, index: int) -> None:
        self._broker = broker
        self._found = found = partition_of(broker, index)
        self._node = found._replication.node_id + 1
        replicas = (self._node - 1, self._node)
        image = PartitionImage(replicas, replicas, self._node - 1, found.leader_epoch, 5)
        found.take_role(image)

    async def has(self, offset: int) -> None:
        async def run() -> None:
            leading = self._found.leading
            assert leading is not None
            if leading.on_follower_fetch(self._node, broker_epoch=-1, offset=offset, start_offset=0):
                leading.committed()

        await self._broker.machine.run(run())


async def begin_following(broker: SimBroker, index: int = 0) -> Follower:
    async def run() -> Follower:
        return Follower(broker, index)

    return await broker.machine.run(run())


class Consumer:
    """One partition, ``index`` of many, in a session that is watched, or alone without one."""

    def __init__(self, broker: SimBroker, watched: Watched | None, index: int) -> None:
        self._broker = broker
        self._watched = watched
        self._index = index
        self._cluster = broker.client("reader")

    @classmethod
    async def begin(cls, broker: SimBroker, index: int, *, is_watched: bool) -> Consumer:
        watched = await Watched.begin(broker) if is_watched else None
        if watched is None:
            await create(broker, "t", index + 1)
        return cls(broker, watched, index)

    async def ask(self, isolation_level: int, *, offset: int = 0, min_bytes: int = 1, wait_ms: int = FOR_EVER_MS) -> asyncio.Future[int]:
        """The bytes that are answered."""
        named = FetchPartition(self._index, fetch_offset=offset, partition_max_bytes=1 << 20)
        if self._watched is not None:
            asked = await self._watched.ask(named, wait_ms=wait_ms, min_bytes=min_bytes, isolation_level=isolation_level)
            return asyncio.ensure_future(self._size_of(asked))
        topics = [FetchTopic("t", partition_of(self._broker, self._index).topic_id, [named])]
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, isolation_level=isolation_level, topics=topics)
        return asyncio.ensure_future(self._size_of(self._cluster.ask(None, request, FetchResponse, timeout_ms=2 * FOR_EVER_MS)))

    async def _size_of(self, asked: Any) -> int:
        if self._watched is not None:
            return sum(len(data.records or b"") for data in (await self._watched.given(asked)).values())
        return len((await asked).responses[0].partitions[0].records or b"")


async def soon(answer: asyncio.Future[int]) -> int:
    """Of the simulated clock."""
    return await asyncio.wait_for(answer, SOON_SECONDS)


async def waits(answer: asyncio.Future[int]) -> bool:
    """Still, after a second of the simulated clock."""
    await asyncio.sleep(1)
    return not answer.done()


@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.parametrize("isolation_level", [0, READ_COMMITTED])
def test_each_step_of_the_high_watermark_reaches_waiting_fetches(isolation_level: int, is_watched: bool) -> None:
    """The follower has the first of two records, and a little later the other one: who has read the first waits for that."""

    async def act(broker: SimBroker) -> None:
        consumer = await Consumer.begin(broker, 3, is_watched=is_watched)
        follower = await begin_following(broker, 3)
        await put(broker, 3, *[bytearray(batch()) for _ in range(2)])
        reading = await consumer.ask(isolation_level)
        assert await waits(reading)
        await follower.has(1)
        assert await soon(reading) > 0
        reading = await consumer.ask(isolation_level, offset=1)
        assert await waits(reading)
        await follower.has(2)
        assert await soon(reading) > 0

    play(act, **KEPT)


@pytest.mark.parametrize("is_watched", [False, True])
def test_the_end_of_a_transaction_wakes_a_committed_reader_and_its_open_records_do_not(is_watched: bool) -> None:
    async def act(broker: SimBroker) -> None:
        consumer = await Consumer.begin(broker, 3, is_watched=is_watched)
        reading = await consumer.ask(READ_COMMITTED)
        await put(broker, 3, in_a_transaction(10), bytearray(batch()))
        assert await waits(reading)
        follower = await begin_following(broker, 3)
        await put(broker, 3, bytearray(batch()), build_end_marker(**MARKER))
        await follower.has(3)
        assert await waits(reading)
        await follower.has(4)
        assert await soon(reading) > 0

    play(act, **KEPT)


@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.parametrize("is_open_before", [False, True])
def test_what_a_transaction_has_written_counts_when_it_ends(is_open_before: bool, is_watched: bool) -> None:
    """For fetch.min.bytes; also what it had before the fetch came."""

    async def act(broker: SimBroker) -> None:
        consumer = await Consumer.begin(broker, 3, is_watched=is_watched)
        if is_open_before:
            await put(broker, 3, in_a_transaction(5000))
        reading = await consumer.ask(READ_COMMITTED, min_bytes=1000)
        assert await waits(reading)
        if not is_open_before:
            await put(broker, 3, in_a_transaction(5000))
        assert await waits(reading)
        await put(broker, 3, build_end_marker(**MARKER))
        assert await soon(reading) > 5000

    play(act, **KEPT)


def test_a_partition_ends_for_read_committed_where_a_transaction_is_open() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await put(broker, 0, bytearray(batch(timestamp_ms=10)), in_a_transaction(10), bytearray(batch(timestamp_ms=30)))

        async def offsets(isolation_level: int) -> list[int]:
            found = []
            for timestamp in (LATEST, 5, 20):
                wanted = ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=timestamp)])
                request = ListOffsetsRequest(-1, isolation_level, topics=[wanted])
                answer = await broker.client("asking").ask(None, request, ListOffsetsResponse)
                found.append(answer.topics[0].partitions[0].offset)
            return found

        assert await offsets(0) == [3, 0, 2]
        assert await offsets(READ_COMMITTED) == [1, 0, -1]
        await put(broker, 0, build_end_marker(**MARKER))
        assert await offsets(READ_COMMITTED) == [4, 0, 2]

    play(act, **KEPT)
