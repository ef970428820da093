"""The admin APIs of partitions, directories, producers, offsets, leaders and features, by foreign clients and over a bare socket."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from confluent_kafka import ConsumerGroupTopicPartitions, ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec  # type: ignore[attr-defined]
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import LogDirNotFoundError, NoError
from kafka.structs import TopicPartitionReplica
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.foreign_clients.wire import RawClient, batch_of, end_offsets, produce_request

from ottla.errors import ErrorCode
from ottla.messages import describe_producers, describe_quorum, elect_leaders
from ottla.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from ottla.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

WAIT_SECONDS_MAX = 30.0
EARLIEST = -2


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("admin")
    dirs = ",".join(str(directory / name) for name in ("first", "second"))
    with BrokerProcess(directory, port=lasting_port(), log_dirs=dirs, offsets_topic_num_partitions="1") as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: RawClient) -> str:
    name = request.node.name.replace("[", ".").replace("]", "")
    assert client.ask(CreateTopicsRequest([CreatableTopic(name, 2, 1)]), 7).topics[0].error_code == ErrorCode.NONE
    return str(name)


def append(client: RawClient, topic: str, count: int, **fields: int) -> None:
    answer = client.ask(produce_request(topic, batch_of(*[b"value"] * count, **fields)), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def start_offset(client: RawClient, topic: str) -> int:
    wanted = [ListOffsetsPartition(0, timestamp=EARLIEST)]
    return int(client.ask(ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, wanted)]), 1).topics[0].partitions[0].offset)


def fetch_code(client: RawClient, topic: str, offset: int) -> int:
    request = FetchRequest(
        min_bytes=1, topics=[FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=1000)])]
    )
    return int(client.ask(request, 12).responses[0].partitions[0].error_code)


# Partitions


def partition_count(client: RawClient, topic: str) -> int:
    return len(client.ask(MetadataRequest([MetadataRequestTopic(name=topic)]), 9).topics[0].partitions)


def test_t21_topics_grow_or_say_why_not_each_for_itself(client: RawClient, topic: str) -> None:
    wanted = [
        CreatePartitionsTopic(topic, 4, None),
        CreatePartitionsTopic("absent", 4, None),
        CreatePartitionsTopic("twice", 4, None),
        CreatePartitionsTopic("twice", 5, None),
    ]
    for version in range(4):
        wanted[0].count = 3 + version
        validated = client.ask(CreatePartitionsRequest(wanted, 1000, True), version)
        assert partition_count(client, topic) == 2 + version, "only asked whether that could be"
        answer = client.ask(CreatePartitionsRequest(wanted, 1000), version)
        assert answer.results == validated.results
        assert [(result.name, result.error_code) for result in answer.results] == [
            (topic, ErrorCode.NONE),
            ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("twice", ErrorCode.INVALID_REQUEST),
        ]
        assert partition_count(client, topic) == 3 + version
    placed = CreatePartitionsTopic(topic, 7, [CreatePartitionsAssignment([7])])
    assert client.ask(CreatePartitionsRequest([placed]), 3).results[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_new_partition_takes_records_at_once_and_keeps_them(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    assert client.ask(CreatePartitionsRequest([CreatePartitionsTopic(topic, 5, None)]), 3).results[0].error_code == ErrorCode.NONE
    answer = client.ask(produce_request(topic, batch_of(b"a"), batch_of(b"b"), batch_of(b"c"), partition=2), 9)
    assert [result.error_code for result in answer.responses[0].partition_responses] == [ErrorCode.NONE] * 3
    broker.kill()
    broker.start()
    with RawClient(broker.port) as again:
        assert end_offsets(again, topic, 5) == [0, 0, 1, 1, 1]


def test_foreign_clients_add_partitions(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    confluent = AdminClient({"bootstrap.servers": broker.bootstrap})
    [future] = confluent.create_partitions([NewPartitions(topic, 3)]).values()
    future.result(WAIT_SECONDS_MAX)
    assert partition_count(client, topic) == 3

    async def grow() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        await admin.create_partitions({topic: AioNewPartitions(4)})
        await admin.close()

    asyncio.run(asyncio.wait_for(grow(), WAIT_SECONDS_MAX))
    assert partition_count(client, topic) == 4


# Records


def delete_records(client: RawClient, topic: str, offset: int, partition: int = 0, version: int = 2) -> tuple[int, int]:
    wanted = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, offset)])]
    result = client.ask(DeleteRecordsRequest(wanted, 1000), version).topics[0].partitions[0]
    return result.error_code, result.low_watermark


def test_records_before_an_offset_are_deleted_permanently(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    append(client, topic, 10)
    assert delete_records(client, topic, 4, version=0) == (ErrorCode.NONE, 4)
    assert delete_records(client, topic, 3, version=1) == (ErrorCode.NONE, 4), "a log never begins earlier again"
    assert fetch_code(client, topic, 3) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch_code(client, topic, 4) == ErrorCode.NONE
    broker.kill()
    broker.start()
    with RawClient(broker.port) as again:
        assert (start_offset(again, topic), end_offsets(again, topic, 1)) == (4, [10])
        assert delete_records(again, topic, -1) == (ErrorCode.NONE, 10), "-1 is the high watermark"
        assert fetch_code(again, topic, 10) == ErrorCode.NONE
        append(again, topic, 1)
        assert end_offsets(again, topic, 1) == [11]


def test_records_that_cannot_be_deleted_say_why(client: RawClient, topic: str) -> None:
    append(client, topic, 1)
    configs = [CreatableTopicConfig("cleanup.policy", "compact")]
    client.ask(CreateTopicsRequest([CreatableTopic("compacted-only", 1, 1, configs=configs)]), 7)
    assert delete_records(client, topic, 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(client, topic, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(client, topic, 0, partition=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_records(client, "absent", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_records(client, "compacted-only", 0) == (ErrorCode.POLICY_VIOLATION, -1)
    ensure_groups(client)
    assert delete_records(client, "__consumer_offsets", 0) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def ensure_groups(client: RawClient) -> None:
    """The topic of the groups is there, and its coordinator has read it."""
    while client.ask(FindCoordinatorRequest("g", 0, ["g"]), 4).coordinators[0].error_code:
        pass
    while commit(client, "probe", "absent", 0) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass


def test_foreign_clients_delete_records(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    append(client, topic, 10)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [future] = admin.delete_records([TopicPartition(topic, 0, 3)]).values()
    assert future.result(WAIT_SECONDS_MAX).low_watermark == 3
    python = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        python.delete_records({PythonTopicPartition(topic, 0): 5})
    finally:
        python.close()
    [listed] = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}).values()
    assert listed.result(WAIT_SECONDS_MAX).offset == 5


# Directories


def test_log_directories_report_their_replicas_sizes_and_space(client: RawClient, broker: BrokerProcess, topic: str) -> None:
    append(client, topic, 3)
    for version in range(1, 6):
        answer = client.ask(DescribeLogDirsRequest(None), version)
        assert {result.log_dir for result in answer.results} == {str(broker.directory / name) for name in ("first", "second")}
        sizes = {
            (found.name, part.partition_index): part.partition_size
            for dir_ in answer.results
            for found in dir_.topics
            for part in found.partitions
        }
        assert sizes[topic, 0] > sizes[topic, 1] == 0
        for result in answer.results:
            assert result.error_code == ErrorCode.NONE
            assert (0 < result.usable_bytes < result.total_bytes) if version >= 4 else result.total_bytes == -1
    only = client.ask(DescribeLogDirsRequest([DescribableLogDirTopic(topic, [1, 7]), DescribableLogDirTopic("absent", [0])]), 5)
    assert [(found.name, [part.partition_index for part in found.partitions]) for dir_ in only.results for found in dir_.topics] == [
        (topic, [1])
    ]


def test_kafka_python_describes_log_directories(broker: BrokerProcess, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        assert topic in str(admin.describe_log_dirs())
    finally:
        admin.close()


def test_kafka_python_moves_a_replica_to_another_log_directory(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    append(client, topic, 3)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        replica = TopicPartitionReplica(topic, 0, 1)
        directories = {str(broker.directory / name) for name in ("first", "second")}
        source = directory_of(client, topic)
        [target] = directories - {source}
        assert admin.alter_replica_log_dirs({replica: source}) == {replica: NoError}
        assert admin.alter_replica_log_dirs({replica: "/nowhere"}) == {replica: LogDirNotFoundError}
        assert admin.alter_replica_log_dirs({replica: target}) == {replica: NoError}
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while directory_of(client, topic) != target or os.path.exists(f"{source}/{topic}-0"):
            assert time.monotonic() < deadline
        append(client, topic, 2)
        assert end_offsets(client, topic, 2) == [5, 0]
    finally:
        admin.close()


def directory_of(client: RawClient, topic: str) -> str:
    """Where the first partition lies; a replica on its way does not count."""
    [directory] = [
        str(directory.log_dir)
        for directory in client.ask(DescribeLogDirsRequest([DescribableLogDirTopic(topic, [0])]), 4).results
        for found in directory.topics
        for replica in found.partitions
        if not replica.is_future_key
    ]
    return directory


# Producers


def test_the_producers_of_a_partition_are_described(client: RawClient, topic: str) -> None:
    append(client, topic, 3, producer_id=4711, producer_epoch=2, base_sequence=0)
    request = describe_producers.DescribeProducersRequest(
        [describe_producers.TopicRequest(topic, [0, 1, 9]), describe_producers.TopicRequest("a/b", [0])]
    )
    first, second = client.ask(request, 0).topics
    [producer] = first.partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (4711, 2, 2)
    assert producer.last_timestamp > 0
    assert producer.current_txn_start_offset == -1
    assert (first.partitions[1].error_code, first.partitions[1].active_producers) == (ErrorCode.NONE, [])
    assert first.partitions[2].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert second.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# Offsets of groups


def commit(client: RawClient, group: str, topic: str, partition: int) -> int:
    wanted = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(partition, 5, -1, "")])]
    return int(client.ask(OffsetCommitRequest(group, -1, "", None, -1, wanted), 8).topics[0].partitions[0].error_code)


def test_committed_offsets_of_single_partitions_are_deleted(client: RawClient, broker: BrokerProcess, topic: str) -> None:
    ensure_groups(client)
    group = f"of-{topic}"
    for partition in (0, 1):
        assert commit(client, group, topic, partition) == ErrorCode.NONE
    wanted = [
        OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]),
        OffsetDeleteRequestTopic("absent", [OffsetDeleteRequestPartition(0)]),
    ]
    answer = client.ask(OffsetDeleteRequest(group, wanted), 0)
    assert answer.error_code == ErrorCode.NONE
    assert [[part.error_code for part in found.partitions] for found in answer.topics] == [
        [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]  # fmt: skip
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [future] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert [(found.partition, found.offset) for found in future.result(WAIT_SECONDS_MAX).topic_partitions] == [(1, 5)]
    assert client.ask(OffsetDeleteRequest("nobody", wanted), 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# Leaders and replicas


def test_one_broker_leads_all_and_is_where_all_replicas_are(client: RawClient, broker: BrokerProcess, topic: str) -> None:
    for version in range(3):
        wanted = [elect_leaders.TopicPartitions(topic, [0]), elect_leaders.TopicPartitions("absent", [0])]
        answer = client.ask(elect_leaders.ElectLeadersRequest(0, wanted, 1000), version)
        assert [(result.topic, [part.error_code for part in result.partition_result]) for result in answer.replica_election_results] == [
            (topic, [ErrorCode.ELECTION_NOT_NEEDED]), ("absent", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ]  # fmt: skip
        assert client.ask(elect_leaders.ElectLeadersRequest(0, None, 1000), version).replica_election_results == []
    assert client.ask(elect_leaders.ElectLeadersRequest(7, None, 1000), 2).error_code == ErrorCode.INVALID_REQUEST
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    future = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)])
    [error] = future.result(WAIT_SECONDS_MAX).values()
    assert error.code() == ErrorCode.ELECTION_NOT_NEEDED


def test_there_is_nothing_to_move_and_nothing_moves(client: RawClient, topic: str) -> None:
    wanted = [
        ReassignablePartition(0, [1]),
        ReassignablePartition(1, [1, 2]),
        ReassignablePartition(9, [1]),
        ReassignablePartition(0, None),
    ]
    for version in range(2):
        answer = client.ask(AlterPartitionReassignmentsRequest(1000, True, [ReassignableTopic(topic, wanted)]), version)
        assert [result.error_code for result in answer.responses[0].partitions] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ]
    assert client.ask(ListPartitionReassignmentsRequest(1000, None), 0).topics == []


# The cluster


def test_the_quorum_is_this_broker(client: RawClient) -> None:
    wanted = [
        describe_quorum.TopicData("__cluster_metadata", [describe_quorum.PartitionData(0), describe_quorum.PartitionData(1)]),
        describe_quorum.TopicData("absent", [describe_quorum.PartitionData(0)]),
    ]
    for version in range(3):
        answer = client.ask(describe_quorum.DescribeQuorumRequest(wanted), version)
        quorum, other = answer.topics[0].partitions
        assert (quorum.leader_id, [voter.replica_id for voter in quorum.current_voters], quorum.observers) == (1, [1], [])
        assert quorum.high_watermark == quorum.current_voters[0].log_end_offset > 0
        assert other.error_code == answer.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [node.node_id for node in answer.nodes] == ([1] if version >= 2 else [])


def finalized(client: RawClient) -> dict[str, int]:
    return {key.name: key.max_version_level for key in client.ask(ApiVersionsRequest("probe", "1"), 4).finalized_features}


def test_feature_levels_move_and_stay_where_they_were_put(broker: BrokerProcess, client: RawClient) -> None:
    def update(level: int, upgrade_type: int, version: int = 1, *, validate_only: bool = False, allow_downgrade: bool = False) -> Any:
        key = FeatureUpdateKey("metadata.version", level, allow_downgrade, upgrade_type)
        return client.ask(UpdateFeaturesRequest(1000, [key], validate_only), version)

    assert finalized(client) == {
        "eligible.leader.replicas.version": 1,
        "metadata.version": 30,
        "transaction.version": 2,
        "group.version": 1,
    }
    for level, upgrade_type in ((28, 1), (29, 2), (29, 3)):  # 30 brought new records: Kafka goes down from it by no means
        refused = update(level, upgrade_type)
        assert (refused.error_code, refused.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert update(30, 1, validate_only=True).error_code == ErrorCode.NONE
    elr = FeatureUpdateKey("eligible.leader.replicas.version", 0, False, 2)
    answer = client.ask(UpdateFeaturesRequest(1000, [elr], False), 2)
    assert (answer.error_code, answer.results) == (ErrorCode.NONE, [])
    broker.kill()
    broker.start()
    with RawClient(broker.port) as again:
        assert finalized(again) == {"metadata.version": 30, "transaction.version": 2, "group.version": 1}, "a restart does not raise it"
