"""Committed offsets: who may commit, what comes back, how long it is kept (mechanism 58)."""

from __future__ import annotations

import pytest
from tests.groups.coordinator_runner import DELAY_MS, Runner, subscription

from ottla.errors import ErrorCode
from ottla.groups.classic.members import subscribed_topics
from ottla.groups.commands import CommittedOffset, DeleteOffsets, DeleteTopicOffsets, FetchOffsets
from ottla.groups.coordinator import GroupSettings

P0, P1 = ("orders", 0), ("orders", 1)
DAY_MS = 24 * 3_600_000


def test_a_commit_is_returned_completely_and_what_was_not_committed_is_minus_one() -> None:
    runner = Runner()
    assert runner.commit({P0: 42}, metadata="to the letter: é") == (ErrorCode.NONE,)
    result = runner.ask(FetchOffsets(runner.token(), "g", (P1, P0), True))
    assert result.offsets == (CommittedOffset("orders", 1, -1, -1, ""), CommittedOffset("orders", 0, 42, 7, "to the letter: é"))


def test_asking_for_no_topic_in_particular_returns_all() -> None:
    runner = Runner()
    runner.commit({P0: 1, ("payments", 3): 5})
    assert runner.fetch() == {P0: 1, ("payments", 3): 5}
    assert runner.fetch(group="none") == {}


def test_the_newest_commit_counts_and_may_go_back() -> None:
    runner = Runner()
    for offset in (5, 9, 3):
        runner.commit({P0: offset})
    assert runner.fetch(P0) == {P0: 3}


def test_commits_survive_a_restart_of_the_coordinator() -> None:
    runner = Runner()
    generation = runner.stable("a")
    runner.commit({P0: 42, P1: 7}, member_id="a", generation_id=generation, metadata="here")
    runner.restart()
    assert runner.fetch() == {P0: 42, P1: 7}
    assert runner.ask(FetchOffsets(runner.token(), "g", (P0,), True)).offsets[0].metadata == "here"


def test_a_consumer_that_died_resumes_at_its_last_commit() -> None:
    runner = Runner()
    generation = runner.stable("a")
    runner.commit({P0: 42}, member_id="a", generation_id=generation)
    runner.advance(20_000)
    assert runner.state() == "Empty"
    runner.stable("b")
    assert runner.fetch(P0) == {P0: 42}


def test_consumers_outside_the_group_commit_only_while_it_is_empty() -> None:
    runner = Runner()
    assert runner.commit({P0: 1}) == (ErrorCode.NONE,)
    assert runner.state() == "Empty"
    runner.stable("a")
    assert runner.commit({P0: 2}) == (ErrorCode.UNKNOWN_MEMBER_ID,)
    runner.leave(("a", None))
    assert runner.commit({P0: 3}) == (ErrorCode.NONE,)
    assert runner.fetch(P0) == {P0: 3}


def test_a_commit_with_a_generation_needs_a_group_that_has_it() -> None:
    runner = Runner()
    assert runner.commit({P0: 1}, member_id="a", generation_id=1) == (ErrorCode.GROUP_ID_NOT_FOUND,)
    assert runner.state() == "Dead"
    generation = runner.stable("a")
    assert runner.commit({P0: 1, P1: 1}, member_id="x", generation_id=generation) == (ErrorCode.UNKNOWN_MEMBER_ID,) * 2
    assert runner.commit({P0: 1}, member_id="a", generation_id=generation - 1) == (ErrorCode.ILLEGAL_GENERATION,)
    assert runner.commit({P0: 1}, member_id="a", generation_id=-1) == (ErrorCode.ILLEGAL_GENERATION,)
    assert runner.fetch(P0) == {P0: -1}


def test_a_member_that_comes_too_late_commits_nothing() -> None:
    runner = Runner()
    generation = runner.stable("a")
    runner.advance(20_000)
    assert runner.state() == "Empty"
    assert runner.commit({P0: 1}, member_id="a", generation_id=generation) == (ErrorCode.UNKNOWN_MEMBER_ID,)


def test_members_commit_while_a_rebalance_is_prepared_but_not_while_the_leader_assigns() -> None:
    runner = Runner()
    generation = runner.stable("a")
    other = runner.join(fresh="b")
    assert runner.commit({P0: 1}, member_id="a", generation_id=generation) == (ErrorCode.NONE,)
    runner.join("a")
    assert runner.joined(other).error_code == ErrorCode.NONE
    assert runner.commit({P0: 2}, member_id="a", generation_id=generation + 1) == (ErrorCode.REBALANCE_IN_PROGRESS,)
    assert runner.fetch(P0) == {P0: 1}


def test_a_commit_is_a_sign_of_life() -> None:
    runner = Runner()
    generation = runner.stable("a")
    runner.advance(9_999)
    runner.commit({P0: 1}, member_id="a", generation_id=generation)
    runner.advance(9_999)
    assert runner.state() == "Stable"


def test_metadata_that_is_too_large_is_refused_for_its_partition_only() -> None:
    runner = Runner(GroupSettings(offset_metadata_max_bytes=3))
    assert runner.commit({P0: 1}, metadata="abcd") == (ErrorCode.OFFSET_METADATA_TOO_LARGE,)
    assert runner.state() == "Dead"
    assert runner.commit({P0: 1}, metadata="abc") == (ErrorCode.NONE,)


def test_what_does_not_fit_into_a_record_is_refused() -> None:
    runner = Runner(GroupSettings(offset_metadata_max_bytes=100_000))
    assert runner.commit({P0: 1}, metadata="é" * 16_384) == (ErrorCode.OFFSET_METADATA_TOO_LARGE,)
    assert runner.commit({P0: 1}, metadata="é" * 16_383) == (ErrorCode.NONE,)
    assert runner.commit({P0: 1}, group="g" * 32_768) == (ErrorCode.INVALID_GROUP_ID,)


def test_offsets_of_an_empty_group_are_kept_for_the_retention_after_it_became_empty() -> None:
    runner = Runner(GroupSettings(offsets_retention_ms=7 * DAY_MS))
    generation = runner.stable("a", session_ms=1_800_000)
    runner.commit({P0: 1}, member_id="a", generation_id=generation)
    for _ in range(8 * 48):
        runner.advance(1_800_000 - 1)
        assert runner.heartbeat("a", generation) == ErrorCode.NONE
    runner.leave(("a", None))
    runner.advance(7 * DAY_MS - 1)
    assert runner.fetch(P0) == {P0: 1}
    runner.advance(1 + runner.settings.offsets_retention_check_interval_ms)
    assert runner.fetch(P0) == {P0: -1}
    assert runner.state() == "Dead"
    runner.restart()
    assert runner.state() == "Dead"


def test_offsets_of_consumers_outside_any_group_are_kept_for_the_retention_after_the_commit() -> None:
    runner = Runner(GroupSettings(offsets_retention_ms=DAY_MS))
    runner.commit({P0: 1})
    runner.advance(DAY_MS // 2)
    runner.commit({P1: 1})
    runner.restart()
    runner.advance(DAY_MS // 2 + 600_000)
    assert runner.fetch() == {P1: 1}
    runner.advance(DAY_MS // 2)
    assert runner.state() == "Dead"


def test_a_stable_group_loses_old_offsets_of_topics_it_has_stopped_reading() -> None:
    runner = Runner(GroupSettings(offsets_retention_ms=DAY_MS, session_timeout_ms_max=10 * DAY_MS))
    runner.commit({P0: 1, ("payments", 0): 1})
    runner.stable("a", session_ms=5 * DAY_MS, protocols=(("range", subscription("orders")),))
    runner.advance(DAY_MS + 600_000)
    assert runner.fetch() == {P0: 1}


def test_a_stable_group_that_does_not_consume_loses_nothing() -> None:
    runner = Runner(GroupSettings(offsets_retention_ms=DAY_MS, session_timeout_ms_max=10 * DAY_MS))
    runner.commit({P0: 1})
    runner.stable("a", session_ms=5 * DAY_MS, protocol_type="connect", protocols=(("v1", b"opaque"),))
    runner.advance(2 * DAY_MS)
    assert runner.fetch() == {P0: 1}


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff", b"\0\0\0\0\0\5"])
def test_a_consumer_whose_subscription_cannot_be_read_loses_nothing(metadata: bytes) -> None:
    runner = Runner(GroupSettings(offsets_retention_ms=DAY_MS, session_timeout_ms_max=10 * DAY_MS))
    runner.commit({P0: 1})
    runner.stable("a", session_ms=5 * DAY_MS, protocols=(("range", metadata),))
    runner.advance(2 * DAY_MS)
    assert runner.fetch() == {P0: 1}


def test_an_empty_group_without_offsets_vanishes_but_not_while_a_member_is_on_its_way() -> None:
    runner = Runner()
    runner.join(fresh="a", known_id=True, session_ms=1_800_000)
    runner.advance(600_000)
    assert runner.state() == "Empty"
    runner.leave(("a", None))
    runner.advance(600_000)
    assert runner.state() == "Dead"


def test_offsets_of_a_deleted_topic_go_in_all_groups() -> None:
    runner = Runner()
    runner.commit({P0: 1, ("payments", 0): 1})
    runner.commit({P1: 1}, group="h")
    assert runner.ask(DeleteTopicOffsets(runner.token(), ("orders",))).error_code == ErrorCode.NONE
    assert (runner.fetch(), runner.fetch(group="h")) == ({("payments", 0): 1}, {})
    runner.restart()
    assert (runner.fetch(), runner.fetch(group="h")) == ({("payments", 0): 1}, {})


def test_offsets_can_be_read_in_every_state_of_the_group() -> None:
    runner = Runner()
    runner.commit({P0: 1})
    runner.join(fresh="a")
    assert runner.fetch(P0) == {P0: 1}
    runner.advance(DELAY_MS)
    assert runner.fetch(P0) == {P0: 1}


def test_offsets_of_single_partitions_are_deleted_unless_a_member_reads_them() -> None:
    runner = Runner()
    runner.commit({P0: 1, P1: 2, ("payments", 0): 3})
    result = runner.ask(DeleteOffsets(runner.token(), "g", (P0, ("nothing", 0))))
    assert (result.error_code, result.error_codes) == (ErrorCode.NONE, (ErrorCode.NONE, ErrorCode.NONE))
    assert runner.fetch() == {P1: 2, ("payments", 0): 3}
    runner.stable("a")  # it reads orders
    result = runner.ask(DeleteOffsets(runner.token(), "g", (P1, ("payments", 0))))
    assert result.error_codes == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    assert runner.fetch() == {P1: 2}
    runner.restart()
    assert runner.fetch() == {P1: 2}


def test_a_subscription_that_says_version_1_and_has_what_version_0_has_is_read() -> None:
    """@platformatic/kafka writes it; Kafka reads version 0 alone, the start of each other."""
    written = subscription("orders")
    assert written[:2] == b"\x00\x00"
    assert subscribed_topics(b"\x00\x01" + written[2:]) == frozenset({"orders"})


def test_a_subscription_that_is_too_large_to_look_into_may_be_to_any_topic() -> None:
    few, many = (subscription(*("x" * 98 for _ in range(count))) for count in (1000, 3000))
    assert (subscribed_topics(few), subscribed_topics(many)) == (frozenset({"x" * 98}), None)


def test_offsets_of_a_group_that_is_not_known_or_whose_members_are_no_consumers_are_left_alone() -> None:
    runner = Runner()
    assert runner.ask(DeleteOffsets(runner.token(), "g", (P0,))).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    runner.commit({P0: 1})
    runner.stable("w", protocol_type="connect", protocols=(("v1", b"opaque"),))
    assert runner.ask(DeleteOffsets(runner.token(), "g", (P0,))).error_code == ErrorCode.NON_EMPTY_GROUP
    assert runner.fetch() == {P0: 1}
