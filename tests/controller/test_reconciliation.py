"""A controller finds brokers that came and went, and partitions that are half made."""

from __future__ import annotations

from tests.controller.in_one import in_one

from ottla.controller.reconciliation import WithoutTheAbsent, born, broker_coming
from ottla.controller.topic_rules import TopicRules
from ottla.messages.metadata_records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from ottla.metadata.image import EMPTY_IMAGE, BrokerImage, ClusterImage, EndpointImage
from ottla.metadata.members import broker_record
from ottla.metadata.replay import replay
from ottla.types import NO_LEADER

ID = bytes(range(16))


def broker(node: int, epoch: int, *, is_fenced: bool = False) -> BrokerImage:
    return BrokerImage(node, epoch, {"PLAINTEXT": EndpointImage("PLAINTEXT", "h", node)}, None, is_fenced)


def cluster(*brokers: BrokerImage, isr: list[int], leader: int) -> ClusterImage:
    partition = PartitionRecord(0, ID, [1, 2, 3], isr, leader=leader, leader_epoch=4, partition_epoch=7)
    return replay(EMPTY_IMAGE, [*map(broker_record, brokers), TopicRecord("t", ID), partition])


def test_an_unregistered_broker_leaves_every_isr_and_leads_nothing() -> None:
    image = cluster(broker(2, 20), broker(3, 30), isr=[1, 2, 3], leader=1)
    after = replay(image, in_one(WithoutTheAbsent(TopicRules), image).records).topics["t"].partitions[0]
    assert (after.isr, after.leader, after.leader_epoch) == ((2, 3), 2, 5)


def test_an_isr_of_unregistered_brokers_stays_and_has_no_leader() -> None:
    image = cluster(isr=[1, 2], leader=1)
    after = replay(image, in_one(WithoutTheAbsent(TopicRules), image).records).topics["t"].partitions[0]
    assert (after.isr, after.leader, after.leader_epoch) == ((1, 2), NO_LEADER, 5)


def test_a_partition_without_a_leader_has_one_again() -> None:
    image = cluster(broker(1, 10), isr=[1], leader=NO_LEADER)
    after = replay(image, in_one(WithoutTheAbsent(TopicRules), image).records).topics["t"].partitions[0]
    assert (after.leader, after.leader_epoch) == (1, 5)


def test_a_later_process_of_a_broker_leads_nothing_as_the_earlier_one_did() -> None:
    image = cluster(broker(1, 10), broker(2, 20), isr=[1, 2], leader=1)
    came = in_one(broker_coming(broker(1, 11, is_fenced=True), TopicRules), image)
    after = replay(image, came.records)
    assert (after.brokers[1].broker_epoch, after.brokers[1].is_fenced) == (11, True)
    partition = after.topics["t"].partitions[0]
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((2,), 2, 5)
    alone = cluster(broker(1, 10), isr=[1], leader=1)
    partition = replay(alone, in_one(broker_coming(broker(1, 11, is_fenced=True), TopicRules), alone).records).topics["t"].partitions[0]
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((1,), NO_LEADER, 5), "it leads again under an epoch of its own"


def test_a_new_broker_changes_no_partition() -> None:
    image = cluster(broker(1, 10), isr=[1], leader=1)
    assert [type(record) for record in in_one(broker_coming(broker(9, 90), TopicRules), image).records] == [RegisterBrokerRecord]


def test_partitions_that_have_only_an_assignment_are_made() -> None:
    image = cluster(broker(1, 10), broker(2, 20, is_fenced=True), isr=[1], leader=1)
    wanted = [("t", 0, (1, 2)), ("t", 1, (2, 1)), ("t", 2, (2, 3)), ("gone", 0, (1,))]
    after = replay(image, born(image, wanted).records).topics["t"].partitions
    assert (after[0].leader_epoch, after[1].isr, after[1].leader) == (4, (1,), 1)
    assert (after[2].isr, after[2].leader, after[2].replicas) == ((2,), NO_LEADER, (2, 3))
