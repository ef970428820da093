"""The protocol's traps, asked of a broker process over a bare socket. T1 to T24 are their numbers."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.wire import RawClient, batch_of, end_offsets, produce_request
from tests.hostile.wire_bytes import request

from ottla.broker.handlers import SERVICES
from ottla.broker.roles import Role
from ottla.errors import ErrorCode
from ottla.messages.api_keys import ApiKey
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.headers import RequestHeader, encode_request_header
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.messages.produce import ProduceRequest
from ottla.messages.registry import APIS
from ottla.records.batch import iterate_batches
from ottla.wire.compiler import decode

FRAME_BYTES_MAX = 200_000
PARTITION_COUNT = 2
HEAD = struct.Struct(">ih")  # correlation id and error code, where no tags stand between them


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("protocol")
    with BrokerProcess(directory, socket_request_max_bytes=str(FRAME_BYTES_MAX), num_partitions=str(PARTITION_COUNT)) as process:
        with RawClient(process.port) as raw:  # as each client of a group does first: now there are coordinators, whatever test comes first
            assert raw.ask(FindCoordinatorRequest("any"), 3).error_code == ErrorCode.NONE
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: RawClient) -> str:
    """A topic of this test's own."""
    name = request.node.name.replace("[", ".").replace("]", "")
    answer = client.ask(CreateTopicsRequest([CreatableTopic(name, PARTITION_COUNT, 1)]), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    return str(name)


def fetch_request(
    topic: str, offset: int = 0, *, max_wait_ms: int = 0, min_bytes: int = 1, partition: int = 0, **fields: int
) -> FetchRequest:
    wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[FetchTopic(topic, partitions=[wanted])], **fields)  # type: ignore[arg-type]


# ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_t1_the_answer_to_api_versions_has_an_old_header_in_every_version(client: RawClient, version: int) -> None:
    correlation_id = client.send(ApiVersionsRequest("probe", "1.0"), version)
    assert HEAD.unpack_from(client.receive_frame()) == (correlation_id, ErrorCode.NONE)


def test_t2_an_unknown_version_of_api_versions_is_answered_in_version_0_with_its_own_range(client: RawClient) -> None:
    client.send_frame(encode_request_header(RequestHeader(ApiKey.API_VERSIONS, 99, 7, "probe"), is_flexible=True) + b"\x01\x01\x00")
    # Correlation id, error code, one key: 18, 0 to 4; and nothing after it.
    assert client.receive_frame() == struct.pack(">ihihhh", 7, ErrorCode.UNSUPPORTED_VERSION, 1, ApiKey.API_VERSIONS, 0, 4)
    assert client.ask(ApiVersionsRequest("probe", "1.0"), 4).error_code == ErrorCode.NONE, "the connection stays"


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("-x", "1"), ("x", "1."), ("x y", "1"), ("x", "")])
def test_t2_software_names_that_are_not_names_are_refused(client: RawClient, name: str, version: str) -> None:
    assert client.ask(ApiVersionsRequest(name, version), 3).error_code == ErrorCode.INVALID_REQUEST


def test_t3_produce_is_listed_from_version_0_and_served_from_version_3(client: RawClient) -> None:
    listed = {key.api_key: (key.min_version, key.max_version) for key in client.ask(ApiVersionsRequest(), 0).api_keys}
    assert listed[ApiKey.PRODUCE] == (0, 13)
    client.send_frame(encode_request_header(RequestHeader(ApiKey.PRODUCE, 2, 1, "probe"), is_flexible=False) + bytes(8))
    assert client.is_closed_by_broker()


def test_every_version_of_every_api_that_is_advertised_is_answered(broker: BrokerProcess, client: RawClient) -> None:
    """The broker's default request of each: what it asks for may be nonsense, but the answer decodes and the broker is not upset."""
    listed = {key.api_key: (key.min_version, key.max_version) for key in client.ask(ApiVersionsRequest(), 0).api_keys}
    assert listed.keys() == SERVICES[Role.BROKER].keys()
    asked = 0
    for key, (low, high) in listed.items():
        api = APIS[key]
        low = max(low, 3) if key == ApiKey.PRODUCE else low  # 0-2 are listed and refused
        assert (low, high) == (api.version_min, api.version_max)
        for version in range(low, high + 1):
            request = api.request()
            if isinstance(request, ProduceRequest):
                request.acks = 1
            if isinstance(request, ApiVersionsRequest):
                request = ApiVersionsRequest("probe", "1")
            with RawClient(broker.port) as fresh:
                fresh.ask(request, version)
            asked += 1
    assert asked > 100
    assert "request_failed" not in broker.log()


@pytest.mark.parametrize("offset", [-1, 1])
def test_versions_beside_those_advertised_close_the_connection(broker: BrokerProcess, offset: int) -> None:
    for key, api in APIS.items():
        version = api.version_min - 1 if offset < 0 else api.version_max + 1
        if version < 0 or key == ApiKey.API_VERSIONS:
            continue
        with RawClient(broker.port) as fresh:
            is_flexible = version >= api.flexible
            fresh.send_frame(encode_request_header(RequestHeader(key, version, 1, "probe"), is_flexible=is_flexible) + bytes(64))
            assert fresh.is_closed_by_broker(), f"{api.name} v{version}"


# Frames


def test_an_unknown_api_key_closes_the_connection(client: RawClient) -> None:
    client.send_frame(encode_request_header(RequestHeader(999, 0, 1, "probe"), is_flexible=False))
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, 2**31 - 1, -1, -(2**31)])
def test_a_frame_of_a_length_that_is_not_allowed_closes_the_connection_before_it_is_read(client: RawClient, length: int) -> None:
    client.send_bytes(struct.pack(">i", length))
    assert client.is_closed_by_broker()


def test_a_request_that_arrives_one_byte_after_the_other_is_answered(client: RawClient) -> None:
    header = encode_request_header(RequestHeader(ApiKey.API_VERSIONS, 0, 5, "probe"), is_flexible=False)
    for byte in struct.pack(">i", len(header)) + header:
        client.send_bytes(bytes([byte]))
    assert HEAD.unpack_from(client.receive_frame()) == (5, ErrorCode.NONE)


def test_t24_answers_come_in_the_order_of_requests_though_one_has_to_wait(client: RawClient, broker: BrokerProcess, topic: str) -> None:
    """A fetch that is parked holds back what was requested after it; the append that wakes it comes over another connection."""
    parked = client.send(fetch_request(topic, max_wait_ms=60_000), 4)
    behind = [client.send(ApiVersionsRequest(), 0) for _ in range(3)]
    with RawClient(broker.port) as other:
        other.ask(produce_request(topic, batch_of(b"news")), 9)
    order = [struct.unpack_from(">i", client.receive_frame())[0] for _ in range(4)]
    assert order == [parked, *behind]


# Metadata


def names(answer: Any) -> set[str]:
    return {found.name for found in answer.topics}


def test_t8_all_topics_are_an_empty_list_in_version_0_and_null_later(client: RawClient, topic: str) -> None:
    assert topic in names(client.ask(MetadataRequest([]), 0))
    for version in range(1, 14):
        assert topic in names(client.ask(MetadataRequest(None), version)), version
        assert names(client.ask(MetadataRequest([]), version)) == set(), version


@pytest.mark.parametrize("version", [4, 9, 13])
def test_t8_an_unknown_topic_is_created_only_when_the_request_allows_it(client: RawClient, version: int) -> None:
    name = f"auto-{version}"
    wanted = [MetadataRequestTopic(name=name)]
    refused = client.ask(MetadataRequest(wanted, allow_auto_topic_creation=False), version).topics[0]
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    created = client.ask(MetadataRequest(wanted, allow_auto_topic_creation=True), version).topics[0]
    assert (created.error_code, len(created.partitions)) == (ErrorCode.NONE, PARTITION_COUNT)


def test_t8_topics_are_found_by_id_from_version_12_on(client: RawClient, topic: str) -> None:
    topic_id = client.ask(MetadataRequest([MetadataRequestTopic(name=topic)]), 12).topics[0].topic_id
    for version in (12, 13):
        answer = client.ask(MetadataRequest([MetadataRequestTopic(topic_id, None)]), version).topics[0]
        assert (answer.error_code, answer.name, len(answer.partitions)) == (ErrorCode.NONE, topic, PARTITION_COUNT)
        unknown = client.ask(MetadataRequest([MetadataRequestTopic(bytes(15) + b"x", None)]), version).topics[0]
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_t8_librdkafka_asks_for_all_topics_with_bytes_after_the_request(client: RawClient, topic: str) -> None:
    """From Metadata v9 on it writes four bytes for the null list where one is due; Kafka ignores bytes after a request."""
    header = encode_request_header(RequestHeader(ApiKey.METADATA, 13, 1, "rdkafka"), is_flexible=True)
    client.send_frame(header + bytes.fromhex("00000000 01 00 00"))
    assert topic.encode() in client.receive_frame()


# Produce and fetch


def test_t10_an_offset_inside_a_batch_returns_the_complete_batch(client: RawClient, topic: str) -> None:
    for values in ([b"a", b"b", b"c"], [b"d", b"e", b"f"]):
        client.ask(produce_request(topic, batch_of(*values)), 9)
    for version in range(4, 13):
        data = client.ask(fetch_request(topic, 4), version).responses[0].partitions[0]
        bases = [header.base_offset for _, header in iterate_batches(data.records)]
        assert (data.error_code, bases) == (ErrorCode.NONE, [3]), version


def test_a_request_sees_what_an_earlier_request_of_its_connection_wrote(client: RawClient, topic: str) -> None:
    """Also when both came in one receive, and no client waited for the acknowledgement."""
    produced = request(produce_request(topic, batch_of(b"x"), acks=0), 9)
    asked = request(ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])]), 1)
    client.send_bytes(produced + asked)
    answer = decode(ListOffsetsResponse, 1, client.receive_frame()[4:])  # after the correlation id
    assert answer.topics[0].partitions[0].offset == 1


def test_t20_acks_0_gets_no_answer(client: RawClient, topic: str) -> None:
    client.send(produce_request(topic, batch_of(b"unanswered"), acks=0), 9, is_answered=False)
    assert end_offsets(client, topic, 1) == [1], "the next answer on the connection is that of the next request"


def test_t20_a_failure_with_acks_0_closes_the_connection(client: RawClient) -> None:
    client.send(produce_request("no-such-topic", batch_of(b"lost"), acks=0), 9, is_answered=False)
    assert client.is_closed_by_broker()


def test_t22_special_timestamps_from_the_versions_that_name_them(client: RawClient, topic: str) -> None:
    client.ask(produce_request(topic, batch_of(b"a", b"b", b"c")), 9)

    def ask(timestamp: int, version: int) -> tuple[int, int]:
        request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=timestamp)])])
        found = client.ask(request, version).topics[0].partitions[0]
        return found.error_code, found.offset

    for version in range(1, 12):
        assert ask(-1, version) == (ErrorCode.NONE, 3)
        assert ask(-2, version) == (ErrorCode.NONE, 0)
        assert ask(1_700_000_000_000, version) == (ErrorCode.NONE, 0)
        assert ask(1_700_000_000_001, version) == (ErrorCode.NONE, -1)
        for timestamp, since, offset in [(-3, 7, 0), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)]:
            expected = (ErrorCode.NONE, offset) if version >= since else (ErrorCode.UNSUPPORTED_VERSION, -1)
            assert ask(timestamp, version) == expected, (timestamp, version)
        assert ask(-7, version) == (ErrorCode.UNSUPPORTED_VERSION, -1)


def test_t14_an_unknown_partition_is_reported_for_it_alone(client: RawClient, topic: str) -> None:
    answer = client.ask(produce_request(topic, batch_of(b"there"), batch_of(b"there"), batch_of(b"nowhere")), 9)
    codes = [partition.error_code for partition in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_leader_epoch_from_the_future_or_the_past_is_refused(client: RawClient, topic: str) -> None:
    for epoch, code in [(0, ErrorCode.NONE), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)]:
        request = fetch_request(topic)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        assert client.ask(request, 11).responses[0].partitions[0].error_code == code


def test_a_fetch_session_carries_only_what_changed(client: RawClient, topic: str) -> None:
    """KIP-227 as a client goes through it: a full fetch opens the session, the others name what is new, and epochs count."""
    both = fetch_request(topic, session_epoch=0)
    both.topics[0].partitions.append(FetchPartition(1, fetch_offset=0, partition_max_bytes=1 << 20))
    opened = client.ask(both, 11)
    session = opened.session_id
    assert session != 0
    assert [data.partition_index for data in opened.responses[0].partitions] == [0, 1]

    def go_on(epoch: int, **fields: Any) -> dict[int, bool]:
        """By partition that is in the answer: whether it has records."""
        answer = client.ask(FetchRequest(max_wait_ms=0, min_bytes=1, session_id=session, session_epoch=epoch, **fields), 11)
        assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, session)
        return {data.partition_index: bool(data.records) for found in answer.responses for data in found.partitions}

    assert go_on(1) == {}, "nothing has changed"
    client.ask(produce_request(topic, batch_of(b"news"), partition=1), 9)
    assert go_on(2) == {1: True}
    moved = FetchPartition(1, fetch_offset=1, partition_max_bytes=1 << 20)
    assert go_on(3, topics=[FetchTopic(topic, partitions=[moved])]) == {}, "read to its end"
    client.ask(produce_request(topic, batch_of(b"news")), 9)
    assert go_on(4, forgotten_topics_data=[ForgottenTopic(topic, partitions=[0])]) == {}, "partition 0 is no longer asked for"


def test_a_fetch_session_that_is_not_known_or_out_of_step_is_refused(client: RawClient, topic: str) -> None:
    session = client.ask(fetch_request(topic, session_epoch=0), 11).session_id
    wrong_epoch = client.ask(FetchRequest(max_wait_ms=0, session_id=session, session_epoch=5), 11)
    assert wrong_epoch.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = client.ask(FetchRequest(max_wait_ms=0, session_id=session ^ 0x5555, session_epoch=1), 11)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# Groups


def test_t12_find_coordinator_is_single_to_version_3_and_a_batch_from_version_4(client: RawClient, broker: BrokerProcess) -> None:
    for version in range(7):
        answer = client.ask(FindCoordinatorRequest("one", coordinator_keys=["one", "two"]), version)
        found = answer.coordinators if version >= 4 else [answer]
        assert [(item.error_code, item.node_id, item.host, item.port) for item in found] == [
            (ErrorCode.NONE, 1, "127.0.0.1", broker.port)
        ] * (2 if version >= 4 else 1)
        assert [item.key for item in answer.coordinators] == (["one", "two"] if version >= 4 else [])


def commit(client: RawClient, group: str, topic: str, offset: int, metadata: str | None) -> None:
    partition = OffsetCommitRequestPartition(0, offset, 3, metadata)
    answer = client.ask(OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, partitions=[partition])]), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_t13_a_member_of_a_group_that_is_not_known_commits_nothing(client: RawClient, topic: str, version: int, code: ErrorCode) -> None:
    offsets = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 1)])]
    answer = client.ask(OffsetCommitRequest(f"nobody-{topic}", 5, "member", topics=offsets), version)
    assert answer.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("metadata", ["", "a note with Ünïcode"], ids=["empty", "text"])
def test_t13_what_was_committed_comes_back_with_its_metadata_in_every_version(client: RawClient, topic: str, metadata: str) -> None:
    commit(client, f"group-{topic}", topic, 42, metadata)
    for version in range(1, 8):
        answer = client.ask(OffsetFetchRequest(f"group-{topic}", [OffsetFetchRequestTopic(topic, [0, 1])]), version)
        first, second = answer.topics[0].partitions
        assert (first.committed_offset, first.metadata) == (42, metadata)
        assert (second.committed_offset, second.error_code) == (-1, ErrorCode.NONE), "nothing is committed there"
        assert first.committed_leader_epoch == (3 if version >= 5 else -1)
    for version in (8, 9):
        wanted = [OffsetFetchRequestGroup(f"group-{topic}", topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])]
        found = client.ask(OffsetFetchRequest(groups=wanted), version).groups[0].topics[0].partitions[0]
        assert (found.committed_offset, found.metadata) == (42, metadata)


def test_t13_null_asks_for_all_topics_and_many_groups_at_once(client: RawClient, topic: str) -> None:
    for number in range(2):
        commit(client, f"{topic}-{number}", topic, 10 + number, "")
    for version in range(2, 8):
        answer = client.ask(OffsetFetchRequest(f"{topic}-1", None), version)
        assert [(found.name, found.partitions[0].committed_offset) for found in answer.topics] == [(topic, 11)]
    wanted = [OffsetFetchRequestGroup(f"{topic}-{number}", topics=None) for number in range(2)]
    answer = client.ask(OffsetFetchRequest(groups=wanted), 8)
    assert [group.topics[0].partitions[0].committed_offset for group in answer.groups] == [10, 11]


# Admin


def test_t21_valid_and_invalid_topics_in_one_request_are_answered_each_for_itself(client: RawClient, topic: str) -> None:
    wanted = [
        CreatableTopic(f"{topic}.good", 1, 1),
        CreatableTopic("not/legal", 1, 1),
        CreatableTopic(topic, 1, 1),
        CreatableTopic(f"{topic}.replicas", 1, 3),
        CreatableTopic(f"{topic}.config", 1, 1, configs=[CreatableTopicConfig("segment.bytes", "many")]),
        CreatableTopic(f"{topic}.defaults", -1, -1),
    ]
    answer = client.ask(CreateTopicsRequest(wanted), 7)
    assert {found.name: found.error_code for found in answer.topics} == {
        f"{topic}.good": ErrorCode.NONE,
        "not/legal": ErrorCode.INVALID_TOPIC_EXCEPTION,
        topic: ErrorCode.TOPIC_ALREADY_EXISTS,
        f"{topic}.replicas": ErrorCode.INVALID_REPLICATION_FACTOR,
        f"{topic}.config": ErrorCode.INVALID_CONFIG,
        f"{topic}.defaults": ErrorCode.NONE,
    }
    defaults = next(found for found in answer.topics if found.name.endswith(".defaults"))
    assert (defaults.num_partitions, defaults.replication_factor) == (PARTITION_COUNT, 1)


def test_t21_describe_configs_lists_every_key_with_its_source(client: RawClient) -> None:
    configs = [CreatableTopicConfig("segment.bytes", "2097152")]
    client.ask(CreateTopicsRequest([CreatableTopic("configured", 1, 1, configs=configs)]), 7)
    result = client.ask(DescribeConfigsRequest([DescribeConfigsResource(2, "configured", None)], include_synonyms=True), 4).results[0]
    entries = {entry.name: entry for entry in result.configs}
    assert result.error_code == ErrorCode.NONE
    assert {"cleanup.policy", "compression.type", "retention.ms", "segment.bytes", "max.message.bytes"} <= entries.keys()
    dynamic_topic, default = 1, 5
    assert (entries["segment.bytes"].value, entries["segment.bytes"].config_source) == ("2097152", dynamic_topic)
    assert entries["retention.ms"].config_source == default
    assert entries["segment.bytes"].synonyms[0].source == dynamic_topic


def test_producer_ids_with_and_without_a_transactional_id(client: RawClient) -> None:
    found = client.ask(FindCoordinatorRequest("tx", 1, ["tx"]), 3)
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, 1)
    for version in range(6):
        mine = client.ask(InitProducerIdRequest("tx", 60_000), version)
        assert (mine.error_code, mine.producer_epoch) == (ErrorCode.NONE, version), "each fences the one before"
        plain = client.ask(InitProducerIdRequest(None, 60_000), version)
        assert (plain.error_code, plain.producer_epoch) == (ErrorCode.NONE, 0)
        assert plain.producer_id >= 0
    empty = client.ask(InitProducerIdRequest("", 60_000), 5)
    assert (empty.error_code, empty.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1)


def test_t12_a_client_that_asks_while_the_topic_of_commits_is_created_gets_the_coordinator_when_there_is_one(tmp_path: Path) -> None:
    """librdkafka asks on two connections at once, and waits three seconds when it is sent to a coordinator that is none yet."""
    with BrokerProcess(tmp_path, offsets_topic_num_partitions="50") as broker:
        clients = [RawClient(broker.port) for _ in range(8)]
        for client in clients:
            client.send(FindCoordinatorRequest("g", 0), 2)
        for client in reversed(clients):  # the first one has it created, and is answered last
            assert client.receive().error_code == ErrorCode.NONE
            joined = client.ask(JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]), 5)
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            client.socket.close()
