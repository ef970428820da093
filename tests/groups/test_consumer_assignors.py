"""The assignors of the coordinator: who gets what, and what may be relied on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.groups.consumer.assignors import ASSIGNORS, Subscriber, by_range, uniform
from ottla.groups.consumer.member import Partitions

A, B, C = (bytes([letter]) * 16 for letter in b"abc")
Groups = tuple[dict[str, frozenset[bytes]], dict[bytes, int]]


@st.composite
def groups(draw: st.DrawFn) -> Groups:
    counts = draw(st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 9), min_size=1))
    topics = st.frozensets(st.sampled_from(sorted(counts)))
    return draw(st.dictionaries(st.sampled_from("uvwxyz"), topics, max_size=6)), counts


def members_of(topics: dict[str, frozenset[bytes]], targets: dict[str, Partitions] | None = None) -> dict[str, Subscriber]:
    return {member_id: Subscriber(wanted, (targets or {}).get(member_id, {})) for member_id, wanted in topics.items()}


def places(target: Partitions) -> set[tuple[bytes, int]]:
    return {(topic, index) for topic, indexes in target.items() for index in indexes}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(first=groups(), second=groups())
def test_each_partition_of_a_subscribed_topic_has_one_owner_that_subscribes(name: str, first: Groups, second: Groups) -> None:
    """From scratch, and after any change of members, subscriptions and topics."""
    targets: dict[str, Partitions] = {}
    for topics, counts in (first, second):
        wanted = {member_id: frozenset(topic for topic in found if topic in counts) for member_id, found in topics.items()}
        targets = ASSIGNORS[name](members_of(wanted, targets), counts)
        assert targets.keys() == wanted.keys()
        owned = [place for target in targets.values() for place in places(target)]
        assert len(set(owned)) == len(owned)
        subscribed = {topic for found in wanted.values() for topic in found}
        assert set(owned) == {(topic, index) for topic in subscribed for index in range(counts[topic])}
        assert all(topic in wanted[member_id] for member_id, target in targets.items() for topic in target)
        assert all(indexes for target in targets.values() for indexes in target.values())


@given(first=groups(), second=groups())
def test_uniform_leaves_no_move_that_would_even_out(first: Groups, second: Groups) -> None:
    targets: dict[str, Partitions] = {}
    for topics, counts in (first, second):
        wanted = {member_id: frozenset(topic for topic in found if topic in counts) for member_id, found in topics.items()}
        targets = uniform(members_of(wanted, targets), counts)
        loads = {member_id: len(places(target)) for member_id, target in targets.items()}
        for owner, target in targets.items():
            for topic in target:
                assert all(loads[owner] - loads[other] <= 1 for other in wanted if topic in wanted[other])


@given(found=groups())
def test_uniform_keeps_a_target_that_is_balanced(found: Groups) -> None:
    topics, counts = found
    target = uniform(members_of(topics), counts)
    assert uniform(members_of(topics, target), counts) == target


def test_uniform_leaves_the_larger_share_where_it_is() -> None:
    before: dict[str, Partitions] = {"u": {A: frozenset({0})}, "v": {A: frozenset({1, 2})}}
    assert uniform(members_of(dict.fromkeys("uv", frozenset({A})), before), {A: 3}) == before


def test_uniform_takes_no_more_from_members_than_a_new_one_gets() -> None:
    counts = {A: 6, B: 3}
    topics = dict.fromkeys("uv", frozenset({A, B}))
    before = uniform(members_of(topics), counts)
    after = uniform(members_of(topics | {"w": frozenset({A, B})}, before), counts)
    assert sorted(len(places(target)) for target in after.values()) == [3, 3, 3]
    assert all(places(after[member_id]) < places(before[member_id]) for member_id in "uv")


def test_uniform_keeps_all_when_a_member_leaves() -> None:
    counts = {A: 6}
    before = uniform(members_of(dict.fromkeys("uvw", frozenset({A}))), counts)
    after = uniform(members_of(dict.fromkeys("uv", frozenset({A})), before), counts)
    assert all(places(after[member_id]) > places(before[member_id]) for member_id in "uv")


def test_range_gives_runs_the_first_members_one_more_and_the_same_of_all_topics() -> None:
    target = by_range(members_of(dict.fromkeys("uv", frozenset({A, B}))), {A: 3, B: 3})
    assert target == {"u": {topic: frozenset({0, 1}) for topic in (A, B)}, "v": {topic: frozenset({2}) for topic in (A, B)}}


def test_range_orders_static_members_first_by_their_instances() -> None:
    members = {"a": Subscriber(frozenset({A})), "y": Subscriber(frozenset({A}), {}, "i1"), "x": Subscriber(frozenset({A}), {}, "i2")}
    target = by_range(members, {A: 3})
    assert target == {"y": {A: frozenset({0})}, "x": {A: frozenset({1})}, "a": {A: frozenset({2})}}


def test_range_leaves_members_beyond_the_partitions_without_any() -> None:
    target = by_range(members_of(dict.fromkeys("uvw", frozenset({A}))), {A: 2})
    assert target["w"] == {}
