"""Consumer groups of a whole broker: coordinators that move, logs that refuse or are slow, features, expressions. Simulated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.leaders import OTHER, add_other, give, own_id
from tests.broker.test_leadership import hold
from tests.broker.test_shards import broker_of, groups_of
from tests.quiet import silence

from ottla.client.admin import Admin, NewTopic
from ottla.controller.features import GROUP_VERSION
from ottla.errors import ErrorCode
from ottla.groups.consumer.groups import REGEX_REFRESH_MS_MIN
from ottla.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DescribedConsumerGroup
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, TopicPartitions
from ottla.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse, UpgradeType
from ottla.sim.cluster import PORT, SimBroker, Simulation
from ottla.sim.disk import VOLUME_BYTES
from ottla.sim.loop import run
from ottla.types import GROUP_METADATA_TOPIC

ASK_MS = 30_000
PARTITIONS = 4
NEXT_TARGET_SECONDS = 2
"""Of simulated time, after which a group may have another target (group.consumer.assignment.interval.ms)."""
NEXT_MATCH_SECONDS = REGEX_REFRESH_MS_MIN / 1000 + 1
SLOW_WRITE_SECONDS = 2
"""Less than offsets.commit.timeout.ms, after which a member is sent away."""
BEATS_MAX = 100


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def play(act: Any, **properties: str) -> None:
    fixed = {"offsets.topic.num.partitions": "1"} | {name.replace("_", "."): value for name, value in properties.items()}
    broker = SimBroker(Simulation(1), fixed)

    async def main() -> None:
        await broker.start()
        admin = Admin(broker.client("admin"))
        await admin.create_topics([NewTopic("t", PARTITIONS)])
        await act(broker, admin)
        await admin.close()

    run(main())


class Member:
    """A member by hand. ``owned`` is what it says that it has."""

    def __init__(self, admin: Admin, member_id: str, **fields: Any) -> None:
        self._admin = admin
        self.member_id = member_id
        self.epoch = 0
        self.assigned: list[int] = []
        self.owned: list[int] = []
        self.fields = fields or {"subscribed_topic_names": ["t"]}

    async def beat(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """The answer to one heartbeat, which the member follows when it is no error."""
        topic_id = (await self._admin.describe_topic("t")).topic_id
        fields: dict[str, Any] = {"rebalance_timeout_ms": 30_000, **self.fields} if self.epoch == 0 else {}
        owned = [TopicPartitions(topic_id, self.owned)] if self.owned else []
        request = ConsumerGroupHeartbeatRequest("g", self.member_id, self.epoch, topic_partitions=owned, **(fields | changes))
        answer = await ask(self._admin, request, ConsumerGroupHeartbeatResponse)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = sorted(index for found in answer.assignment.topic_partitions for index in found.partitions)
        return answer

    async def beat_until_heard(self) -> None:
        """A coordinator whose log was refused something loads it again first."""
        for _ in range(BEATS_MAX):
            if not (await self.beat()).error_code:
                return
            await asyncio.sleep(0.1)
        raise AssertionError("no coordinator hears it")

    def follow(self) -> None:
        self.owned = self.assigned


async def ask(admin: Admin, request: Any, response: Any) -> Any:
    """The coordinator's answer, whatever it is."""
    connection = await admin._cluster.connection(await admin._coordinator("g"))
    return await connection.ask(request, response, timeout_ms=ASK_MS)


async def described(admin: Admin) -> DescribedConsumerGroup:
    answer: ConsumerGroupDescribeResponse = await ask(admin, ConsumerGroupDescribeRequest(["g"]), ConsumerGroupDescribeResponse)
    [group] = answer.groups
    return group


async def two_in_a_rebalance(admin: Admin) -> tuple[Member, Member]:
    """The first has all partitions, and has heard that it is to give up two."""
    first, second = Member(admin, "a"), Member(admin, "b")
    await first.beat()
    first.follow()
    await asyncio.sleep(NEXT_TARGET_SECONDS)
    await second.beat()
    await first.beat()
    assert (first.assigned, second.assigned) == ([0, 1], [])
    return first, second


def test_a_coordinator_that_comes_back_in_the_middle_of_a_rebalance_knows_who_has_what() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        first, second = await two_in_a_rebalance(admin)
        await add_other(broker, address=(broker.machine.name, PORT))
        await give(broker, OTHER, GROUP_METADATA_TOPIC)
        await give(broker, own_id(broker), GROUP_METADATA_TOPIC)
        await second.beat()
        assert second.assigned == [], "the first has not given them up"
        first.follow()
        await first.beat()
        await second.beat()
        assert second.assigned == [2, 3]
        group = await described(admin)
        assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == ("Stable", 3, 3, "uniform")

    play(act)


def test_groups_live_through_a_restart_of_the_broker() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        first, second = await two_in_a_rebalance(admin)
        await broker.stop()
        await broker.start()
        first.follow()
        await first.beat()
        await second.beat()
        assert second.assigned == [2, 3]

    play(act)


def test_a_step_that_the_log_refuses_has_not_been_taken() -> None:
    """The disk is full: who joins is sent away, who lives goes on, and what was not written is not known to anyone."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        first, third = Member(admin, "a"), Member(admin, "c")
        await first.beat()
        first.follow()
        await asyncio.sleep(NEXT_TARGET_SECONDS)
        broker.machine.disk.capacity_bytes = broker.machine.disk.used_bytes
        assert (await third.beat()).error_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
        broker.machine.disk.capacity_bytes = VOLUME_BYTES
        await first.beat_until_heard()
        group = await described(admin)
        assert [member.member_id for member in group.members] == ["a"]
        await third.beat()
        for _ in range(BEATS_MAX):
            for member in (first, third):
                await member.beat()
                member.follow()
            if third.owned and sorted(first.owned + third.owned) == list(range(PARTITIONS)):
                break
            await asyncio.sleep(0.1)
        assert len(first.owned) == len(third.owned) == PARTITIONS // 2

    play(act)


def test_an_answer_waits_for_the_log_however_slow_that_is() -> None:
    """What a member hears is written: no one is given what another coordinator would not know of."""

    async def act(broker: SimBroker, admin: Admin) -> None:
        first = Member(admin, "a")
        await first.beat()
        first.follow()
        await asyncio.sleep(NEXT_TARGET_SECONDS)
        held = hold(broker_of(broker).partitions.by_name[GROUP_METADATA_TOPIC][0])
        joining = asyncio.ensure_future(Member(admin, "b").beat())
        await asyncio.sleep(SLOW_WRITE_SECONDS)
        assert not joining.done()
        held.gate.set()
        assert (await joining).error_code == ErrorCode.NONE

    play(act)


def test_expressions_are_matched_when_a_member_joins_and_those_that_are_none_are_refused() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        member = Member(admin, "a", subscribed_topic_regex="t|u.*", subscribed_topic_names=[])
        assert (await member.beat()).error_code == ErrorCode.NONE
        assert member.assigned == [0, 1, 2, 3]
        await admin.create_topics([NewTopic("under", 1), NewTopic("at", 1)])
        await asyncio.sleep(NEXT_MATCH_SECONDS)
        answer = await member.beat()
        assert answer.assignment is not None
        assert sum(len(found.partitions) for found in answer.assignment.topic_partitions) == PARTITIONS + 1
        for pattern in ("(", "x" * 1001, "(?=t)"):
            refused = await Member(admin, "b", subscribed_topic_regex=pattern).beat()
            assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
            assert refused.error_message

    play(act)


def test_without_the_feature_or_the_protocol_the_apis_are_refused() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        member = Member(admin, "a")
        assert (await member.beat()).error_code == ErrorCode.NONE
        key = FeatureUpdateKey(GROUP_VERSION, 0, upgrade_type=UpgradeType.SAFE_DOWNGRADE)
        assert (await ask(admin, UpdateFeaturesRequest(5_000, [key]), UpdateFeaturesResponse)).error_code == ErrorCode.NONE
        answer = await member.beat()
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert GROUP_VERSION in (answer.error_message or "")
        assert (await described(admin)).error_code == ErrorCode.UNSUPPORTED_VERSION

    play(act)


def test_a_broker_may_leave_the_protocol_out() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        assert (await Member(admin, "a").beat()).error_code == ErrorCode.UNSUPPORTED_VERSION

    play(act, group_coordinator_rebalance_protocols="classic")


def test_groups_are_listed_with_their_type() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        await Member(admin, "a").beat()

        async def listed(*types: str) -> list[tuple[str, str, str]]:
            answer: ListGroupsResponse = await ask(admin, ListGroupsRequest(types_filter=list(types)), ListGroupsResponse)
            return [(group.group_id, group.group_type, group.group_state) for group in answer.groups]

        assert await listed() == await listed("Consumer") == [("g", "consumer", "Stable")]
        assert await listed("classic") == []
        assert groups_of(broker).serves_consumer_protocol

    play(act)


def test_the_coordinator_names_a_member_of_the_first_version() -> None:
    async def act(broker: SimBroker, admin: Admin) -> None:
        connection = await admin._cluster.connection(await admin._coordinator("g"))
        request = ConsumerGroupHeartbeatRequest("g", "", 0, rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[])
        first = await connection.ask(request, ConsumerGroupHeartbeatResponse, timeout_ms=ASK_MS, version_max=0)
        assert len(first.member_id or "") == 36
        assert (await ask(admin, request, ConsumerGroupHeartbeatResponse)).error_code == ErrorCode.INVALID_REQUEST

    play(act)
