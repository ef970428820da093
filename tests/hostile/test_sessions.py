"""A fetch session of as many partitions as there may be holds the broker's event loop no longer than any other request.

As in ``test_largest.py``, what is counted is steps of Python in one turn of the loop, for two numbers of partitions, and extended to the
largest number. Whatever a session does to all of its partitions at once is tried: it begins, all are named again, its follower has another
epoch, it is used over another connection, its connection ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import pytest
from tests.broker.test_bursts import Transport
from tests.broker.test_log_care import create, play
from tests.hostile.test_largest import STEPS_MAX, Steps, extended
from tests.hostile.wire_bytes import request
from tests.quiet import silence

from ottla.broker.node import Broker
from ottla.broker.requests.connection import BrokerConnection
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.metadata.image import PartitionImage
from ottla.replication.fetch_sessions import PARTITIONS_MAX
from ottla.sim.cluster import SimBroker
from ottla.sim.loop import SimLoop

BEFORE = 20  # the first time the codecs are made
LENGTHS = (2100, 4200)  # what is decoded and encoded in steps
FOLLOWER = 42
STEPS_OF_A_SESSION_MAX = STEPS_MAX // 4
"""Several clients may begin one in the same turn."""
STEPS_OF_AN_IDLE_FETCH_MAX = 2_000
VERSION = 18


class Session:
    """One client, whose turns are counted."""

    def __init__(self, broker: Broker, steps: Steps, count: int, *, is_follower: bool) -> None:
        self._broker = broker
        self._steps = steps
        self._topic_id = broker.image.topics["t"].topic_id
        self._count = count
        self._state = ReplicaState(FOLLOWER, 10 * count) if is_follower else None  # an epoch later than of those before
        self._session_id = self._epoch = 0
        self.turns: dict[str, int] = {}
        self._connect()

    def _connect(self) -> None:
        self._transport = Transport()
        self._connection: BrokerConnection = self._broker.router.accept(self._transport, "PLAINTEXT")
        self._broker.gate._admission.admitted("PLAINTEXT", "127.0.0.1", 0)

    async def live(self) -> dict[str, int]:
        """The longest turn of each step of its life."""
        await self._fetch("begin", names_all=True)
        await self._fetch("first incremental")
        await self._fetch("idle", wait_ms=1)
        await self._fetch("all named", names_all=True)
        await self._fetch("all named, waiting", names_all=True, wait_ms=1)
        if self._state is not None:
            self._state.replica_epoch += 1
            await self._fetch("another epoch of the broker", wait_ms=1)
        self._connect()
        await self._fetch("another connection", wait_ms=1)
        await self._fetch("at rest")
        await self._time("close", self._close)
        return self.turns

    async def _fetch(self, what: str, *, names_all: bool = False, wait_ms: int = 0) -> None:
        named = [FetchPartition(index, log_start_offset=0, partition_max_bytes=1 << 20) for index in range(self._count)]
        topics = [FetchTopic("t", self._topic_id, named)] if names_all else []
        asked = FetchRequest(
            replica_state=self._state,
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=topics,
        )
        self._epoch += 1
        data = memoryview(bytearray(request(asked, VERSION)))
        answers: list[bytes] = []

        async def answered() -> None:
            self._connection.on_data(data)
            answers.append(await self._transport.sends.get())

        await self._time(what, answered)
        answer = answers[0]  # length, correlation id, tags, throttle time, error, session
        assert answer[13:15] == bytes(2), "the session goes on"
        self._session_id = int.from_bytes(answer[15:19], "big")
        assert self._session_id, "there is a session"

    async def _close(self) -> None:
        self._connection.on_close(None)

    async def _time(self, what: str, act: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(0)
        self._steps.longest = 0
        sys.settrace(self._steps.trace)
        try:
            await act()
            await asyncio.sleep(0)
        finally:
            sys.settrace(None)
        self.turns[what] = self._steps.longest


def count_turns(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    run_once = SimLoop._run_once

    def counted(loop: SimLoop) -> None:
        began = steps.count
        run_once(loop)
        steps.longest = max(steps.longest, steps.count - began)

    monkeypatch.setattr(SimLoop, "_run_once", counted)


async def lead_with_a_follower(broker: Broker) -> None:
    """Every partition has a follower, which is in sync. One that is being written is led when that is over."""
    replicas = (broker.node_id, FOLLOWER)
    broker.partitions.replication.may_join = lambda node, epoch: True  # type: ignore[method-assign]
    for partition in broker.partitions.by_name["t"].values():
        partition.take_role(PartitionImage(replicas, replicas, broker.node_id, partition.leader_epoch + 1, 1))
    while any(partition.led_epoch < 0 for partition in broker.partitions.by_name["t"].values()):
        await asyncio.sleep(0.01)


@pytest.mark.slow
def test_a_session_of_10000_partitions_is_worked_off_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    silence()
    steps = Steps()
    count_turns(steps, monkeypatch)

    async def act(sim: SimBroker) -> None:
        await create(sim, "t", LENGTHS[1])
        assert sim.broker is not None
        for is_follower in (False, True):
            if is_follower:
                await sim.machine.run(lead_with_a_follower(sim.broker))
            lives = [Session(sim.broker, steps, count, is_follower=is_follower).live() for count in (BEFORE, *LENGTHS)]
            _, few, many = [await sim.machine.run(life) for life in lives]
            found = {what: extended(LENGTHS, [few[what], many[what]], PARTITIONS_MAX) for what in few}
            assert {what: count for what, count in found.items() if count > STEPS_OF_A_SESSION_MAX} == {}, f"{is_follower} {found}"
            for what in ("idle", "at rest"):
                assert max(few[what], many[what]) < STEPS_OF_AN_IDLE_FETCH_MAX, f"it looks at no partition: {found}"

    play(act)
