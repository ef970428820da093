"""Dynamic configuration, by three admin clients and over a bare socket: described, changed, in force, and there after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource  # type: ignore[attr-defined]
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonResourceType
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.foreign_clients.wire import RawClient, batch_of, produce_request

from ottla.config import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS
from ottla.controller.features import MIN_ISR
from ottla.errors import ErrorCode
from ottla.messages import alter_configs, incremental_alter_configs
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult
from ottla.messages.list_config_resources import ListConfigResourcesRequest

WAIT_SECONDS_MAX = 30.0
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, _, DYNAMIC_CLIENT_METRICS, DYNAMIC_GROUP = range(1, 9)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("configs"), port=lasting_port(), log_retention_hours="24") as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: RawClient) -> str:
    name = str(request.node.name)
    assert client.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1)]), 7).topics[0].error_code == ErrorCode.NONE
    return name


def change(client: RawClient, kind: int, name: str, *edits: tuple[str, int, str | None], validate_only: bool = False) -> int:
    configs = [incremental_alter_configs.AlterableConfig(*edit) for edit in edits]
    resources = [incremental_alter_configs.AlterConfigsResource(kind, name, configs)]
    [result] = client.ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources, validate_only), 1).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return int(result.error_code)


def describe(client: RawClient, kind: int, name: str, *keys: str) -> dict[str, DescribeConfigsResourceResult]:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, list(keys) or None)], True, True)
    [result] = client.ask(request, 4).results
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {entry.name: entry for entry in result.configs}


def append(client: RawClient, topic: str, size: int) -> int:
    answer = client.ask(produce_request(topic, batch_of(bytes(size))), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


def test_every_key_of_every_resource_is_described_with_type_and_documentation(client: RawClient, topic: str) -> None:
    for kind, name, keys in (
        (TOPIC, topic, TOPIC_KEYS),
        (BROKER, "1", BROKER_KEYS),
        (GROUP, "g", GROUP_KEYS),
        (CLIENT_METRICS, "m", CLIENT_METRICS_KEYS),
    ):
        entries = describe(client, kind, name)
        assert entries.keys() == {key.name for key in keys.values() if not (key.is_internal or key.is_shown_when_set)}
        for entry in entries.values():
            key = keys[entry.name]
            assert (entry.config_type, entry.documentation) == (key.type.value, key.doc)
            assert entry.is_sensitive == key.is_sensitive
            assert entry.read_only == (kind == BROKER and not key.is_dynamic)


def test_values_come_with_their_source_and_what_they_would_else_be(client: RawClient, topic: str) -> None:
    assert change(client, TOPIC, topic, ("retention.ms", SET, "1000")) == ErrorCode.NONE
    entry = describe(client, TOPIC, topic)["retention.ms"]
    assert (entry.value, entry.config_source) == ("1000", DYNAMIC_TOPIC)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [("retention.ms", "1000", DYNAMIC_TOPIC)]
    assert change(client, TOPIC, topic, ("retention.ms", DELETE, None)) == ErrorCode.NONE
    entry = describe(client, TOPIC, topic, "retention.ms")["retention.ms"]
    assert (entry.value, entry.config_source, entry.synonyms) == (str(24 * 3_600_000), DEFAULT, []), "the file gives hours, of another key"
    assert change(client, TOPIC, topic, ("min.cleanable.dirty.ratio", SET, ".50")) == ErrorCode.NONE
    entry = describe(client, TOPIC, topic)["min.cleanable.dirty.ratio"]
    assert [entry.value, *(synonym.value for synonym in entry.synonyms)] == ["0.5", "0.5", "0.5"]
    assert change(client, TOPIC, topic, ("internal.segment.bytes", SET, "2000000")) == ErrorCode.NONE
    assert describe(client, TOPIC, topic)["internal.segment.bytes"].value == "2000000", "hidden only while it is not set"


def test_a_topics_change_is_in_force_for_the_next_request(client: RawClient, topic: str) -> None:
    assert append(client, topic, 2000) == ErrorCode.NONE
    assert change(client, TOPIC, topic, ("max.message.bytes", SET, "1000"), validate_only=True) == ErrorCode.NONE
    assert append(client, topic, 2000) == ErrorCode.NONE, "it was only asked whether that could be"
    assert change(client, TOPIC, topic, ("max.message.bytes", SET, "1000")) == ErrorCode.NONE
    assert append(client, topic, 2000) == ErrorCode.MESSAGE_TOO_LARGE
    assert change(client, TOPIC, topic, ("max.message.bytes", DELETE, None)) == ErrorCode.NONE
    assert append(client, topic, 2000) == ErrorCode.NONE


def test_a_brokers_change_is_in_force_and_weaker_than_the_topics(client: RawClient, topic: str) -> None:
    name = "message.max.bytes"
    try:
        assert change(client, BROKER, "", (name, SET, "1000")) == ErrorCode.NONE
        assert append(client, topic, 2000) == ErrorCode.MESSAGE_TOO_LARGE
        assert describe(client, BROKER, "").keys() == {name, MIN_ISR}
        entry = describe(client, BROKER, "1")[name]
        assert (entry.value, entry.config_source, entry.read_only) == ("1000", DYNAMIC_DEFAULT, False)
        assert change(client, BROKER, "1", (name, SET, "3000")) == ErrorCode.NONE
        assert append(client, topic, 2000) == ErrorCode.NONE
        assert describe(client, BROKER, "1")[name].config_source == DYNAMIC_BROKER
        assert describe(client, TOPIC, topic)["max.message.bytes"].config_source == DYNAMIC_BROKER
        assert change(client, TOPIC, topic, ("max.message.bytes", SET, "500")) == ErrorCode.NONE
        assert append(client, topic, 2000) == ErrorCode.MESSAGE_TOO_LARGE
    finally:
        assert change(client, BROKER, "1", (name, DELETE, None)) == ErrorCode.NONE
        assert change(client, BROKER, "", (name, DELETE, None)) == ErrorCode.NONE
    assert describe(client, BROKER, "1")[name].config_source == DEFAULT


def test_t21_good_bad_and_repeated_resources_in_one_request_are_answered_each_for_itself(client: RawClient, topic: str) -> None:
    resource, entry = incremental_alter_configs.AlterConfigsResource, incremental_alter_configs.AlterableConfig
    resources = [
        resource(TOPIC, topic, [entry("cleanup.policy", APPEND, "compact")]),
        resource(TOPIC, "absent", [entry("cleanup.policy", SET, "compact")]),
        resource(BROKER, "1", [entry("node.id", SET, "2")]),
        resource(BROKER, "", [entry("message.max.bytes", SET, "5")]),
        resource(BROKER, "", [entry("message.max.bytes", SET, "6")]),
        resource(TOPIC, topic + ".", [entry("cleanup.policy", 9, "compact")]),
        resource(LOGGER, "1", [entry("root", SET, "INFO")]),
    ]
    answer = client.ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources), 1)
    assert [(result.resource_type, result.resource_name, result.error_code) for result in answer.responses] == [
        (TOPIC, topic, ErrorCode.NONE),
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "1", ErrorCode.INVALID_REQUEST),
        (BROKER, "", ErrorCode.INVALID_REQUEST),
        (BROKER, "", ErrorCode.INVALID_REQUEST),
        (TOPIC, topic + ".", ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ErrorCode.NONE),
    ]
    assert describe(client, TOPIC, topic)["cleanup.policy"].value == "delete,compact"
    assert describe(client, BROKER, "").keys() == {MIN_ISR}


def test_the_older_request_replaces_the_complete_set(client: RawClient, topic: str) -> None:
    assert change(client, TOPIC, topic, ("retention.ms", SET, "1000"), ("flush.ms", SET, "7")) == ErrorCode.NONE
    for version in range(3):
        entries = [alter_configs.AlterableConfig("retention.ms", str(version)), alter_configs.AlterableConfig("segment.bytes", "2097152")]
        request = alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(TOPIC, topic, entries)])
        assert client.ask(request, version).responses[0].error_code == ErrorCode.NONE
        values = {entry.name: entry.value for entry in describe(client, TOPIC, topic).values() if entry.config_source == DYNAMIC_TOPIC}
        assert values == {"retention.ms": str(version), "segment.bytes": "2097152"}
    twice = [alter_configs.AlterableConfig("flush.ms", "1"), alter_configs.AlterableConfig("flush.ms", "2")]
    request = alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(TOPIC, topic, twice)])
    assert client.ask(request, 2).responses[0].error_code == ErrorCode.INVALID_REQUEST


def test_secrets_are_kept_and_never_returned(client: RawClient) -> None:
    name = "listener.name.inside.plain.sasl.jaas.config"
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="s3cret";'
    try:
        assert change(client, BROKER, "1", (name, SET, users)) == ErrorCode.NONE
        entry = describe(client, BROKER, "1")[name]
        assert (entry.value, entry.is_sensitive, entry.config_source) == (None, True, DYNAMIC_BROKER)
        assert all(synonym.value is None for synonym in entry.synonyms)
    finally:
        assert change(client, BROKER, "1", (name, DELETE, None)) == ErrorCode.NONE


def test_groups_and_subscriptions_are_configured_and_listed(client: RawClient, topic: str) -> None:
    assert change(client, GROUP, "of-configs", ("consumer.session.timeout.ms", SET, "50000")) == ErrorCode.NONE
    assert change(client, CLIENT_METRICS, "sub", ("interval.ms", SET, "1000"), ("match", APPEND, "client_id=a.*")) == ErrorCode.NONE
    entry = describe(client, GROUP, "of-configs")["consumer.session.timeout.ms"]
    assert (entry.value, entry.config_source) == ("50000", DYNAMIC_GROUP)
    assert describe(client, CLIENT_METRICS, "sub")["match"].config_source == DYNAMIC_CLIENT_METRICS
    listed = client.ask(ListConfigResourcesRequest(), 1).config_resources
    found = {(resource.resource_type, resource.resource_name) for resource in listed}
    assert {(TOPIC, topic), (BROKER, "1"), (GROUP, "of-configs"), (CLIENT_METRICS, "sub")} <= found
    assert [resource.resource_name for resource in client.ask(ListConfigResourcesRequest(), 0).config_resources] == ["sub"]
    only_groups = client.ask(ListConfigResourcesRequest([GROUP]), 1).config_resources
    assert [resource.resource_name for resource in only_groups] == ["of-configs"]
    assert client.ask(ListConfigResourcesRequest([3]), 1).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("kind", "name", "code"), [
    (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    (BROKER, "2", ErrorCode.INVALID_REQUEST), (GROUP, "", ErrorCode.INVALID_REQUEST), (LOGGER, "2", ErrorCode.INVALID_REQUEST),
])  # fmt: skip
def test_what_cannot_be_described_says_why(client: RawClient, kind: int, name: str, code: ErrorCode) -> None:
    [result] = client.ask(DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)]), 4).results
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


def test_confluent_kafka_describes_and_changes_incrementally(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entries = [
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ConfigEntry("retention.ms", "1234", incremental_operation=AlterConfigOpType.SET),
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    [future] = admin.incremental_alter_configs([resource]).values()
    future.result(WAIT_SECONDS_MAX)
    [described] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    configs: dict[str, Any] = described.result(WAIT_SECONDS_MAX)
    assert (configs["cleanup.policy"].value, configs["retention.ms"].value) == ("delete,compact", "1234")
    assert configs["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value


def test_kafka_python_describes_and_changes(broker: BrokerProcess, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.alter_configs([PythonResource(PythonResourceType.TOPIC, topic, {"retention.ms": "99"})])
        told = admin.describe_configs([PythonResource(PythonResourceType.TOPIC, topic)])
    finally:
        admin.close()
    assert "99" in str(told)


async def change_with_aiokafka(bootstrap: str, topic: str) -> Any:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.alter_configs([AioResource(AioResourceType.TOPIC, topic, {"retention.ms": "98"})])
        return await admin.describe_configs([AioResource(AioResourceType.TOPIC, topic)])
    finally:
        await admin.close()


def test_aiokafka_describes_and_changes(broker: BrokerProcess, topic: str) -> None:
    [response] = asyncio.run(asyncio.wait_for(change_with_aiokafka(broker.bootstrap, topic), WAIT_SECONDS_MAX))
    values = {entry[0]: entry[1] for entry in response.resources[0][4]}
    assert values["retention.ms"] == "98"


def test_changes_are_there_after_a_restart(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    assert change(client, TOPIC, topic, ("max.message.bytes", SET, "1000")) == ErrorCode.NONE
    assert change(client, BROKER, "1", ("log.index.interval.bytes", SET, "100")) == ErrorCode.NONE
    broker.kill()
    broker.start()
    with RawClient(broker.port) as again:
        assert append(again, topic, 2000) == ErrorCode.MESSAGE_TOO_LARGE
        assert describe(again, BROKER, "1")["log.index.interval.bytes"].value == "100"
        assert change(again, BROKER, "1", ("log.index.interval.bytes", DELETE, None)) == ErrorCode.NONE


def test_min_isr_is_the_clusters_while_eligible_leader_replicas_are_on(client: RawClient, topic: str) -> None:
    entry = describe(client, TOPIC, topic)[MIN_ISR]
    assert (entry.value, entry.config_source) == ("1", DYNAMIC_DEFAULT)
    assert change(client, BROKER, "1", (MIN_ISR, SET, "1")) == ErrorCode.INVALID_CONFIG
    assert change(client, BROKER, "", (MIN_ISR, DELETE, None)) == ErrorCode.INVALID_CONFIG
    assert change(client, BROKER, "", (MIN_ISR, SET, "2")) == ErrorCode.NONE
    assert describe(client, TOPIC, topic)[MIN_ISR].value == "2"
    assert change(client, BROKER, "", (MIN_ISR, SET, "1")) == ErrorCode.NONE
