"""Static membership (KIP-345): an instance comes back under a new member id and finds its place."""

from __future__ import annotations

from tests.groups.coordinator_runner import DELAY_MS, REBALANCE_MS, SESSION_MS, Runner, subscription

from ottla.errors import ErrorCode

INSTANCES = {"a": "i-a", "b": "i-b"}


def stable() -> Runner:
    runner = Runner()
    runner.stable("a", "b", instances=INSTANCES)
    return runner


def test_a_static_member_needs_no_id_from_us_first() -> None:
    runner = Runner()
    assert runner.join(fresh="a", instance="i-a", known_id=True) in runner.parked


def test_a_follower_that_restarts_finds_its_assignment_without_a_rebalance() -> None:
    runner = stable()
    result = runner.joined(runner.join(fresh="b2", instance="i-b"))
    assert (result.error_code, result.member_id, result.generation_id) == (ErrorCode.NONE, "b2", 1)
    assert (result.leader, result.members, result.skip_assignment) == ("a", (), False)
    assert runner.state() == "Stable"
    assert runner.synced(runner.sync("b2", 1, instance="i-b")).assignment == b"b"


def test_the_old_member_id_is_fenced_everywhere() -> None:
    runner = stable()
    runner.join(fresh="b2", instance="i-b")
    assert runner.heartbeat("b", 1, instance="i-b") == ErrorCode.FENCED_INSTANCE_ID
    assert runner.synced(runner.sync("b", 1, instance="i-b")).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert runner.joined(runner.join("b", instance="i-b")).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert runner.commit({("orders", 0): 1}, member_id="b", generation_id=1, instance="i-b") == (ErrorCode.FENCED_INSTANCE_ID,)
    assert runner.leave(("b", "i-b")).members == (("b", "i-b", ErrorCode.FENCED_INSTANCE_ID),)
    assert runner.heartbeat("b", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.heartbeat("b2", 1, instance="i-b") == ErrorCode.NONE


def test_a_refusal_after_which_a_member_ends_is_confirmed() -> None:
    """A coordinator that has been replaced knows the former member of an instance, of which a client of the present has the place."""
    runner = stable()
    runner.join(fresh="b2", instance="i-b")
    before = len(runner.answers)
    runner.heartbeat("b", 1, instance="i-b")
    runner.sync("b", 1, instance="i-b")
    runner.join("b", instance="i-b")
    runner.commit({("orders", 0): 1}, member_id="b", generation_id=1, instance="i-b")
    runner.join(fresh="c", known_id=True, protocols=(("other", b""),))
    fenced = set(range(before + 1, len(runner.answers) + 1))
    assert len(fenced) == 5
    assert runner.confirmed == fenced, "each of these, and nothing before"
    runner.heartbeat("b", 1)  # an unknown member joins again
    runner.heartbeat("b2", 7, instance="i-b")
    runner.heartbeat("b2", 1, instance="i-b")
    assert runner.confirmed == fenced


def test_an_unknown_instance_id_is_an_unknown_member() -> None:
    runner = stable()
    assert runner.heartbeat("a", 1, instance="i-c") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_restarts_is_asked_to_skip_the_assignment() -> None:
    runner = stable()
    result = runner.joined(runner.join(fresh="a2", instance="i-a"))
    assert (result.leader, result.skip_assignment) == ("a2", True)
    assert {member.member_id for member in result.members} == {"a2", "b"}
    assert runner.synced(runner.sync("a2", 1, instance="i-a")).assignment == b"a"


def test_a_leader_of_before_v9_is_shown_its_old_id_as_the_leader() -> None:
    runner = stable()
    result = runner.joined(runner.join(fresh="a2", instance="i-a", skip=False))
    assert (result.member_id, result.leader, result.members, result.skip_assignment) == ("a2", "a", (), False)


def test_the_new_member_id_survives_a_restart_of_the_coordinator() -> None:
    runner = stable()
    runner.join(fresh="b2", instance="i-b")
    runner.restart()
    assert runner.heartbeat("b2", 1, instance="i-b") == ErrorCode.NONE
    assert runner.heartbeat("b", 1, instance="i-b") == ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_that_comes_back_with_other_topics_makes_the_group_rebalance() -> None:
    runner = stable()
    token = runner.join(fresh="b2", instance="i-b", protocols=(("range", subscription("payments")),))
    assert token in runner.parked
    assert runner.state() == "PreparingRebalance"


def test_an_instance_that_comes_back_with_the_same_topics_in_other_bytes_does_not() -> None:
    runner = stable()
    version_1 = b"\0\1" + subscription("orders")[2:] + b"\0\0\0\0"
    assert runner.joined(runner.join(fresh="b2", instance="i-b", protocols=(("range", version_1),))).generation_id == 1


def test_an_instance_that_comes_back_with_another_protocol_makes_the_group_rebalance() -> None:
    runner = Runner()
    metadata = subscription("orders")
    both = (("range", metadata), ("sticky", metadata))
    runner.stable("a", instances=INSTANCES, protocols=both)
    token = runner.join(fresh="a2", instance="i-a", protocols=both[::-1])
    assert runner.joined(token).protocol_name == "sticky"
    assert runner.joined(token).generation_id == 2


def test_an_instance_that_waits_is_fenced_when_it_joins_again_under_a_new_id() -> None:
    runner = stable()
    first = runner.join("a", instance="i-a")
    second = runner.join(fresh="a2", instance="i-a")
    assert runner.joined(first).error_code == ErrorCode.FENCED_INSTANCE_ID
    runner.join("b", instance="i-b")
    assert runner.joined(second).error_code == ErrorCode.NONE


def test_an_instance_that_comes_back_while_the_leader_assigns_restarts_the_rebalance() -> None:
    runner = Runner()
    for member_id, instance in INSTANCES.items():
        runner.join(fresh=member_id, instance=instance)
    runner.advance(2 * DELAY_MS)
    waiting = runner.sync("b", 1, instance="i-b")
    token = runner.join(fresh="b2", instance="i-b")
    assert runner.synced(waiting).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert token in runner.parked
    assert runner.state() == "PreparingRebalance"


def test_a_static_member_keeps_its_place_when_it_misses_a_rebalance() -> None:
    runner = Runner()
    runner.stable("a", "b", instances={"b": "i-b"}, session_ms=3 * REBALANCE_MS)
    leader = runner.join("a", session_ms=3 * REBALANCE_MS)
    runner.advance(REBALANCE_MS)
    assert {member.member_id for member in runner.joined(leader).members} == {"a", "b"}


def test_a_rebalance_that_only_absent_static_members_could_join_waits_for_their_sessions() -> None:
    runner = Runner()
    runner.stable("a", "b", instances=INSTANCES, session_ms=3 * REBALANCE_MS)
    runner.leave(("a", "i-a"))
    runner.advance(2 * REBALANCE_MS)
    assert runner.state() == "PreparingRebalance"
    runner.advance(REBALANCE_MS)
    assert runner.state() == "Empty"


def test_absent_static_members_do_not_hold_up_one_that_came_back_for_longer_than_a_rebalance() -> None:
    runner = Runner()
    runner.stable("a", "b", "c", instances=INSTANCES, session_ms=4 * REBALANCE_MS)
    runner.leave(("c", None))
    runner.advance(REBALANCE_MS)
    assert runner.state() == "PreparingRebalance"
    back = runner.join("b", instance="i-b", session_ms=4 * REBALANCE_MS)
    runner.advance(REBALANCE_MS - 1)
    assert back in runner.parked
    runner.advance(1)
    assert (runner.joined(back).leader, len(runner.joined(back).members)) == ("b", 2)


def test_an_instance_that_waits_under_its_second_id_needs_no_heartbeats() -> None:
    runner = Runner()
    runner.stable("a", session_ms=REBALANCE_MS)
    runner.join(fresh="b", instance="i-b")
    waiting = runner.join(fresh="b2", instance="i-b")
    runner.advance(REBALANCE_MS - 1)
    assert waiting in runner.parked


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    runner = stable()
    assert runner.leave(("", "i-b"), ("", "i-c"), ("", None)).members == (
        ("", "i-b", ErrorCode.NONE),
        ("", "i-c", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
    )
    assert [member.member_id for member in runner.describe().members] == ["a"]
    assert runner.state() == "PreparingRebalance"


def test_a_static_member_that_stays_away_is_removed_when_its_session_ends() -> None:
    runner = stable()
    runner.advance(SESSION_MS)
    assert runner.describe().members == ()
    assert runner.state() == "Empty"
