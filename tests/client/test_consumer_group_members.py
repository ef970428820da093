"""Members of the consumer protocol (KIP-848) beside a simulated broker: rounds, callbacks, commits, and what goes wrong between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, take, with_broker

from ottla.client.admin import Admin
from ottla.client.consumer import Consumer
from ottla.client.subscription import SubscriptionPattern
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.messages.metadata import MetadataRequest, MetadataResponse
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic
from ottla.messages.offset_fetch import OffsetFetchRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference, Lost
from ottla.types import TopicPartition


def with_group_broker(body: Callable[[SimBroker], Awaitable[None]], seed: int = 1, **properties: str) -> None:
    with_broker(body, seed, group_consumer_assignment_interval_ms="0", **properties)


def member_of(broker: SimBroker, name: str, **settings: Any) -> Consumer:
    return consumer_of(broker.client(name), group_id="g", group_protocol="consumer", **settings)


async def poll_for(consumer: Consumer, seconds: float) -> list[Any]:
    """Polls until the virtual seconds are over."""
    until = asyncio.get_running_loop().time() + seconds
    records = []
    while asyncio.get_running_loop().time() < until:
        records += await consumer.poll(100)
    return records


class Called:
    """What a consumer's callbacks were called with; those that take partitions away may commit."""

    def __init__(self, consumer: Consumer, pattern: str | SubscriptionPattern | None = None, *, commits: bool = True) -> None:
        self.seen: list[tuple[str, list[int]]] = []
        self.commits: list[ErrorCode | None] = []
        self._does_commit = commits
        self._consumer = consumer
        consumer.subscribe(
            [] if pattern else ["t"],
            pattern=pattern,
            on_assigned=self._note("assigned"),
            on_revoked=self._note("revoked"),
            on_lost=self._note("lost"),
        )

    def _note(self, word: str) -> Callable[[list[TopicPartition]], Awaitable[None]]:
        async def note(partitions: list[TopicPartition]) -> None:
            self.seen.append((word, sorted(partition.partition for partition in partitions)))
            if word != "assigned" and self._does_commit:
                try:
                    await self._consumer.commit(dict.fromkeys(partitions, 0))
                    self.commits.append(None)
                except KafkaError as error:
                    self.commits.append(error.code)

        return note


def test_a_lone_member_reads_commits_and_leaves() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        for index in range(2):
            await fill(broker, 5, partition=index)
        consumer = member_of(broker, "c")
        called = Called(consumer)
        assert len(await take(consumer, 10)) == 10
        assert consumer.generation_id > 0
        assert consumer.group_metadata().member_id == consumer.member_id
        admin = Admin(broker.client("a"))
        group = await admin.describe_group("g")
        assert [member.member_id for member in group.members] == [consumer.member_id]
        await consumer.commit()
        assert await consumer.committed([KEY, ("t", 1)]) == {KEY: 5, TopicPartition("t", 1): 5}
        await consumer.close()
        assert called.seen == [("assigned", [0, 1]), ("revoked", [0, 1])]
        assert (await admin.describe_group("g")).members == ()
        await admin.close()

    with_group_broker(body)


def test_two_members_share_and_nothing_is_read_twice() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=4)
        for index in range(4):
            await fill(broker, 5, partition=index)
        first, second = (member_of(broker, name, auto_commit_interval_ms=3_600_000) for name in ("first", "second"))
        called = Called(first, commits=False)
        assert len(await take(first, 20)) == 20
        second.subscribe(["t"])
        again = await asyncio.gather(poll_for(first, 20), poll_for(second, 20))
        assert [*again[0], *again[1]] == []
        assert [len(member.assignment()) for member in (first, second)] == [2, 2]
        assert set(first.assignment()) | set(second.assignment()) == {TopicPartition("t", index) for index in range(4)}
        assert [word for word, _ in called.seen] == ["assigned", "revoked", "assigned"]
        await second.close()
        await poll_for(first, 10)
        assert len(first.assignment()) == 4
        await first.close()

    with_group_broker(body)


def answering(codes: list[int]) -> Callable[[object, object], ConsumerGroupHeartbeatResponse | None]:
    """Of the next heartbeats of members, each has one of the codes for its answer."""

    def alter(request: object, response: object) -> ConsumerGroupHeartbeatResponse | None:
        if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch > 0 and codes:
            return ConsumerGroupHeartbeatResponse(error_code=codes.pop(0), error_message="")
        return None

    return alter


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID], ids=lambda code: code.name)
def test_a_fenced_member_loses_its_partitions_and_joins_again_with_its_id(code: ErrorCode) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        await fill(broker, 10)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", group_protocol="consumer", enable_auto_commit=False)
        called = Called(consumer)
        assert len(await take(consumer, 4, max_records=4)) == 4
        member_id = consumer.member_id
        network.alter = answering([code])
        again = [record.offset for record in await poll_for(consumer, 20)]
        assert again[-10:] == list(range(10)), "from the commit, of which there is none"
        assert called.seen == [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [0, 1])]
        assert called.commits == [ErrorCode.ILLEGAL_GENERATION]
        assert consumer.member_id == member_id
        joins = [request for request in network.of(ConsumerGroupHeartbeatRequest) if request.member_epoch == 0]
        assert [request.topic_partitions for request in joins] == [[], []]
        await consumer.close()

    with_group_broker(body)


def test_a_member_that_does_not_poll_leaves_and_loses_its_partitions() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = member_of(broker, "c", max_poll_interval_ms=2000)
        called = Called(consumer)
        await poll_for(consumer, 1)
        other = member_of(broker, "other")
        other.subscribe(["t"])
        await asyncio.sleep(5)  # simulated: the first one does not poll
        await poll_for(other, 12)
        assert other.assignment() == [KEY]
        with pytest.raises(KafkaError, match="not a member"):
            await consumer.commit({KEY: 1})
        await poll_for(consumer, 1)
        assert called.seen == [("assigned", [0]), ("lost", [0]), ("assigned", [])]
        await other.close()
        await consumer.close()

    with_group_broker(body)


def test_an_idle_static_member_leaves_for_a_while() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", group_protocol="consumer", group_instance_id="i", max_poll_interval_ms=2000)
        consumer.subscribe(["t"])
        await poll_for(consumer, 1)
        await asyncio.sleep(5)  # simulated
        assert network.of(ConsumerGroupHeartbeatRequest)[-1].member_epoch == -2
        await poll_for(consumer, 1)
        assert consumer.assignment() == [KEY]
        await consumer.close()

    with_group_broker(body)


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=4)
        static = member_of(broker, "static", group_instance_id="i")
        other = member_of(broker, "other")
        called = Called(other)
        static.subscribe(["t"])
        await asyncio.gather(poll_for(static, 15), poll_for(other, 15))
        had, seen = set(static.assignment()), list(called.seen)
        assert len(had) == 2
        await static.close()
        await poll_for(other, 10)
        back = member_of(broker, "back", group_instance_id="i")
        back.subscribe(["t"])
        await asyncio.gather(poll_for(back, 10), poll_for(other, 10))
        assert set(back.assignment()) == had
        assert called.seen == seen
        await back.close()
        await other.close()

    with_group_broker(body)


def test_an_instance_id_that_another_member_has_is_raised_until_that_one_leaves() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        first, second = (member_of(broker, name, group_instance_id="i") for name in ("first", "second"))
        first.subscribe(["t"])
        await poll_for(first, 1)
        second.subscribe(["t"])
        for _ in range(2):
            with pytest.raises(KafkaError, match=r"another member has this group\.instance\.id") as refused:
                await poll_for(second, 5)
            assert refused.value.code == ErrorCode.UNRELEASED_INSTANCE_ID
        await first.close()
        await poll_for(second, 2)
        assert second.assignment() == [KEY]
        await second.close()

    with_group_broker(body)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE],
    ids=lambda code: code.name,
)
def test_a_coordinator_that_is_not_there_yet_is_asked_again_with_everything(code: ErrorCode) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", group_protocol="consumer")
        called = Called(consumer)
        await poll_for(consumer, 1)
        network.requests.clear()
        codes: list[int] = [code] * 3
        network.alter = answering(codes)
        await poll_for(consumer, 20)
        assert not codes
        first, *repeated = network.of(ConsumerGroupHeartbeatRequest)[:4]
        assert first.subscribed_topic_names is None
        assert all(request.subscribed_topic_names == ["t"] and request.topic_partitions for request in repeated)
        assert called.seen == [("assigned", [0])], "the membership goes on"
        await consumer.close()

    with_group_broker(body)


def test_a_heartbeat_whose_answer_is_lost_is_sent_again_with_everything() -> None:
    """Of the join too: the coordinator has the member by then."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", group_protocol="consumer")
        called = Called(consumer)
        due = [0, 1, 1]  # of the join; of the acknowledgement

        def alter(request: object, response: object) -> Lost | None:
            if (
                isinstance(request, ConsumerGroupHeartbeatRequest)
                and due
                and request.member_epoch >= 0
                and (request.member_epoch > 0) == (due[0] > 0)
            ):
                due.pop(0)
                return Lost()
            return None

        network.alter = alter
        await poll_for(consumer, 10)
        assert not due
        assert called.seen == [("assigned", [0, 1])]
        await consumer.close()

    with_group_broker(body)


def test_a_commit_in_an_old_epoch_is_made_in_the_new_one() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 3)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", group_protocol="consumer", enable_auto_commit=False)
        consumer.subscribe(["t"])
        await take(consumer, 3)
        epoch = consumer.generation_id

        def refuse(request: object) -> OffsetCommitResponse | ConsumerGroupHeartbeatResponse | None:
            """The coordinator has moved the member on; its answer to the next heartbeat says so."""
            if isinstance(request, ConsumerGroupHeartbeatRequest):
                return ConsumerGroupHeartbeatResponse(member_epoch=epoch + 1, heartbeat_interval_ms=5000)
            if isinstance(request, OffsetCommitRequest):
                code = ErrorCode.NONE if request.generation_id_or_member_epoch > epoch else ErrorCode.STALE_MEMBER_EPOCH
                return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", partitions=[OffsetCommitResponsePartition(0, code)])])
            return None

        network.refuse = refuse
        await consumer.commit()
        epochs = [request.generation_id_or_member_epoch for request in network.of(OffsetCommitRequest)]
        assert (epochs[0], epochs[-1]) == (epoch, epoch + 1)
        assert len(epochs) <= 3
        network.refuse = lambda request: None
        await consumer.close()

    with_group_broker(body)


def test_what_the_brokers_match_is_read_and_a_topic_that_metadata_lacks_is_waited_for() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, "orders-eu")
        await create(broker, "bills")
        await fill(broker, 1, topic="orders-eu")
        cluster = broker.client("c")
        network = Interference(cluster)
        lacking = [1, 2]

        def alter(request: object, response: object) -> MetadataResponse | None:
            if lacking and isinstance(request, MetadataRequest) and request.topics and any(request.topics[0].topic_id):
                lacking.pop()
                return MetadataResponse(brokers=response.brokers, topics=[])  # type: ignore[attr-defined]
            return None

        network.alter = alter
        consumer = consumer_of(cluster, group_id="g", group_protocol="consumer")
        called = Called(consumer, SubscriptionPattern("orders-.*"))
        assert [record.topic for record in await take(consumer, 1)] == ["orders-eu"]
        assert not lacking
        assert called.seen == [("assigned", []), ("assigned", [0])]
        assert consumer.subscription() == ["orders-eu"]
        await create(broker, "orders-us")
        await fill(broker, 1, topic="orders-us")
        assert [record.topic for record in await take(consumer, 1)] == ["orders-us"]
        await consumer.close()

    with_group_broker(body)


def test_brokers_refuse_an_expression_and_a_classic_member_has_none() -> None:
    async def body(broker: SimBroker) -> None:
        consumer = member_of(broker, "c")
        consumer.subscribe(pattern=SubscriptionPattern("("))
        with pytest.raises(KafkaError) as refused:
            await poll_for(consumer, 5)
        assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
        await consumer.close()
        classic = consumer_of(broker.client("classic"), group_id="h")
        with pytest.raises(KafkaError, match="group_protocol='consumer'"):
            classic.subscribe(pattern=SubscriptionPattern("orders-.*"))
        await classic.close()

    with_group_broker(body)


def test_a_pattern_in_text_is_matched_by_the_client() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, "orders-eu")
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", group_protocol="consumer")
        consumer.subscribe(pattern="orders-(?!us).*")  # RE2 has no such thing
        await poll_for(consumer, 2)
        assert consumer.assignment() == [TopicPartition("orders-eu", 0)]
        await create(broker, "orders-de")
        await poll_for(consumer, 40)
        assert sorted(consumer.assignment()) == [TopicPartition("orders-de", 0), TopicPartition("orders-eu", 0)]
        assert all(request.subscribed_topic_regex is None for request in network.of(ConsumerGroupHeartbeatRequest))
        await consumer.close()

    with_group_broker(body)


def test_a_topic_that_is_made_again_is_another_topic() -> None:
    """Its partitions have the same names; a position of the old one is no place in the new one."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 5)
        consumer = member_of(broker, "c", enable_auto_commit=False)
        called = Called(consumer, commits=False)
        assert len(await take(consumer, 5)) == 5
        admin = Admin(broker.client("a"))
        await admin.delete_topics(["t"])
        await create(broker)
        await fill(broker, 3)
        assert [record.offset for record in await take(consumer, 3)] == [0, 1, 2]
        words = [word for word, partitions in called.seen if partitions]
        assert words == ["assigned", "revoked", "assigned"]
        await admin.close()
        await consumer.close()

    with_group_broker(body)


def test_a_subscription_that_changes_gives_up_what_is_no_longer_in_it() -> None:
    async def body(broker: SimBroker) -> None:
        for name in ("a", "b"):
            await create(broker, name)
        consumer = member_of(broker, "c")
        consumer.subscribe(["a"])
        await poll_for(consumer, 1)
        epoch = consumer.generation_id
        consumer.subscribe(["b"])
        await poll_for(consumer, 2)
        assert consumer.assignment() == [TopicPartition("b", 0)]
        assert consumer.generation_id > epoch
        await consumer.unsubscribe()
        assert (consumer.assignment(), consumer.generation_id) == ([], -1)
        consumer.subscribe(["a"])
        await poll_for(consumer, 1)
        assert consumer.assignment() == [TopicPartition("a", 0)]
        await consumer.close()

    with_group_broker(body)


def test_a_missing_topic_is_created_where_the_brokers_do_that() -> None:
    async def body(broker: SimBroker) -> None:
        consumer = member_of(broker, "c")
        consumer.subscribe(["new"])
        await poll_for(consumer, 10)
        assert consumer.assignment() == [TopicPartition("new", 0)]
        await consumer.close()

    with_group_broker(body)


def test_a_member_that_closes_while_it_joins_leaves_none_of_itself() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        network.alter = lambda request, response: Held(3000) if isinstance(request, ConsumerGroupHeartbeatRequest) else None
        consumer = consumer_of(cluster, group_id="g", group_protocol="consumer")
        consumer.subscribe(["t"])
        await poll_for(consumer, 1)
        assert consumer.generation_id == -1
        await consumer.close()
        admin = Admin(broker.client("a"))
        assert (await admin.describe_group("g")).members == ()
        await admin.close()

    with_group_broker(body)


def test_offsets_are_asked_for_in_the_members_epoch() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", group_protocol="consumer")
        consumer.subscribe(["t"])
        await poll_for(consumer, 1)
        [asked] = network.of(OffsetFetchRequest)
        assert [(group.member_id, group.member_epoch) for group in asked.groups] == [(consumer.member_id, consumer.generation_id)]
        await consumer.close()

    with_group_broker(body)


def test_a_defect_in_the_heartbeats_is_raised_by_the_poll_and_the_next_one_joins() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = member_of(broker, "c")
        assert consumer._coordinator is not None
        answered, due = consumer._coordinator.ask, [RuntimeError("a defect")]

        async def ask(*arguments: Any, **options: Any) -> Any:
            if due:
                raise due.pop()
            return await answered(*arguments, **options)

        consumer._coordinator.ask = ask  # type: ignore[method-assign]
        consumer.subscribe(["t"])
        with pytest.raises(KafkaError, match="RuntimeError: a defect"):
            await poll_for(consumer, 5)
        await poll_for(consumer, 5)
        assert consumer.assignment() == [KEY]
        await consumer.close()

    with_group_broker(body)
