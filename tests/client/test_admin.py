"""The admin client against a real broker, by its blocking face: every method, with what it returns for good and bad items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.sync import (
    Admin,
    Append,
    Broker,
    BrokerLoggers,
    ConfigKind,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Group,
    NewTopic,
    Producer,
    QuotaMatch,
    Subtract,
    Topic,
    TopicPartition,
    UpgradeType,
)


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


OWN = {ConfigSource.TOPIC, ConfigSource.BROKER, ConfigSource.GROUP}


def own_values(admin: Admin, resource: Topic | Broker | Group) -> dict[str, str | None]:
    """Those of the resource itself, and of brokers: a cluster's defaults are not its own."""
    return {name: entry.value for name, entry in admin.describe_configs(resource).items() if entry.source in OWN}


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
    changes: dict[str, Any] = {"cleanup.policy": Append("compact"), "retention.ms": 1000, "preallocate": True}
    admin.alter_configs({Topic(topic): changes}, validate_only=True)
    assert own_values(admin, Topic(topic)) == {}
    admin.alter_configs({Topic(topic): changes})
    assert own_values(admin, Topic(topic)) == {"cleanup.policy": "delete,compact", "retention.ms": "1000", "preallocate": "true"}
    found = admin.describe_configs(Topic(topic))["retention.ms"]
    assert (found.source, found.type, found.is_read_only, found.is_sensitive) == (ConfigSource.TOPIC, ConfigType.LONG, False, False)
    assert found.synonyms[0] == ConfigSynonym("retention.ms", "1000", ConfigSource.TOPIC)
    admin.alter_configs({Topic(topic): {"retention.ms": None, "cleanup.policy": Subtract("delete"), "preallocate": None}})
    assert own_values(admin, Topic(topic)) == {"cleanup.policy": "compact"}
    admin.replace_configs(Topic(topic), {"flush.ms": "7"})
    assert own_values(admin, Topic(topic)) == {"flush.ms": "7"}


def test_one_resource_that_is_refused_keeps_no_other_back_and_says_so(admin: Admin, topic: str) -> None:
    with pytest.raises(KafkaError) as refused:
        admin.alter_configs({Topic("absent"): {"flush.ms": 1}, Topic(topic): {"flush.ms": 7}, Broker(1): {"num.io.threads": "many"}})
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "num.io.threads" in refused.value.__notes__[0]
    assert own_values(admin, Topic(topic)) == {"flush.ms": "7"}


def test_what_is_no_resource_or_no_value_says_what_one_is(admin: Admin) -> None:
    with pytest.raises(TypeError, match=r'give Topic\("orders"\)'):
        admin.describe_configs("orders")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"flush.ms=\[1\]: give a string"):
        admin.alter_configs({Topic("t"): {"flush.ms": [1]}})  # type: ignore[dict-item]


def test_brokers_and_groups_are_configured_and_listed(admin: Admin, topic: str) -> None:
    admin.alter_configs({Broker(1): {"log.index.interval.bytes": 100}})
    assert own_values(admin, Broker(1)) == {"log.index.interval.bytes": "100"}
    admin.alter_configs({Group("g"): {"consumer.session.timeout.ms": 50_000}})
    assert {Topic(topic), Broker(1), BrokerLoggers(1), Group("g")} <= set(admin.list_config_resources())
    assert admin.list_config_resources([ConfigKind.GROUP]) == [Group("g")]
    assert admin.describe_configs(BrokerLoggers(1))["root"].source is ConfigSource.BROKER_LOGGER


def test_quotas_are_set_found_and_removed(admin: Admin) -> None:
    user, nonsense = (("user", "a"),), (("planet", "a"),)
    results = admin.alter_client_quotas({user: {"producer_byte_rate": 5.0}, nonsense: {"producer_byte_rate": 5.0}})
    assert results[user] is None
    assert code_of(results[nonsense]) == ErrorCode.INVALID_REQUEST
    assert admin.describe_client_quotas({"user": QuotaMatch.ANY}, strict=True) == {user: {"producer_byte_rate": 5.0}}
    assert admin.describe_client_quotas({"user": "a"}) == {user: {"producer_byte_rate": 5.0}}
    assert admin.describe_client_quotas({"user": QuotaMatch.DEFAULT}) == {}
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
    [directory] = admin.describe_log_dirs()[1]
    assert topic in {found.partition.topic for found in directory.replicas}
    assert admin.alter_replica_log_dirs(1, {TopicPartition(topic, 0): directory.path}) == {TopicPartition(topic, 0): None}
    nowhere = admin.alter_replica_log_dirs(1, {TopicPartition(topic, 0): "/nowhere"})
    assert code_of(nowhere[TopicPartition(topic, 0)]) == ErrorCode.LOG_DIR_NOT_FOUND
    assert [voter.node_id for voter in admin.describe_quorum().voters] == [1]
    admin.update_features({"eligible.leader.replicas.version": 0}, upgrade_type=UpgradeType.SAFE_DOWNGRADE)
    with pytest.raises(KafkaError) as refused:
        admin.update_features({"metadata.version": 1})
    assert refused.value.code == ErrorCode.INVALID_UPDATE_VERSION
