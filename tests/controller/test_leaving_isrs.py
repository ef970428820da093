"""Where a replica leaves and nothing but the ISR can change, the short way says what the long one says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.partition_change import SAME_LEADER, Rules, Target, change, without_replicas
from ottla.metadata.image import PartitionImage
from ottla.types import NO_LEADER

TOPIC_ID = bytes([1]) * 16


@st.composite
def partitions(draw: st.DrawFn) -> PartitionImage:
    replicas = tuple(draw(st.permutations([1, 2, 3, 4])))[: draw(st.integers(1, 4))]
    isr = tuple(draw(st.lists(st.sampled_from(replicas), unique=True)))
    left = [node for node in replicas if node not in isr]
    has_elr: bool = draw(st.sampled_from([True, False]))
    elr = tuple(draw(st.lists(st.sampled_from(left), unique=True))) if left and has_elr else ()
    leader = draw(st.sampled_from((*isr, NO_LEADER)))
    last_known = draw(st.sampled_from([(), (), (), replicas[:1]]))
    adding = draw(st.sampled_from([(), (), (), (), replicas[-1:]]))
    removing = draw(st.sampled_from([(), (), (), (), replicas[:1]]))
    return PartitionImage(replicas, isr, leader, 3, 5, elr, last_known, adding, removing, is_recovering=leader >= 0 and draw(st.booleans()))


@given(partitions(), st.sets(st.integers(1, 4), min_size=1, max_size=2), st.sets(st.integers(1, 4)), st.integers(1, 3), st.booleans())
def test_the_short_way_is_the_long_one(partition: PartitionImage, gone: set[int], down: set[int], min_isr: int, has_elr: bool) -> None:
    rules = Rules(is_up=lambda node: node not in down, min_isr=min_isr, has_elr=has_elr)
    still_up = Rules(is_up=lambda node: node not in gone | down, min_isr=min_isr, has_elr=has_elr)
    isr = [node for node in partition.isr if node not in gone]
    if not has_elr:
        isr = isr or list(partition.isr)
    expected = change(TOPIC_ID, 0, partition, Target.of(partition, isr), still_up)
    assert without_replicas(TOPIC_ID, 0, partition, gone, rules) == expected


def test_a_leader_that_is_down_is_replaced_when_a_follower_leaves_the_isr() -> None:
    partition = PartitionImage((1, 2, 3), (1, 2, 3), 1, 3, 5)
    record = without_replicas(TOPIC_ID, 0, partition, {3}, Rules(is_up=lambda node: node != 1, min_isr=1, has_elr=True))
    assert record is not None
    assert (record.leader, record.isr) == (2, [1, 2])
    record = without_replicas(TOPIC_ID, 0, partition, {3}, Rules(is_up=lambda node: True, min_isr=1, has_elr=True))
    assert record is not None
    assert (record.leader, record.isr) == (SAME_LEADER, [1, 2])
