"""Leaders change: the client takes what answers say of them, goes there without a pause, and sees logs that lost what it had read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.leaders import NOBODY, add_other, give, own_id
from tests.client.simulated import KEY, consumer_of, create, fill, produce_answer, take, with_broker

from ottla.client.cluster import Cluster
from ottla.client.cluster_metadata import PartitionMetadata
from ottla.client.flights import Flight
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.messages.fetch import LeaderIdAndEpoch as FetchLeader
from ottla.messages.fetch import NodeEndpoint as FetchNode
from ottla.messages.list_offsets import ListOffsetsResponse
from ottla.messages.metadata import MetadataRequest, MetadataResponse
from ottla.messages.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceRequest
from ottla.metadata.image import PartitionImage
from ottla.sim.cluster import PORT, SimBroker
from ottla.sim.interference import Interference
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

ELSEWHERE = 7
"""Another name of the broker: its address is the same, and it leads."""
SOON = 0.03
"""Seconds on the virtual clock: some messages' way, and less than any pause."""


def now() -> float:
    return asyncio.get_running_loop().time()


def refuse_once(network: Interference, kind: type[Request], answer: Callable[[Any], Response]) -> list[float]:
    """The first request of that kind is refused; when each of them was sent."""
    times: list[float] = []

    def refuse(request: Request) -> Response | None:
        if not isinstance(request, kind):
            return None
        times.append(now())
        return answer(request) if len(times) == 1 else None

    network.refuse = refuse
    return times


def bump_epochs(network: Interference, by: int) -> None:
    """Metadata says that so many leaders have come since."""

    def alter(request: Request, response: Any) -> Response | None:
        if not isinstance(response, MetadataResponse):
            return None
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_epoch += by
        return response

    network.alter = alter


def not_leader(request: ProduceRequest, *, with_hint: bool) -> Response:
    answer = produce_answer(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if with_hint:
        answer.responses[0].partition_responses[0].current_leader = LeaderIdAndEpoch(ELSEWHERE, 1)
        answer.node_endpoints = [NodeEndpoint(ELSEWHERE, "broker", PORT)]
    return answer


def not_fetched(request: FetchRequest, code: ErrorCode, *, with_hint: bool) -> Response:
    data = PartitionData(0, code, -1, records=b"")
    if with_hint:
        data.current_leader = FetchLeader(ELSEWHERE, 1)
    topic = request.topics[0]
    endpoints = [FetchNode(ELSEWHERE, "broker", PORT)] if with_hint else []
    return FetchResponse(responses=[FetchableTopicResponse(topic.topic, topic.topic_id, [data])], node_endpoints=endpoints)


def test_a_producer_goes_where_the_answer_says_at_once_and_asks_for_no_metadata() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        producer = Producer(cluster, ProducerSettings(linger_ms=0))
        await producer.send_and_wait("t", b"0")
        asked = len(network.of(MetadataRequest))
        times = refuse_once(network, ProduceRequest, lambda request: not_leader(request, with_hint=True))
        assert (await producer.send_and_wait("t", b"1")).offset == 1
        assert times[1] - times[0] < SOON
        assert len(network.of(MetadataRequest)) == asked
        assert cluster.leader(KEY) == ELSEWHERE
        await producer.close()

    with_broker(body)


def test_without_a_hint_a_producer_asks_for_metadata_and_goes_on_without_a_pause() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        producer = Producer(cluster, ProducerSettings(linger_ms=0))
        await producer.send_and_wait("t", b"0")
        bump_epochs(network, 1)
        times = refuse_once(network, ProduceRequest, lambda request: not_leader(request, with_hint=False))
        assert (await producer.send_and_wait("t", b"1")).offset == 1
        assert times[1] - times[0] < SOON
        await producer.close()

    with_broker(body)


@pytest.mark.parametrize("with_hint", [True, False])
@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
def test_a_consumer_goes_to_the_newer_leader_at_once(code: ErrorCode, with_hint: bool) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster)
        consumer.assign([KEY])
        consumer.seek(KEY, 0)
        await cluster.refresh(["t"])
        await add_other(broker)
        await give(broker, own_id(broker))
        asked = len(network.of(MetadataRequest))
        times = refuse_once(network, FetchRequest, lambda request: not_fetched(request, code, with_hint=with_hint))
        [record] = await take(consumer, 1)
        assert record.offset == 0
        assert times[1] - times[0] < SOON
        assert (len(network.of(MetadataRequest)) == asked) == with_hint
        await consumer.close()

    with_broker(body)


@pytest.mark.parametrize("kind", [ProduceRequest, FetchRequest])
def test_a_leader_that_is_none_for_long_is_asked_less_and_less(kind: type[Request]) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer, producer = consumer_of(cluster), Producer(broker.client("p"), ProducerSettings(linger_ms=0))
        other = Interference(producer._cluster)
        consumer.assign([KEY])
        await take(consumer, 1)
        await producer.send_and_wait("t", b"1")
        times: list[float] = []

        def refuse(request: Request) -> Response | None:
            if isinstance(request, ProduceRequest):
                times.append(now())
                return not_leader(request, with_hint=False)
            if isinstance(request, FetchRequest):
                times.append(now())
                return not_fetched(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, with_hint=False)
            return None

        (other if kind is ProduceRequest else network).refuse = refuse
        sent = await producer.send("t", b"2") if kind is ProduceRequest else None
        for _ in range(10):
            await consumer.poll(1000)
        assert 10 <= len(times) <= 25
        assert times[-1] - times[-2] > 0.5
        network.refuse = other.refuse = lambda request: None
        if sent is not None:
            assert (await sent).offset == 2
        await producer.send_and_wait("t", b"3")
        await take(consumer, 1)
        await consumer.close()
        await producer.close()

    with_broker(body)


def test_metadata_never_goes_back_to_an_older_leader_epoch() -> None:
    """A broker that lags says what was true before: a partition keeps what is newer, another topic of the name begins anew."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        cluster = broker.client("c")
        network = Interference(cluster)
        bump_epochs(network, 5)
        await cluster.refresh(["t"])
        bump_epochs(network, 3)
        cluster.topics["t"].partitions[1] = PartitionMetadata(ELSEWHERE, 2, [], [])
        await cluster.refresh(["t"])
        assert [found.leader_epoch for _, found in sorted(cluster.topics["t"].partitions.items())] == [5, 3]
        cluster.topics["t"].topic_id = b"another topic!!!"
        await cluster.refresh(["t"])
        assert {found.leader_epoch for found in cluster.topics["t"].partitions.values()} == {3}
        await cluster.close()

    with_broker(body)


def test_a_hint_is_news_or_it_is_nothing() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster: Cluster = broker.client("c")
        await cluster.refresh(["t"])
        leader = cluster.leader(KEY)
        assert not cluster.take_leader(KEY, ELSEWHERE, 1), "its address is not known"
        cluster.take_endpoints([NodeEndpoint(ELSEWHERE, "broker", PORT)])
        assert not cluster.take_leader(KEY, ELSEWHERE, 0), "it is no newer epoch"
        assert cluster.leader(KEY) == leader
        assert cluster.take_leader(KEY, ELSEWHERE, 1)
        assert cluster.leader(KEY) == ELSEWHERE
        await cluster.close()

    with_broker(body)


async def truncate(broker: SimBroker, offset: int) -> None:
    """An unclean election: the log ends there, and a later leader goes on."""
    assert broker.broker is not None
    partition = broker.broker.partitions.by_name["t"][0]
    await partition.log.truncate_to(offset)
    own, epoch = broker.broker.node_id, partition.leader_epoch + 1
    partition.take_role(PartitionImage((own,), (own,), own, epoch, epoch))


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_a_consumer_whose_records_are_gone_from_the_log_goes_back_to_where_it_diverges(policy: str) -> None:
    """Without epochs it would read on at its offset, and miss what was written in place of what it had read (KIP-320)."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        for number in range(5):
            await fill(broker, 1, first=number)
        cluster = broker.client("c")
        network = Interference(cluster)
        bump_epochs(network, 0)
        consumer = consumer_of(cluster, auto_offset_reset="earliest")
        consumer._fetcher._settings = consumer_of(broker.client("d"), auto_offset_reset=policy)._fetcher._settings
        consumer.assign([KEY])
        consumer.seek(KEY, 0)
        assert len(await take(consumer, 5)) == 5
        await consumer.poll(100)
        assert network.of(FetchRequest)[-1].topics[0].partitions[0].last_fetched_epoch == 0
        await truncate(broker, 3)
        await fill(broker, 4, first=100)
        bump_epochs(network, 1)
        if policy == "none":
            with pytest.raises(KafkaError, match=r"t-0 was truncated: .* offset 5 .* from offset 3 on, .* seek to 3") as caught:
                await take(consumer, 1)
            assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
            consumer.seek(KEY, 3)
        assert [(record.offset, record.value) for record in await take(consumer, 4)] == [(3 + at, b"%d" % (100 + at)) for at in range(4)]
        await consumer.close()

    with_broker(body)


def test_an_epoch_that_the_leader_does_not_know_is_out_of_range() -> None:
    """As in Kafka: where the logs part is not known, so no diverging epoch is returned."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 5)
        cluster = broker.client("c")
        await cluster.refresh(["t"])
        for epoch, code, diverging in ((9, ErrorCode.OFFSET_OUT_OF_RANGE, None), (0, ErrorCode.NONE, EpochEndOffset(0, 5))):
            wanted = FetchPartition(0, fetch_offset=5 + (code == 0), last_fetched_epoch=epoch, partition_max_bytes=100)
            request = FetchRequest(topics=[FetchTopic("t", cluster.topics["t"].topic_id, [wanted])])
            answer = await cluster.ask(None, request, FetchResponse)
            [data] = answer.responses[0].partitions
            assert (data.error_code, data.diverging_epoch) == (code, diverging)
        await cluster.close()

    with_broker(body)


def test_a_partition_without_a_leader_keeps_no_other_one_back() -> None:
    """Where each partition has one replica, a broker that is away takes its share, and no more."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        for index in (0, 1):
            await fill(broker, 2, partition=index)
        await add_other(broker)
        await give(broker, NOBODY, index=1)
        consumer = consumer_of(broker.client("c"))
        consumer.assign([KEY, TopicPartition("t", 1)])
        records = await asyncio.wait_for(take(consumer, 2), 5)
        assert {record.partition for record in records} == {0}
        await fill(broker, 1, first=2)
        assert [record.value for record in await asyncio.wait_for(take(consumer, 1), 5)] == [b"2"]
        await give(broker, own_id(broker), index=1)
        assert {record.partition for record in await asyncio.wait_for(take(consumer, 2), 5)} == {1}
        await consumer.close()

    with_broker(body)


def test_records_come_once_when_the_leader_changes_while_it_is_asked() -> None:
    """The next leader is asked while the answer of the one before is on its way, and both have the same records."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 10)
        cluster = broker.client("c")
        consumer = consumer_of(cluster)
        consumer.assign([KEY])
        consumer.seek(KEY, 0)
        fetcher, state = consumer._fetcher, consumer._positions.of(KEY)
        await cluster.refresh({KEY.topic})
        leader = cluster.leader(KEY)
        assert leader is not None
        flights = [Flight(leader, {KEY: state.version}, 0, 500, is_brief=is_brief) for is_brief in (False, True)]
        await asyncio.gather(*map(fetcher._fetch, flights))
        await fill(broker, 5, first=10)
        assert [record.offset for record in await take(consumer, 15)] == list(range(15))
        await consumer.close()

    with_broker(body)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE])
def test_a_leader_that_does_not_know_yet_that_it_leads_is_asked_for_offsets_again(code: ErrorCode) -> None:
    """A new topic's leader is in the metadata before that broker leads: an application need not repeat the call."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        await fill(broker, 3)
        cluster = broker.client("c")
        consumer = consumer_of(cluster)
        network = Interference(cluster)
        asked: list[list[int]] = []

        def alter(request: Request, response: Any) -> Response | None:
            if not isinstance(response, ListOffsetsResponse):
                return None
            answers = {answer.partition_index: answer for answer in response.topics[0].partitions}
            asked.append(sorted(answers))
            if len(asked) < 4:
                answers[0].error_code = code
            return response

        network.alter = alter
        assert await consumer.end_offsets([("t", 0), ("t", 1)]) == {TopicPartition("t", 0): 3, TopicPartition("t", 1): 0}
        assert asked == [[0, 1], [0], [0], [0]], "what is known is not asked again"
        await consumer.close()

    with_broker(body)


def test_a_leader_that_never_leads_is_an_error_of_the_look_up_after_a_while() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        consumer = consumer_of(cluster)
        network = Interference(cluster)

        def alter(request: Request, response: Any) -> Response | None:
            if not isinstance(response, ListOffsetsResponse):
                return None
            response.topics[0].partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return response

        network.alter = alter
        begun = now()
        with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER: offsets of t-0"):
            await consumer.end_offsets([("t", 0)])
        assert 55 < now() - begun <= 60  # default_api_timeout_ms, of the virtual clock
        await consumer.close()

    with_broker(body)
