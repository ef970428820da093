"""A coordinator that takes requests and answers none: a poll ends in its time nevertheless, and so does a close."""

from __future__ import annotations

import pytest
from tests.client.simulated import consumer_of, create, fill, take, with_broker

from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.messages.leave_group import LeaveGroupRequest
from ottla.messages.offset_commit import OffsetCommitRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Fate, Held, Interference
from ottla.wire.schema import Request

FOREVER_MS = 10_000_000
REQUEST_TIMEOUT_MS = 30_000
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@PROTOCOLS
def test_a_poll_and_a_close_end_in_their_time(protocol: str) -> None:
    def unanswered(request: Request) -> Fate:
        is_leave = isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch < 0
        return Held(FOREVER_MS) if is_leave or isinstance(request, OffsetCommitRequest | LeaveGroupRequest) else None

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 3)
        cluster = broker.client("c")
        network, clock = Interference(cluster), cluster.world.clock
        settings = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 1_000, "group_protocol": protocol}
        consumer = consumer_of(cluster, group_id="g", **settings)
        consumer.subscribe(["t"])
        await take(consumer, 3)
        network.refuse = unanswered
        for _ in range(5):
            began_ms = clock.monotonic_ms()
            await consumer.poll(2_000)
            assert clock.monotonic_ms() - began_ms <= 2_100
        assert network.of(OffsetCommitRequest), "a commit was due"
        began_ms = clock.monotonic_ms()
        await consumer.close()
        assert clock.monotonic_ms() - began_ms <= REQUEST_TIMEOUT_MS + 1_100

    with_broker(body)


def test_an_automatic_commit_that_is_under_way_is_not_sent_again_after_a_newer_one() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 3)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=1_000)
        consumer.subscribe(["t"])
        await take(consumer, 3)
        network.refuse = lambda request: Held(20_000) if isinstance(request, OffsetCommitRequest) else None
        await consumer.poll(2_000)
        network.refuse = lambda request: None
        await consumer.commit({("t", 0): 1})
        await consumer.poll(500)
        sent = [request.topics[0].partitions[0].committed_offset for request in network.of(OffsetCommitRequest)]
        assert sent[0] == 3, "the automatic one"
        assert set(sent[sent.index(1) :]) == {1}
        await consumer.close()

    with_broker(body)
