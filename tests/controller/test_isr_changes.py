"""A leader asks for another ISR: what the controller records, and what it refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from ottla.controller.features import ELR_VERSION
from ottla.controller.isr_changes import WantedIsr, alter_isr
from ottla.controller.partition_change import UNASSIGNED
from ottla.controller.topic_rules import LOST, TopicRules
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.partition_index import index_of

TOPIC_ID = b"t" * 16
EPOCHS = {1: 101, 2: 102, 3: 103}
PARTITION = PartitionImage((1, 2, 3), (1, 2), 1, 5, 7)


def cluster(partition: PartitionImage = PARTITION, *, has_elr: bool = True, **changes: Any) -> ClusterImage:
    """``changes`` are those of broker 3."""
    brokers = {node: BrokerImage(node, epoch, {}, None, False) for node, epoch in EPOCHS.items()}
    brokers[3] = replace(brokers[3], **changes)
    topics = {"t": TopicImage("t", TOPIC_ID, {0: partition})}
    features = {ELR_VERSION: 1} if has_elr else {}
    return ClusterImage(topics=topics, topic_names={TOPIC_ID: "t"}, brokers=brokers, features=features, index=index_of(topics))


def wanted(*isr: int, **changes: Any) -> WantedIsr:
    return replace(WantedIsr(1, TOPIC_ID, 0, 5, 7, [(node, EPOCHS[node]) for node in isr]), **changes)


def code(image: ClusterImage, change: WantedIsr) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        alter_isr(image, change, rules=TopicRules(image, 2))
    return caught.value.code


def recorded(image: ClusterImage, change: WantedIsr, *, min_isr: int = 2) -> PartitionChangeRecord:
    [record] = alter_isr(image, change, rules=TopicRules(image, min_isr)).records
    assert isinstance(record, PartitionChangeRecord)
    return record


def test_the_isr_grows_and_shrinks_as_the_leader_says() -> None:
    assert recorded(cluster(), wanted(1, 2, 3)).isr == [1, 2, 3]
    assert recorded(cluster(), wanted(1)).isr == [1]
    assert alter_isr(cluster(), wanted(1, 2), rules=TopicRules(cluster(), 2)).records == (), "it is so already"


def test_whoever_leaves_an_isr_that_is_too_small_stays_eligible_until_it_is_large_enough_again() -> None:
    """KIP-966."""
    shrunk = recorded(cluster(), wanted(1))
    assert shrunk.eligible_leader_replicas == [2]
    image = cluster(dataclasses.replace(PARTITION, isr=(1,), elr=(2,)))
    assert recorded(image, wanted(1, 3)).eligible_leader_replicas == []
    assert recorded(cluster(), wanted(1), min_isr=1).eligible_leader_replicas is None
    assert recorded(cluster(has_elr=False), wanted(1)).eligible_leader_replicas is None
    only_two = dataclasses.replace(PARTITION, replicas=(1, 2), isr=(1,), elr=(2,))
    assert recorded(cluster(only_two), wanted(1, 2), min_isr=3).eligible_leader_replicas == [], "it cannot be larger"


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"topic_id": b"x" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": 6}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"members": [(2, 102)]}, ErrorCode.INVALID_REQUEST),
        ({"members": [(1, 101), (4, 104)]}, ErrorCode.INVALID_REQUEST),
        ({"members": [(1, 101), (1, 101)]}, ErrorCode.INVALID_REQUEST),
        ({"is_recovering": True}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_the_leader_must_not_ask_for_is_refused(changes: dict[str, Any], refusal: ErrorCode) -> None:
    assert code(cluster(), wanted(1, 2, 3, **changes)) == refusal


@pytest.mark.parametrize("changes", [{"is_fenced": True}, {"in_controlled_shutdown": True}, {"broker_epoch": 999}])
def test_a_broker_that_does_not_serve_or_is_another_process_by_now_is_not_eligible(changes: dict[str, Any]) -> None:
    """KIP-841, KIP-903."""
    assert code(cluster(**changes), wanted(1, 2, 3)) == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize("directory", [LOST, b"failed directory"])
def test_a_replica_whose_log_directory_has_failed_is_not_eligible(directory: bytes) -> None:
    """It had everything when it failed, and its leader asked for it after that was recorded (seed 108 of ZooKeeper mode)."""
    with_directories = dataclasses.replace(PARTITION, directories=(UNASSIGNED, UNASSIGNED, directory))
    image = cluster(with_directories, directories=(b"other directory.",))
    assert code(image, wanted(1, 2, 3)) == ErrorCode.INELIGIBLE_REPLICA
    assert recorded(image, wanted(1)).isr == [1]


def test_a_leader_that_does_not_know_an_epoch_may_say_so() -> None:
    assert recorded(cluster(broker_epoch=999), wanted(1, 2, 3, members=[(1, -1), (2, -1), (3, -1)])).isr == [1, 2, 3]


def test_a_leader_that_has_recovered_says_so() -> None:
    """KIP-704."""
    image = cluster(dataclasses.replace(PARTITION, isr=(1,), is_recovering=True))
    assert recorded(image, wanted(1)).leader_recovery_state == 0
    assert alter_isr(image, wanted(1, is_recovering=True), rules=TopicRules(image, 2)).records == ()
