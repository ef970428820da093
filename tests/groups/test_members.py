"""SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups, DeleteGroups, and the deadlines of members."""

from __future__ import annotations

from tests.groups.coordinator_runner import DELAY_MS, METADATA, REBALANCE_MS, SESSION_MS, Runner

from ottla.errors import ErrorCode
from ottla.groups.commands import DeleteGroup, EndInitialDelay, ExpireMember, ExpireRebalance, ExpireSync, ListedGroup, ListGroups


def completing(*member_ids: str, rebalance_ms: int = REBALANCE_MS, session_ms: int = SESSION_MS) -> Runner:
    """These members have joined generation 1; the first leads, and has not assigned yet."""
    runner = Runner()
    for member_id in member_ids:
        runner.join(fresh=member_id, rebalance_ms=rebalance_ms, session_ms=session_ms)
    runner.advance(2 * DELAY_MS)
    assert runner.state() == "CompletingRebalance"
    return runner


def test_followers_wait_for_the_leader_and_each_gets_its_own_assignment() -> None:
    runner = completing("a", "b", "c")
    waiting = runner.sync("b", 1)
    assert waiting in runner.parked
    leader = runner.sync("a", 1, {"a": b"for a", "b": b"for b"})
    assert runner.synced(leader).assignment == b"for a"
    assert runner.synced(waiting).assignment == b"for b"
    late = runner.synced(runner.sync("c", 1))
    assert (late.error_code, late.assignment, late.protocol_type, late.protocol_name) == (ErrorCode.NONE, b"", "consumer", "range")


def test_a_member_that_the_leader_leaves_out_keeps_nothing_of_the_generation_before() -> None:
    runner = Runner()
    runner.stable("a", "b")
    runner.join("a")
    runner.join("b")
    runner.sync("a", 2, {"a": b"everything"})
    assert runner.synced(runner.sync("b", 2)).assignment == b""


def test_a_followers_assignments_are_not_taken() -> None:
    runner = completing("a", "b")
    assert runner.sync("b", 1, {"b": b"everything"}) in runner.parked
    assert runner.state() == "CompletingRebalance"


def test_sync_is_refused_to_strangers_old_generations_and_other_protocols() -> None:
    runner = completing("a")
    assert runner.synced(runner.sync("a", 1, group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert runner.synced(runner.sync("a", 1, group="none")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.synced(runner.sync("x", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.synced(runner.sync("a", 0)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert runner.synced(runner.sync("a", 1, protocol_type="connect")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert runner.synced(runner.sync("a", 1, protocol_name="sticky")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert runner.synced(runner.sync("a", 1, protocol_type="consumer", protocol_name="range")).error_code == ErrorCode.NONE


def test_sync_while_a_rebalance_is_prepared_sends_the_member_back_to_join() -> None:
    runner = Runner()
    generation = runner.stable("a")
    runner.join()
    assert runner.synced(runner.sync("a", generation)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_sync_of_a_waiting_member_takes_the_place_of_the_first() -> None:
    runner = completing("a", "b")
    first, second = runner.sync("b", 1), runner.sync("b", 1)
    assert runner.synced(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    runner.sync("a", 1, {"b": b"for b"})
    assert runner.synced(second).assignment == b"for b"


def test_members_that_never_ask_for_their_assignment_are_removed_and_the_others_rejoin() -> None:
    runner = completing("a", "b", rebalance_ms=20_000, session_ms=100_000)
    waiting = runner.sync("b", 1)
    runner.advance(19_999)
    assert waiting in runner.parked
    runner.advance(1)
    assert runner.synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert [member.member_id for member in runner.describe().members] == ["b"]
    assert runner.heartbeat("a", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_stable_group_loses_members_that_never_asked_for_their_assignment() -> None:
    runner = completing("a", "b", rebalance_ms=20_000, session_ms=100_000)
    runner.sync("a", 1)
    runner.advance(20_000)
    assert runner.state() == "PreparingRebalance"
    assert [member.member_id for member in runner.describe().members] == ["a"]


def test_when_all_have_asked_the_deadline_for_asking_means_nothing() -> None:
    runner = completing("a", "b", rebalance_ms=20_000, session_ms=100_000)
    runner.sync("a", 1)
    runner.sync("b", 1)
    runner.advance(30_000)
    assert runner.state() == "Stable"


def test_a_member_lives_as_long_as_it_sends_heartbeats() -> None:
    runner = Runner()
    generation = runner.stable("a")
    for _ in range(5):
        runner.advance(SESSION_MS - 1)
        assert runner.heartbeat("a", generation) == ErrorCode.NONE
    runner.advance(SESSION_MS - 1)
    assert runner.state() == "Stable"
    runner.advance(1)
    assert runner.state() == "Empty"
    assert runner.heartbeat("a", generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_dies_makes_the_others_rebalance() -> None:
    runner = Runner()
    generation = runner.stable("a", "b")
    runner.advance(SESSION_MS - 1)
    runner.heartbeat("a", generation)
    runner.advance(1)
    assert runner.heartbeat("a", generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert [member.member_id for member in runner.joined(runner.join("a")).members] == ["a"]


def test_a_member_that_waits_in_join_or_sync_needs_no_heartbeats() -> None:
    runner = Runner()
    generation = runner.stable("a", "b")
    waiting = runner.join("a")
    for _ in range(4):
        runner.advance(SESSION_MS - 1)
        runner.heartbeat("b", generation)
    assert waiting in runner.parked
    runner.join("b")
    assert runner.joined(waiting).generation_id == 2
    waiting = runner.sync("b", 2)
    for _ in range(4):
        runner.advance(SESSION_MS - 1)
        assert runner.heartbeat("a", 2) == ErrorCode.NONE
    assert waiting in runner.parked
    runner.sync("a", 2, {"b": b"for b"})
    assert runner.synced(waiting).assignment == b"for b"
    runner.advance(SESSION_MS - 1)
    assert len(runner.describe().members) == 2
    runner.advance(1)
    assert runner.describe().members == ()


def test_a_session_is_renewed_when_the_join_is_answered() -> None:
    runner = completing("a")
    runner.advance(SESSION_MS - DELAY_MS - 1)
    assert len(runner.describe().members) == 1
    runner.advance(1)
    assert runner.describe().members == ()


def test_heartbeats_are_refused_to_strangers_and_old_generations() -> None:
    runner = Runner()
    runner.stable("a")
    assert runner.heartbeat("a", 1, group="") == ErrorCode.INVALID_GROUP_ID
    assert runner.heartbeat("a", 1, group="none") == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.heartbeat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.heartbeat("a", 0) == ErrorCode.ILLEGAL_GENERATION
    assert runner.heartbeat("a", 2) == ErrorCode.ILLEGAL_GENERATION


def test_heartbeats_are_accepted_while_the_leader_assigns() -> None:
    assert completing("a").heartbeat("a", 1) == ErrorCode.NONE


def test_the_last_member_to_leave_empties_the_group() -> None:
    runner = Runner()
    runner.stable("a", "b")
    assert runner.leave(("a", None), ("b", None), ("x", None)).members == (
        ("a", None, ErrorCode.NONE),
        ("b", None, ErrorCode.NONE),
        ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
    )
    assert runner.state() == "Empty"
    runner.restart()
    assert runner.state() == "Empty"


def test_leaving_ends_the_wait_for_the_member_that_leaves() -> None:
    runner = Runner()
    runner.stable("a", "b")
    waiting = runner.join("a")
    runner.leave(("a", None))
    assert runner.joined(waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.joined(runner.join("b")).generation_id == 2


def test_leaving_while_the_leader_assigns_sends_all_back_to_join() -> None:
    runner = completing("a", "b", "c")
    leaving, staying = runner.sync("b", 1), runner.sync("c", 1)
    runner.leave(("b", None))
    assert runner.synced(leaving).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.synced(staying).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert runner.synced(runner.sync("a", 1, {"a": b"", "b": b""})).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_leaving_a_group_that_is_not_known() -> None:
    runner = Runner()
    assert runner.leave(("a", None), group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert runner.leave(("a", None)).members == (("a", None, ErrorCode.UNKNOWN_MEMBER_ID),)


def test_a_group_is_described_completely_only_while_it_is_stable() -> None:
    runner = completing("a")
    described = runner.describe()
    assert (described.state, described.protocol_type, described.protocol_name) == ("CompletingRebalance", "consumer", "")
    assert (described.members[0].metadata, described.members[0].assignment) == (b"", b"")
    runner.sync("a", 1, {"a": b"all"})
    [member] = runner.describe().members
    assert runner.describe().protocol_name == "range"
    assert (member.client_id, member.client_host, member.metadata, member.assignment) == ("client", "/127.0.0.1", METADATA, b"all")


def test_unknown_groups_are_dead_and_known_ones_are_listed() -> None:
    runner = Runner()
    assert runner.state() == "Dead"
    runner.stable("a")
    runner.commit({("orders", 0): 1}, group="simple")
    assert runner.ask(ListGroups(runner.token())).groups == (ListedGroup("g", "consumer", "Stable"), ListedGroup("simple", "", "Empty"))


def test_a_deadline_of_another_generation_means_nothing() -> None:
    runner = completing("a", "b")
    before = runner.describe()
    for generation_id in (0, 2):
        runner.decide(ExpireSync("g", generation_id))
        runner.decide(ExpireRebalance("g", generation_id))
        runner.decide(EndInitialDelay("g", generation_id, 3_000, 0))
    runner.decide(ExpireRebalance("g", 1))
    runner.decide(EndInitialDelay("g", 1, 3_000, 0))
    assert runner.describe() == before
    for group_id in ("g", "none"):
        runner.decide(ExpireMember(group_id, "x"))
        runner.decide(ExpireSync(group_id, 0))
        runner.decide(ExpireRebalance(group_id, 0))
        runner.decide(EndInitialDelay(group_id, 0, 3_000, 0))
    assert runner.describe() == before


def test_only_empty_groups_can_be_deleted_and_their_offsets_go_with_them() -> None:
    runner = Runner()
    generation = runner.stable("a")
    runner.commit({("orders", 0): 1}, member_id="a", generation_id=generation)
    assert runner.ask(DeleteGroup(runner.token(), "none")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert runner.ask(DeleteGroup(runner.token(), "g")).error_code == ErrorCode.NON_EMPTY_GROUP
    runner.leave(("a", None))
    assert runner.ask(DeleteGroup(runner.token(), "g")).error_code == ErrorCode.NONE
    for _ in range(2):
        assert runner.state() == "Dead"
        assert runner.fetch(("orders", 0)) == {("orders", 0): -1}
        runner.restart()


def test_every_rebalance_has_a_generation_of_its_own_also_when_the_group_was_empty() -> None:
    runner = Runner()
    first = runner.stable("a")
    runner.leave(("a", None))
    assert runner.stable("b") > first + 1
