"""Replicas move to other brokers: who is added joins, who is removed goes, and no record is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.controller.in_one import unfence_broker
from tests.controller.test_brokers import Cluster, refused
from tests.controller.test_elections import TOPIC_ID, join, three

from ottla.controller.elections import Elected, elections_in
from ottla.controller.partition_change import SAME_LEADER, UNASSIGNED, Target, completed
from ottla.controller.reassignment import is_moving, reassign
from ottla.errors import ErrorCode
from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.types import NO_LEADER


def four(*replicas: int, has_elr: bool = True, min_isr: int = 1) -> Cluster:
    """Brokers 1 to 4, and t-0."""
    cluster = three(list(replicas), has_elr=has_elr, min_isr=min_isr)
    cluster.serve(4)
    return cluster


def move(cluster: Cluster, *replicas: int, keeps_factor: bool = False) -> Any:
    return cluster.carry_out(reassign(cluster.image, "t", 0, replicas, keeps_factor=keeps_factor, rules=cluster.rules))


def cancel(cluster: Cluster) -> Any:
    return cluster.carry_out(reassign(cluster.image, "t", 0, None, keeps_factor=False, rules=cluster.rules))


def test_new_replicas_join_before_old_ones_leave_and_a_removed_leader_hands_over() -> None:
    cluster = four(1, 2)
    move(cluster, 3, 4)
    moving = cluster.partition()
    assert (moving.replicas, moving.adding, moving.removing) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert (moving.leader, moving.isr, moving.leader_epoch) == (1, (1, 2), 0), "nothing is interrupted"
    join(cluster, 1, 2, 4)
    assert is_moving(cluster.partition())
    moving_image = cluster.image
    decided = join(cluster, 1, 2, 4, 3)
    assert list(elections_in(moving_image, decided.records)) == [Elected("t", 0, 3)], "who has joined by the same record lacks nothing"
    done = cluster.partition()
    assert (done.replicas, done.adding, done.removing, set(done.isr)) == ((3, 4), (), (), {3, 4})
    assert (done.leader, done.leader_epoch) == (3, 1)


def test_a_leader_that_stays_has_another_epoch_when_a_replica_goes() -> None:
    """By which the replica that is none any more is refused."""
    cluster = four(1, 2)
    move(cluster, 1, 3)
    join(cluster, 1, 2, 3)
    assert (cluster.partition().replicas, cluster.partition().leader, cluster.partition().leader_epoch) == ((1, 3), 1, 1)


def test_a_replica_that_is_only_added_or_only_removed() -> None:
    cluster = four(1, 2)
    move(cluster, 1, 2, 3)
    assert cluster.partition().adding == (3,)
    join(cluster, 1, 2, 3)
    assert (cluster.partition().replicas, is_moving(cluster.partition()), cluster.partition().leader_epoch) == ((1, 2, 3), False, 0)
    move(cluster, 3, 2)
    assert (cluster.partition().replicas, cluster.partition().isr, cluster.partition().leader) == ((3, 2), (2, 3), 3), "at once"
    cluster.fence(2)
    move(cluster, 2)
    assert is_moving(cluster.partition()), "2 is not in sync: nobody who is goes"
    cluster.carry_out(unfence_broker(cluster.image, 2, rules=cluster.rules))
    join(cluster, 3, 2)
    assert (cluster.partition().replicas, cluster.partition().leader) == ((2,), 2)


def test_a_move_is_cancelled() -> None:
    cluster = four(1, 2)
    assert refused(reassign, cluster.image, "t", 0, None, keeps_factor=False) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    move(cluster, 3, 4)
    join(cluster, 1, 2, 4)
    cancel(cluster)
    found = cluster.partition()
    assert (set(found.replicas), found.isr, found.adding, found.removing, found.leader) == ({1, 2}, (1, 2), (), (), 1)
    assert found.leader_epoch == 1, "4 was a replica"


def test_a_move_is_not_cancelled_when_only_new_replicas_have_everything() -> None:
    """1 and 2 went down long before what 4 has was written."""
    cluster = four(1, 2)
    move(cluster, 3, 4)
    change = PartitionChangeRecord(0, TOPIC_ID, leader=4, isr=[4], eligible_leader_replicas=[])
    cluster.carry_out(_Records(change))
    code = refused(reassign, cluster.image, "t", 0, None, keeps_factor=False, rules=cluster.rules)
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.is_unclean = True
    moving_image = cluster.image
    decided = cancel(cluster)
    assert [found.is_unclean for found in elections_in(moving_image, decided.records)] == [True]
    assert (set(cluster.partition().replicas), cluster.partition().leader) == ({1, 2}, 1)
    assert cluster.partition().is_recovering


def test_a_move_replaces_another_one() -> None:
    cluster = four(1, 2)
    move(cluster, 1, 3)
    move(cluster, 1, 4)
    moving = cluster.partition()
    assert (moving.replicas, moving.adding, moving.removing) == ((1, 4, 2, 3), (4,), (2, 3))
    move(cluster, 4, 1)
    assert cluster.partition().adding == (4,), "it is still not in sync"
    move(cluster, 1, 2)
    assert (cluster.partition().replicas, is_moving(cluster.partition())) == ((1, 2), False), "and is not needed any more"


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 2, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_move_that_cannot_be_says_why(replicas: tuple[int, ...], code: ErrorCode) -> None:
    cluster = four(1, 2)
    move(cluster, 1, 3)  # two replicas, whatever is on the way
    assert refused(reassign, cluster.image, "t", 0, replicas, keeps_factor=True, rules=cluster.rules) == code


def test_the_directories_of_replicas_follow_them() -> None:
    cluster = four(1, 2)
    cluster.carry_out(_Records(PartitionChangeRecord(0, TOPIC_ID, directories=[bytes([200, 1]) * 8, bytes([200, 2]) * 8])))
    move(cluster, 2, 3)
    assert cluster.partition().directories == (bytes([200, 2]) * 8, UNASSIGNED, bytes([200, 1]) * 8)
    join(cluster, 1, 2, 3)
    assert cluster.partition().directories == (bytes([200, 2]) * 8, UNASSIGNED)


STEPS = st.one_of(
    st.tuples(st.sampled_from(["fence", "serve", "join"]), st.integers(1, 4)),
    st.tuples(st.just("move"), st.lists(st.integers(1, 4), min_size=1, max_size=4, unique=True)),
    st.tuples(st.just("cancel"), st.just(0)),
)


@given(st.lists(STEPS, max_size=25), st.booleans(), st.integers(1, 2))
def test_whatever_happens_meanwhile_a_move_ends_where_it_was_to_and_loses_nothing(
    steps: list[tuple[str, Any]], has_elr: bool, min_isr: int
) -> None:
    cluster = four(1, 2, has_elr=has_elr, min_isr=min_isr)
    wanted = [1, 2]
    for step, what in steps:
        then = cluster.partition()
        if step == "fence":
            cluster.fence(what)
        elif step == "serve":
            cluster.carry_out(unfence_broker(cluster.image, what, rules=cluster.rules))
        elif step == "join":
            if then.leader != NO_LEADER and what in then.replicas and not cluster.image.brokers[what].is_fenced:
                join(cluster, *dict.fromkeys((*then.isr, what)))
        elif step == "move":
            wanted = what
            move(cluster, *wanted)
        elif is_moving(then):
            if not {*then.isr, *then.elr} & {*then.replicas} - {*then.adding}:
                continue
            cancel(cluster)
            wanted = [*cluster.partition().replicas]
        now = cluster.partition()
        assert list(now.replicas[: len(wanted)]) == wanted
        assert set(now.replicas) - set(wanted) == set(now.removing)
        assert is_moving(now) or list(now.replicas) == wanted
        joined = {what} if step == "join" else set()
        if not now.is_recovering:
            assert set(now.isr) <= {*then.isr, *then.elr, *joined}, "nobody is in sync who has not joined"
        left = set(then.replicas) - set(now.replicas)
        assert not left or now.leader_epoch > then.leader_epoch
        assert now.leader == NO_LEADER or now.leader in now.isr
        assert now.isr or now.elr or now.last_known_elr


@given(st.sets(st.integers(1, 6)), st.sets(st.integers(1, 6)), st.sets(st.integers(1, 6)))
def test_a_move_is_complete_when_nobody_is_awaited(kept: set[int], adding: set[int], in_sync: set[int]) -> None:
    removing = {1, 2, 3, 4, 5, 6} - kept - adding
    replicas = [*sorted(kept | adding), *sorted(removing)]
    target = Target(replicas, sorted(in_sync), None, sorted(adding), sorted(removing))
    done = completed(target)
    if done is target:
        return
    assert set(done.replicas) == kept | adding
    assert (done.adding, done.removing) == ((), ())
    assert set(done.isr) == in_sync - removing
    assert done.isr
    assert adding <= set(done.isr)


def test_records_say_that_a_leader_stays_as_replay_reads_it() -> None:
    assert PartitionChangeRecord(0, TOPIC_ID).leader == SAME_LEADER


class _Records:
    def __init__(self, *records: PartitionChangeRecord) -> None:
        self.records = records
