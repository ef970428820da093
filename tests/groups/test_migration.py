"""Groups that change from the classic protocol to the consumer protocol while they have members, and members of both in one group."""

from __future__ import annotations

import pytest
from tests.groups.consumer_runner import GROUP, HEARTBEAT_MS, REVOKE_MS, SESSION_MS, ClassicClient, Client, ConsumerRunner, topic_id
from tests.groups.coordinator_runner import DELAY_MS, subscription

from ottla.errors import ErrorCode
from ottla.groups.commands import DescribeGroup
from ottla.groups.consumer.member import MemberState
from ottla.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition
from ottla.wire.compiler import encode

ORDERS = topic_id("orders")


def assignment(*indexes: int) -> bytes:
    return b"\0\0" + encode(ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition("orders", list(indexes))]), 0)


def classic_group(runner: ConsumerRunner, shares: dict[str, tuple[int, ...]]) -> int:
    """Stable, with these members; its generation."""
    tokens = [runner.join(fresh=member_id) for member_id in shares]
    runner.advance(2 * DELAY_MS)
    generation_id, leader = runner.joined(tokens[0]).generation_id, runner.joined(tokens[0]).leader
    assignments = {member_id: assignment(*indexes) for member_id, indexes in shares.items()}
    for member_id in (leader, *shares):
        runner.sync(member_id, generation_id, assignments if member_id == leader else None)
    assert runner.state() == "Stable"
    return generation_id


def settle(runner: ConsumerRunner, *clients: Client) -> None:
    for _ in range(10):
        for client in clients:
            client.beat(runner)
            client.follow()
        runner.advance(HEARTBEAT_MS // 2)


def test_a_classic_group_becomes_a_consumer_group_as_it_is() -> None:
    runner = ConsumerRunner()
    generation_id = classic_group(runner, {"a": (0, 1, 2), "b": (3, 4, 5)})
    result = runner.enter("c")
    assert (result.error_code, result.member_epoch, result.assignment) == (0, generation_id + 1, {})
    assert runner.group.members["a"].assigned == {ORDERS: dict.fromkeys((0, 1, 2), generation_id)}
    assert runner.group.members["c"].state is MemberState.UNRELEASED_PARTITIONS
    assert runner.heartbeat("a", generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    assert runner.commit({("orders", 0): 5}, member_id="a", generation_id=generation_id) == (0,)
    assert runner.ask(DescribeGroup(runner.token(), GROUP)).is_other
    runner.restart()
    assert [member.is_classic for member in runner.described().members] == [True, True, False]


def test_members_that_wait_for_each_other_are_sent_away_to_join_again() -> None:
    runner = ConsumerRunner()
    classic_group(runner, {"a": (0, 1, 2), "b": (3, 4, 5)})
    token = runner.join("a", protocols=(("range", subscription("orders", "more")),))
    assert token in runner.parked
    assert runner.enter("c").error_code == ErrorCode.NONE
    assert runner.joined(token).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("is_eager", [True, False])
def test_members_of_both_protocols_share_the_partitions_and_hand_them_over(is_eager: bool) -> None:
    runner = ConsumerRunner()
    first, classic = Client("a"), ClassicClient("c", is_eager=is_eager)
    settle(runner, first)
    settle(runner, first, classic)
    assert (len(first.owned), len(classic.owned)) == (3, 3)
    kept = set(classic.owned)
    other = Client("b")
    settle(runner, first, classic, other)
    assert sorted(map(len, (first.owned, classic.owned, other.owned))) == [2, 2, 2]
    assert classic.owned < kept
    assert runner.described().state == "Stable"
    runner.leave(("c", None), group=GROUP)
    settle(runner, first, other)
    assert sorted(map(len, (first.owned, other.owned))) == [3, 3]


def test_a_cooperative_member_keeps_what_it_has_not_given_up_yet() -> None:
    runner = ConsumerRunner()
    first, classic, other = Client("a"), ClassicClient("c", is_eager=False), Client("b")
    settle(runner, first, classic)
    other.beat(runner)
    for _ in range(2):  # it hears that it has to join, and joins with all that it had
        classic.beat(runner)
    assert (len(classic.owned), len(classic.due)) == (3, 2)
    first.beat(runner)
    first.follow()
    first.beat(runner)
    other.beat(runner)
    assert not other.due & classic.owned
    classic.follow()
    for _ in range(2):
        classic.beat(runner)
    other.beat(runner)
    assert len(other.due) == 2


def test_classic_members_go_on_when_the_last_of_the_other_protocol_has_left_and_see_new_topics() -> None:
    runner = ConsumerRunner({"orders": 2}, may_downgrade=False)
    first, classic = Client("a"), ClassicClient("c", ("orders", "later"))
    settle(runner, first, classic)
    runner.beat("a", -1)
    assert runner.described().state == "Assigning", "the policy keeps it a consumer group"
    settle(runner, classic)
    assert len(classic.owned) == 2
    runner.image = ConsumerRunner({"orders": 2, "later": 1}).image
    settle(runner, classic)
    assert len(classic.owned) == 3


@pytest.mark.parametrize("is_expired", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_group_is_classic_again_when_the_last_member_of_the_other_protocol_has_left(is_expired: bool, is_restarted: bool) -> None:
    runner = ConsumerRunner({"orders": 2})
    first, classic = Client("a"), ClassicClient("c")
    settle(runner, first, classic)
    generation_id = classic.epoch
    assert classic.commit(runner, classic.owned) == (0,)
    if is_expired:
        for _ in range(2):
            runner.advance(SESSION_MS // 2)
            runner.heartbeat("c", generation_id)
    else:
        runner.beat("a", -1)
    assert GROUP not in runner.machine._consumer.table
    state = runner.describe(GROUP)
    assert (state.state, [member.member_id for member in state.members]) == ("PreparingRebalance", ["c"])
    if is_restarted:
        runner.restart()
        assert runner.describe(GROUP).members[0].assignment == encoded_assignment(classic)
    else:
        assert runner.heartbeat("c", generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    token = runner.join("c", protocols=(("common", subscription("orders")),), group=GROUP)
    joined = runner.joined(token)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, generation_id + 1, "c"), "its members assign again"
    assert runner.enter("b").error_code == ErrorCode.NONE, "and may go the other way again"


def encoded_assignment(client: ClassicClient) -> bytes:
    indexes = sorted(index for _, index in client.owned)
    return b"\0\1" + encode(ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition("orders", indexes)]), 1)


def test_a_static_member_that_comes_back_with_the_classic_protocol_leaves_the_group_in_peace() -> None:
    runner = ConsumerRunner({"orders": 2})
    first, classic = Client("a", instance="i"), ClassicClient("c")
    settle(runner, first, classic)
    generation_id = classic.epoch
    token = runner.join(fresh="d", instance="i", protocols=(("common", subscription("orders")),), session_ms=SESSION_MS, group=GROUP)
    joined = runner.joined(token)
    assert (joined.error_code, joined.member_id, joined.generation_id) == (0, "d", generation_id)
    assert runner.describe(GROUP).state == "Stable"
    assert runner.heartbeat("c", generation_id, group=GROUP) == ErrorCode.NONE
    synced = runner.synced(runner.sync("d", generation_id, group=GROUP))
    assert synced.assignment == assignment(*sorted(index for _, index in first.owned))


@pytest.mark.parametrize("shares", [{"a": (0,)}, {}], ids=["with members", "with a member that knows its id alone"])
def test_without_the_policy_a_classic_group_with_members_stays_one(shares: dict[str, tuple[int, ...]]) -> None:
    runner = ConsumerRunner(may_upgrade=False)
    if shares:
        classic_group(runner, shares)
        assert runner.enter("c").error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert runner.state() == "Stable"
    else:
        runner.join(known_id=True)
        assert runner.enter("c").error_code == ErrorCode.NONE


def test_groups_of_other_programs_stay_classic() -> None:
    runner = ConsumerRunner()
    runner.stable("a", protocol_type="connect", protocols=(("sessioned", b"\0\1"),))
    assert runner.enter("c").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert runner.enter("c", assignor="none").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR, "what no group takes is said first"
    assert runner.state() == "Stable"
    runner = ConsumerRunner()
    runner.enter("c")
    token = runner.join(protocol_type="connect", protocols=(("sessioned", b"\0\1"),))
    assert runner.joined(token).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    runner.joined(runner.join(fresh="d", protocols=(("range", subscription("orders")),)))
    token = runner.join(protocols=(("sticky", subscription("orders")),))
    assert runner.joined(token).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "they have no protocol in common"


def test_a_classic_member_that_does_not_take_its_step_is_removed() -> None:
    runner = ConsumerRunner()
    first, classic = Client("a"), ClassicClient("c")
    settle(runner, first, classic)
    other = Client("b")
    other.beat(runner)
    for _ in range(REVOKE_MS // HEARTBEAT_MS):
        assert runner.heartbeat("c", classic.epoch) == ErrorCode.REBALANCE_IN_PROGRESS
        for client in (first, other):
            client.beat(runner)
            client.follow()
        runner.advance(HEARTBEAT_MS)
    assert set(runner.group.members) == {"a", "b"}
    assert runner.heartbeat("c", classic.epoch) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_ask_for_its_assignment_is_removed() -> None:
    runner = ConsumerRunner()
    first = Client("a")
    settle(runner, first)
    member = runner.joined(runner.join(fresh="c", rebalance_ms=20_000, session_ms=SESSION_MS))
    for _ in range(4):
        assert "c" in runner.group.members
        first.beat(runner)
        runner.advance(HEARTBEAT_MS)
    assert member.leader == ""
    assert "c" not in runner.group.members


def test_what_a_classic_member_may_not_ask() -> None:
    runner = ConsumerRunner()
    first, classic = Client("a"), ClassicClient("c")
    settle(runner, first, classic)
    epoch = classic.epoch
    assert runner.heartbeat("c", epoch + 1) == ErrorCode.ILLEGAL_GENERATION
    assert runner.heartbeat("a", first.epoch) == ErrorCode.UNKNOWN_MEMBER_ID, "it has the other protocol"
    assert runner.heartbeat("c", epoch, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.synced(runner.sync("c", epoch + 1)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert runner.synced(runner.sync("c", epoch, protocol_name="other")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    result = runner.leave(("a", None), ("z", None), group=GROUP)
    assert [code for *_, code in result.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID], "an administrator removes any member"


def test_a_static_member_changes_its_protocol_in_its_place() -> None:
    runner = ConsumerRunner()
    first = Client("a")
    settle(runner, first)
    member = runner.joined(runner.join(fresh="c", instance="i", session_ms=SESSION_MS))
    assert runner.enter("d", instance_id="i").error_code == ErrorCode.NONE, "a classic member does not say that it leaves for a while"
    assert "c" not in runner.group.members
    assert runner.heartbeat("c", member.generation_id, instance="i") == ErrorCode.FENCED_INSTANCE_ID
