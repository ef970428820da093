"""A member that leaves does so, wherever its coordinator is by now; in a cluster that is gone it does not take long."""

from __future__ import annotations

import pytest
from tests.client.simulated import consumer_of, create, fill, take, with_broker

from ottla.client.admin import Admin
from ottla.client.coordinator import GONE_MS
from ottla.errors import ErrorCode
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Fate, Interference, Lost
from ottla.wire.schema import Request

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def is_leave(request: Request) -> bool:
    return isinstance(request, LeaveGroupRequest) or (isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch < 0)


def refused(request: Request, code: ErrorCode) -> Fate:
    is_classic = isinstance(request, LeaveGroupRequest)
    return LeaveGroupResponse(error_code=code) if is_classic else ConsumerGroupHeartbeatResponse(error_code=code)


@PROTOCOLS
@pytest.mark.parametrize("fates", [*[(code,) for code in ELSEWHERE], ELSEWHERE, (None,)], ids=["moved", "loads", "absent", "all", "lost"])
def test_a_member_leaves_though_the_first_answers_are_that_its_coordinator_is_elsewhere(
    protocol: str, fates: tuple[ErrorCode | None, ...]
) -> None:
    waiting = list(fates)

    def fate(request: Request) -> Fate:
        if not is_leave(request) or not waiting:
            return None
        code = waiting.pop(0)
        return Lost() if code is None else refused(request, code)

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", group_protocol=protocol, auto_offset_reset="earliest", enable_auto_commit=False)
        consumer.subscribe(["t"])
        await take(consumer, 1)
        network.refuse = fate
        await consumer.close()
        assert not waiting
        admin = Admin(broker.client("a"))
        assert not (await admin.describe_group("g")).members
        await admin.close()

    with_broker(body)


@PROTOCOLS
def test_a_close_in_a_cluster_that_is_gone_does_not_take_long(protocol: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        cluster = broker.client("c")
        network, clock = Interference(cluster), cluster.world.clock
        consumer = consumer_of(cluster, group_id="g", group_protocol=protocol, auto_offset_reset="earliest", enable_auto_commit=False)
        consumer.subscribe(["t"])
        await take(consumer, 1)
        network.refuse = lambda request: Lost()
        began_ms = clock.monotonic_ms()
        await consumer.close()
        assert clock.monotonic_ms() - began_ms <= 2 * GONE_MS

    with_broker(body)
