"""A partition that another broker leads, or none, is served to no client: whatever is asked, and whatever is under way when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.leaders import NOBODY, OTHER, OTHER_HOST, OTHER_PORT, add_other, give, give_all, own_id
from tests.broker.principals import until
from tests.broker.test_log_care import create, play, send
from tests.quiet import silence

from ottla.broker.replicas.partition import Partition
from ottla.controller.decided import Recorded
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic
from ottla.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.messages.metadata_records import PartitionRecord
from ottla.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.metadata.image import PartitionImage
from ottla.records.builder import BatchBuilder
from ottla.sim.cluster import SimBroker
from ottla.storage.log.partition_log import PartitionLog

FOR_EVER_MS = 600_000
Code = ErrorCode


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def partition_of(broker: SimBroker, index: int = 0) -> Partition:
    assert broker.broker is not None
    return broker.broker.partitions.by_name["t"][index]


def topic_id_of(broker: SimBroker) -> bytes:
    assert broker.broker is not None
    return broker.broker.image.topics["t"].topic_id


def batch(value: bytes = b"x") -> memoryview:
    builder = BatchBuilder()
    builder.append(None, value, timestamp_ms=1)
    return memoryview(builder.build())


async def produce(broker: SimBroker, index: int = 0, topic_id: bytes | None = None, acks: int = 1) -> ProduceResponse:
    cluster = broker.client("producing")
    wanted = TopicProduceData("t", topic_id or topic_id_of(broker), [PartitionProduceData(index, batch())])
    answer = await cluster.ask(None, ProduceRequest(None, acks, 1000, [wanted]), ProduceResponse, timeout_ms=FOR_EVER_MS)
    await cluster.close()
    return answer


async def fetch(
    broker: SimBroker, index: int = 0, topic_id: bytes | None = None, epoch: int = -1, offset: int = 0, wait_ms: int = 0
) -> FetchResponse:
    cluster = broker.client("fetching")
    wanted = FetchPartition(index, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic("t", topic_id or topic_id_of(broker), [wanted])])
    answer = await cluster.ask(None, request, FetchResponse, timeout_ms=2 * FOR_EVER_MS)
    await cluster.close()
    return answer


async def ask(broker: SimBroker, request: Any, kind: Any) -> Any:
    cluster = broker.client("asking")
    answer = await cluster.ask(None, request, kind)
    await cluster.close()
    return answer


def fetched(answer: FetchResponse) -> PartitionData:
    return answer.responses[0].partitions[0]


def produced(answer: ProduceResponse) -> PartitionProduceResponse:
    return answer.responses[0].partition_responses[0]


async def codes(broker: SimBroker, index: int = 0, *, epoch: int = -1, topic: str = "t", topic_id: bytes | None = None) -> dict[str, int]:
    """What each API says of the partition, to a client that knows that leader epoch."""
    offsets = ListOffsetsPartition(index, current_leader_epoch=epoch, timestamp=-1)
    listed = await ask(broker, ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, [offsets])]), ListOffsetsResponse)
    debugging = await ask(broker, ListOffsetsRequest(-2, topics=[ListOffsetsTopic(topic, [offsets])]), ListOffsetsResponse)
    epochs = OffsetForLeaderPartition(index, current_leader_epoch=epoch, leader_epoch=0)
    ended = await ask(broker, OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(topic, [epochs])]), OffsetForLeaderEpochResponse)
    deletion = DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, 0)])])
    deleted = await ask(broker, deletion, DeleteRecordsResponse)
    producers = await ask(broker, DescribeProducersRequest([TopicRequest(topic, [index])]), DescribeProducersResponse)
    return {
        "Produce": produced(await produce(broker, index, topic_id)).error_code,
        "Fetch": fetched(await fetch(broker, index, topic_id, epoch)).error_code,
        "ListOffsets": listed.topics[0].partitions[0].error_code,
        "ListOffsets by a debugging consumer": debugging.topics[0].partitions[0].error_code,
        "OffsetForLeaderEpoch": ended.topics[0].partitions[0].error_code,
        "DeleteRecords": deleted.topics[0].partitions[0].error_code,
        "DescribeProducers": producers.topics[0].partitions[0].error_code,
    }


ANY_REPLICA = ("ListOffsets by a debugging consumer", "DescribeProducers")
KNOWS_EPOCH = ("Fetch", "ListOffsets", "ListOffsets by a debugging consumer", "OffsetForLeaderEpoch")


def expected(of_leader: int, of_any: int = Code.NONE) -> dict[str, int]:
    apis = ("Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords")
    return dict.fromkeys(apis, of_leader) | dict.fromkeys(ANY_REPLICA, of_any)


@pytest.mark.parametrize("leader", [OTHER, NOBODY])
def test_what_another_broker_leads_or_none_is_served_by_no_api(leader: int) -> None:
    """Kafka's tools that look at a single replica are served by any that has it."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await add_other(broker)
        assert await codes(broker) == expected(Code.NONE)
        end_offset = partition_of(broker).log.log_end_offset
        epoch = await give(broker, leader)
        assert await codes(broker) == expected(Code.NOT_LEADER_OR_FOLLOWER)
        assert await codes(broker, epoch=epoch) == expected(Code.NOT_LEADER_OR_FOLLOWER)
        assert partition_of(broker).log.log_end_offset == end_offset
        await give(broker, own_id(broker))
        assert await codes(broker) == expected(Code.NONE)

    play(act)


@pytest.mark.parametrize("leads", [True, False])
def test_a_client_with_another_leader_epoch_is_told_so_before_anything_else(leads: bool) -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await add_other(broker)
        await give(broker, OTHER)
        epoch = await give(broker, own_id(broker) if leads else NOBODY)
        for known, code in ((epoch - 1, Code.FENCED_LEADER_EPOCH), (epoch + 1, Code.UNKNOWN_LEADER_EPOCH)):
            found = await codes(broker, epoch=known)
            assert {api: found[api] for api in KNOWS_EPOCH} == dict.fromkeys(KNOWS_EPOCH, code)

    play(act)


def test_a_partition_that_the_cluster_has_and_this_broker_has_not_is_another_brokers() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await add_other(broker)
        assert broker.broker is not None
        image = broker.broker.image
        assert await codes(broker, 1) == expected(Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_OR_PARTITION)
        nowhere = await codes(broker, topic="nowhere", topic_id=b"n" * 16)
        unknown = expected(Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_OR_PARTITION)
        assert nowhere == unknown | {"Produce": Code.UNKNOWN_TOPIC_ID, "Fetch": Code.UNKNOWN_TOPIC_ID}
        await place_elsewhere(broker, 1)
        assert broker.broker.image.topics["t"].partitions.keys() > image.topics["t"].partitions.keys()
        assert await codes(broker, 1) == expected(Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_LEADER_OR_FOLLOWER)

    play(act)


async def place_elsewhere(broker: SimBroker, index: int) -> None:
    assert broker.broker is not None
    record = PartitionRecord(index, topic_id_of(broker), replicas=[OTHER], isr=[OTHER], leader=OTHER, directories=[b"d" * 16])
    await broker.broker.controller.decide([lambda image: Recorded((record,))])


def test_an_offline_replica_is_a_storage_error_whoever_leads() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await add_other(broker)
        await give(broker, OTHER)
        partition_of(broker).fail()
        assert await codes(broker) == expected(Code.KAFKA_STORAGE_ERROR, Code.KAFKA_STORAGE_ERROR)

    play(act)


# -- what is under way when leadership is lost


class HeldFile:
    """Appends wait until they are let go."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.gate = asyncio.Event()
        self.began = asyncio.Event()

    async def append(self, buffers: Any) -> None:
        self.began.set()
        await self.gate.wait()
        await self._file.append(buffers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def hold(partition: Partition) -> HeldFile:
    segment = partition.log.segments[-1]
    held = HeldFile(segment.file)
    segment.file = held  # type: ignore[assignment]
    return held


async def refused_by(flushing: Callable[[], Any]) -> int:
    with pytest.raises(KafkaError) as caught:
        await flushing()
    return caught.value.code


def role(epoch: int, *, leader: int) -> PartitionImage:
    own = leader if leader != NOBODY else OTHER
    return PartitionImage((own,), (own,), leader, epoch, epoch)


def test_what_was_staged_under_a_lost_epoch_is_never_written() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"0"), (None, b"1")])
        partition = partition_of(broker)
        epoch = partition.leader_epoch
        staged = partition.stage(batch(), now_ms=1)
        assert staged.base_offset == 2
        drop_count = partition.log.tail.drop_count
        partition.take_role(role(epoch + 1, leader=NOBODY))
        assert partition.unwritten(drop_count - 1).code == Code.NOT_LEADER_OR_FOLLOWER
        assert partition.log.tail.drop_count > drop_count
        await partition.flush()
        assert partition.log.log_end_offset == 2
        with pytest.raises(KafkaError) as caught:
            partition.stage(batch(), now_ms=1)
        assert caught.value.code == Code.NOT_LEADER_OR_FOLLOWER
        partition.take_role(role(epoch + 2, leader=own_id(broker)))
        assert partition.stage(batch(), now_ms=1).base_offset == 2, "the offset was never used"
        await partition.flush()
        assert partition.log.end_offset_for_epoch(epoch + 2) == (epoch + 2, 3)
        assert partition.log.end_offset_for_epoch(epoch + 1) == (epoch, 2)

    play(act)


@pytest.mark.parametrize("returns", [False, True])
def test_a_write_under_way_when_the_epoch_ends_is_not_acknowledged_and_what_waits_behind_it_is_dropped(returns: bool) -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"0")])
        partition = partition_of(broker)
        epoch = partition.leader_epoch
        held = hold(partition)
        partition.stage(batch(), now_ms=1)
        first = asyncio.ensure_future(refused_by(partition.flush))
        await held.began.wait()
        partition.stage(batch(), now_ms=1)
        second = asyncio.ensure_future(refused_by(partition.flush))
        await asyncio.sleep(0)
        partition.take_role(role(epoch + 1, leader=own_id(broker) if returns else NOBODY))
        with pytest.raises(KafkaError) as caught:
            partition.stage(batch(), now_ms=1)
        assert caught.value.code == Code.NOT_LEADER_OR_FOLLOWER, "where the new epoch begins is not known yet"
        held.gate.set()
        assert await first == await second == Code.NOT_LEADER_OR_FOLLOWER
        assert partition.log.log_end_offset == 2, "the write went on, what waited for it is dropped"
        if returns:
            while partition.led_epoch < 0:
                await asyncio.sleep(0)
            assert partition.log.end_offset_for_epoch(epoch) == (epoch, 2)
            assert partition.stage(batch(), now_ms=1).base_offset == 2
            await partition.flush()
            assert partition.log.end_offset_for_epoch(epoch + 1) == (epoch + 1, 3)
        else:
            assert partition.led_epoch < 0

    play(act)


@pytest.mark.parametrize("is_begun", [False, True])
def test_what_is_written_while_the_replica_goes_away_is_no_fault_of_the_disk(is_begun: bool) -> None:
    """The partition was moved to other brokers: its client looks for who leads it now."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        partition = partition_of(broker)
        held = hold(partition)
        partition.stage(batch(), now_ms=1)
        writing = asyncio.ensure_future(refused_by(partition.flush))
        if is_begun:
            await held.began.wait()
        partition.retire()
        held.gate.set()
        assert await writing == Code.NOT_LEADER_OR_FOLLOWER

    play(act)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_request_whose_leader_changes_while_it_is_written_names_the_new_one(acks: int) -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await add_other(broker)
        await send(broker, "t", [(None, b"0")])
        held = hold(partition_of(broker))
        asking = asyncio.ensure_future(produce(broker, acks=acks))
        await held.began.wait()
        epoch = await give(broker, OTHER)
        held.gate.set()
        answer = await asking
        result = produced(answer)
        assert result.error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert result.base_offset == -1
        assert result.current_leader is not None
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (OTHER, epoch)
        assert [(end.node_id, end.host, end.port, end.rack) for end in answer.node_endpoints] == [(OTHER, OTHER_HOST, OTHER_PORT, "rack-b")]

    play(act)


@pytest.mark.parametrize("leader", [OTHER, NOBODY])
def test_a_fetch_that_waits_is_answered_when_the_leader_changes(leader: int) -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await add_other(broker)
        waiting = asyncio.ensure_future(fetch(broker, wait_ms=FOR_EVER_MS))
        await until(lambda: bool(partition_of(broker).waiters))
        before = asyncio.get_running_loop().time()
        epoch = await give(broker, leader)
        answer = await waiting
        assert asyncio.get_running_loop().time() < before + 5
        assert fetched(answer).error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert fetched(answer).current_leader is not None
        assert fetched(answer).current_leader.leader_id == leader  # type: ignore[union-attr]
        assert fetched(answer).current_leader.leader_epoch == epoch  # type: ignore[union-attr]
        assert [end.node_id for end in answer.node_endpoints] == ([OTHER] if leader == OTHER else [])

    play(act)


def test_a_fetch_that_waits_is_answered_with_all_partitions_whose_leader_one_image_changes() -> None:
    """A client goes on to the next leader with all of them, and not with the first, which others would have to wait for there."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 3)
        await add_other(broker)
        wanted = [FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(3)]
        request = FetchRequest(max_wait_ms=FOR_EVER_MS, min_bytes=1, topics=[FetchTopic("t", topic_id_of(broker), wanted)])
        cluster = broker.client("fetching")
        waiting = asyncio.ensure_future(cluster.ask(None, request, FetchResponse, timeout_ms=2 * FOR_EVER_MS))
        await until(lambda: bool(partition_of(broker, 2).waiters))
        await give_all(broker, OTHER, 3)
        [topic] = (await waiting).responses
        assert [data.error_code for data in topic.partitions] == [Code.NOT_LEADER_OR_FOLLOWER] * 3
        await cluster.close()

    play(act)


def test_a_fetch_of_an_older_epoch_that_waits_is_fenced_when_the_same_broker_leads_again() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await add_other(broker)
        waiting = asyncio.ensure_future(fetch(broker, wait_ms=FOR_EVER_MS, epoch=0))
        await until(lambda: bool(partition_of(broker).waiters))
        epoch = await give(broker, own_id(broker))
        answer = await waiting
        assert fetched(answer).error_code == Code.FENCED_LEADER_EPOCH
        assert fetched(answer).current_leader is not None
        assert fetched(answer).current_leader.leader_epoch == epoch  # type: ignore[union-attr]
        assert [end.node_id for end in answer.node_endpoints] == [own_id(broker)]

    play(act)


def test_a_leader_that_changes_while_a_fetch_is_still_reading_does_not_leave_it_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first partition has nothing; it changes its leader while the second one is being read from the disk."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 2)
        await add_other(broker)
        await send(broker, "t", [(None, b"0")], 1)
        second = partition_of(broker, 1).log
        reading, read = asyncio.Event(), PartitionLog.read

        async def slow(log: PartitionLog, offset: int, **limits: Any) -> Any:
            if log is second:
                reading.set()
                while partition_of(broker, 0).leader_epoch == 0:
                    await asyncio.sleep(0.01)
            return await read(log, offset, **limits)

        monkeypatch.setattr(PartitionLog, "read", slow)
        wanted = [FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20) for index in (0, 1)]
        request = FetchRequest(max_wait_ms=FOR_EVER_MS, min_bytes=1 << 20, topics=[FetchTopic("t", topic_id_of(broker), wanted)])
        cluster = broker.client("fetching")
        waiting = asyncio.ensure_future(cluster.ask(None, request, FetchResponse, timeout_ms=2 * FOR_EVER_MS))
        await reading.wait()
        before = asyncio.get_running_loop().time()
        await give(broker, OTHER)
        answer = await waiting
        assert asyncio.get_running_loop().time() < before + 5
        found = {data.partition_index: data.error_code for data in answer.responses[0].partitions}
        assert found == {0: Code.NOT_LEADER_OR_FOLLOWER, 1: Code.NONE}
        await cluster.close()

    play(act)


def test_producers_are_described_once_for_a_partition_listed_twice() -> None:
    """A partition may know very many producers, and a request may name it very often."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        asked = DescribeProducersRequest([TopicRequest("t", [0, 7, 0, 7]), TopicRequest("t", [0])])
        answer = await ask(broker, asked, DescribeProducersResponse)
        found = [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in answer.topics]
        assert found == [("t", [0, 7]), ("t", [])]

    play(act)
