"""max.poll.interval.ms: a member that does not poll leaves its group when that time is over, and one that polls never does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, take, with_broker

from ottla.client.admin import Admin
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.messages.leave_group import LeaveGroupRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference, Lost
from ottla.wire.schema import Request

INTERVAL_MS = 1_000
SETTINGS: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 14_000, "session_timeout_ms": 60_000},
    "consumer": {"group_protocol": "consumer"},  # the broker says how often heartbeats come: every 5 s
}
PROTOCOLS = pytest.mark.parametrize("protocol", SETTINGS)


def is_leave(request: Request) -> bool:
    return isinstance(request, LeaveGroupRequest) or (isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch < 0)


@PROTOCOLS
def test_a_member_leaves_at_the_end_of_the_interval_and_not_with_its_next_heartbeat(protocol: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        consumer = consumer_of(cluster, group_id="g", max_poll_interval_ms=INTERVAL_MS, **SETTINGS[protocol])
        network = Interference(cluster)
        left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        network.refuse = lambda request: left.set_result(cluster.world.clock.monotonic_ms()) if is_leave(request) else None
        consumer.subscribe(["t"])
        while not consumer.assignment():
            await consumer.poll(100)
        polled_ms = cluster.world.clock.monotonic_ms()
        assert INTERVAL_MS - 100 <= await left - polled_ms <= INTERVAL_MS + 10, "the last poll took up to 100 ms"
        await consumer.close()

    with_broker(body)


@PROTOCOLS
def test_one_long_poll_is_no_silence(protocol: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        settings = SETTINGS[protocol] | {"fetch_max_wait_ms": 15_000}  # no answer of a fetch wakes the poll
        consumer = consumer_of(cluster, group_id="g", max_poll_interval_ms=INTERVAL_MS, **settings)
        consumer.subscribe(["t"])
        for _ in range(3):
            await consumer.poll(20 * INTERVAL_MS)
        assert not any(map(is_leave, network.requests))
        assert consumer.assignment() == [KEY]
        await consumer.close()

    with_broker(body)


def test_the_time_that_others_take_to_join_is_not_the_members() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        beats = {"heartbeat_interval_ms": 50, "session_timeout_ms": 60_000}
        slow = consumer_of(broker.client("slow"), group_id="g", max_poll_interval_ms=20 * INTERVAL_MS, **beats)
        slow.subscribe(["t"])
        while not slow.assignment():
            await slow.poll(100)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", max_poll_interval_ms=INTERVAL_MS, **beats)
        consumer.subscribe(["t"])
        joining = asyncio.ensure_future(consumer.poll(20 * INTERVAL_MS))
        with pytest.raises(TimeoutError):  # the other one takes its time
            await asyncio.wait_for(asyncio.shield(joining), 5 * INTERVAL_MS / 1000)
        polling = asyncio.ensure_future(slow.poll(10 * INTERVAL_MS))
        await asyncio.gather(joining, polling)
        assert not any(map(is_leave, network.requests))
        assert len(consumer.assignment()) == len(slow.assignment()) == 1
        await consumer.close()
        await slow.close()

    with_broker(body)


@PROTOCOLS
def test_a_member_that_has_left_for_silence_reads_nothing_while_its_leave_is_not_answered(protocol: str) -> None:
    """The coordinator has taken the leave, and another member has the partition. The answer comes after this one has joined again."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 2)
        cluster = broker.client("c")
        consumer = consumer_of(cluster, group_id="g", max_poll_interval_ms=INTERVAL_MS, enable_auto_commit=False, **SETTINGS[protocol])
        network = Interference(cluster)
        network.alter = lambda request, _: Held(3_000) if is_leave(request) else None
        lost: list[float] = []
        consumer.subscribe(["t"], on_lost=lambda partitions: lost.append(cluster.world.clock.monotonic_ms()))
        await take(consumer, 1, max_records=1)
        await asyncio.sleep(2 * INTERVAL_MS / 1000)  # simulated
        other = consumer_of(broker.client("other"), group_id="g", **SETTINGS[protocol])
        other.subscribe(["t"])
        await take(other, 2)
        assert await consumer.poll(0) == []
        assert lost, "it knows that it is out"
        await other.close()
        while not consumer.assignment():
            await consumer.poll(100)
        member_id = consumer.member_id
        for _ in range(50):
            await consumer.poll(100)
        assert (consumer.member_id, len(lost)) == (member_id, 1), "the late answer is of the earlier membership"
        await consumer.close()

    with_broker(body)


def test_a_close_waits_for_the_leave_of_a_member_that_did_not_poll() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        consumer = consumer_of(cluster, group_id="g", max_poll_interval_ms=INTERVAL_MS, **SETTINGS["classic"])
        network = Interference(cluster)
        consumer.subscribe(["t"])
        while not consumer.assignment():
            await consumer.poll(100)
        fates: list[Lost | Held] = [Lost()]
        network.alter = lambda request, _: fates.pop() if fates and is_leave(request) else None
        while not network.of(LeaveGroupRequest):
            await asyncio.sleep(0.001)
        await consumer.close()
        assert not fates
        group = await Admin(broker.client("a")).describe_group("g")
        assert group.members == ()

    with_broker(body)
