"""JoinGroup: admission, member ids, the vote, rebalances that follow or do not."""

from __future__ import annotations

import pytest
from tests.groups.coordinator_runner import DELAY_MS, METADATA, REBALANCE_MS, SESSION_MS, Runner, subscription

from ottla.errors import ErrorCode
from ottla.groups.classic import joins
from ottla.groups.commands import DeleteGroup, JoinedMember
from ottla.groups.coordinator import GroupSettings

OTHER = subscription("payments")


def test_first_join_without_an_id_gets_one_and_must_come_back_with_it() -> None:
    runner = Runner()
    told = runner.joined(runner.join(fresh="a", known_id=True))
    assert (told.error_code, told.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "a")
    assert runner.describe().members == ()
    token = runner.join("a", known_id=True)
    assert token in runner.parked
    runner.advance(DELAY_MS)
    assert runner.joined(token).error_code == ErrorCode.NONE


def test_an_id_that_was_given_out_and_never_used_is_forgotten_after_the_session_timeout() -> None:
    runner = Runner()
    runner.join(fresh="a", known_id=True)
    runner.advance(SESSION_MS)
    assert runner.joined(runner.join("a")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_of_very_many_ids_that_were_given_out_the_oldest_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that never comes back with one must not make each decision slower. Who comes late asks for another."""
    monkeypatch.setattr(joins, "PENDING_MAX", 2)
    runner = Runner()
    for fresh in "abc":
        assert runner.joined(runner.join(fresh=fresh, known_id=True)).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert runner.joined(runner.join("a")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert {runner.join("b"), runner.join("c")} <= runner.parked


def test_a_deleted_group_forgets_the_ids_that_it_gave_out() -> None:
    runner = Runner()
    runner.join(fresh="a", known_id=True)
    assert runner.ask(DeleteGroup(runner.token(), "g")).error_code == ErrorCode.NONE
    assert "session" not in {kind for kind, *_ in runner.timers}
    assert runner.joined(runner.join("a")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_ids_that_were_given_out_and_continues_when_they_expire() -> None:
    runner = Runner()
    runner.stable("a")
    runner.join(fresh="b", known_id=True)
    leader = runner.join("a")
    assert leader in runner.parked
    runner.advance(SESSION_MS)
    assert runner.joined(leader).generation_id == 2


def test_a_pending_member_that_leaves_lets_the_rebalance_go_on() -> None:
    runner = Runner()
    runner.stable("a")
    runner.join(fresh="b", known_id=True)
    leader = runner.join("a")
    assert runner.leave(("b", None)).members == (("b", None, ErrorCode.NONE),)
    assert runner.joined(leader).error_code == ErrorCode.NONE


def test_a_pending_member_that_expires_does_not_disturb_a_stable_group() -> None:
    runner = Runner()
    generation = runner.stable("a")
    runner.join(fresh="b", known_id=True, session_ms=6_000)
    runner.advance(6_000)
    assert runner.heartbeat("a", generation) == ErrorCode.NONE
    assert runner.state() == "Stable"


def test_join_of_an_unknown_member_is_refused_whether_or_not_the_group_exists() -> None:
    runner = Runner()
    assert runner.joined(runner.join("nobody")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    runner.stable("a")
    assert runner.joined(runner.join("nobody")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "g" * 32_768}, ErrorCode.INVALID_GROUP_ID),
        ({"fresh": "m" * 32_768}, ErrorCode.INVALID_REQUEST),
        ({"instance": "é" * 16_384}, ErrorCode.INVALID_REQUEST),
        ({"protocol_type": "t" * 32_768}, ErrorCode.INVALID_REQUEST),
        ({"protocols": (("p" * 32_768, b""),)}, ErrorCode.INVALID_REQUEST),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_join_that_cannot_be_right_is_refused_and_leaves_no_group(wrong: dict, error: ErrorCode) -> None:
    runner = Runner()
    assert runner.joined(runner.join(**wrong)).error_code == error
    assert runner.state(wrong.get("group", "g")) == "Dead"


def test_the_longest_names_that_a_record_can_hold_are_accepted() -> None:
    runner = Runner()
    runner.stable("m" * 32_767, instances={"m" * 32_767: "é" * 16_383}, group="g", protocols=(("p" * 32_767, b""),))
    runner.restart()
    assert runner.describe().members[0].group_instance_id == "é" * 16_383


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_session_timeouts_at_the_bounds_are_accepted(session_ms: int) -> None:
    runner = Runner()
    assert runner.join(session_ms=session_ms) in runner.parked


def test_members_need_a_protocol_that_all_support() -> None:
    runner = Runner()
    runner.stable("a", protocols=(("range", METADATA), ("sticky", METADATA)))
    assert runner.joined(runner.join(protocols=(("roundrobin", METADATA),))).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert runner.joined(runner.join(protocol_type="connect")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert runner.state() == "Stable"


def test_most_votes_choose_the_protocol_among_those_that_all_support() -> None:
    runner = Runner()
    a = runner.join(fresh="a", protocols=(("range", b"ar"), ("sticky", b"as"), ("mine", b"am")))
    runner.join(fresh="b", protocols=(("sticky", b"bs"), ("range", b"br")))
    runner.join(fresh="c", protocols=(("sticky", b"cs"), ("range", b"cr")))
    runner.advance(2 * DELAY_MS)
    result = runner.joined(a)
    assert result.protocol_name == "sticky"
    assert result.members == (JoinedMember("a", None, b"as"), JoinedMember("b", None, b"bs"), JoinedMember("c", None, b"cs"))


def test_a_protocol_that_one_member_lacks_gets_no_votes() -> None:
    runner = Runner()
    a = runner.join(fresh="a", protocols=(("mine", b""), ("range", b"")))
    runner.join(fresh="b", protocols=(("mine", b""), ("range", b"")))
    runner.join(fresh="c", protocols=(("range", b""),))
    runner.advance(2 * DELAY_MS)
    assert runner.joined(a).protocol_name == "range"


def test_the_first_rebalance_of_an_empty_group_waits_for_members_that_start_at_the_same_time() -> None:
    runner = Runner()
    first = runner.join(fresh="a")
    runner.advance(DELAY_MS - 1)
    assert first in runner.parked
    runner.advance(1)
    assert runner.joined(first).generation_id == 1


def test_the_initial_delay_is_prolonged_while_members_arrive_but_not_beyond_the_rebalance_timeout() -> None:
    runner = Runner()
    first = runner.join(fresh="a", rebalance_ms=7_000)
    for _ in range(2):  # 3 s and 3 s: 1 s is left
        runner.advance(DELAY_MS - 1)
        runner.join(rebalance_ms=7_000)
        runner.advance(1)
        assert first in runner.parked
    runner.join(rebalance_ms=7_000)
    runner.advance(999)
    assert first in runner.parked
    runner.advance(1)
    assert len(runner.joined(first).members) == 4


def test_without_an_initial_delay_the_first_member_is_alone_at_once() -> None:
    runner = Runner(GroupSettings(initial_rebalance_delay_ms=0))
    first = runner.join(fresh="a")
    runner.advance(0)
    assert runner.joined(first).generation_id == 1


def test_only_the_leader_receives_the_other_members() -> None:
    runner = Runner()
    tokens = [runner.join(fresh=member_id) for member_id in "abc"]
    runner.advance(2 * DELAY_MS)
    leader, *followers = [runner.joined(token) for token in tokens]
    assert [member.member_id for member in leader.members] == ["a", "b", "c"]
    assert all(result.members == () and result.leader == "a" for result in followers)
    assert not leader.skip_assignment


def test_a_new_member_makes_a_stable_group_rebalance() -> None:
    runner = Runner()
    generation = runner.stable("a")
    token = runner.join(fresh="b")
    assert runner.state() == "PreparingRebalance"
    assert runner.heartbeat("a", generation) == ErrorCode.REBALANCE_IN_PROGRESS
    leader = runner.join("a")
    assert runner.joined(leader).generation_id == runner.joined(token).generation_id == generation + 1


def test_members_that_do_not_rejoin_within_the_rebalance_timeout_are_removed() -> None:
    runner = Runner()
    runner.stable("a", "b", session_ms=2 * REBALANCE_MS)
    leader = runner.join("a", session_ms=2 * REBALANCE_MS)
    runner.advance(REBALANCE_MS - 1)
    assert leader in runner.parked
    runner.advance(1)
    assert [member.member_id for member in runner.joined(leader).members] == ["a"]
    assert runner.heartbeat("b", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_rejoin_is_followed_by_one_that_has() -> None:
    runner = Runner()
    runner.stable("a", "b", session_ms=2 * REBALANCE_MS)
    token = runner.join("b", session_ms=2 * REBALANCE_MS, protocols=(("range", OTHER),))
    runner.advance(REBALANCE_MS)
    assert runner.joined(token).leader == "b"
    assert runner.joined(token).members == (JoinedMember("b", None, OTHER),)


def test_the_leader_forces_a_rebalance_by_joining_again() -> None:
    runner = Runner()
    runner.stable("a", "b")
    assert runner.join("a") in runner.parked
    assert runner.state() == "PreparingRebalance"


def test_a_follower_that_joins_again_with_the_same_metadata_gets_the_current_generation() -> None:
    runner = Runner()
    generation = runner.stable("a", "b")
    result = runner.joined(runner.join("b"))
    assert (result.error_code, result.generation_id, result.leader, result.members) == (ErrorCode.NONE, generation, "a", ())
    assert runner.state() == "Stable"


def test_a_follower_with_new_metadata_makes_the_group_rebalance() -> None:
    runner = Runner()
    runner.stable("a", "b")
    assert runner.join("b", protocols=(("range", OTHER),)) in runner.parked
    assert runner.state() == "PreparingRebalance"


def test_while_the_leader_assigns_a_repeated_join_is_answered_with_the_generation() -> None:
    runner = Runner()
    for member_id in "ab":
        runner.join(fresh=member_id)
    runner.advance(2 * DELAY_MS)
    leader = runner.joined(runner.join("a"))
    assert [member.member_id for member in leader.members] == ["a", "b"]
    assert runner.joined(runner.join("b")).members == ()
    assert runner.state() == "CompletingRebalance"


def test_while_the_leader_assigns_changed_metadata_restarts_the_rebalance() -> None:
    runner = Runner()
    for member_id in "ab":
        runner.join(fresh=member_id)
    runner.advance(2 * DELAY_MS)
    waiting = runner.sync("b", 1)
    changed = runner.join("a", protocols=(("range", OTHER),))
    assert runner.synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert changed in runner.parked


def test_a_member_that_waits_in_sync_and_joins_with_new_metadata_gives_up_the_sync() -> None:
    runner = Runner()
    for member_id in "ab":
        runner.join(fresh=member_id)
    runner.advance(2 * DELAY_MS)
    waiting = runner.sync("b", 1)
    changed = runner.join("b", protocols=(("range", OTHER),))
    assert runner.synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert changed in runner.parked


def test_a_second_join_of_a_waiting_member_takes_the_place_of_the_first() -> None:
    runner = Runner()
    runner.stable("a", "b")
    first = runner.join("a")
    second = runner.join("a")
    assert runner.joined(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    runner.join("b")
    assert runner.joined(second).generation_id == 2


def test_a_new_member_whose_client_gave_up_is_removed_after_five_minutes() -> None:
    runner = Runner()
    runner.stable("a", session_ms=1_000_000, rebalance_ms=1_000_000)
    given_up = runner.join(fresh="b", rebalance_ms=1_000_000)
    runner.advance(299_999)
    assert given_up in runner.parked
    runner.advance(1)
    assert (runner.joined(given_up).error_code, runner.joined(given_up).member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_a_full_group_accepts_no_new_member() -> None:
    runner = Runner(GroupSettings(group_max_size=2))
    runner.stable("a", "b")
    refused = runner.joined(runner.join(fresh="c"))
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert runner.state() == "Stable"


def test_a_full_group_accepts_no_new_member_while_a_rebalance_gathers_its_members() -> None:
    runner = Runner(GroupSettings(group_max_size=2))
    first, second = runner.join(fresh="a"), runner.join(fresh="b")
    assert runner.joined(runner.join(fresh="c")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    runner.advance(2 * DELAY_MS)
    assert runner.joined(first).error_code == runner.joined(second).error_code == ErrorCode.NONE


def test_when_the_limit_was_lowered_the_first_to_come_back_after_a_restart_stay() -> None:
    runner = Runner()
    runner.stable("a", "b", "c")
    runner.settings = GroupSettings(group_max_size=2)
    runner.restart()
    assert runner.state() == "PreparingRebalance"
    stayed = [runner.join("c"), runner.join("b")]
    assert runner.joined(runner.join("a")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {runner.joined(token).member_id for token in stayed} == {"b", "c"}
