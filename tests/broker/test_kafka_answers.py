"""Answers as Apache Kafka 4.3 gives them; what it answers was observed on a running one, or read in its source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.wire import RawClient

from ottla.errors import ErrorCode
from ottla.messages import alter_client_quotas as quotas
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.runtime.serve import BrokerThread

UNKNOWN_ID = b"\1" * 16


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with running(tmp_path_factory.mktemp("data")) as broker:
        yield broker


def running(folder: Path, **properties: str) -> BrokerThread:
    fixed = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), "offsets.topic.num.partitions": "1"}
    return BrokerThread(fixed | {name.replace("_", "."): value for name, value in properties.items()})


def client_of(broker: BrokerThread) -> RawClient:
    return RawClient(next(iter(broker.addresses.values()))[1])


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with client_of(broker) as client:
        yield client


def create(client: RawClient, name: str) -> bytes:
    """The topic's id."""
    [made] = client.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 30_000), 7).topics
    assert made.error_code == 0
    return bytes(made.topic_id)


def commit(client: RawClient, group: str, topic: str, *, count: int = 1) -> list[int]:
    client.ask(FindCoordinatorRequest(key=group), 3)  # makes the offsets topic
    partitions = [OffsetCommitRequestPartition(0, 5)] * count
    topics = [OffsetCommitRequestTopic(topic, partitions=partitions)]
    answer = client.ask(OffsetCommitRequest(group, topics=topics), 8)
    return [result.error_code for found in answer.topics for result in found.partitions]


def test_an_entity_that_is_listed_again_is_ignored_and_its_one_result_says_so(client: RawClient) -> None:
    """Kafka applies the first entry, and answers INVALID_REQUEST once for the entity."""

    def entry(user: str, rate: float) -> quotas.EntryData:
        return quotas.EntryData([quotas.EntityData("user", user)], [quotas.OpData("producer_byte_rate", rate, False)])

    answer = client.ask(quotas.AlterClientQuotasRequest([entry("twice", 1.0), entry("once", 2.0), entry("twice", 3.0)]), 1)
    assert [(found.entity[0].entity_name, found.error_code) for found in answer.entries] == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("once", ErrorCode.NONE),
    ]
    stored = client.ask(DescribeClientQuotasRequest([ComponentData("user", 2, None)], False), 1).entries
    assert {found.entity[0].entity_name: found.values[0].value for found in stored} == {"twice": 1.0, "once": 2.0}


def test_a_commit_of_far_too_many_offsets_is_refused_for_each(client: RawClient) -> None:
    """Kafka: UNKNOWN_SERVER_ERROR for each partition, in requests of any size."""
    create(client, "many")
    assert commit(client, "many", "many", count=60_000) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 60_000
    assert commit(client, "many", "many", count=3) == [0, 0, 0]


def test_unknown_topic_ids_come_after_the_topics_that_are_known(client: RawClient) -> None:
    """OffsetFetch v10: Kafka appends the topics that it refuses."""
    topic_id = create(client, "known")
    commit(client, "ids", "known")
    wanted = OffsetFetchRequestGroup("ids", topics=[OffsetFetchRequestTopics("", found, [0]) for found in (UNKNOWN_ID, topic_id)])
    [group] = client.ask(OffsetFetchRequest(groups=[wanted]), 10).groups
    assert [(found.topic_id, found.partitions[0].error_code) for found in group.topics] == [
        (topic_id, 0),
        (UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_offsets_of_an_empty_group_id_cannot_be_deleted(client: RawClient) -> None:
    """OffsetDelete: Kafka answers INVALID_GROUP_ID."""
    create(client, "deleted")
    topics = [OffsetDeleteRequestTopic("deleted", [OffsetDeleteRequestPartition(0)])]
    assert client.ask(OffsetDeleteRequest("", topics), 0).error_code == ErrorCode.INVALID_GROUP_ID
