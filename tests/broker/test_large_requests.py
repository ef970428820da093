"""Requests and responses of many elements: processed in steps, completely, in order, and from memory that is not reused meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.test_bursts import WAIT_SECONDS_MAX, Transport, frame_of
from tests.broker.test_node import properties
from tests.foreign_clients.wire import RawClient, batch_of, end_offsets, produce_request

from ottla.broker.node import Broker
from ottla.broker.requests import burst_timing
from ottla.broker.tasks.slices import SLICES_A_TURN, Slices, pause
from ottla.config import BrokerConfig
from ottla.controller.topics import NewTopic
from ottla.errors import ErrorCode
from ottla.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.messages.delete_groups import DeleteGroupsRequest
from ottla.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.messages.describe_groups import DescribeGroupsRequest
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.messages.metadata import MetadataRequest
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from ottla.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.runtime.clock import SystemClock
from ottla.runtime.serve import BrokerThread
from ottla.runtime.world import real_world

MANY = 3000
PARTITIONS = 10
METADATA, OFFSET_FOR_LEADER_EPOCH, PRODUCE = 3, 23, 0


def play(directory: Path, act: Callable[[Broker, Transport], Coroutine[Any, Any, None]], *, may_end: bool = False) -> None:
    """With a broker, a topic ``t`` and a connection."""

    async def main() -> None:
        broker = Broker(real_world(), BrokerConfig(properties(directory)))
        await broker.start()
        await broker.controller.create_topics([NewTopic("t", PARTITIONS, 1)])
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await act(broker, Transport(may_end=may_end))
        assert broker.router.working_count == 0
        await broker.stop()

    asyncio.run(main())


def epochs_of(count: int) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0) for _ in range(count)])])


def test_a_large_request_is_answered_in_its_turn_from_memory_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burst_timing, "BURST_US_MIN", 1 << 40)  # a burst is not cut short on a machine that is busy
    monkeypatch.setattr(burst_timing, "BURST_US_MAX", 1 << 40)

    async def act(broker: Broker, transport: Transport) -> None:
        connection = broker.router.accept(transport, "PLAINTEXT")
        frames = [
            frame_of(1, MetadataRequest([]), METADATA, 4),
            frame_of(2, epochs_of(MANY), OFFSET_FOR_LEADER_EPOCH, 2),
            frame_of(3, MetadataRequest([]), METADATA, 4),
        ]
        received = bytearray(b"".join(frames))
        assert connection.on_data(memoryview(received)), "the loop receives elsewhere meanwhile"
        later = bytearray(frame_of(4, MetadataRequest([]), METADATA, 4))
        connection.on_data(memoryview(later))
        later[:] = bytes(len(later))
        found: list[int] = []
        while len(found) < 4:
            found += await transport.next()
        assert found == [1, 2, 3, 4]

    play(tmp_path, act)


def test_large_answers_of_one_connection_do_not_pile_up(tmp_path: Path) -> None:
    """The next request is begun when the large answer before it is encoded."""

    async def act(broker: Broker, transport: Transport) -> None:
        connection = broker.router.accept(transport, "PLAINTEXT")
        connection.on_data(memoryview(bytearray(b"".join(frame_of(at, epochs_of(MANY), OFFSET_FOR_LEADER_EPOCH, 2) for at in range(5)))))
        found: list[int] = []
        while len(found) < 5:
            assert len(connection._responses) <= 2, "one that is encoded, and the next, which was begun then"
            assert broker.router.working_count <= 3  # with one of which the answer was encoded in this turn, where a slice ended just then
            if not transport.sends.empty():
                found += await transport.next()
            await asyncio.sleep(0)
        assert found == list(range(5))

    play(tmp_path, act)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_large_request_that_is_bad_or_whose_connection_ends_has_no_answer(tmp_path: Path, is_closed: bool) -> None:
    async def act(broker: Broker, transport: Transport) -> None:
        connection = broker.router.accept(transport, "PLAINTEXT")
        frame = frame_of(1, epochs_of(MANY), OFFSET_FOR_LEADER_EPOCH, 2)
        bad = frame[:-1] if not is_closed else frame  # the last element is cut: found out at the end
        connection.on_data(memoryview(bytearray((len(bad) - 4).to_bytes(4, "big") + bad[4:])))
        if is_closed:
            transport.is_closed = True
        while broker.router.working_count or not transport.is_closed:
            await asyncio.sleep(0)
        for _ in range(10):  # the turns in which an answer would be made and sent
            await asyncio.sleep(0)
        assert transport.sends.empty()

    play(tmp_path, act, may_end=True)


def large_produce(acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(at % (PARTITIONS + 1), memoryview(batch_of(b"%d" % at))) for at in range(MANY)]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData("t", partition_data=data)])


def test_records_of_a_produce_request_of_many_batches_are_written_in_order(tmp_path: Path) -> None:
    with broker_of(tmp_path) as broker, RawClient(port_of(broker)) as client:
        client.ask(CreateTopicsRequest([CreatableTopic("t", PARTITIONS, 1)], 30_000), 4)
        client.send(large_produce(), 7)
        client.send(produce_request("t", batch_of(b"after")), 7)
        results = client.receive().responses[0].partition_responses
        assert [result.index for result in results] == [at % (PARTITIONS + 1) for at in range(MANY)]
        for at, result in enumerate(results):
            is_there = at % (PARTITIONS + 1) < PARTITIONS
            expected = (ErrorCode.NONE, at // (PARTITIONS + 1)) if is_there else (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
            assert (result.error_code, result.base_offset) == expected
        [after] = client.receive().responses[0].partition_responses
        ends = end_offsets(client, "t", PARTITIONS)
        assert (after.base_offset, sum(ends)) == (ends[0] - 1, sum(result.error_code == 0 for result in results) + 1)


def test_without_acks_a_failure_among_many_batches_ends_the_connection(tmp_path: Path) -> None:
    with broker_of(tmp_path) as broker, RawClient(port_of(broker)) as client, RawClient(port_of(broker)) as other:
        client.ask(CreateTopicsRequest([CreatableTopic("t", PARTITIONS, 1)], 30_000), 4)
        client.send(large_produce(acks=0), 7, is_answered=False)
        assert client.is_closed_by_broker()
        assert sum(end_offsets(other, "t", PARTITIONS)) == sum(at % (PARTITIONS + 1) < PARTITIONS for at in range(MANY))


def test_few_paused_tasks_go_on_in_each_turn_of_the_loop() -> None:
    order: list[int] = []

    async def work(number: int) -> None:
        for _ in range(3):
            await pause()
            order.append(number)

    async def main() -> None:
        tasks = [asyncio.create_task(work(number)) for number in range(7)]
        seen = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            assert len(order) - seen <= SLICES_A_TURN
            seen = len(order)

    asyncio.run(main())
    assert order == list(range(7)) * 3, "the request that has waited longest continues first"


def test_a_pause_that_is_cancelled_keeps_no_other_one_waiting() -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(pause()) for _ in range(5)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[3].cancel()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results].count(asyncio.CancelledError) == 2

    asyncio.run(main())


@pytest.mark.parametrize("count", [0, 1, 12_345])
def test_texts_are_sorted_in_slices(count: int) -> None:
    texts = [str(number * 7919 % 10_007) for number in range(count)]

    async def main() -> list[str]:
        return [text async for text in Slices(SystemClock()).over_sorted(texts)]

    assert asyncio.run(main()) == sorted(texts)


def broker_of(directory: Path) -> BrokerThread:
    return BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory), "auto.create.topics.enable": "false"})


def port_of(broker: BrokerThread) -> int:
    return broker.addresses["PLAINTEXT"][1]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[RawClient]:
    """Of a broker with a topic ``t`` of 100 partitions and a group ``g`` that has committed for each of them."""
    with broker_of(tmp_path) as broker, RawClient(port_of(broker)) as client:
        client.ask(CreateTopicsRequest([CreatableTopic("t", 100, 1)], 30_000), 4)
        client.ask(FindCoordinatorRequest("g"), 0)
        offsets = [OffsetCommitRequestPartition(index, 10 * index) for index in range(100)]
        client.ask(OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=offsets)]), 7)
        yield client


def test_offsets_of_thousands_of_partitions_are_fetched_in_the_order_asked(client: RawClient) -> None:
    indexes = [index * 7 % 2503 for index in range(2500)]
    group = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=indexes)])
    other = OffsetFetchRequestGroup("h", topics=group.topics)
    [found] = client.ask(OffsetFetchRequest(groups=[other, group]), 8).groups[1].topics
    assert [partition.partition_index for partition in found.partitions] == indexes
    assert all(partition.committed_offset == (10 * index if index < 100 else -1) for index, partition in zip(indexes, found.partitions))


def test_an_offset_that_is_asked_for_many_times_is_answered_once(client: RawClient) -> None:
    """However short a request is made by what its answer is long of."""
    often = [OffsetFetchRequestTopics("t", partition_indexes=[1, 0] * MANY)] * 3
    [found] = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=often)] * 2), 8).groups
    assert [[(one.partition_index, one.committed_offset) for one in topic.partitions] for topic in found.topics] == [[(1, 10), (0, 0)]]
    everything, other = OffsetFetchRequestGroup("g", topics=None), OffsetFetchRequestGroup("g", topics=[])
    [whole, refused] = client.ask(OffsetFetchRequest(groups=[everything] * MANY + [other]), 8).groups
    assert len(whole.topics[0].partitions) == 100
    assert (refused.group_id, refused.error_code, refused.topics) == ("g", ErrorCode.INVALID_REQUEST, [])


def test_each_of_thousands_of_members_that_leave_has_an_answer(client: RawClient) -> None:
    members = [MemberIdentity(f"m{number}") for number in range(2500)]
    answer = client.ask(LeaveGroupRequest("g", members=members), 4)
    assert [member.member_id for member in answer.members] == [member.member_id for member in members]
    assert {member.error_code for member in answer.members} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert client.ask(LeaveGroupRequest("g", members=[]), 4).members == []
    assert client.ask(LeaveGroupRequest("g", "m"), 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_what_is_listed_often_is_described_once_and_deleted_once(client: RawClient) -> None:
    described = client.ask(DescribeGroupsRequest(["g", "other"] * MANY, True), 5).groups
    assert [(group.group_id, group.group_state) for group in described] == [("g", "Empty"), ("other", "Dead")]
    consumers = client.ask(ConsumerGroupDescribeRequest(["other", "g"] * MANY), 1).groups
    assert [group.group_id for group in consumers] == ["other", "g"]
    resources = [DescribeConfigsResource(2, "t"), DescribeConfigsResource(2, "t", ["retention.ms"])]
    results = client.ask(DescribeConfigsRequest(resources * MANY), 4).results
    assert [len(result.configs) == 1 for result in results] == [False, True]
    deleted = client.ask(DeleteGroupsRequest(["g", "other", "g"]), 2).results
    assert [(group.group_id, group.error_code) for group in deleted] == [("g", 0), ("other", ErrorCode.GROUP_ID_NOT_FOUND)]


def test_lists_longer_than_any_honest_client_sends_are_refused(client: RawClient) -> None:
    """These are decided in one go: protocols of a member, configs of a resource, parts of a quota's entity, features."""
    protocols = [JoinGroupRequestProtocol(f"p{number}", b"") for number in range(1001)]
    joined = client.ask(JoinGroupRequest("h", 10_000, 10_000, protocol_type="consumer", protocols=protocols), 5)
    assert joined.error_code == ErrorCode.INVALID_REQUEST
    configs = [AlterableConfig(f"c{number}", 0, "1") for number in range(1001)]
    [altered] = client.ask(IncrementalAlterConfigsRequest([AlterConfigsResource(2, "t", configs)]), 1).responses
    assert (altered.error_code, altered.error_message) == (ErrorCode.INVALID_REQUEST, "1001 configs of one resource; the limit is 1000")
    made = CreatableTopic("u", 1, 1, configs=[CreatableTopicConfig(f"c{number}", "1") for number in range(1001)])
    [created] = client.ask(CreateTopicsRequest([made], 30_000), 7).topics
    assert (created.error_code, created.error_message) == (altered.error_code, altered.error_message)
    good = EntryData([EntityData("user", "u")], [OpData("producer_byte_rate", 1e9)])
    bad = EntryData([EntityData("user", "u")] * 101, good.ops)
    results = client.ask(AlterClientQuotasRequest([good, bad]), 1).entries
    assert sorted((len(result.entity), result.error_code) for result in results) == [(1, 0), (101, ErrorCode.INVALID_REQUEST)]
    described = client.ask(DescribeClientQuotasRequest([ComponentData("user", 2, None)] * 101), 1)
    assert described.error_code == ErrorCode.INVALID_REQUEST
    updated = client.ask(UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(f"f{number}", 1) for number in range(1001)]), 1)
    assert updated.error_code == ErrorCode.INVALID_REQUEST


def test_two_large_requests_are_worked_on_at_a_time_and_who_leaves_gives_up_its_turn(tmp_path: Path) -> None:
    """The others are held as the bytes that they came as: decoded they would take a multiple of that."""

    async def act(broker: Broker, transport: Transport) -> None:
        transports = [transport, *(Transport(may_end=True) for _ in range(7))]
        connections = [broker.router.accept(peer, "PLAINTEXT") for peer in transports]
        for connection in connections:
            connection.on_data(memoryview(bytearray(frame_of(1, epochs_of(MANY), OFFSET_FOR_LEADER_EPOCH, 2))))
        decoded = broker.router._large._turns
        most = len(decoded)
        held = broker.router.request_memory.held
        assert held > 8 * MANY * 8, "what waits is counted"
        for peer in transports[1::2]:
            peer.abort()
        while any(peer.sends.empty() for peer in transports[::2]):
            await asyncio.sleep(0)
            most = max(most, len(decoded))
        assert most == 2
        while decoded:
            await asyncio.sleep(0)
        assert broker.router.request_memory.held == 0

    play(tmp_path, act, may_end=True)
