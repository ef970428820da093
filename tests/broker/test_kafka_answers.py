"""Answers as Apache Kafka 4.3 gives them; what it answers was observed on a running one, or read in its source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from tests.foreign_clients.wire import RawClient, batch_of, produce_request

from ottla import loggers
from ottla.broker.handlers.list_offsets import EARLIEST
from ottla.errors import ErrorCode
from ottla.messages import alter_client_quotas as quotas
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.messages.describe_cluster import DescribeClusterRequest
from ottla.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.messages.describe_groups import DescribeGroupsRequest
from ottla.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.list_config_resources import ListConfigResourcesRequest
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.messages.list_transactions import ListTransactionsRequest
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.messages.unregister_broker import UnregisterBrokerRequest
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_TOPIC
from ottla.records.compression import Codec
from ottla.runtime.serve import BrokerThread
from ottla.wire.schema import ZERO_UUID

UNKNOWN_ID = b"\1" * 16


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with running(tmp_path_factory.mktemp("data")) as broker:
        yield broker


def running(directory: Path, **properties: str) -> BrokerThread:
    fixed = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory), "offsets.topic.num.partitions": "1"}
    return BrokerThread(fixed | {name.replace("_", "."): value for name, value in properties.items()})


def client_of(broker: BrokerThread) -> RawClient:
    return RawClient(client_port(broker))


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


def test_the_parts_of_an_entity_are_answered_in_order_of_their_types(client: RawClient) -> None:
    """Kafka's hash table has client-id before user, and @platformatic/kafka's own tests compare lists."""
    parts = [quotas.EntityData("user", "ada"), quotas.EntityData("client-id", "app")]
    entry = quotas.EntryData(parts, [quotas.OpData("producer_byte_rate", 1.0, False)])
    [result] = client.ask(quotas.AlterClientQuotasRequest([entry]), 1).entries
    assert (result.error_code, result.entity) == (0, parts[::-1])


def test_a_resource_of_whose_configuration_no_key_is_named_is_described_whole(client: RawClient) -> None:
    create(client, "described")
    whole, none_named = DescribeConfigsResource(RESOURCE_TOPIC, "described", None), DescribeConfigsResource(RESOURCE_TOPIC, "described", [])
    answers = [client.ask(DescribeConfigsRequest([wanted]), 4).results for wanted in (whole, none_named)]
    assert answers[0] == answers[1]
    assert len(answers[1][0].configs) > 20


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


def test_authorized_operations_are_those_of_the_type_of_resource(client: RawClient) -> None:
    """Kafka's bit fields: a cluster has no WRITE, a group has its configuration's operations."""
    create(client, "operations")
    commit(client, "operations", "operations")
    assert client.ask(DescribeClusterRequest(True), 2).cluster_authorized_operations == 0b0001_1111_1010_0000
    wanted = MetadataRequest([MetadataRequestTopic(name="operations")], True, True, True)
    answer = client.ask(wanted, 9)
    assert answer.cluster_authorized_operations == 0b0001_1111_1010_0000
    assert answer.topics[0].topic_authorized_operations == 0b0000_1101_1111_1000
    groups = client.ask(DescribeGroupsRequest(["operations", "unknown"], True), 6).groups
    assert [group.authorized_operations for group in groups] == [0b0000_1101_0100_1000, -(2**31)]


def test_what_a_client_may_do_with_a_topic_is_answered_whether_it_exists_or_not(client: RawClient) -> None:
    names = {"never-made": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no name!": ErrorCode.INVALID_TOPIC_EXCEPTION}
    internal = {"never-made": False, "__transaction_state": True}
    asked = [*names, "__transaction_state"]
    by_metadata = client.ask(MetadataRequest([MetadataRequestTopic(name=name) for name in asked], False, False, True), 9)
    by_pages = client.ask(DescribeTopicPartitionsRequest([TopicRequest(name) for name in asked]), 0)
    for answer in (by_metadata, by_pages):
        found = {topic.name: topic for topic in answer.topics}
        assert {name: found[name].error_code for name in names} == names
        assert {topic.topic_authorized_operations for topic in answer.topics} == {0b0000_1101_1111_1000}
        assert {name: found[name].is_internal for name in internal} == internal
    refused = client.ask(MetadataRequest([MetadataRequestTopic(UNKNOWN_ID, None)], False, False, True), 12).topics
    assert [(topic.error_code, topic.topic_authorized_operations) for topic in refused] == [(ErrorCode.UNKNOWN_TOPIC_ID, -(2**31))]


def test_a_batch_in_zstd_needs_a_request_that_may_have_it(client: RawClient) -> None:
    """KIP-110: a producer that sends v6 is older than the codec."""
    create(client, "codecs")
    for codec in (Codec.GZIP, Codec.ZSTD):
        for version in (3, 6, 7):
            [[result]] = [
                topic.partition_responses for topic in client.ask(produce_request("codecs", batch_of(b"v", codec=codec)), version).responses
            ]
            is_refused = codec == Codec.ZSTD and version < 7
            assert result.error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if is_refused else 0)


def test_a_topic_to_delete_has_a_name_or_an_id(client: RawClient) -> None:
    topic_id = create(client, "to-delete")
    wanted = [DeleteTopicState(None, ZERO_UUID), DeleteTopicState("to-delete", topic_id), DeleteTopicState(None, UNKNOWN_ID)]
    answers = [client.ask(DeleteTopicsRequest([one]), 6).responses[0].error_code for one in wanted]
    assert answers == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("name", ["", None, "byid", "other"])
def test_metadata_by_id_looks_at_no_names(client: RawClient, name: str | None) -> None:
    """Java's client sends an id with the name ""; Kafka passes over any name where a topic is asked for by its id."""
    if "byid" not in {topic.name for topic in client.ask(MetadataRequest(None), 12).topics}:
        create(client, "byid")
    topic_id = next(topic.topic_id for topic in client.ask(MetadataRequest(None), 12).topics if topic.name == "byid")
    wanted = [MetadataRequestTopic(topic_id, name), MetadataRequestTopic(UNKNOWN_ID, name), MetadataRequestTopic(name="passed-over")]
    answer = client.ask(MetadataRequest(wanted, False), 12)
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics] == [
        ("byid", topic_id, 0),
        (None, UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_metadata_before_version_12_takes_no_ids(client: RawClient) -> None:
    """Kafka: INVALID_REQUEST for all of the request, for ids and for names that are null."""
    for odd in (MetadataRequestTopic(UNKNOWN_ID, "x"), MetadataRequestTopic(name=None)):
        answer = client.ask(MetadataRequest([odd, MetadataRequestTopic(name="y")], False), 11)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [(odd.name or "", 42), ("y", 42)]


def test_what_a_request_lists_twice_is_refused_alike_by_all_that_change_topics(client: RawClient) -> None:
    """Kafka: INVALID_REQUEST, wherever it is listed; the name is cut short in the text."""
    name = "listed-" + "x" * 240
    create(client, name)
    creations = client.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1)] * 2, 30_000), 7).topics
    grown = client.ask(CreatePartitionsRequest([CreatePartitionsTopic(name, 4, None)] * 2, 30_000), 3).results
    deletions = client.ask(DeleteTopicsRequest([DeleteTopicState(name)] * 2, [], 30_000), 6).responses
    changes = client.ask(IncrementalAlterConfigsRequest([AlterConfigsResource(RESOURCE_TOPIC, name, [])] * 2), 1).responses
    refused = {
        (kind, ErrorCode.INVALID_REQUEST, f"{kind} {name[:200]!r} is listed 2 times in the request") for kind in ("topic", "resource")
    }
    found = [("topic", result) for result in (*creations, *grown, *deletions)] + [("resource", result) for result in changes]
    assert [len(results) for results in (creations, grown, deletions, changes)] == [1, 1, 2, 2]
    assert {(kind, result.error_code, result.error_message) for kind, result in found} == refused
    asked = ListOffsetsTopic(name, [ListOffsetsPartition(0, timestamp=EARLIEST)])
    [first, second] = client.ask(ListOffsetsRequest(-1, topics=[asked, asked]), 7).topics
    assert first.partitions[0].error_code == second.partitions[0].error_code == ErrorCode.INVALID_REQUEST


def test_internal_topics_are_created_and_deleted_like_others_and_the_metadata_log_is_no_topic(tmp_path: Path) -> None:
    """Kafka creates and deletes __consumer_offsets for any client; __cluster_metadata is INVALID_REQUEST, or unknown."""
    with running(tmp_path) as broker, client_of(broker) as client:
        for name in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
            create(client, name)
        internal = {topic.name: topic.is_internal for topic in client.ask(MetadataRequest(None), 12).topics}
        assert internal == {"__consumer_offsets": True, "__transaction_state": True, "__share_group_state": True}
        [refused] = client.ask(CreateTopicsRequest([CreatableTopic("__cluster_metadata", 1, 1)], 30_000), 7).topics
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        create(client, "t")
        assert commit(client, "g", "t") == [0]
        names = ["__consumer_offsets", "__cluster_metadata"]
        deleted = client.ask(DeleteTopicsRequest([DeleteTopicState(name) for name in names], [], 30_000), 6).responses
        assert [result.error_code for result in deleted] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 5)])])
        assert client.ask(request, 8).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        wanted = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])
        assert client.ask(FindCoordinatorRequest(key="g"), 3).error_code == 0  # the topic is there again, without what was in it
        assert client.ask(OffsetFetchRequest(groups=[wanted]), 9).groups[0].topics[0].partitions[0].committed_offset == -1
        assert commit(client, "g", "t") == [0]


@pytest.mark.parametrize(("host", "told"), [("localhost", "localhost"), ("127.0.0.1", "127.0.0.1"), ("", "localhost")])
def test_a_listeners_host_is_advertised_as_it_is_written(tmp_path: Path, host: str, told: str) -> None:
    """Kafka advertises the name, and not the address that it was bound to; for every interface, the name of the machine."""
    with running(tmp_path, listeners=f"PLAINTEXT://{host}:0") as broker, client_of(broker) as client:
        assert [found.host for found in client.ask(MetadataRequest([]), 9).brokers] == [told]


def test_offsets_of_an_empty_group_id_cannot_be_deleted(client: RawClient) -> None:
    """OffsetDelete: Kafka answers INVALID_GROUP_ID."""
    create(client, "deleted")
    topics = [OffsetDeleteRequestTopic("deleted", [OffsetDeleteRequestPartition(0)])]
    assert client.ask(OffsetDeleteRequest("", topics), 0).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_brokers_unknown_keys_are_kept_and_never_returned(tmp_path: Path) -> None:
    """Kafka lists such a key as sensitive, read-only and of no known type, with a synonym for each place where it is set."""
    with running(tmp_path) as broker, client_of(broker) as client:
        for name in ("1", ""):
            change = AlterConfigsResource(RESOURCE_BROKER, name, [AlterableConfig("my.key", 0, "secret")])
            assert client.ask(IncrementalAlterConfigsRequest([change]), 1).responses[0].error_code == 0
        wanted = [DescribeConfigsResource(RESOURCE_BROKER, name, ["my.key"]) for name in ("1", "")]
        own, default = client.ask(DescribeConfigsRequest(wanted, True), 4).results
        [entry] = own.configs
        assert (entry.value, entry.read_only, entry.config_source, entry.is_sensitive, entry.config_type) == (None, True, 2, True, 0)
        assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [("my.key", None, 2), ("my.key", None, 3)]
        [entry] = default.configs
        assert (entry.value, entry.config_source, entry.is_sensitive, len(entry.synonyms)) == (None, 3, True, 1)


def test_brokers_that_are_not_registered_cannot_be_unregistered(client: RawClient) -> None:
    """Kafka: BROKER_ID_NOT_REGISTERED."""
    answer = client.ask(UnregisterBrokerRequest(7), 0)
    assert (answer.error_code, answer.error_message) == (ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker ID 7 is not currently registered")
    assert client.ask(UnregisterBrokerRequest(1), 0).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 1, 2])
def test_there_are_no_transactions_and_unknown_states_are_named(client: RawClient, version: int) -> None:
    """Kafka: an empty list, with the names of states that it does not know."""
    answer = client.ask(ListTransactionsRequest(["Ongoing", "Asleep"], [5], 100, "tx-.*"), version)
    assert (answer.error_code, answer.unknown_state_filters, answer.transaction_states) == (0, ["Asleep"], [])
    refused = client.ask(ListTransactionsRequest(transactional_id_pattern="("), 2).error_code
    assert refused == ErrorCode.INVALID_REGULAR_EXPRESSION


def levels(client: RawClient, *names: str) -> dict[str, str]:
    wanted = [DescribeConfigsResource(RESOURCE_BROKER_LOGGER, "1", list(names) or None)]
    [result] = client.ask(DescribeConfigsRequest(wanted, True, True), 4).results
    assert result.error_code == 0
    for entry in result.configs:
        assert (entry.config_source, entry.read_only, entry.is_sensitive, entry.config_type, entry.synonyms) == (6, False, False, 0, [])
        assert entry.documentation == ""
    return {entry.name: entry.value for entry in result.configs}


def set_level(client: RawClient, name: str, level: str | None, operation: int = 0, *, node: str = "1", validate_only: bool = False) -> int:
    change = AlterConfigsResource(RESOURCE_BROKER_LOGGER, node, [AlterableConfig(name, operation, level)])
    code: int = client.ask(IncrementalAlterConfigsRequest([change], validate_only), 1).responses[0].error_code
    return code


@pytest.fixture
def _levels_stay() -> Iterator[None]:
    before = dict(loggers._levels)
    yield
    loggers._levels.clear()
    loggers.set_levels(before.items())


@pytest.mark.usefixtures("_levels_stay")
def test_loggers_are_listed_and_their_levels_change_at_once(client: RawClient) -> None:
    """Kafka's BROKER_LOGGER resources: a logger without a level of its own has that of the one above it."""
    listed = levels(client)
    assert next(iter(listed)) == "root"
    assert {"ottla", "ottla.broker", "ottla.broker.upkeep.cleaner", "asyncio"} <= listed.keys()
    assert {name for name, level in listed.items() if level != "INFO"} == {loggers.REQUESTS}
    assert listed[loggers.REQUESTS] == "WARN", "as in Kafka: it has a line for each request"
    assert set_level(client, "ottla.broker", "DEBUG", validate_only=True) == 0
    assert levels(client, "ottla.broker") == {"ottla.broker": "INFO"}
    assert set_level(client, "ottla.broker", "DEBUG") == set_level(client, "ottla.broker.node", "FATAL") == 0
    assert levels(client, "ottla", "ottla.broker", "ottla.broker.upkeep.cleaner", "ottla.broker.node", "nope") == {
        "ottla": "INFO", "ottla.broker": "DEBUG", "ottla.broker.upkeep.cleaner": "DEBUG", "ottla.broker.node": "FATAL",
    }  # fmt: skip
    with pytest.raises(structlog.DropEvent):
        loggers.drop_below_level(None, "error", {"logger_name": "ottla.broker.node"})
    assert loggers.drop_below_level(None, "debug", {"logger_name": "ottla.broker.upkeep.cleaner"})
    assert set_level(client, "ottla.broker", None, 1) == 0
    assert levels(client, "ottla.broker.upkeep.cleaner") == {"ottla.broker.upkeep.cleaner": "INFO"}


@pytest.mark.usefixtures("_levels_stay")
def test_loggers_are_changed_on_their_own_node_by_names_and_levels_that_there_are(client: RawClient) -> None:
    """Kafka's codes: INVALID_CONFIG for the logger or the level, INVALID_REQUEST for all else."""
    assert set_level(client, "nope", "DEBUG") == set_level(client, "root", "LOUD") == ErrorCode.INVALID_CONFIG
    for node in ("7", "", "x"):
        assert set_level(client, "root", "DEBUG", node=node) == ErrorCode.INVALID_REQUEST
        wanted = [DescribeConfigsResource(RESOURCE_BROKER_LOGGER, node, None)]
        assert client.ask(DescribeConfigsRequest(wanted), 4).results[0].error_code == ErrorCode.INVALID_REQUEST
    assert set_level(client, "root", None, 1) == set_level(client, "root", "INFO", 2) == ErrorCode.INVALID_REQUEST
    assert levels(client, "root") == {"root": "INFO"}
    listed = client.ask(ListConfigResourcesRequest([RESOURCE_BROKER_LOGGER]), 1).config_resources
    assert [(found.resource_name, found.resource_type) for found in listed] == [("1", RESOURCE_BROKER_LOGGER)]


def test_tools_that_ask_the_controller_find_it_on_its_listener(tmp_path: Path) -> None:
    """DescribeCluster with endpoint type 2, DescribeQuorum's nodes and the APIs that are listed are those of Kafka's controllers."""
    names = {"listeners": "CONTROLLER://localhost:0,PLAINTEXT://127.0.0.1:0", "controller_listener_names": "CONTROLLER"}
    with running(tmp_path, **names) as broker, client_of(broker) as client:
        assert list(broker.addresses) == ["PLAINTEXT", "CONTROLLER"], "clients of the broker are sent to it first"
        port = broker.addresses["CONTROLLER"][1]
        with RawClient(port) as asked:
            found = asked.ask(DescribeClusterRequest(endpoint_type=2), 1)
            assert (found.error_code, found.endpoint_type, found.controller_id) == (0, 2, 1)
            assert [(node.broker_id, node.host, node.port) for node in found.brokers] == [(1, "localhost", port)]
            assert asked.ask(DescribeClusterRequest(), 1).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
            keys = {key.api_key for key in asked.ask(ApiVersionsRequest("probe", "1"), 4).api_keys}
            assert keys == {
                1,
                17,
                18,
                19,
                20,
                29,
                30,
                31,
                32,
                33,
                36,
                37,
                38,
                39,
                40,
                43,
                44,
                45,
                46,
                49,
                51,
                52,
                53,
                54,
                55,
                56,
                57,
                58,
                59,
                60,
                62,
                63,
                64,
                67,
                70,
                73,
                82,
            }
            create(asked, "made-there")
            with pytest.raises(AssertionError, match="closed the connection"):
                asked.ask(MetadataRequest(None), 9)  # as Kafka's controllers do: what is not listed there is not answered
        assert client.ask(DescribeClusterRequest(endpoint_type=2), 1).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        assert client.ask(DescribeClusterRequest(endpoint_type=9), 1).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        assert [(node.host, node.port) for node in client.ask(DescribeClusterRequest(), 1).brokers] == [("127.0.0.1", client_port(broker))]
        quorum = client.ask(DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])]), 2)
        assert [(end.name, end.host, end.port) for end in quorum.nodes[0].listeners] == [("CONTROLLER", "localhost", port)]
        assert {topic.name for topic in client.ask(MetadataRequest(None), 9).topics} == {"made-there"}


def test_the_only_voter_is_described_where_it_has_no_listener_of_its_own(tmp_path: Path) -> None:
    with running(tmp_path, process_roles="broker,controller", controller_quorum_voters="1@localhost:9093") as broker:
        with client_of(broker) as client:
            quorum = client.ask(DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])]), 2)
        assert [(end.name, end.port) for end in quorum.nodes[0].listeners] == [("PLAINTEXT", client_port(broker))]


@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_a_producers_id_comes_with_its_epoch(client: RawClient, transactional_id: str | None) -> None:
    for producer_id, epoch in ((7, -1), (-1, 0)):
        answer = client.ask(InitProducerIdRequest(transactional_id, 60_000, producer_id, epoch), 4)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


def client_port(broker: BrokerThread) -> int:
    return next(iter(broker.addresses.values()))[1]


def test_throttles_are_listed_where_they_are_set_and_nowhere_else(tmp_path: Path) -> None:
    """They are no keys of Kafka's brokers: its ReassignPartitionsCommandTest looks whether any is left."""
    names = {f"{side}.replication.throttled.rate" for side in ("leader", "follower")} | {"replica.alter.log.dirs.io.max.bytes.per.second"}
    with running(tmp_path) as broker, client_of(broker) as client:

        def listed(*asked: str) -> dict[str, tuple[str, int, list[int]]]:
            wanted = [DescribeConfigsResource(RESOURCE_BROKER, "1", list(asked) or None)]
            [result] = client.ask(DescribeConfigsRequest(wanted, True), 4).results
            assert result.error_code == 0
            found = [entry for entry in result.configs if entry.name in names]
            return {entry.name: (entry.value, entry.config_source, [known.source for known in entry.synonyms]) for entry in found}

        assert listed() == listed(*names) == {}
        for name in names:
            change = AlterConfigsResource(RESOURCE_BROKER, "1", [AlterableConfig(name, 0, "1000")])
            assert client.ask(IncrementalAlterConfigsRequest([change]), 1).responses[0].error_code == 0
        assert listed() == dict.fromkeys(names, ("1000", 2, [2]))
        for name in names:
            change = AlterConfigsResource(RESOURCE_BROKER, "1", [AlterableConfig(name, 1, None)])
            assert client.ask(IncrementalAlterConfigsRequest([change]), 1).responses[0].error_code == 0
        assert listed() == {}
