"""What leaders ask the controller for: whenever it is wanted, it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replicas import isr_requests
from ottla.broker.replicas.isr_requests import IsrRequests
from ottla.broker.replicas.replication import Replication
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode
from ottla.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse, PartitionResult, TopicResult
from ottla.replication.leader import IsrChange
from ottla.runtime.world import real_world

TURNS_MAX = 20


class Channel:
    """A controller that records everything."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def ask(self, request: AlterPartitionRequest, _: object) -> AlterPartitionResponse:
        results = []
        for topic in request.topics:
            self.asked += [partition.partition_index for partition in topic.partitions]
            rows = [PartitionResult(p.partition_index, 0, 1, p.leader_epoch, [1, 2], 0, 1) for p in topic.partitions]
            results.append(TopicResult(topic.topic_id, rows))
        return AlterPartitionResponse(topics=results)


class Led:
    """A partition whose leader wants one change; ``on_answer`` is called with the answer to it."""

    def __init__(self, index: int, on_answer: Callable[[], object]) -> None:
        self.key, self.name, self.has_ended = (b"t" * 16, index), f"t-{index}", False
        self.machine: Any = self
        self._on_answer = on_answer

    def take_change(self) -> IsrChange:
        return IsrChange(1, 1, ((1, -1), (2, 1)))

    def on_isr_changed(self, *_: object, **__: object) -> None:
        self._on_answer()

    def on_isr_refused(self, *_: object) -> bool:
        return True


class Absent(Channel):
    """No controller answers, for so many times."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._left = count

    async def ask(self, request: AlterPartitionRequest, kind: object) -> AlterPartitionResponse:
        self._left -= 1
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER) if self._left >= 0 else await super().ask(request, kind)


def test_a_change_that_is_refused_again_and_again_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A quorum that is lost made twenty lines a second for each partition."""
    monkeypatch.setattr(isr_requests, "RETRY_MS", 0)

    async def body() -> None:
        channel, config, done = Absent(30), BrokerConfig({}), asyncio.Event()
        replication = Replication(1, config, real_world(io_threads=1).clock)
        requests = IsrRequests(real_world(io_threads=1), replication, channel, lambda: 1, list)  # type: ignore[arg-type]
        requests.begin()
        replication.on_isr_change(Led(1, done.set))
        async with asyncio.timeout(30):
            await done.wait()
        assert channel.asked == [1]
        await requests.stop()

    asyncio.run(body())
    lines = capsys.readouterr().out
    assert (lines.count("isr_not_changed"), lines.count("isr_changed")) == (1, 1), lines


@pytest.mark.parametrize("turns", range(4))
def test_what_is_wanted_when_the_last_answer_has_come_is_asked_for_too(turns: int) -> None:
    """In that turn of the loop, or in one of the next: the round is over then, or is just ending."""

    async def body() -> None:
        loop, channel, config = asyncio.get_running_loop(), Channel(), BrokerConfig({})
        replication = Replication(1, config, real_world(io_threads=1).clock)
        requests = IsrRequests(real_world(io_threads=1), replication, channel, lambda: 1, list)  # type: ignore[arg-type]
        requests.begin()
        second = Led(2, lambda: None)

        def want(left: int) -> None:
            if left:
                loop.call_soon(want, left - 1)
            else:
                replication.on_isr_change(second)

        replication.on_isr_change(Led(1, lambda: want(turns)))
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
        await requests.stop()
        assert channel.asked == [1, 2]

    asyncio.run(body())


def test_laggards_are_looked_for_twice_in_the_time_that_a_replica_may_lag() -> None:
    """So one that stops right after a look has left one and a half of that time later, at the latest."""
    later: list[tuple[int, Callable[[], None]]] = []
    looked: list[None] = []
    leading = SimpleNamespace(look_for_laggards=lambda: looked.append(None))
    world: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        timers=SimpleNamespace(call_later_ms=lambda delay_ms, callback: later.append((delay_ms, callback))),
    )
    replication = Replication(1, BrokerConfig({"replica.lag.time.max.ms": "2000"}), world.clock)
    partitions: Any = [SimpleNamespace(leading=leading), SimpleNamespace(leading=None)]
    requests = IsrRequests(world, replication, Channel(), lambda: 1, lambda: partitions)  # type: ignore[arg-type]
    requests.begin()
    for count in range(3):
        assert len(looked) == count
        [(delay_ms, look)] = later
        assert delay_ms == 1000
        later.clear()
        look()
