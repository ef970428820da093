"""The four strategies on fixed inputs (mechanism 72), against kafka-python, and the laws that hold on all inputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from ottla.client.assignors import ASSIGNORS, Subscription, assign
from ottla.types import TopicPartition


def partitions(text: str) -> tuple[TopicPartition, ...]:
    """``t0p1 t2p0``"""
    return tuple(TopicPartition(item[: item.index("p")], int(item[item.index("p") + 1 :])) for item in text.split())


def names(assignment: dict[str, list[TopicPartition]]) -> dict[str, str]:
    return {member_id: " ".join(f"{p.topic}p{p.partition}" for p in sorted(mine)) for member_id, mine in assignment.items()}


def wanting(topics: str, owned: str = "", generation_id: int = -1, instance_id: str | None = None) -> Subscription:
    return Subscription(tuple(topics.split()), partitions(owned), generation_id, instance_id)


# The examples of the documentation of Kafka's assignors.


def test_range_gives_neighbouring_partitions_of_each_topic() -> None:
    both = wanting("t0 t1")
    assert names(assign("range", {"c0": both, "c1": both}, {"t0": 3, "t1": 3})) == {"c0": "t0p0 t0p1 t1p0 t1p1", "c1": "t0p2 t1p2"}


def test_round_robin_goes_through_all_topics_in_turn() -> None:
    both = wanting("t0 t1")
    assert names(assign("roundrobin", {"c0": both, "c1": both}, {"t0": 3, "t1": 3})) == {"c0": "t0p0 t0p2 t1p1", "c1": "t0p1 t1p0 t1p2"}


def test_round_robin_skips_members_that_do_not_want_the_topic() -> None:
    members = {"c0": wanting("t0"), "c1": wanting("t0 t1"), "c2": wanting("t0 t1 t2")}
    counts = {"t0": 1, "t1": 2, "t2": 3}
    assert names(assign("roundrobin", members, counts)) == {"c0": "t0p0", "c1": "t1p0", "c2": "t1p1 t2p0 t2p1 t2p2"}


def test_sticky_begins_as_round_robin_does() -> None:
    members = dict.fromkeys(("c0", "c1", "c2"), wanting("t0 t1 t2 t3"))
    assert names(assign("sticky", members, dict.fromkeys(("t0", "t1", "t2", "t3"), 2))) == {
        "c0": "t0p0 t1p1 t3p0",
        "c1": "t0p1 t2p0 t3p1",
        "c2": "t1p0 t2p1",
    }


def test_sticky_keeps_what_the_others_have_when_a_member_leaves() -> None:
    members = {"c0": wanting("t0 t1 t2 t3", "t0p0 t1p1 t3p0", 1), "c2": wanting("t0 t1 t2 t3", "t1p0 t2p1", 1)}
    assert names(assign("sticky", members, dict.fromkeys(("t0", "t1", "t2", "t3"), 2))) == {
        "c0": "t0p0 t0p1 t1p1 t3p0",
        "c2": "t1p0 t2p0 t2p1 t3p1",
    }


def test_sticky_with_different_wishes_balances_better_than_round_robin() -> None:
    members = {"c0": wanting("t0"), "c1": wanting("t0 t1"), "c2": wanting("t0 t1 t2")}
    counts = {"t0": 1, "t1": 2, "t2": 3}
    assert names(assign("sticky", members, counts)) == {"c0": "t0p0", "c1": "t1p0 t1p1", "c2": "t2p0 t2p1 t2p2"}
    del members["c0"]
    members["c1"], members["c2"] = wanting("t0 t1", "t1p0 t1p1", 1), wanting("t0 t1 t2", "t2p0 t2p1 t2p2", 1)
    assert names(assign("sticky", members, counts)) == {"c1": "t0p0 t1p0 t1p1", "c2": "t2p0 t2p1 t2p2"}


def test_sticky_with_different_wishes_moves_until_the_load_is_even() -> None:
    members = {"c0": wanting("t0 t1", "t0p0 t0p1 t0p2 t0p3 t1p0", 1), "c1": wanting("t0")}
    assert names(assign("sticky", members, {"t0": 4, "t1": 1})) == {"c0": "t0p2 t0p3 t1p0", "c1": "t0p0 t0p1"}


def test_sticky_moves_no_more_than_a_new_member_needs() -> None:
    members = {"c0": wanting("t", "tp0 tp1 tp2", 1), "c1": wanting("t", "tp3 tp4 tp5", 1), "c2": wanting("t")}
    assert names(assign("sticky", members, {"t": 6})) == {"c0": "tp0 tp1", "c1": "tp3 tp4", "c2": "tp2 tp5"}


def test_cooperative_sticky_first_takes_away_and_then_gives() -> None:
    members = {"c0": wanting("t", "tp0 tp1 tp2", 1), "c1": wanting("t", "tp3 tp4 tp5", 1), "c2": wanting("t")}
    assert names(assign("cooperative-sticky", members, {"t": 6})) == {"c0": "tp0 tp1", "c1": "tp3 tp4", "c2": ""}
    members = {"c0": wanting("t", "tp0 tp1", 2), "c1": wanting("t", "tp3 tp4", 2), "c2": wanting("t", "", 2)}
    assert names(assign("cooperative-sticky", members, {"t": 6})) == {"c0": "tp0 tp1", "c1": "tp3 tp4", "c2": "tp2 tp5"}


def test_a_member_that_missed_a_rebalance_cannot_claim_what_others_now_have() -> None:
    members = {"old": wanting("t", "tp0 tp1", 1), "new": wanting("t", "tp0 tp1", 2)}
    assert names(assign("sticky", members, {"t": 2})) == {"new": "tp0", "old": "tp1"}
    assert names(assign("cooperative-sticky", members, {"t": 2})) == {"new": "tp0", "old": "tp1"}


def test_a_partition_that_two_members_claim_with_equal_right_belongs_to_neither() -> None:
    members = {"c0": wanting("t", "tp1", 1), "c1": wanting("t", "tp0 tp1", 1)}
    assert names(assign("sticky", members, {"t": 2})) == {"c0": "tp1", "c1": "tp0"}
    members = dict.fromkeys(("c0", "c1"), wanting("t", "tp1 tp0", 1))
    assert names(assign("sticky", members, {"t": 2})) == {"c0": "tp0", "c1": "tp1"}


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_come_first_in_order_of_their_instance_ids(name: str) -> None:
    members = {"c0": wanting("t"), "c9": wanting("t", instance_id="i1"), "c5": wanting("t", instance_id="i2")}
    assert names(assign(name, members, {"t": 3})) == {"c9": "tp0", "c5": "tp1", "c0": "tp2"}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_members_without_work_and_topics_that_do_not_exist_are_no_problem(name: str) -> None:
    members = {"c0": wanting("t gone"), "c1": wanting("t"), "c2": wanting("gone")}
    assert names(assign(name, members, {"t": 1})) == {"c0": "tp0", "c1": "", "c2": ""}
    assert assign(name, {}, {"t": 1}) == {}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_one_consumer_owns_all_partitions(name: str) -> None:
    """Mechanism 56."""
    assert names(assign(name, {"c0": wanting("t")}, {"t": 6})) == {"c0": "tp0 tp1 tp2 tp3 tp4 tp5"}


TOPICS = ("t0", "t1", "t2")
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7), max_size=3)
WISHES = st.dictionaries(
    st.sampled_from([f"c{at}" for at in range(6)]), st.sets(st.sampled_from(TOPICS), min_size=1).map(sorted), min_size=1, max_size=6
)


@given(WISHES, COUNTS)
@pytest.mark.parametrize(("name", "oracle"), [("range", RangePartitionAssignor), ("roundrobin", RoundRobinPartitionAssignor)])
def test_the_result_is_that_of_kafka_python(name: str, oracle: Any, wishes: dict[str, list[str]], counts: dict[str, int]) -> None:
    if name == "roundrobin":  # kafka-python 3.0.12 fails with a KeyError when a member is skipped
        wishes = dict.fromkeys(wishes, next(iter(wishes.values())))
    members = [
        SimpleNamespace(member_id=member_id, group_instance_id=None, metadata=SimpleNamespace(topics=topics))
        for member_id, topics in sorted(wishes.items())
    ]
    for topics in wishes.values():  # kafka-python needs every topic to exist
        for topic in topics:
            counts.setdefault(topic, 1)
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: set(range(counts[topic])))
    theirs = {
        member_id: sorted(
            TopicPartition(topic, index) for topic, indexes in (tuple(item)[:2] for item in answer.assigned_partitions) for index in indexes
        )
        for member_id, answer in oracle.assign(cluster, members).items()
    }
    ours = assign(name, {member_id: Subscription(tuple(topics)) for member_id, topics in wishes.items()}, counts)
    assert {member_id: sorted(mine) for member_id, mine in ours.items()} == theirs


@given(st.data(), WISHES, COUNTS, st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_one_owner_that_wants_it_whatever_was_owned_before(
    data: st.DataObject, wishes: dict[str, list[str]], counts: dict[str, int], name: str
) -> None:
    everything = [TopicPartition(topic, index) for topic in TOPICS for index in range(8)]
    members = {
        member_id: Subscription(
            tuple(topics), tuple(data.draw(st.lists(st.sampled_from(everything), max_size=8))), data.draw(st.integers(-1, 2))
        )
        for member_id, topics in sorted(wishes.items())
    }
    assignment = assign(name, members, counts)
    assert assignment.keys() == members.keys()
    given_out = [partition for mine in assignment.values() for partition in mine]
    assert len(given_out) == len(set(given_out))
    assert all(partition.topic in members[member_id].topics for member_id, mine in assignment.items() for partition in mine)
    wanted = {p for p in everything if p.partition < counts.get(p.topic, 0) and any(p.topic in sub.topics for sub in members.values())}
    if name == "cooperative-sticky":
        claimed = {p for sub in members.values() for p in sub.owned}
        assert wanted - claimed <= set(given_out) <= wanted
    else:
        assert set(given_out) == wanted


@given(st.data(), st.integers(1, 6), st.integers(0, 20))
def test_sticky_is_balanced_and_stays_as_it_is_when_nothing_changes(data: st.DataObject, member_count: int, partition_count: int) -> None:
    everything = [TopicPartition("t", index) for index in range(partition_count)]
    owned = data.draw(st.lists(st.integers(0, 5), min_size=partition_count, max_size=partition_count))
    members = {
        f"c{at}": Subscription(("t",), tuple(p for p, owner in zip(everything, owned) if owner == at), 1) for at in range(member_count)
    }
    first = assign("sticky", members, {"t": partition_count})
    sizes = [len(mine) for mine in first.values()]
    assert max(sizes) - min(sizes) <= 1
    share, extra = divmod(partition_count, member_count)
    kept = sum(len(set(mine) & set(members[member_id].owned)) for member_id, mine in first.items())
    most = sorted((len(members[member_id].owned) for member_id in members), reverse=True)
    assert kept == sum(min(size, share + (at < extra)) for at, size in enumerate(most))
    again = {member_id: Subscription(("t",), tuple(mine), 2) for member_id, mine in first.items()}
    assert {m: sorted(p) for m, p in assign("sticky", again, {"t": partition_count}).items()} == {m: sorted(p) for m, p in first.items()}


@given(st.data(), WISHES, COUNTS)
def test_sticky_with_different_wishes_leaves_no_move_that_would_balance_better(
    data: st.DataObject, wishes: dict[str, list[str]], counts: dict[str, int]
) -> None:
    members = {member_id: Subscription(tuple(topics)) for member_id, topics in wishes.items()}
    assignment = assign("sticky", members, counts)
    for member_id, mine in assignment.items():
        for partition in mine:
            for other, subscription in members.items():
                assert partition.topic not in subscription.topics or len(mine) <= len(assignment[other]) + 1, (member_id, other)
