"""What CreatePartitions, ElectLeaders, AlterPartitionReassignments and UpdateFeatures decide."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controller.test_topics import cluster, create

from ottla.controller.elections import ElectionType, elect_leader, follow_replicas
from ottla.controller.features import ELR_VERSION, FEATURES, MIN_ISR, FeatureUpdate, first_features, update_features
from ottla.controller.metadata_versions import is_lossy, level_of
from ottla.controller.partitions import create_partitions
from ottla.controller.reassignment import reassign
from ottla.controller.topics import PARTITIONS_PER_TOPIC_MAX, NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import ConfigRecord, FeatureLevelRecord, PartitionChangeRecord, RegisterBrokerRecord
from ottla.metadata.image import RESOURCE_BROKER, ClusterImage
from ottla.metadata.replay import replay, snapshot_records
from ottla.types import GROUP_METADATA_TOPIC, NO_LEADER

PREFERRED, UNCLEAN = ElectionType
SUPPORTED = {"metadata.version": (7, 29)}


@pytest.fixture
def image() -> ClusterImage:
    image = cluster(1, 2, 3)
    return replay(image, create(image, NewTopic("t", assignments={0: [1, 2], 1: [2, 3]})).records)


def grown(image: ClusterImage, count: int, assignments: list[list[int]] | None = None, name: str = "t") -> ClusterImage:
    return replay(image, create_partitions(image, name, count, assignments, start=0, shift=0).records)


def refused(call: Any, *arguments: Any, **named: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **named)
    assert caught.value.message
    return caught.value.code


def test_partitions_are_added_after_the_existing_ones_with_as_many_replicas(image: ClusterImage) -> None:
    partitions = grown(image, 5).topics["t"].partitions
    assert sorted(partitions) == [0, 1, 2, 3, 4]
    assert (partitions[0].replicas, partitions[1].replicas) == ((1, 2), (2, 3)), "what was there stays"
    assert all(len(set(partitions[index].replicas)) == 2 and partitions[index].leader >= 0 for index in (2, 3, 4))
    placed = grown(image, 4, [[3, 1], [1, 3]]).topics["t"].partitions
    assert [placed[index].replicas for index in (2, 3)] == [(3, 1), (1, 3)]


def test_a_topic_that_grew_is_placed_like_one_that_was_created_as_large() -> None:
    image = cluster(1, 2, 3)
    small = replay(image, create(image, NewTopic("t", 3, 2)).records)
    large = replay(image, create(image, NewTopic("t", 9, 2)).records)
    assert grown(small, 9).topics == large.topics


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("no", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", PARTITIONS_PER_TOPIC_MAX + 3, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 2], [2, 3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_that_cannot_grow_says_why(
    image: ClusterImage, name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    assert refused(create_partitions, image, name, count, assignments, start=0, shift=0) == code


def test_internal_topics_keep_their_partitions() -> None:
    image = cluster(1)
    image = replay(image, create(image, NewTopic(GROUP_METADATA_TOPIC)).records)
    code = refused(create_partitions, image, GROUP_METADATA_TOPIC, 9, None, start=0, shift=0)
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_preferred_election_gives_the_partition_back_to_its_first_replica(image: ClusterImage) -> None:
    topic_id = image.topics["t"].topic_id
    moved = replay(image, [PartitionChangeRecord(0, topic_id, leader=2)])
    back = replay(moved, elect_leader(moved, "t", 0, PREFERRED).records).topics["t"].partitions[0]
    assert (back.leader, back.leader_epoch) == (1, moved.topics["t"].partitions[0].leader_epoch + 1)
    assert refused(elect_leader, image, "t", 0, PREFERRED) == ErrorCode.ELECTION_NOT_NEEDED
    assert refused(elect_leader, image, "t", 7, PREFERRED) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused(elect_leader, image, "no", 0, PREFERRED) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    without = replay(moved, [PartitionChangeRecord(0, topic_id, isr=[2])])
    assert refused(elect_leader, without, "t", 0, PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    fenced = replay(moved, [RegisterBrokerRecord(1, fenced=True)])
    assert refused(elect_leader, fenced, "t", 0, PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_unclean_election_is_for_a_partition_without_a_leader(image: ClusterImage) -> None:
    assert refused(elect_leader, image, "t", 0, UNCLEAN) == ErrorCode.ELECTION_NOT_NEEDED
    topic_id = image.topics["t"].topic_id
    lost = replay(image, [PartitionChangeRecord(0, topic_id, isr=[1], leader=-1), RegisterBrokerRecord(1, fenced=True)])
    found = replay(lost, elect_leader(lost, "t", 0, UNCLEAN).records).topics["t"].partitions[0]
    assert (found.leader, found.isr) == (2, (2,))
    nobody = replay(lost, [RegisterBrokerRecord(2, fenced=True)])
    assert refused(elect_leader, nobody, "t", 0, UNCLEAN) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_replicas_are_reordered_at_once(image: ClusterImage) -> None:
    after = replay(image, reassign(image, "t", 0, [2, 1], keeps_factor=True).records)
    assert after.topics["t"].partitions[0].replicas == (2, 1)
    assert reassign(image, "t", 0, [1, 2], keeps_factor=True).records == ()
    for index, replicas, code in (
        (0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (9, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [1], ErrorCode.INVALID_REPLICATION_FACTOR),
    ):
        assert refused(reassign, image, "t", index, replicas, keeps_factor=True) == code


def test_levels_move_up_and_with_leave_down(image: ClusterImage) -> None:
    image = replay(image, update_features(image, [FeatureUpdate("metadata.version", 20, 1)], supported=SUPPORTED, min_isr=1).records)
    assert image.features == {"metadata.version": 20}
    for level, upgrade_type in ((21, 1), (20, 1), (19, 2), (17, 3)):
        change = update_features(image, [FeatureUpdate("metadata.version", level, upgrade_type)], supported=SUPPORTED, min_isr=1)
        assert replay(image, change.records).features["metadata.version"] == level
    for update in ((19, 1), (21, 2), (30, 1), (6, 3), (21, 0), (0, 3), (16, 2), (16, 3), (7, 3)):
        updates = [FeatureUpdate("metadata.version", *update)]
        assert refused(update_features, image, updates, supported=SUPPORTED, min_isr=1) == ErrorCode.INVALID_UPDATE_VERSION
    good = FeatureUpdate("metadata.version", 21, 1)
    assert refused(update_features, image, [good, good], supported=SUPPORTED, min_isr=1) == ErrorCode.INVALID_REQUEST
    unknown = FeatureUpdate("teleport.version", 1, 1)
    assert refused(update_features, image, [good, unknown], supported=SUPPORTED, min_isr=1) == ErrorCode.INVALID_UPDATE_VERSION


def test_features_that_are_not_known_are_named_together_and_may_be_asked_to_be_off(image: ClusterImage) -> None:
    """Kafka's tools ask for the levels of all features of a release at once."""
    good, off = FeatureUpdate("metadata.version", 21, 1), FeatureUpdate("teleport.version", 0, 1)
    unknown = [FeatureUpdate("teleport.version", 1, 1), FeatureUpdate("telepathy.version", 2, 1)]
    with pytest.raises(KafkaError, match=r"teleport.version=1, telepathy.version=2: unknown feature; the features are metadata.version"):
        update_features(image, [good, *unknown], supported=SUPPORTED, min_isr=1)
    change = update_features(image, [good, off], supported=SUPPORTED, min_isr=1)
    assert [(record.name, record.feature_level) for record in change.records if isinstance(record, FeatureLevelRecord)] == [
        ("metadata.version", 21)
    ]


def test_a_feature_at_level_0_is_off_and_not_kept(image: ClusterImage) -> None:
    supported = {"share.version": (0, 1)}
    on = replay(image, update_features(image, [FeatureUpdate("share.version", 1, 1)], supported=supported, min_isr=1).records)
    off = replay(on, update_features(on, [FeatureUpdate("share.version", 0, 2)], supported=supported, min_isr=1).records)
    assert (on.features, off.features) == ({"share.version": 1}, {})
    assert replay(ClusterImage(), snapshot_records(off)) == off


def test_a_new_cluster_has_every_feature_and_min_isr_for_all_brokers_alike() -> None:
    first = replay(ClusterImage(), first_features(ClusterImage(), min_isr=2).records)
    assert first.features == {name: high for name, (_, high) in FEATURES.items()}
    assert first.broker_configs("") == {MIN_ISR: "2"}
    assert first_features(first, min_isr=3).records == (), "a restart changes nothing"
    off = replay(first, update_features(first, [FeatureUpdate(ELR_VERSION, 0, 2)], supported=FEATURES, min_isr=3).records)
    assert (off.features.get(ELR_VERSION), off.broker_configs("")) == (None, {MIN_ISR: "2"})
    assert first_features(off, min_isr=3).records == (), "nor does it turn on what was turned off"


def test_eligible_leader_replicas_turned_on_take_min_isr_from_single_brokers(image: ClusterImage) -> None:
    image = replay(image, [ConfigRecord(RESOURCE_BROKER, "1", MIN_ISR, "3"), ConfigRecord(RESOURCE_BROKER, "1", "x", "y")])
    on = replay(image, update_features(image, [FeatureUpdate(ELR_VERSION, 1, 1)], supported=FEATURES, min_isr=2).records)
    assert (on.broker_configs("1"), on.broker_configs("")) == ({"x": "y"}, {MIN_ISR: "2"})


@pytest.mark.parametrize("keeps_elr", [True, False])
def test_a_broker_leads_what_it_can_serve(keeps_elr: bool) -> None:
    image = cluster(1)
    image = replay(image, create(image, NewTopic("t", 3, 1)).records)
    if keeps_elr:
        image = replay(image, first_features(image, min_isr=1).records)
    bad = {("t", 1)}

    def settle(image: ClusterImage) -> ClusterImage:
        return replay(image, follow_replicas(image, 1, lambda topic, index: (topic, index) in bad).records)

    lost = settle(image)
    partition = lost.topics["t"].partitions[1]
    assert [lost.topics["t"].partitions[index].leader for index in range(3)] == [1, NO_LEADER, 1]
    assert (partition.isr, partition.elr) == (((), (1,)) if keeps_elr else ((1,), ()))
    assert partition.leader_epoch == 1
    assert replay(ClusterImage(), snapshot_records(lost)) == lost
    assert settle(lost) == lost, "nothing is decided twice"
    assert refused(elect_leader, lost, "t", 1, UNCLEAN, offline=[1]) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert refused(elect_leader, lost, "t", 1, PREFERRED, offline=[1]) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    bad.clear()
    found = settle(lost).topics["t"].partitions[1]
    assert (found.leader, found.isr, found.elr, found.leader_epoch) == (1, (1,), (), 2)
    assert replay(lost, elect_leader(lost, "t", 1, UNCLEAN).records).topics["t"].partitions[1] == found


@pytest.mark.parametrize(
    ("release", "level"),
    [("3.3", 7), ("3.3-IV3", 7), ("3.9", 21), ("3.9.1", 21), ("4.0", 25), ("4.0-IV1", 23), ("4.1-IV0", 26), ("4.3", 30)],
)
def test_a_release_stands_for_its_last_metadata_version(release: str, level: int) -> None:
    assert level_of(release) == level


@pytest.mark.parametrize("release", ["4.5", "2.8", "", "4", "four"])
def test_other_releases_are_not_known(release: str) -> None:
    with pytest.raises(KafkaError, match="is not known"):
        level_of(release)


@pytest.mark.parametrize(("current", "wanted", "lossy"), [(30, 29, True), (29, 23, False), (29, 22, True), (22, 17, False), (22, 16, True)])
def test_a_downgrade_is_lossy_across_levels_that_changed_records(current: int, wanted: int, lossy: bool) -> None:
    """Kafka refuses those, as SAFE_DOWNGRADE and as UNSAFE_DOWNGRADE: INVALID_UPDATE_VERSION."""
    assert is_lossy(current, wanted) == lossy
