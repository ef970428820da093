"""Members of consumer groups, rule by rule: joining, steps to the target, fencing, leaving, deadlines, other kinds of groups."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.consumer_runner import GROUP, HEARTBEAT_MS, REVOKE_MS, SESSION_MS, Client, ConsumerRunner, image_of, topic_id
from tests.groups.coordinator_runner import DELAY_MS

from ottla.errors import ErrorCode
from ottla.groups.commands import CommitInTransaction, DeleteGroup, DeleteOffsets, ExpireOffsets, FetchOffsets, ListGroups, OffsetToCommit
from ottla.groups.consumer.commands import DescribeConsumerGroup, ExpireConsumer, ResolveRegexes
from ottla.groups.consumer.group import FIRST_EPOCH
from ottla.groups.consumer.member import MemberState
from ottla.machine import Writer
from ottla.metadata.image import RESOURCE_GROUP

ORDERS = topic_id("orders")


def all_of(*indexes: int) -> dict[bytes, frozenset[int]]:
    return {ORDERS: frozenset(indexes)}


def settled(runner: ConsumerRunner, *clients: Client) -> None:
    """They have what their targets say, and have said so."""
    for _ in range(8):
        for client in clients:
            assert client.beat(runner) == ErrorCode.NONE
            client.follow()
        runner.advance(HEARTBEAT_MS)
    assert runner.described().state == "Stable"


def in_a_rebalance() -> tuple[ConsumerRunner, Client, Client]:
    """The first has all partitions, and has heard that it is to give up three, for the second."""
    runner, a, b = ConsumerRunner(), Client("a"), Client("b")
    a.beat(runner)
    a.follow()
    runner.advance(HEARTBEAT_MS)
    b.beat(runner)
    a.beat(runner)
    return runner, a, b


# -- joining, and steps to the target ---------------------------------------------------------------------------------


def test_the_first_member_gets_everything_with_its_first_heartbeat() -> None:
    runner = ConsumerRunner()
    result = runner.enter("a")
    assert (result.error_code, result.member_epoch, result.heartbeat_interval_ms) == (0, 2, 5_000)
    assert result.assignment == all_of(0, 1, 2, 3, 4, 5)
    assert runner.described().state == "Stable"


def test_a_partition_changes_hands_when_its_owner_has_said_that_it_gave_it_up() -> None:
    runner = ConsumerRunner()
    a, b = Client("a"), Client("b")
    a.beat(runner)
    a.follow()
    runner.advance(HEARTBEAT_MS)
    b.beat(runner)
    assert (b.epoch, b.due) == (3, set())
    assert runner.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    a.beat(runner)  # it hears that it has to give up three, and stays in its epoch
    assert (a.epoch, len(a.due)) == (2, 3)
    assert runner.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    shown = runner.described().members[0]
    assert (shown.assigned, shown.target, shown.regex) == (all_of(0, 1, 2, 3, 4, 5), all_of(0, 1, 2), ""), "it has all until it says so"
    a.is_acknowledged = True  # a heartbeat that leaves out what it owns
    a.beat(runner)
    b.beat(runner)
    assert b.due == set(), "null is unchanged, and not given up"
    a.follow()
    a.beat(runner)
    assert a.epoch == 3
    b.beat(runner)
    assert b.due == {(ORDERS, 3), (ORDERS, 4), (ORDERS, 5)}
    b.follow()
    assert runner.described().state == "Stable"


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    runner = ConsumerRunner()
    client = Client("a")
    settled(runner, client)
    count = len(runner.log)
    for _ in range(5):
        client.beat(runner)
    runner.image = image_of({"orders": 6, "other": 1})
    client.beat(runner)
    assert len(runner.log) == count


@pytest.mark.parametrize(
    ("counts", "size"), [({"orders": 8}, 8), ({"orders": 6, "payments": 2}, 8), ({"payments": 1}, 1), ({}, 0)], ids=str
)
def test_topics_that_are_made_grow_or_are_deleted_make_a_new_epoch(counts: dict[str, int], size: int) -> None:
    runner = ConsumerRunner()
    client = Client("a", ("orders", "payments"))
    settled(runner, client)
    epoch = runner.group.epoch
    runner.image = image_of(counts)
    settled(runner, client)
    assert runner.group.epoch == epoch + 1
    assert len(client.owned) == size


def test_targets_follow_each_other_in_the_configured_distance() -> None:
    runner = ConsumerRunner(assignment_interval_ms=1_000)
    runner.enter("a")
    runner.advance(999)
    assert runner.enter("b").member_epoch == 2
    assert runner.described().state == "Assigning"
    runner.advance(1)
    assert runner.beat("b", 2).member_epoch == 3
    assert runner.described().target_epoch == 3


def test_the_assignor_that_most_members_ask_for_divides_the_partitions() -> None:
    runner = ConsumerRunner({"orders": 3, "payments": 3}, assignment_interval_ms=0)
    clients = [Client(name, ("orders", "payments"), assignor=assignor) for name, assignor in (("a", "range"), ("b", "range"), ("c", None))]
    settled(runner, *clients[:2])
    assert runner.described().assignor == "range"
    assert clients[0].owned == {(topic_id(name), index) for name in ("orders", "payments") for index in (0, 1)}


def test_a_topic_that_is_no_longer_subscribed_is_given_up_before_there_is_a_new_target() -> None:
    runner = ConsumerRunner({"orders": 2, "payments": 2}, assignment_interval_ms=60_000, assignment_interval_ms_max=60_000)
    client = Client("a", ("orders", "payments"))
    client.beat(runner)
    client.follow()
    client.topics, client.is_full = ("orders",), True
    client.beat(runner)
    assert client.due == {(ORDERS, 0), (ORDERS, 1)}
    assert runner.described().state == "Assigning"


# -- fencing ----------------------------------------------------------------------------------------------------------


def test_a_member_whose_answer_was_lost_comes_with_its_previous_epoch() -> None:
    runner = ConsumerRunner(assignment_interval_ms=0)
    runner.enter("a")
    runner.beat("a", 2, topics=("orders", "other"))  # the answer, with epoch 3, is lost
    assert runner.group.members["a"].epoch == 3
    assert runner.beat("a", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH, "what it owns it has to say"
    assert runner.beat("a", 2, owned={ORDERS: frozenset({9})}).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert runner.beat("a", 2, owned=all_of(0, 5)).member_epoch == 3
    assert runner.beat("a", 4).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert runner.enter("a", "orders", "other").member_epoch == 3, "it may join again, without any"


def test_members_that_are_not_known() -> None:
    runner = ConsumerRunner()
    assert runner.beat("a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    runner.enter("a")
    assert runner.beat("b", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.beat("b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.beat("a", 1, instance_id="i").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_takes_as_many_members_as_are_configured() -> None:
    runner = ConsumerRunner(group_max_size=1)
    runner.enter("a", instance_id="i")
    result = runner.enter("b")
    assert result.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "group.consumer.max.size" in (result.error_message or "")
    assert runner.enter("a").error_code == ErrorCode.NONE
    runner.beat("a", -2, instance_id="i")
    assert runner.enter("c", instance_id="i").error_code == ErrorCode.NONE, "a static member that returns is none more"


@pytest.mark.parametrize(
    ("epoch", "fields", "code"),
    [
        (0, {"member_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        (0, {"owned": None}, ErrorCode.INVALID_REQUEST),
        (0, {"owned": all_of(1)}, ErrorCode.INVALID_REQUEST),
        (0, {"topics": None}, ErrorCode.INVALID_REQUEST),
        (-2, {}, ErrorCode.INVALID_REQUEST),
        (-3, {}, ErrorCode.INVALID_REQUEST),
        (0, {"assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (0, {"regex": "x" * 40_000}, ErrorCode.INVALID_REQUEST),
    ],
    ids=str,
)
def test_what_a_heartbeat_may_not_say(epoch: int, fields: dict[str, Any], code: ErrorCode) -> None:
    runner = ConsumerRunner()
    asked: dict[str, Any] = {"topics": ("orders",), "owned": {}, "rebalance_timeout_ms": REVOKE_MS} | fields
    result = runner.beat(asked.pop("member_id", "a"), epoch, **asked)
    assert result.error_code == code
    assert result.error_message
    assert not runner.log


# -- leaving ----------------------------------------------------------------------------------------------------------


def test_a_member_that_leaves_is_followed_by_the_others() -> None:
    runner = ConsumerRunner()
    a, b = Client("a"), Client("b")
    settled(runner, a, b)
    result = runner.beat("a", -1)
    assert (result.error_code, result.member_epoch) == (0, -1)
    b.beat(runner)
    assert len(b.due) == 6
    runner.beat("b", -1)
    assert runner.described().state == "Empty"


def test_a_static_member_that_returns_under_another_id_gets_what_it_had_and_no_one_else_is_disturbed() -> None:
    runner = ConsumerRunner()
    a, b = Client("a", instance="i"), Client("b")
    settled(runner, a, b)
    before, epoch = set(a.owned), runner.group.epoch
    assert runner.enter("c", instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert runner.beat("a", -2, instance_id="i").member_epoch == -2
    c = Client("c", instance="i")
    c.beat(runner)
    assert c.due == before
    assert runner.group.epoch == epoch
    assert runner.beat("a", 2, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert runner.beat("a", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.beat("a", -1, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_leaves_for_a_while_has_nothing_left_to_give_up() -> None:
    runner = ConsumerRunner()
    a, b = Client("a", instance="i"), Client("b")
    a.beat(runner)
    a.follow()
    runner.advance(HEARTBEAT_MS)
    b.beat(runner)
    a.beat(runner)
    runner.beat("a", -2, instance_id="i")
    b.beat(runner)
    assert len(b.due) == 3, "it no longer reads: others need not wait for what it had to give up"


def test_a_static_member_that_does_not_return_is_removed_when_its_session_has_ended() -> None:
    runner = ConsumerRunner()
    runner.enter("a", instance_id="i")
    runner.beat("a", -2, instance_id="i")
    runner.advance(SESSION_MS)
    assert runner.described().state == "Empty"


def test_administrators_remove_members_by_their_instances_and_names() -> None:
    runner = ConsumerRunner()
    runner.enter("a", instance_id="i")
    runner.enter("b")
    runner.enter("d", instance_id="j")
    result = runner.leave(("", "i"), ("", "other"), ("b", None), ("c", None), ("b", "j"), group=GROUP)
    assert [code for *_, code in result.members] == [
        *(ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID),
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert set(runner.group.members) == {"d"}


# -- deadlines --------------------------------------------------------------------------------------------------------


def test_a_member_that_sends_no_heartbeat_is_removed_when_its_session_has_ended() -> None:
    runner = ConsumerRunner()
    runner.enter("a")
    runner.advance(SESSION_MS - 1)
    assert runner.beat("a", 2).error_code == ErrorCode.NONE
    runner.advance(SESSION_MS - 1)
    assert set(runner.group.members) == {"a"}
    runner.advance(1)
    assert not runner.group.members
    assert runner.beat("a", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_that_was_decided_before_a_late_deadline_keeps_the_member() -> None:
    runner = ConsumerRunner()
    runner.enter("a")
    runner.now_ms += SESSION_MS
    runner.beat("a", 2)
    runner.decide(ExpireConsumer(GROUP, "a"))  # it had come up already, and waited
    assert set(runner.group.members) == {"a"}


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_member_that_does_not_give_up_in_its_rebalance_timeout_is_removed(is_lost: bool) -> None:
    """Counted again by a coordinator that takes over meanwhile."""
    runner, a, b = in_a_rebalance()
    if is_lost:
        runner.advance(HEARTBEAT_MS)
        runner.restart()
    for _ in range(REVOKE_MS // HEARTBEAT_MS):
        assert set(runner.group.members) == {"a", "b"}
        a.beat(runner)
        b.beat(runner)
        runner.advance(HEARTBEAT_MS)
    assert set(runner.group.members) == {"b"}
    b.beat(runner)
    assert len(b.due) == 6


def test_a_coordinator_that_takes_over_gives_members_a_new_session() -> None:
    runner = ConsumerRunner()
    runner.enter("a")
    runner.advance(SESSION_MS - 1)
    runner.restart()
    runner.advance(SESSION_MS - 1)
    assert runner.beat("a", 2).error_code == ErrorCode.NONE
    runner.advance(SESSION_MS)
    assert not runner.group.members


def test_a_groups_own_configuration_counts_within_the_brokers_bounds() -> None:
    runner = ConsumerRunner()
    own = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "9000", "consumer.assignment.interval.ms": "20000"}
    runner.image = image_of({"orders": 6}, {(RESOURCE_GROUP, GROUP): own})
    assert runner.enter("a").heartbeat_interval_ms == 9_000
    runner.advance(14_999)
    runner.enter("b")
    assert runner.described().target_epoch == 2, "15 s are the most that the broker allows, not 20"
    runner.advance(1)
    runner.beat("b", 2)
    assert runner.described().target_epoch == 3
    runner.advance(34_999)
    assert set(runner.group.members) == {"a", "b"}
    runner.advance(1)
    assert set(runner.group.members) == {"b"}


# -- offsets ----------------------------------------------------------------------------------------------------------


def test_members_commit_in_their_epoch_or_in_one_in_which_they_had_the_partition_already() -> None:
    runner = ConsumerRunner(assignment_interval_ms=0)
    a, b = Client("a"), Client("b")
    settled(runner, a)
    assert a.commit(runner, {(ORDERS, 0)}) == (0,)
    settled(runner, a, b)
    assert a.epoch == b.epoch == 3
    assert a.commit(runner, {(ORDERS, 0)}, epoch=2) == (0,)
    assert a.commit(runner, {(ORDERS, 5)}, epoch=2) == (ErrorCode.STALE_MEMBER_EPOCH,), "it has lost it"
    assert b.commit(runner, {(ORDERS, 5)}, epoch=2) == (ErrorCode.STALE_MEMBER_EPOCH,), "it did not have it then"
    assert b.commit(runner, {(ORDERS, 5)}, epoch=4) == (ErrorCode.STALE_MEMBER_EPOCH,)
    assert Client("c", epoch=3).commit(runner, {(ORDERS, 5)}) == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert runner.commit({("orders", 0): 5}) == (ErrorCode.UNKNOWN_MEMBER_ID,), "the group has members"
    for client in (a, b):
        runner.beat(client.member_id, -1)
    assert runner.commit({("orders", 0): 5}) == (0,)


def test_producers_commit_for_members_in_their_epoch_and_without_a_name_for_the_group() -> None:
    """KIP-447: with transactions the consumer's group metadata has its member epoch as the generation."""
    runner = ConsumerRunner(assignment_interval_ms=0)
    a, b = Client("a"), Client("b")
    settled(runner, a)
    settled(runner, a, b)

    def code(member_id: str, epoch: int, index: int = 0) -> int:
        offsets = (OffsetToCommit("orders", index, 1, 0, "", ORDERS),)
        asked = CommitInTransaction(runner.token(), GROUP, epoch, member_id, None, offsets, Writer(7, 0, 0))
        return runner.ask(asked).error_codes[0]

    assert code("a", 3) == code("a", 2) == code("", -1) == ErrorCode.NONE
    assert code("a", 2, 5) == code("a", 4) == ErrorCode.ILLEGAL_GENERATION, "producers know no other"
    assert code("c", 3) == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_fetches_as_a_member_must_be_one() -> None:
    runner = ConsumerRunner()
    client = Client("a")
    settled(runner, client)

    def fetched(member_id: str | None, epoch: int) -> int:
        return runner.ask(FetchOffsets(runner.token(), GROUP, None, True, member_id, epoch)).error_code

    assert fetched("a", client.epoch) == fetched(None, -1) == ErrorCode.NONE
    assert fetched("a", client.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetched("b", client.epoch) == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_that_members_read_stay_and_an_empty_group_is_deleted() -> None:
    runner = ConsumerRunner({"orders": 6, "payments": 1})
    client = Client("a")
    settled(runner, client)
    client.commit(runner, {(ORDERS, 0)})
    asked = DeleteOffsets(runner.token(), GROUP, (("orders", 0), ("payments", 0)))
    assert runner.ask(asked).error_codes == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    assert runner.ask(DeleteGroup(runner.token(), GROUP)).error_code == ErrorCode.NON_EMPTY_GROUP
    runner.now_ms += runner.settings.offsets_retention_ms
    runner.decide(ExpireOffsets())
    assert runner.fetch(("orders", 0)) == {("orders", 0): 1}, "members read it"
    runner.beat("a", -1)
    assert runner.ask(DeleteGroup(runner.token(), GROUP)).error_code == ErrorCode.NONE
    assert list(runner.machine.snapshot()) == []
    runner.restart()
    assert runner.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert runner.ask(DescribeConsumerGroup(runner.token(), "")).error_code == ErrorCode.INVALID_GROUP_ID


def test_an_empty_group_without_offsets_is_removed_with_all_its_records() -> None:
    runner = ConsumerRunner()
    settled(runner, Client("a"), Client("b"))
    for name in ("a", "b"):
        runner.beat(name, -1)
    runner.decide(ExpireOffsets())
    assert list(runner.machine.snapshot()) == []


# -- regular expressions ----------------------------------------------------------------------------------------------


def resolve(runner: ConsumerRunner, **topics: frozenset[str]) -> None:
    runner.ask(ResolveRegexes(runner.token(), GROUP, topics, runner.image))


def test_an_expression_counts_when_it_was_matched_and_topics_that_come_later_are_looked_for() -> None:
    runner = ConsumerRunner({"orders": 2, "payments": 2}, assignment_interval_ms=0)
    result = runner.enter("a", topics=None, regex="o")
    assert (result.to_resolve, result.assignment) == (("o",), {})
    resolve(runner, o=frozenset({"orders"}))
    result = runner.beat("a", result.member_epoch)
    assert (result.assignment, result.to_resolve) == (all_of(0, 1), ())
    runner.image = image_of({"orders": 2, "payments": 2, "others": 1})
    assert runner.beat("a", result.member_epoch).to_resolve == (), "not at once"
    runner.advance(10_000)
    assert runner.beat("a", result.member_epoch).to_resolve == ("o",)
    count = len(runner.log)
    resolve(runner, o=frozenset({"orders"}))
    assert len(runner.log) == count, "nothing else matches"
    assert runner.beat("a", result.member_epoch).to_resolve == ()
    resolve(runner, o=frozenset({"orders", "others"}))
    assert topic_id("others") in (runner.beat("a", result.member_epoch).assignment or {})


def test_an_expression_without_a_member_is_forgotten() -> None:
    runner = ConsumerRunner()
    epoch = runner.enter("a", topics=None, regex="o").member_epoch
    resolve(runner, o=frozenset({"orders"}))
    assert set(runner.group.regexes) == {"o"}
    runner.beat("a", epoch, regex="", topics=("orders",))
    assert set(runner.group.regexes) == set()
    resolve(runner, o=frozenset({"orders"}))
    assert set(runner.group.regexes) == set(), "an answer that comes late"


# -- other kinds of groups --------------------------------------------------------------------------------------------


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets() -> None:
    runner = ConsumerRunner()
    runner.stable("m")
    runner.commit({("orders", 1): 7}, member_id="m", generation_id=1)
    runner.leave(("m", None))
    runner.advance(DELAY_MS)
    assert runner.enter("a").error_code == ErrorCode.NONE
    assert [(group.group_id, group.group_type, group.state) for group in runner.ask(ListGroups(runner.token())).groups] == [
        (GROUP, "consumer", "Stable")
    ]
    assert runner.describe().is_other
    runner.restart()
    assert runner.described().state == "Stable"
    assert runner.fetch(("orders", 1)) == {("orders", 1): 7}


def test_an_empty_consumer_group_becomes_a_classic_one() -> None:
    runner = ConsumerRunner()
    settled(runner, Client("a"))
    runner.beat("a", -1)
    assert runner.stable("m") == 1
    runner.restart()
    assert runner.state() == "Stable"
    assert runner.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_question_about_a_group_that_is_not_here_writes_nothing() -> None:
    """It is asked about each classic group first; a heartbeat that is refused with the same code ends a member, and is confirmed."""
    runner = ConsumerRunner()
    asked = runner.machine.decide(DescribeConsumerGroup(runner.token(), "another"), runner.now_ms)
    assert (asked.records, asked.confirmation) == ((), None)


def test_a_member_that_subscribes_to_nothing_makes_no_epoch() -> None:
    """As in Kafka: no member gets other partitions for it. Its group is kept over a restart all the same."""
    runner = ConsumerRunner()
    assert runner.beat("a", 0, topics=(), owned={}, rebalance_timeout_ms=1000).member_epoch == FIRST_EPOCH
    runner.restart()
    assert runner.beat("a", FIRST_EPOCH).error_code == 0
    assert runner.enter("b").member_epoch == FIRST_EPOCH + 1, "that is a subscription"
    assert runner.beat("c", 0, topics=(), owned={}, rebalance_timeout_ms=1000).member_epoch == FIRST_EPOCH + 1
