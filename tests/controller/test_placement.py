"""Where replicas go. Mechanism 10's rule; the cluster that uses it comes later."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.placement import assign_replicas
from ottla.errors import ErrorCode, KafkaError


def test_the_textbook_rule_partition_i_at_broker_i_replica_j_one_further() -> None:
    assert assign_replicas({0: None, 1: None, 2: None}, partition_count=3, replication_factor=2) == [[0, 1], [1, 2], [2, 0]]


def test_the_followers_shift_when_the_partitions_have_gone_round() -> None:
    rows = assign_replicas({0: None, 1: None, 2: None}, partition_count=6, replication_factor=2)
    assert rows == [[0, 1], [1, 2], [2, 0], [0, 2], [1, 0], [2, 1]]


@given(
    st.dictionaries(st.integers(0, 20), st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=8),
    st.integers(1, 30),
    st.integers(1, 5),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_replicas_are_distinct_spread_and_of_different_racks(
    brokers: dict[int, str | None], partitions: int, factor: int, start: int, shift: int
) -> None:
    if factor > len(brokers):
        with pytest.raises(KafkaError):
            assign_replicas(brokers, partition_count=partitions, replication_factor=factor)
        return
    rows = assign_replicas(brokers, partition_count=partitions, replication_factor=factor, start=start, shift=shift)
    racks = len(set(brokers.values()))
    for row in rows:
        assert len(set(row)) == factor
        assert len({brokers[broker] for broker in row}) == min(factor, racks)
    leaders = Counter(row[0] for row in rows)
    assert max(leaders.values()) - min(leaders.get(broker, 0) for broker in brokers) <= 1


@given(
    st.dictionaries(st.integers(0, 9), st.sampled_from([None, "a", "b"]), min_size=1, max_size=5),
    st.dictionaries(st.integers(10, 19), st.sampled_from([None, "a", "b"]), max_size=4),
    st.integers(1, 12),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_brokers_that_do_not_serve_come_last_and_only_where_the_others_are_too_few(
    serving: dict[int, str | None], fenced: dict[int, str | None], partitions: int, factor: int, start: int
) -> None:
    if factor > len(serving) + len(fenced):
        with pytest.raises(KafkaError):
            assign_replicas(serving, fenced=fenced, partition_count=partitions, replication_factor=factor)
        return
    rows = assign_replicas(serving, fenced=fenced, partition_count=partitions, replication_factor=factor, start=start)
    known = min(factor, len(serving))
    alone = assign_replicas(serving, partition_count=partitions, replication_factor=known, start=start)
    assert [row[:known] for row in rows] == alone, "fenced brokers change nothing for the others"
    for row in rows:
        assert len(set(row)) == factor
        assert set(row[known:]) <= set(fenced)
    if factor > known:
        shares = Counter(node for row in rows for node in row[known:])
        assert max(shares.values()) - min(shares.get(node, 0) for node in fenced) <= factor - known


def test_nothing_is_placed_where_nobody_could_lead() -> None:
    with pytest.raises(KafkaError) as caught:
        assign_replicas({}, fenced={1: None, 2: None}, partition_count=1, replication_factor=1)
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
