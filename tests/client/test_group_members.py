"""Members of a group whose others are slow, gone, or too many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, take, with_broker

from ottla.client.admin import Admin
from ottla.client.consumer import Consumer
from ottla.client.group_metadata import GroupMetadata
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.messages.leave_group import LeaveGroupRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference
from ottla.types import TopicPartition

COOPERATIVE = ("cooperative-sticky",)


async def poll_for(consumer: Consumer, seconds: float, *, pause: float = 0.0) -> None:
    """Polls until the virtual seconds are over, with a pause after each poll as of an application that works."""
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        await consumer.poll(100)
        await asyncio.sleep(pause)


@pytest.mark.parametrize("strategy", [("range",), COOPERATIVE])
@pytest.mark.parametrize("seed", range(3))
def test_a_slow_member_causes_one_rebalance(seed: int, strategy: tuple[str, ...]) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=6)
        members = [consumer_of(broker.client(f"c{number}"), group_id="g", partition_assignment_strategy=strategy) for number in range(3)]
        for member in members:
            member.subscribe(["t"])
        fast = [asyncio.create_task(poll_for(member, 30)) for member in members[:2]]
        await asyncio.wait(fast)
        settled = members[0].generation_id
        await asyncio.gather(*(poll_for(member, 120) for member in members[:2]), poll_for(members[2], 120, pause=8.0))
        assert sorted(len(member.assignment()) for member in members) == [2, 2, 2]
        # A cooperative group moves partitions in two rounds.
        assert members[0].generation_id - settled <= (2 if strategy == COOPERATIVE else 1)
        for member in members:
            await member.close()

    with_broker(body, seed)


def test_no_heartbeat_is_sent_while_the_group_is_joined() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", heartbeat_interval_ms=100)
        consumer.subscribe(["t"])
        await poll_for(consumer, 2)
        assert network.of(HeartbeatRequest)
        network.requests.clear()
        network.alter = lambda request, response: Held(5000) if isinstance(request, JoinGroupRequest) else None
        consumer._membership.on_failed_join()  # type: ignore[union-attr]
        await poll_for(consumer, 4)
        assert network.of(JoinGroupRequest)
        assert not network.of(HeartbeatRequest)
        await poll_for(consumer, 3)
        assert network.of(HeartbeatRequest)
        await consumer.close()

    with_broker(body)


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_heartbeats_answer_of_an_old_generation_says_nothing_of_the_new_one(code: ErrorCode) -> None:
    """The answer to a heartbeat is held until the next round is over."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", heartbeat_interval_ms=1000, enable_auto_commit=False)
        consumer.subscribe(["t"])
        await poll_for(consumer, 0.5)
        first = consumer.generation_id

        def alter(request: object, response: object) -> HeartbeatResponse | Held | None:
            if not isinstance(request, HeartbeatRequest) or not isinstance(response, HeartbeatResponse):
                return None
            response.error_code = code
            return Held(3000, response)

        network.alter = alter
        network.requests.clear()
        while not network.of(HeartbeatRequest):
            await consumer.poll(100)
        consumer._membership.on_failed_join()  # type: ignore[union-attr]
        await poll_for(consumer, 0.5)
        network.alter = lambda request, response: None
        second = consumer.generation_id
        assert second == first + 1
        await poll_for(consumer, 10)
        assert consumer.generation_id == second
        await consumer.close()

    with_broker(body)


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_of_another_generation_joins_again_as_the_member_that_it_is(code: ErrorCode) -> None:
    """With a new id it would leave one behind, for which the others wait until its session ends. Only who is not known has a new one."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", heartbeat_interval_ms=1000, session_timeout_ms=6000)
        consumer.subscribe(["t"])
        await poll_for(consumer, 0.5)
        member_id, generation = consumer.member_id, consumer.generation_id
        due = [code]

        def alter(request: object, response: object) -> HeartbeatResponse | None:
            if not due or not isinstance(response, HeartbeatResponse):
                return None
            response.error_code = due.pop()
            return response

        network.alter = alter
        await poll_for(consumer, 15)  # the one that is not known any more is there until its session ends
        assert not due
        assert consumer.generation_id > generation
        assert (consumer.member_id == member_id) == (code == ErrorCode.ILLEGAL_GENERATION)
        if code == ErrorCode.ILLEGAL_GENERATION:
            admin = Admin(broker.client("a"))
            assert [member.member_id for member in (await admin.describe_group("g")).members] == [member_id]
            await admin.close()
        await consumer.close()

    with_broker(body)


def test_what_was_handed_out_is_committed_before_a_rebalance() -> None:
    """Long before the next automatic commit: whoever has the partitions then reads nothing twice."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        for index in range(2):
            await fill(broker, 10, partition=index)
        settings: dict[str, Any] = {"group_id": "g", "auto_commit_interval_ms": 3_600_000, "heartbeat_interval_ms": 500}
        first, second = (consumer_of(broker.client(name), **settings) for name in ("first", "second"))
        first.subscribe(["t"])
        assert len(await take(first, 20)) == 20
        await first.poll(100)
        keys = [TopicPartition("t", index) for index in range(2)]
        assert await first.committed(keys) == {}
        second.subscribe(["t"])
        until = asyncio.get_running_loop().time() + 10
        again = []
        while asyncio.get_running_loop().time() < until:
            for consumer in (first, second):
                again += await consumer.poll(100)
        assert [len(consumer.assignment()) for consumer in (first, second)] == [1, 1]
        assert again == []
        assert await first.committed(keys) == dict.fromkeys(keys, 10)
        await first.close()
        await second.close()

    with_broker(body)


def test_what_was_handed_out_while_a_cooperative_member_joined_is_committed_before_it_gives_partitions_up() -> None:
    """Its round began with a commit, and it has read on since."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        settings: dict[str, Any] = {
            "group_id": "g",
            "auto_commit_interval_ms": 3_600_000,
            "heartbeat_interval_ms": 500,
            "partition_assignment_strategy": COOPERATIVE,
        }
        cluster = broker.client("first")
        network = Interference(cluster)
        first, second = consumer_of(cluster, **settings), consumer_of(broker.client("second"), **settings)
        first.subscribe(["t"])
        await poll_for(first, 2)
        network.alter = lambda request, response: Held(3000) if isinstance(response, JoinGroupResponse) else None
        assert first._rebalances is not None
        second.subscribe(["t"])
        joining = asyncio.create_task(poll_for(second, 3))
        while network.of(JoinGroupRequest)[-1].member_id == "" or first._rebalances._joining is None:
            await first.poll(10)
        for index in range(2):
            await fill(broker, 5, partition=index)
        assert len(await take(first, 10)) == 10
        assert first._rebalances._joining is not None, "it joins still"
        again: list[Any] = []
        until = asyncio.get_running_loop().time() + 20
        await joining
        while asyncio.get_running_loop().time() < until:
            for consumer in (first, second):
                again += await consumer.poll(100)
        assert [len(consumer.assignment()) for consumer in (first, second)] == [1, 1]
        assert again == []
        await first.close()
        await second.close()

    with_broker(body)


def test_a_consumer_that_has_lost_its_membership_commits_nothing() -> None:
    """It stalls, its successor commits and leaves; the group is empty then, and would take a commit without a member."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1000)
        settings: dict[str, Any] = {
            "group_id": "g",
            "enable_auto_commit": False,
            "max_poll_interval_ms": 5000,
            "heartbeat_interval_ms": 500,
        }
        stalled = consumer_of(broker.client("stalled"), **settings)
        stalled.subscribe(["t"])
        assert len(await take(stalled, 100, max_records=100)) == 100
        await asyncio.sleep(10)
        successor = consumer_of(broker.client("successor"), **settings)
        successor.subscribe(["t"])
        await take(successor, 1000)
        await successor.commit()
        await successor.close()
        for offsets in (None, {KEY: 100}):
            with pytest.raises(KafkaError, match="not a member") as refused:
                await stalled.commit(offsets)
            assert refused.value.code == ErrorCode.ILLEGAL_GENERATION
        assert await stalled.committed([KEY]) == {KEY: 1000}
        await poll_for(stalled, 1)
        await stalled.commit()
        await stalled.close()

    with_broker(body)


def test_a_commit_does_not_wait_for_an_idle_fetch() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 10)
        cluster = broker.client("c")
        consumer = consumer_of(cluster, group_id="g", fetch_max_wait_ms=30_000)
        consumer.subscribe(["t"])
        await take(consumer, 10)
        await consumer.poll(100)  # a fetch is out now, and finds nothing
        for call in (consumer.commit(), consumer.committed([KEY]), consumer.end_offsets([KEY])):
            begun_ms = cluster.world.clock.monotonic_ms()
            await call
            assert cluster.world.clock.monotonic_ms() - begun_ms < 50
        await consumer.close()

    with_broker(body)


def test_a_cooperative_member_reads_and_commits_while_another_is_slow_to_join() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        settings: dict[str, Any] = {"group_id": "g", "partition_assignment_strategy": COOPERATIVE, "heartbeat_interval_ms": 500}
        slow, reader = (consumer_of(broker.client(name), **settings) for name in ("slow", "reader"))
        for member in (slow, reader):
            member.subscribe(["t"])
        await asyncio.gather(poll_for(slow, 10), poll_for(reader, 10))
        newcomer = consumer_of(broker.client("newcomer"), **settings)
        newcomer.subscribe(["t"])
        joining = asyncio.create_task(poll_for(newcomer, 60))  # it waits for the slow one, which does not poll for 40 s
        await poll_for(reader, 5)
        [owned] = reader.assignment()
        for number in range(30):
            await fill(broker, 1, partition=owned.partition, first=number)
            assert [record.value for record in await take(reader, 1)] == [b"%d" % number]
            await reader.commit()
            await asyncio.sleep(1)
        await asyncio.gather(joining, poll_for(slow, 30), poll_for(reader, 30))
        assert sorted(len(member.assignment()) for member in (slow, reader, newcomer)) == [0, 1, 1]
        for member in (slow, reader, newcomer):
            await member.close()

    with_broker(body)


def test_a_group_that_was_full_is_tried_again() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        first, second = (consumer_of(broker.client(name), group_id="g", enable_auto_commit=False) for name in ("first", "second"))
        first.subscribe(["t"])
        await take(first, 1)
        second.subscribe(["t"])
        for _ in range(3):
            with pytest.raises(KafkaError) as full:
                await second.poll(5000)
            assert full.value.code == ErrorCode.GROUP_MAX_SIZE_REACHED
        await first.close()
        assert len(await take(second, 1)) == 1
        await second.close()

    with_broker(body, group_max_size="1")


def test_a_join_that_failed_is_tried_again() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        cluster = broker.client("c")
        network = Interference(cluster)
        refused = JoinGroupResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED, -1, None, None, "", False, "")
        network.refuse = lambda request: refused if isinstance(request, JoinGroupRequest) else None
        consumer = consumer_of(cluster, group_id="g")
        consumer.subscribe(["t"])
        for _ in range(2):
            with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
                await consumer.poll(5000)
        network.refuse = lambda request: None
        assert len(await take(consumer, 1)) == 1
        await consumer.close()

    with_broker(body)


def test_a_static_member_stays_at_max_poll_interval_and_a_dynamic_one_leaves() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        admin = Admin(broker.client("a"))
        for instance, count in (("static", 1), (None, 0)):
            cluster = broker.client("c")
            network = Interference(cluster)
            settings: dict[str, Any] = {"max_poll_interval_ms": 3000, "heartbeat_interval_ms": 500, "session_timeout_ms": 60_000}
            consumer = consumer_of(cluster, group_id=f"g-{instance}", group_instance_id=instance, **settings)
            consumer.subscribe(["t"])
            await poll_for(consumer, 1)
            await asyncio.sleep(10)
            assert len((await admin.describe_group(f"g-{instance}")).members) == count
            assert len(network.of(LeaveGroupRequest)) == 1 - count
            await poll_for(consumer, 1)
            assert consumer.assignment() == [KEY]
            await consumer.close()
        await admin.close()

    with_broker(body)


def test_topics_that_are_created_after_subscribe_are_found() -> None:
    async def body(broker: SimBroker) -> None:
        consumer = consumer_of(broker.client("c"), group_id="g")
        consumer.subscribe(["t", "u"])
        await poll_for(consumer, 5)
        assert consumer.assignment() == []
        await create(broker)
        await fill(broker, 1)
        await poll_for(consumer, 5)
        assert consumer.assignment() == [KEY]
        await create(broker, "u")
        await poll_for(consumer, 5)
        assert set(consumer.assignment()) == {KEY, TopicPartition("u", 0)}
        await consumer.close()

    with_broker(body, auto_create_topics_enable="false")


def test_partitions_that_are_added_are_found_after_metadata_max_age() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c", metadata_max_age_ms=5000), group_id="g")
        consumer.subscribe(["t"])
        await poll_for(consumer, 2)
        admin = Admin(broker.client("a"))
        assert await admin.create_partitions({"t": 3}) == {"t": None}
        await admin.close()
        await poll_for(consumer, 12)
        assert len(consumer.assignment()) == 3
        await consumer.close()

    with_broker(body)


def test_a_member_that_is_closed_while_it_joins_leaves_nobody_to_wait_for() -> None:
    """Kafka's consumer leaves whenever it has a member id; the others would wait for the session of one that will not join."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        stays, goes = (consumer_of(broker.client(name), group_id="g") for name in ("stays", "goes"))
        stays.subscribe(["t"])
        await poll_for(stays, 10)
        goes.subscribe(["t"])
        await goes.poll(500)
        assert goes.member_id
        assert goes.generation_id < 0, "it waits for the other one to join again"
        await goes.close()
        await poll_for(stays, 10)
        assert stays.assignment() == [KEY]
        await stays.close()

    with_broker(body)


def test_a_transaction_gets_the_members_place_in_its_group_or_none() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c"), group_id="g", group_instance_id="i", enable_auto_commit=False)
        consumer.assign([KEY])
        assert consumer.group_metadata() == GroupMetadata("g", -1, "", None)
        consumer.assign([])
        consumer.subscribe(["t"])
        with pytest.raises(KafkaError, match="not a member of its group at present") as caught:
            consumer.group_metadata()
        assert caught.value.code == ErrorCode.ILLEGAL_GENERATION, "without a generation no coordinator would refuse its offsets"
        while not consumer.assignment():
            await consumer.poll(100)
        assert consumer.group_metadata() == GroupMetadata("g", consumer.generation_id, consumer.member_id, "i")
        assert consumer.generation_id > 0
        await consumer.close()
        alone = consumer_of(broker.client("alone"))
        with pytest.raises(KafkaError, match="INVALID_GROUP_ID"):
            alone.group_metadata()
        await alone.close()

    with_broker(body)


class Called:
    """The callbacks of a consumer, in order: which, with how many partitions, and what a commit in it comes to."""

    def __init__(self, consumer: Consumer, *, has_lost: bool = True) -> None:
        self._consumer = consumer
        self.seen: list[tuple[str, int]] = []
        self.commits: list[ErrorCode | None] = []
        lost = self._noting("lost") if has_lost else None
        consumer.subscribe(["t"], on_assigned=self._noting("assigned"), on_revoked=self._noting("revoked"), on_lost=lost)

    def _noting(self, word: str) -> Callable[[list[TopicPartition]], Awaitable[None]]:
        async def note(partitions: list[TopicPartition]) -> None:
            self.seen.append((word, len(partitions)))
            if word == "assigned":
                return
            try:
                await self._consumer.commit(dict.fromkeys(partitions, 0))
                self.commits.append(None)
            except KafkaError as error:
                self.commits.append(ErrorCode(error.code))

        return note


@pytest.mark.parametrize("strategy", [("range",), COOPERATIVE])
@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS], ids=lambda code: code.name
)
def test_partitions_of_a_member_that_was_removed_are_lost_and_of_one_that_joins_again_revoked(
    code: ErrorCode, strategy: tuple[str, ...]
) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(
            cluster, group_id="g", heartbeat_interval_ms=500, session_timeout_ms=6000, partition_assignment_strategy=strategy
        )
        called = Called(consumer)
        await poll_for(consumer, 0.5)
        due = [code]

        def alter(request: object, response: object) -> HeartbeatResponse | None:
            if not due or not isinstance(response, HeartbeatResponse):
                return None
            response.error_code = due.pop()
            return response

        network.alter = alter
        await poll_for(consumer, 15)  # a member that is not known any more is waited for until its session ends
        await consumer.close()
        if code != ErrorCode.REBALANCE_IN_PROGRESS:
            assert called.seen == [("assigned", 2), ("lost", 2), ("assigned", 2), ("revoked", 2)]
            assert called.commits == [ErrorCode.ILLEGAL_GENERATION, None]
        elif strategy == COOPERATIVE:  # it keeps what it has
            assert called.seen == [("assigned", 2), ("assigned", 0), ("revoked", 2)]
            assert called.commits == [None]
        else:
            assert called.seen == [("assigned", 2), ("revoked", 2), ("assigned", 2), ("revoked", 2)]
            assert called.commits == [None, None]

    with_broker(body)


def test_without_on_lost_lost_partitions_are_reported_to_on_revoked() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c"), group_id="g", max_poll_interval_ms=2000, heartbeat_interval_ms=500)
        called = Called(consumer, has_lost=False)
        await poll_for(consumer, 0.5)
        await asyncio.sleep(5)  # simulated: the application does not poll, and the client leaves the group
        await poll_for(consumer, 1)
        assert called.seen == [("assigned", 1), ("revoked", 1), ("assigned", 1)]
        assert called.commits == [ErrorCode.ILLEGAL_GENERATION]
        await consumer.close()

    with_broker(body)


@pytest.mark.parametrize("how", ["close", "unsubscribe"])
def test_a_consumer_that_is_no_member_any_more_loses_its_partitions_when_it_ends(how: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c"), group_id="g", max_poll_interval_ms=2000, heartbeat_interval_ms=500)
        called = Called(consumer)
        await poll_for(consumer, 0.5)
        await asyncio.sleep(5)  # simulated: it does not poll
        await getattr(consumer, how)()
        assert called.seen == [("assigned", 1), ("lost", 1)]
        await consumer.close()

    with_broker(body)


def test_partitions_of_a_membership_that_ends_while_its_member_joins_are_lost_and_start_at_the_commit() -> None:
    """Another member may have read on meanwhile: the position that this one had is not the group's any more."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 10)
        cluster = broker.client("c")
        network = Interference(cluster)
        settings: dict[str, Any] = {"enable_auto_commit": False, "partition_assignment_strategy": COOPERATIVE}
        consumer = consumer_of(cluster, group_id="g", session_timeout_ms=6000, **settings)
        called = Called(consumer)
        assert len(await take(consumer, 4, max_records=4)) == 4
        due = [ErrorCode.UNKNOWN_MEMBER_ID]

        def alter(request: object, response: object) -> JoinGroupResponse | None:
            if not due or not isinstance(response, JoinGroupResponse):
                return None
            response.error_code = due.pop()
            return response

        network.alter = alter
        consumer._membership.on_failed_join()  # type: ignore[union-attr]
        again = await take(consumer, 10)
        assert [record.offset for record in again] == list(range(10))
        assert called.seen == [("assigned", 1), ("lost", 1), ("assigned", 1)]
        await consumer.close()

    with_broker(body)


def test_a_static_member_whose_instance_id_another_process_uses_loses_its_partitions_and_its_poll_raises() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        settings: dict[str, Any] = {"group_id": "g", "group_instance_id": "i", "heartbeat_interval_ms": 500}
        first, second = (consumer_of(broker.client(name), **settings) for name in ("first", "second"))
        called = Called(first)
        await poll_for(first, 0.5)
        second.subscribe(["t"])
        await poll_for(second, 1)
        for _ in range(2):
            with pytest.raises(KafkaError) as refused:
                await poll_for(first, 5)
            assert refused.value.code == ErrorCode.FENCED_INSTANCE_ID
        assert (first.assignment(), called.seen) == ([], [("assigned", 1), ("lost", 1)])
        await poll_for(second, 1)
        assert second.assignment() == [KEY]
        await first.close()
        await second.close()

    with_broker(body)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_before_its_first_join_has_ended_a_member_has_nothing_to_commit_and_may_say_nothing_of_partitions(protocol: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c"), group_id="g", group_protocol=protocol)
        consumer.subscribe(["t"])
        assert not await consumer.poll(0)
        await consumer.commit()
        with pytest.raises(KafkaError, match="not a member"):
            await consumer.commit({KEY: 1})
        assert await consumer.committed([KEY]) == {}
        while not consumer.assignment():
            await consumer.poll(100)
        await consumer.unsubscribe()
        consumer.subscribe(["t"])
        await consumer.commit()
        await consumer.close()

    with_broker(body)
