"""Where replicas lie on their brokers, as brokers tell it, and what follows when a log directory fails (KIP-858)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.controller.in_one import directories_failed

from ottla.controller.features import ELR_VERSION
from ottla.controller.partition_change import UNASSIGNED
from ottla.controller.replica_directories import Assigned, assign_directories, lost_replicas
from ottla.controller.topic_rules import LOST, TopicRules
from ottla.errors import ErrorCode
from ottla.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.partition_index import index_of
from ottla.metadata.replay import replay
from ottla.types import NO_LEADER
from ottla.wire.schema import Stored

ID, OTHER_ID = b"t" * 16, b"o" * 16
FIRST, SECOND = b"a" * 16, b"b" * 16  # of broker 1
LED = PartitionImage((1, 2, 3), (1, 2), 1, 5, 7)


def image(partition: PartitionImage = LED, *, has_elr: bool = True) -> ClusterImage:
    brokers = {node: BrokerImage(node, 100 + node, {}, None, False, directories=(bytes([node]) * 16,)) for node in (2, 3)}
    brokers[1] = BrokerImage(1, 101, {}, None, False, directories=(FIRST, SECOND))
    topics = {"t": TopicImage("t", ID, {0: partition})}
    features = {ELR_VERSION: 1} if has_elr else {}
    return ClusterImage(topics=topics, topic_names={ID: "t"}, brokers=brokers, features=features, index=index_of(topics))


def assign(found: ClusterImage, directory: bytes, *, broker_id: int = 1, place: tuple[bytes, int] = (ID, 0)) -> Assigned:
    return assign_directories(found, broker_id, {place: directory}, rules=TopicRules(found, 2))


def after(found: ClusterImage, records: Iterable[Stored]) -> PartitionImage:
    return replay(found, records).topics["t"].partitions[0]


def test_a_replica_that_was_in_no_directory_known_is_in_that_one_and_nothing_else_changes() -> None:
    found = image()
    partition = after(found, assign(found, SECOND).records)
    assert partition.directories == (SECOND, UNASSIGNED, UNASSIGNED)
    assert replace(partition, directories=(), partition_epoch=7) == LED
    again = image(partition)
    assert assign(again, SECOND).records == ()
    moved = after(again, assign(again, FIRST).records)
    assert (moved.directories[0], moved.leader, moved.leader_epoch) == (FIRST, 1, 5)


@pytest.mark.parametrize("directory", [LOST, b"x" * 16], ids=["lost", "one that its broker does not have"])
def test_a_replica_in_no_directory_that_is_up_leads_nothing_and_is_not_in_sync(directory: bytes) -> None:
    found = image()
    partition = after(found, assign(found, directory).records)
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 6, (2,))
    assert partition.directories == (directory, UNASSIGNED, UNASSIGNED)
    again = image(partition)
    back = after(again, assign(again, FIRST).records)
    assert (back.leader, back.isr, back.directories[0]) == (2, (2,), FIRST), "it is in sync again when its leader has found so"


@pytest.mark.parametrize("has_elr", [False, True])
def test_the_last_one_leads_again_when_it_is_in_a_directory_again(has_elr: bool) -> None:
    found = image(replace(LED, isr=(1,)), has_elr=has_elr)
    partition = after(found, assign(found, LOST).records)
    assert partition.leader == NO_LEADER
    assert {*partition.isr, *partition.elr} == {1}
    again = image(partition, has_elr=has_elr)
    back = after(again, assign(again, SECOND).records)
    assert (back.leader, back.isr, back.leader_epoch) == (1, (1,), 7)


@pytest.mark.parametrize(
    ("broker_id", "place", "code"),
    [
        (1, (OTHER_ID, 0), ErrorCode.UNKNOWN_TOPIC_ID),
        (1, (ID, 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (9, (ID, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_what_is_no_replica_of_the_broker_is_refused_alone(broker_id: int, place: tuple[bytes, int], code: ErrorCode) -> None:
    assigned = assign(image(), SECOND, broker_id=broker_id, place=place)
    assert (assigned.records, assigned.refused) == ((), {place: code})


def test_a_broker_goes_on_without_a_directory_that_failed_and_others_lead_what_was_there() -> None:
    found = image(replace(LED, directories=(SECOND, UNASSIGNED, UNASSIGNED)))
    recorded = directories_failed(found, found.brokers[1], [SECOND], rules=TopicRules(found, 2))
    changed = replay(found, recorded.records)
    assert changed.brokers[1].directories == (FIRST,)
    assert not changed.brokers[1].is_fenced
    assert (changed.topics["t"].partitions[0].leader, changed.topics["t"].partitions[0].isr) == (2, (2,))
    assert directories_failed(changed, changed.brokers[1], [SECOND], rules=TopicRules(changed, 2)).records == (), "said again"


def test_replicas_in_other_directories_stay_and_the_loss_of_the_last_directory_records_nothing() -> None:
    found = image(replace(LED, directories=(FIRST, UNASSIGNED, UNASSIGNED)))
    recorded = directories_failed(found, found.brokers[1], [SECOND], rules=TopicRules(found, 2))
    assert after(found, recorded.records) == found.topics["t"].partitions[0]
    assert directories_failed(found, found.brokers[1], [FIRST, SECOND], rules=TopicRules(found, 2)).records == ()


def test_only_new_losses_reported_by_a_broker_are_recorded() -> None:
    found = image(has_elr=False)

    def said(by: ClusterImage, lost: dict[tuple[bytes, int], bool]) -> Assigned:
        return lost_replicas(by, 1, lost, rules=TopicRules(by, 2))

    assert said(found, {(ID, 0): False}).records == said(found, {(OTHER_ID, 0): True}).records == said(found, {}).records == ()
    partition = after(found, said(found, {(ID, 0): True}).records)
    assert (partition.leader, partition.isr, partition.directories[0]) == (2, (2,), LOST)
    again = image(partition, has_elr=False)
    assert said(again, {(ID, 0): True}).records == ()
    back = after(again, said(again, {(ID, 0): False}).records)
    assert (back.leader, back.isr, back.directories[0]) == (2, (2,), UNASSIGNED)


def test_the_last_one_in_sync_that_was_lost_leads_when_it_is_there_again() -> None:
    found = image(replace(LED, isr=(1,)), has_elr=False)
    lost = after(found, lost_replicas(found, 1, {(ID, 0): True}, rules=TopicRules(found, 1)).records)
    assert (lost.leader, lost.isr) == (NO_LEADER, (1,))
    again = image(lost, has_elr=False)
    back = after(again, lost_replicas(again, 1, {(ID, 0): False}, rules=TopicRules(again, 1)).records)
    assert (back.leader, back.isr) == (1, (1,))
