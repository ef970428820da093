"""The admin client against a real broker, by its blocking face: every method, with what it returns for good and bad items."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.admin import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from ottla.client.admin.brokers import SAFE_DOWNGRADE
from ottla.client.admin.configs import ANY, APPEND, DELETE, SET
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, NewTopic, Producer, TopicPartition


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path_factory.mktemp("data")), "offsets.topic.num.partitions": "1"}
    with BrokerThread(config) as thread:
        yield thread


@pytest.fixture
def admin(broker: BrokerThread) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest, admin: Admin) -> str:
    name = str(request.node.name)
    assert admin.create_topics([NewTopic(name, 2)]) == {name: None}
    return name


def code_of(error: object) -> ErrorCode:
    assert isinstance(error, KafkaError)
    return error.code


def own_values(admin: Admin, kind: int, name: str) -> dict[str, str | None]:
    """Those of the resource itself, and of brokers: a cluster's defaults are not its own."""
    return {entry.name: entry.value for entry in admin.describe_configs(kind, name) if entry.config_source in (1, 2, 8)}


def test_topics_grow_and_those_that_cannot_say_why(admin: Admin, topic: str) -> None:
    assert admin.create_partitions({topic: 3}, validate_only=True) == {topic: None}
    results = admin.create_partitions({topic: 3, "absent": 2})
    assert results[topic] is None
    assert code_of(results["absent"]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(admin.describe_topic(topic).partitions) == 3
    assert admin.create_partitions({topic: 4}, assignments={topic: [[1]]}) == {topic: None}


def test_records_are_deleted_and_every_partition_is_answered(admin: Admin, broker: BrokerThread, topic: str) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, partition=0).result(10)
    results = admin.delete_records({TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 9, TopicPartition("absent", 0): 0})
    assert results[TopicPartition(topic, 0)] == 3
    assert code_of(results[TopicPartition(topic, 1)]) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(results[TopicPartition("absent", 0)]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert admin.delete_records({TopicPartition(topic, 0): -1}) == {TopicPartition(topic, 0): 5}
    states = admin.describe_producers([TopicPartition(topic, 0), TopicPartition("absent", 0)])
    [state] = states[TopicPartition(topic, 0)]  # type: ignore[misc]
    assert state.last_sequence == 4
    assert code_of(states[TopicPartition("absent", 0)]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_values_are_set_grown_and_taken_away(admin: Admin, topic: str) -> None:
    changes = [("cleanup.policy", APPEND, "compact"), ("retention.ms", SET, "1000")]
    admin.alter_configs(RESOURCE_TOPIC, topic, changes, validate_only=True)
    assert own_values(admin, RESOURCE_TOPIC, topic) == {}
    admin.alter_configs(RESOURCE_TOPIC, topic, changes)
    assert own_values(admin, RESOURCE_TOPIC, topic) == {"cleanup.policy": "delete,compact", "retention.ms": "1000"}
    admin.alter_configs(RESOURCE_TOPIC, topic, [("retention.ms", DELETE, None)])
    assert own_values(admin, RESOURCE_TOPIC, topic) == {"cleanup.policy": "delete,compact"}
    admin.replace_configs(RESOURCE_TOPIC, topic, {"flush.ms": "7"})
    assert own_values(admin, RESOURCE_TOPIC, topic) == {"flush.ms": "7"}
    with pytest.raises(KafkaError) as refused:
        admin.alter_configs(RESOURCE_TOPIC, "absent", changes)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_brokers_and_groups_are_configured_and_listed(admin: Admin, topic: str) -> None:
    admin.alter_configs(RESOURCE_BROKER, "1", [("log.index.interval.bytes", SET, "100")])
    assert own_values(admin, RESOURCE_BROKER, "1") == {"log.index.interval.bytes": "100"}
    admin.alter_configs(RESOURCE_GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")])
    assert {(RESOURCE_TOPIC, topic), (RESOURCE_BROKER, "1"), (RESOURCE_GROUP, "g")} <= set(admin.list_config_resources())
    assert admin.list_config_resources([RESOURCE_GROUP]) == [(RESOURCE_GROUP, "g")]


def test_quotas_are_set_found_and_removed(admin: Admin) -> None:
    user, nonsense = (("user", "a"),), (("planet", "a"),)
    results = admin.alter_client_quotas({user: {"producer_byte_rate": 5.0}, nonsense: {"producer_byte_rate": 5.0}})
    assert results[user] is None
    assert code_of(results[nonsense]) == ErrorCode.INVALID_REQUEST
    assert admin.describe_client_quotas([("user", ANY, None)], strict=True) == {user: {"producer_byte_rate": 5.0}}
    assert admin.alter_client_quotas({user: {"producer_byte_rate": None}}) == {user: None}
    assert admin.describe_client_quotas() == {}


def test_committed_offsets_are_deleted(admin: Admin, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.set_offsets("deleting", {first: 0, second: 0})
    results = admin.delete_offsets("deleting", [first, TopicPartition("absent", 0)])
    assert results[first] is None
    assert code_of(results[TopicPartition("absent", 0)]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(admin.committed_offsets("deleting")) == {second}
    with pytest.raises(KafkaError) as refused:
        admin.delete_offsets("unheard-of", [first])
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_leaders_replicas_directories_quorum_and_features_are_described(admin: Admin, topic: str) -> None:
    assert code_of(admin.elect_leaders([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]) == ErrorCode.ELECTION_NOT_NEEDED
    assert admin.elect_leaders() == {}
    results = admin.alter_partition_reassignments({TopicPartition(topic, 0): [1], TopicPartition(topic, 1): None})
    assert results[TopicPartition(topic, 0)] is None
    assert code_of(results[TopicPartition(topic, 1)]) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert admin.list_partition_reassignments() == {}
    [folder] = admin.describe_log_dirs()[1]
    assert topic in {found.name for found in folder.topics}
    assert admin.alter_replica_log_dirs(1, {TopicPartition(topic, 0): folder.log_dir}) == {TopicPartition(topic, 0): None}
    nowhere = admin.alter_replica_log_dirs(1, {TopicPartition(topic, 0): "/nowhere"})
    assert code_of(nowhere[TopicPartition(topic, 0)]) == ErrorCode.LOG_DIR_NOT_FOUND
    assert [voter.replica_id for voter in admin.describe_quorum().current_voters] == [1]
    admin.update_features({"eligible.leader.replicas.version": 0}, upgrade_type=SAFE_DOWNGRADE)
    with pytest.raises(KafkaError) as refused:
        admin.update_features({"metadata.version": 1})
    assert refused.value.code == ErrorCode.INVALID_UPDATE_VERSION
