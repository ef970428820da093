"""One request asks the controller for 10,000 records at most; above that nothing of it is carried out, and each item says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.test_kafka_answers import client_of, running
from tests.foreign_clients.wire import RawClient

from ottla.controller.operation_size import PARTITIONS_MAX, RECORDS_MAX
from ottla.errors import ErrorCode
from ottla.messages import alter_client_quotas as quotas
from ottla.messages.alter_configs import AlterableConfig as ReplacedConfig
from ottla.messages.alter_configs import AlterConfigsRequest
from ottla.messages.alter_configs import AlterConfigsResource as ReplacedResource
from ottla.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.messages.delete_topics import DeleteTopicsRequest
from ottla.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic

REFUSED = ErrorCode.POLICY_VIOLATION
HALF = RECORDS_MAX // 2
KEYS = ("retention.ms", "segment.ms", "retention.bytes", "flush.ms", "delete.retention.ms")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[RawClient]:
    with running(tmp_path) as broker, client_of(broker) as client:
        yield client


def names(client: RawClient) -> list[str | None]:
    return [topic.name for topic in client.ask(MetadataRequest(None), 8).topics]


def codes(results: Any) -> set[int]:
    return {result.error_code for result in results}


@pytest.mark.parametrize("validates", [False, True])
@pytest.mark.parametrize(
    "topics",
    [
        [CreatableTopic(f"t{number}", 1, 1) for number in range(HALF + 1)],  # a topic, and a partition
        [CreatableTopic(f"t{number}", -1, -1) for number in range(HALF + 1)],
        [CreatableTopic("a", HALF, 1), CreatableTopic("b", HALF + 1, 1)],
        [CreatableTopic("fits", 1, 1), CreatableTopic("one", RECORDS_MAX, 1)],
        [CreatableTopic(f"t{number}", 1, 1, configs=[CreatableTopicConfig(key, "1") for key in KEYS]) for number in range(1429)],
    ],
    ids=["topics", "defaults", "partitions", "one", "configs"],
)
def test_too_much_in_one_creation_makes_nothing(client: RawClient, topics: list[CreatableTopic], validates: bool) -> None:
    answer = client.ask(CreateTopicsRequest(topics, 10_000, validates), 7)
    assert codes(answer.topics) == {REFUSED}
    assert names(client) == []


def test_too_many_partitions_are_refused_in_kafkas_words(client: RawClient) -> None:
    answer = client.ask(CreateTopicsRequest([CreatableTopic("a", PARTITIONS_MAX, 1), CreatableTopic("b", 1, 1)], 10_000), 7)
    assert [topic.error_message for topic in answer.topics] == ["Excessively large number of partitions per request."] * 2


def test_topics_are_not_made_by_the_thousand_because_a_client_names_them(client: RawClient) -> None:
    wanted = [MetadataRequestTopic(name=f"t{number}") for number in range(HALF + 1)]
    answer = client.ask(MetadataRequest(wanted, allow_auto_topic_creation=True), 8)
    assert codes(answer.topics) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert names(client) == []


def test_growth_deletions_moves_and_values_are_bounded_alike(client: RawClient) -> None:
    assert codes(client.ask(CreateTopicsRequest([CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 1)], 10_000), 7).topics) == {0}
    grown = [CreatePartitionsTopic("a", HALF + 1), CreatePartitionsTopic("b", HALF + 2)]
    assert codes(client.ask(CreatePartitionsRequest(grown, 10_000), 3).results) == {REFUSED}
    deleted = ["a", *(f"t{number}" for number in range(RECORDS_MAX))]
    assert codes(client.ask(DeleteTopicsRequest(topic_names=deleted), 5).responses) == {REFUSED}
    moved = ReassignableTopic("a", [ReassignablePartition(index, [1]) for index in range(RECORDS_MAX + 1)])
    [answer] = client.ask(AlterPartitionReassignmentsRequest(topics=[moved]), 1).responses
    assert codes(answer.partitions) == {REFUSED}
    count = RECORDS_MAX // len(KEYS) + 1
    changed = [AlterConfigsResource(2, f"t{n}", [AlterableConfig(key, 0, "1") for key in KEYS]) for n in range(count)]
    assert codes(client.ask(IncrementalAlterConfigsRequest(changed), 1).responses) == {REFUSED}
    replaced = [ReplacedResource(2, f"t{n}", [ReplacedConfig(key, "1") for key in KEYS]) for n in range(count)]
    assert codes(client.ask(AlterConfigsRequest(replaced), 2).responses) == {REFUSED}
    rate = [quotas.OpData("producer_byte_rate", 1.0)]
    entries = [quotas.EntryData([quotas.EntityData("client-id", f"c{n}")], rate) for n in range(RECORDS_MAX + 1)]
    assert codes(client.ask(quotas.AlterClientQuotasRequest(entries), 1).entries) == {REFUSED}
    found = client.ask(MetadataRequest(None), 8).topics
    assert {topic.name: len(topic.partitions) for topic in found} == {"a": 1, "b": 1}
