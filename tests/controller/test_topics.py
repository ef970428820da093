"""What CreateTopics and DeleteTopics decide."""

from __future__ import annotations

import pytest

from ottla.config import BrokerConfig
from ottla.controller.partitions import create_partitions
from ottla.controller.topics import NewTopic, TopicCreation, create_topic, delete_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import BrokerEndpoint, BrokerRegistrationChangeRecord, RegisterBrokerRecord
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage
from ottla.metadata.replay import replay

ID = bytes(range(16))


def cluster(*broker_ids: int) -> ClusterImage:
    ends = [BrokerEndpoint("PLAINTEXT", "localhost", 9092, 0)]
    return replay(EMPTY_IMAGE, [RegisterBrokerRecord(broker_id, end_points=ends, fenced=False) for broker_id in broker_ids])


def create(image: ClusterImage, topic: NewTopic, **config: str) -> TopicCreation:
    return create_topic(image, topic, config=BrokerConfig(config), topic_id=ID, start=0, shift=0)


def code_of(image: ClusterImage, topic: NewTopic, **config: str) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        create(image, topic, **config)
    return caught.value.code


def test_minus_one_means_the_brokers_default() -> None:
    creation = create(cluster(1, 2, 3), NewTopic("t"), **{"num.partitions": "4", "default.replication.factor": "2"})
    assert (creation.partition_count, creation.replication_factor) == (4, 2)


def test_what_a_creation_records_is_the_topic() -> None:
    image = cluster(1, 2, 3)
    creation = create(image, NewTopic("t", 3, 2, configs={"segment.bytes": "2097152"}))
    image = replay(image, creation.records)
    assert image.topic_configs("t") == {"segment.bytes": "2097152"}
    for partition in image.topics["t"].partitions.values():
        assert len(set(partition.replicas)) == 2
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "ä", "a\0b", "x" * 250], ids=["empty", "dot", "dots", "slash", "space", "umlaut", "nul", "long"]
)
def test_illegal_names_are_refused(name: str) -> None:
    assert code_of(cluster(1), NewTopic(name)) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_exists_once() -> None:
    image = cluster(1)
    image = replay(image, create(image, NewTopic("t")).records)
    assert code_of(image, NewTopic("t")) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_names_that_differ_only_in_dot_and_underscore_collide() -> None:
    image = cluster(1)
    image = replay(image, create(image, NewTopic("a.b")).records)
    assert code_of(image, NewTopic("a_b")) == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1_000_000), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", configs={"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs={"segment.bytes": "few"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs={"segment.bytes": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs={"segment.bytes": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs={"cleanup.policy": "burn"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", 1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments={0: [1], 2: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: [1, 2], 1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_bad_requests_get_kafkas_code(topic: NewTopic, code: ErrorCode) -> None:
    assert code_of(cluster(1, 2), topic) == code


def test_an_assignment_is_taken_as_it_is() -> None:
    image = cluster(1, 2, 3)
    creation = create(image, NewTopic("t", assignments={0: [3, 1], 1: [1, 2]}))
    image = replay(image, creation.records)
    assert image.topics["t"].partitions[0].replicas == (3, 1)
    assert image.topics["t"].partitions[0].leader == 3


def test_fenced_and_stopping_replicas_do_not_begin_in_sync_and_one_replica_must() -> None:
    """An automatic placement passes over them; it is Kafka's code for an assignment that nobody could lead."""
    image = replay(
        cluster(1, 2, 3),
        [BrokerRegistrationChangeRecord(1, 0, fenced=1), BrokerRegistrationChangeRecord(2, 0, in_controlled_shutdown=1)],
    )
    creation = create(image, NewTopic("t", assignments={0: [1, 2, 3]}))
    partition = replay(image, creation.records).topics["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2, 3), (3,), 3)
    assert code_of(image, NewTopic("t", assignments={0: [1, 2]})) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_is_made_while_one_of_its_brokers_is_down_and_another_stops() -> None:
    """Brokers that are registered count; those that do not serve are last, never the leader, and not in sync."""
    image = replay(
        cluster(1, 2, 3),
        [BrokerRegistrationChangeRecord(1, 0, fenced=1), BrokerRegistrationChangeRecord(2, 0, in_controlled_shutdown=1)],
    )
    made = replay(image, create(image, NewTopic("t", 4, 3)).records)
    for partition in made.topics["t"].partitions.values():
        assert (set(partition.replicas), partition.replicas[0]) == ({1, 2, 3}, 3)
        assert (partition.isr, partition.leader) == ((3,), 3)
    grown = replay(made, create_partitions(made, "t", 6, None, start=0, shift=0).records).topics["t"].partitions
    assert {(grown[index].replicas[0], grown[index].isr) for index in (4, 5)} == {(3, (3,))}
    assert code_of(image, NewTopic("u", 1, 4)) == ErrorCode.INVALID_REPLICATION_FACTOR
    nobody = replay(image, [BrokerRegistrationChangeRecord(3, 0, fenced=1)])
    assert code_of(nobody, NewTopic("u", 1, 1)) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_an_assignment_may_name_a_broker_that_is_absent() -> None:
    image = cluster(1)
    new = NewTopic("t", assignments={0: [1, 2]})
    creation = create_topic(image, new, config=BrokerConfig(), topic_id=ID, start=0, shift=0, absent={2})
    partition = replay(image, creation.records).topics["t"].partitions[0]
    assert (partition.replicas, partition.isr) == ((1, 2), (1,))
    assert code_of(image, new) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_broker_that_is_absent_and_not_registered_is_counted_as_fenced() -> None:
    """As in ZooKeeper, where a broker's registration ends with its session."""
    image = cluster(1, 2)
    creation = create_topic(image, NewTopic("t", 2, 3), config=BrokerConfig(), topic_id=ID, start=0, shift=0, absent={2, 3})
    partitions = replay(image, creation.records).topics["t"].partitions
    assert [partition.replicas for partition in partitions.values()] == [(1, 2, 3), (2, 1, 3)]
    assert all(partition.isr == partition.replicas[:2] for partition in partitions.values())
    assert code_of(image, NewTopic("u", 1, 3)) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_topic_is_deleted_by_name_or_by_id() -> None:
    image = cluster(1)
    image = replay(image, create(image, NewTopic("t")).records)
    for name, topic_id in (("t", bytes(16)), (None, ID)):
        deletion = delete_topic(image, name=name, topic_id=topic_id, config=BrokerConfig())
        assert deletion.name == "t"
        assert not replay(image, deletion.records).topics


@pytest.mark.parametrize(
    ("name", "config", "code"),
    [
        ("no", {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, {}, ErrorCode.UNKNOWN_TOPIC_ID),
        ("no", {"delete.topic.enable": "false"}, ErrorCode.TOPIC_DELETION_DISABLED),
    ],
)
def test_what_cannot_be_deleted_says_why(name: str | None, config: dict[str, str], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        delete_topic(cluster(1), name=name, topic_id=ID, config=BrokerConfig(config))
    assert caught.value.code == code
