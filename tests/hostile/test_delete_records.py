"""DeleteRecords for thousands of partitions holds the loop no longer than 50 ms, and costs as much for each as for one.

Steps of Python are counted in each turn of the loop, as in ``test_largest.py``; slices end by a clock that counts steps as well. The
followers are played: one that never fetches, and one that fetches in a session of all partitions.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import pytest
from tests.broker.test_bursts import Transport
from tests.broker.test_leadership import batch
from tests.broker.test_log_care import create, play
from tests.hostile.test_largest import STEPS_MAX, Steps
from tests.hostile.test_sessions import FOLLOWER, count_turns, lead_with_a_follower
from tests.hostile.wire_bytes import request
from tests.quiet import silence

from ottla.broker.node import Broker
from ottla.broker.requests.connection import BrokerConnection
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode
from ottla.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.sim.cluster import SimBroker
from ottla.wire.compiler import decode_in_steps

T = TypeVar("T")
COUNT = 5000
STEPS_OF_A_REQUEST_MAX = STEPS_MAX // 3
"""Other requests may be worked on in the same turn."""
VERSION = 2
FETCH_VERSION = 18
WAIT_SECONDS_MAX = 300
LONG_MS = 60_000
SOON_MS = 2_000


class Client:
    """One connection, and the turns of the loop while something is done for it."""

    def __init__(self, broker: Broker, steps: Steps) -> None:
        self._transport = Transport()
        self._steps = steps
        self.connection: BrokerConnection = broker.router.accept(self._transport, "PLAINTEXT")
        broker.gate._admission.admitted("PLAINTEXT", "127.0.0.1", 0)

    def send(self, asked: Any, version: int = VERSION) -> None:
        self.connection.on_data(memoryview(bytearray(request(asked, version))))

    async def answer(self) -> bytes:
        return await asyncio.wait_for(self._transport.sends.get(), WAIT_SECONDS_MAX)

    async def counted(self, act: Callable[[], Awaitable[T]]) -> tuple[int, T]:
        """The steps that it takes, and its result; no turn is too long."""
        await asyncio.sleep(0)
        self._steps.longest, before = 0, self._steps.count
        sys.settrace(self._steps.trace)
        try:
            result = await act()
            await asyncio.sleep(0)
        finally:
            sys.settrace(None)
        assert self._steps.longest <= STEPS_OF_A_REQUEST_MAX
        return self._steps.count - before, result


def deletion(count: int, timeout_ms: int = LONG_MS) -> DeleteRecordsRequest:
    """Of the only record of each partition."""
    return DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(index, 1) for index in range(count)])], timeout_ms)


def answers(data: bytes) -> dict[int, tuple[int, int]]:
    steps = decode_in_steps(DeleteRecordsResponse, VERSION, memoryview(data), 9)  # after length, correlation id and tags
    response = DeleteRecordsResponse()
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        response = stop.value[0]
    found = {result.partition_index: (result.error_code, result.low_watermark) for result in response.topics[0].partitions}
    assert len(response.topics) == 1
    assert len(found) == len(response.topics[0].partitions), "each partition is answered for once"
    return found


async def filled(sim: SimBroker, count: int) -> Broker:
    """A record in each partition of ``t``."""
    await create(sim, "t", count)
    broker = sim.broker
    assert broker is not None

    async def fill() -> None:
        for partition in broker.partitions.by_name["t"].values():
            partition.stage(batch(), now_ms=1)
            await partition.flush()

    await sim.machine.run(fill())
    return broker


@pytest.fixture(name="steps")
def _steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    silence()
    steps = Steps()
    count_turns(steps, monkeypatch)
    begin = Slices.__init__
    monkeypatch.setattr(Slices, "__init__", lambda slices, clock: begin(slices, steps))
    return steps


@pytest.mark.slow
def test_5000_partitions_in_one_request(steps: Steps) -> None:
    """Without followers; with one that is silent, fenced or fetches, and with a client that leaves."""

    async def act(sim: SimBroker) -> None:
        broker = await filled(sim, COUNT)
        await sim.machine.run(_without_followers(broker, steps))
        await sim.machine.run(lead_with_a_follower(broker))
        broker.partitions.replication.is_live = lambda node: True  # type: ignore[method-assign]
        await sim.machine.run(_until_the_time_is_over(broker, steps))
        await sim.machine.run(_until_the_client_leaves(broker, steps))
        await sim.machine.run(_until_the_follower_is_fenced(broker, steps))
        await sim.machine.run(_until_the_follower_fetches(broker, steps))

    play(act)


async def _without_followers(broker: Broker, steps: Steps) -> None:
    client, counts = Client(broker, steps), (COUNT // 2, COUNT)

    async def ask(count: int) -> bytes:
        client.send(deletion(count))
        return await client.answer()

    found = [await client.counted(partial(ask, count)) for count in counts]
    for (_, answer), count in zip(found, counts, strict=True):
        assert answers(answer) == dict.fromkeys(range(count), (0, 1))
    assert found[1][0] < 3 * found[0][0], "twice as many cost twice as much"


async def _until_the_time_is_over(broker: Broker, steps: Steps) -> None:
    client = Client(broker, steps)
    began = asyncio.get_running_loop().time()

    async def ask() -> bytes:
        client.send(deletion(COUNT, SOON_MS))
        return await client.answer()

    _, answer = await client.counted(ask)
    assert answers(answer) == dict.fromkeys(range(COUNT), (ErrorCode.REQUEST_TIMED_OUT, -1))
    assert SOON_MS <= round(1000 * (asyncio.get_running_loop().time() - began)) < LONG_MS / 2
    assert not broker.partitions.replication.deleting, "nothing is remembered of those who waited"


async def _waiting(broker: Broker, steps: Steps) -> Client:
    """A client whose request waits for the follower of each partition."""
    client = Client(broker, steps)

    async def until_all_wait() -> None:
        while len(broker.partitions.replication.deleting) < COUNT:
            await asyncio.sleep(0.01)

    async def ask() -> None:
        client.send(deletion(COUNT))
        await asyncio.wait_for(until_all_wait(), WAIT_SECONDS_MAX)
        await asyncio.sleep(1)

    await client.counted(ask)
    assert client._transport.sends.empty()
    return client


async def _until_the_client_leaves(broker: Broker, steps: Steps) -> None:
    client = await _waiting(broker, steps)

    async def leave() -> None:
        client.connection.on_close(None)

    await client.counted(leave)
    assert not broker.partitions.replication.deleting


async def _until_the_follower_is_fenced(broker: Broker, steps: Steps) -> None:
    client, replication = await _waiting(broker, steps), broker.partitions.replication
    is_live = replication.is_live

    async def fence() -> bytes:
        replication.is_live = lambda node: False  # type: ignore[method-assign]
        replication.brokers_changed()
        return await client.answer()

    _, answer = await client.counted(fence)
    assert answers(answer) == dict.fromkeys(range(COUNT), (0, 1))
    assert not replication.deleting
    replication.is_live = is_live  # type: ignore[method-assign]


async def _until_the_follower_fetches(broker: Broker, steps: Steps) -> None:
    client, follower = await _waiting(broker, steps), Client(broker, steps)
    named = [FetchPartition(index, fetch_offset=1, log_start_offset=1, partition_max_bytes=1 << 20) for index in range(COUNT)]
    topics = [FetchTopic("t", broker.image.topics["t"].topic_id, named)]

    async def follow() -> bytes:
        follower.send(FetchRequest(replica_state=ReplicaState(FOLLOWER, 5), max_wait_ms=0, session_epoch=0, topics=topics), FETCH_VERSION)
        await follower.answer()
        return await client.answer()

    _, answer = await follower.counted(follow)
    assert answers(answer) == dict.fromkeys(range(COUNT), (0, 1))
    assert not broker.partitions.replication.deleting


def test_a_partition_that_is_listed_again_is_answered_for_once_by_its_last_offset() -> None:
    async def act(sim: SimBroker) -> None:
        broker = await filled(sim, 2)
        client = Client(broker, Steps())
        named = [DeleteRecordsPartition(0, 5), DeleteRecordsPartition(1, 1), DeleteRecordsPartition(0, 0)]
        topics = [DeleteRecordsTopic("t", named), DeleteRecordsTopic("t", [DeleteRecordsPartition(1, 0)])]

        async def ask() -> None:
            client.send(DeleteRecordsRequest(topics, LONG_MS))
            assert answers(await client.answer()) == {0: (0, 0), 1: (0, 0)}

        await sim.machine.run(ask())

    play(act)
