"""What members tell each other of their partitions, and what comes of it."""

from __future__ import annotations

import asyncio

import pytest
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consumer_protocol import Share, decode_subscription, encode_subscription
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.membership_settings import MembershipSettings
from ottla.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run
from ottla.types import TopicPartition
from ottla.wire.compiler import decode, encode

HAD = Share((TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)), 7)


def user_data_of(subscription: bytes) -> bytes | None:
    data: bytes | None = decode(ConsumerProtocolSubscription, 2, subscription[2:]).user_data
    return data


def test_a_sticky_member_lists_what_it_had_as_kafka_python_does() -> None:
    theirs = StickyAssignorUserData([("a", [0, 2]), ("b", [1])], 7).encode(header=False)
    assert user_data_of(encode_subscription("sticky", ["a", "b"], Share(), HAD)) == theirs


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_the_other_strategies_send_no_user_data(strategy: str) -> None:
    assert user_data_of(encode_subscription(strategy, ["a"], Share(), HAD)) is None


def subscription_with(user_data: bytes | None) -> bytes:
    return b"\x00\x01" + encode(ConsumerProtocolSubscription(["a", "b"], user_data), 1)


def test_user_data_of_both_versions_and_unreadable_ones() -> None:
    newer = encode_subscription("sticky", ["a"], Share(), HAD)
    found = decode_subscription("sticky", newer, "i")
    assert (found.owned, found.generation_id, found.group_instance_id) == (*HAD, "i")
    with_version = StickyAssignorUserData([("a", [0, 2]), ("b", [1])], 7).encode()
    found = decode_subscription("sticky", subscription_with(with_version), None)
    assert (found.owned, found.generation_id) == HAD
    older = StickyAssignorUserData([("a", [1])], version=0).encode(version=0, header=False)
    found = decode_subscription("sticky", subscription_with(older), None)
    assert (found.owned, found.generation_id) == ((TopicPartition("a", 1),), -1)
    for unreadable in (b"\x00", b"\xff" * 40, None, b""):
        found = decode_subscription("sticky", subscription_with(unreadable), None)
        assert (found.topics, found.owned, found.generation_id) == (("a", "b"), (), -1)


def test_eager_sticky_members_move_no_more_than_balance_asks_for() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1))
        await broker.start()
        admin = Admin(broker.client("admin"))
        await admin.create_topics([NewTopic("t", 12)])
        settings = ConsumerSettings(
            group_id="g", membership=MembershipSettings(heartbeat_interval_ms=500, partition_assignment_strategy=("sticky",))
        )
        members: list[Consumer] = []

        async def settle(*sizes: int) -> list[set[TopicPartition]]:
            for _ in range(200):
                await asyncio.gather(*(member.poll(200) for member in members))
                shares = [set(member.assignment()) for member in members]
                if sorted(map(len, shares)) == list(sizes) and len(set().union(*shares)) == 12:
                    return shares
            raise AssertionError([member.assignment() for member in members])

        async def join(name: str) -> None:
            members.append(Consumer(broker.client(name), settings))
            members[-1].subscribe(["t"])

        await join("x")
        await join("y")
        before = await settle(6, 6)
        await join("z")
        after = await settle(4, 4, 4)
        assert after[0] <= before[0]
        assert after[1] <= before[1]
        await members.pop().close()
        last = await settle(6, 6)
        assert after[0] <= last[0]
        assert after[1] <= last[1]
        for member in members:
            await member.close()

    run(main())
