"""The laws of a consumer group, under members that are slow, leave, stop and come back, on a network that delays, loses and refuses.

What a commit covers was handed out to a member; what a member hands out follows on what was handed out before, without a gap; in the end
every record has been handed out. Kafka's guarantee of "at least once" in three sentences.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.simulated import consumer_of, create, with_broker

from ottla.client.admin import Admin
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.messages.fetch import FetchRequest
from ottla.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.messages.offset_commit import OffsetCommitRequest
from ottla.messages.offset_fetch import OffsetFetchRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference, Lost
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

MEMBER_COUNT = 3
STEP_COUNT = 60
STRATEGIES = [("range",), ("cooperative-sticky",), ("range", "cooperative-sticky"), ("sticky",)]


class Member:
    """One consumer and what it has handed out."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        cluster = world.broker.client(name, metadata_max_age_ms=2000, request_timeout_ms=5000)
        self.network = Interference(cluster)
        self.network.alter = self._alter
        self.fates: dict[type[Request], Held | Lost] = {}  # of the next answer to such a request
        self.next_offsets: dict[TopicPartition, int] = {}  # of what is owned, once something of it was handed out
        self.consumer = consumer_of(
            cluster,
            group_id="g",
            max_poll_interval_ms=4000,
            **world.membership(),
            enable_auto_commit=world.rng.random() < 0.5,
            auto_commit_interval_ms=100,
            max_partition_fetch_bytes=world.rng.choice([200, 1_000_000]),
        )

    def _alter(self, request: Request, response: Any) -> Held | Lost | HeartbeatResponse | None:
        return self.fates.pop(type(request), None)

    async def join(self) -> None:
        self.consumer.subscribe(["t"], on_assigned=self._reset, on_revoked=self._reset)

    def _reset(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.next_offsets.pop(partition, None)

    def handed_out(self, record: Any) -> None:
        partition = TopicPartition(record.topic, record.partition)
        world = self.world
        expected = self.next_offsets.get(partition)
        reached = world.reached.get(partition, 0)
        assert record.offset <= reached, f"{record.offset} of {partition} follows on {reached}: records were skipped"
        assert expected is None or record.offset == expected, f"{record.offset} of {partition} came where {expected} was due"
        self.next_offsets[partition] = record.offset + 1
        world.reached[partition] = max(reached, record.offset + 1)


class World:
    def __init__(self, broker: SimBroker, rng: random.Random, protocol: str) -> None:
        self.broker = broker
        self.rng = rng
        self.protocol = protocol
        self.strategy = rng.choice(STRATEGIES)
        self.reached: dict[TopicPartition, int] = {}  # the offset after the last that anybody handed out
        self.produced: dict[int, int] = {}
        self.partition_count = 2
        self.members: list[Member | None] = [None] * MEMBER_COUNT
        self.stopped: list[Consumer] = []
        self.producer = Producer(broker.client("p"), ProducerSettings(linger_ms=0, batch_size=100))
        self.admin = Admin(broker.client("a"))

    def membership(self) -> dict[str, Any]:
        """The settings of a new member's membership."""
        protocol = self.rng.choice(["classic", "consumer"]) if self.protocol == "both" else self.protocol
        if protocol == "consumer":
            return {"group_protocol": protocol, "group_remote_assignor": self.rng.choice([None, "range", "uniform"])}
        return {"session_timeout_ms": 6000, "heartbeat_interval_ms": 300, "partition_assignment_strategy": self.strategy}

    async def step(self, number: int) -> None:
        rng = self.rng
        index = rng.randrange(MEMBER_COUNT)
        member = self.members[index]
        if member is None:
            member = self.members[index] = Member(self, f"m{number}")
            await member.join()
        consumer = member.consumer
        kind = rng.choices(
            ["poll", "iterate", "commit", "seek", "pause", "slow", "produce", "fault", "leave", "stop", "break", "grow"],
            [25, 15, 10, 4, 4, 6, 20, 15, 2, 1, 3, 1],
        )[0]
        owned = consumer.assignment()
        try:
            match kind:
                case "poll":
                    for record in await consumer.poll(rng.choice([0, 50, 500]), max_records=rng.choice([1, 3, 500])):
                        member.handed_out(record)
                case "iterate":
                    for _ in range(rng.randint(1, 12)):
                        following = consumer._next_record()
                        if following is None:
                            await consumer._fetch(rng.choice([10, 100]))
                        else:
                            member.handed_out(following)
                case "commit":
                    await consumer.commit()
                case "seek" if owned:
                    partition = rng.choice(owned)
                    offset = rng.randint(0, self.reached.get(partition, 0))
                    consumer.seek(partition, offset)
                    member.next_offsets[partition] = offset
                case "pause" if owned:
                    consumer.resume(owned)
                    consumer.pause(rng.sample(owned, rng.randrange(len(owned) + 1)))
                case "slow":
                    await asyncio.sleep(rng.choice([0.2, 1, 5]))
                case "produce":
                    partition_index = rng.randrange(self.partition_count)
                    for _ in range(rng.randint(1, 10)):
                        await self.producer.send("t", b"x" * 20, partition=partition_index)
                        self.produced[partition_index] = self.produced.get(partition_index, 0) + 1
                case "fault":
                    heartbeat = (
                        ConsumerGroupHeartbeatRequest if consumer._settings.membership.group_protocol == "consumer" else HeartbeatRequest
                    )
                    request = rng.choice([FetchRequest, heartbeat, OffsetCommitRequest, OffsetFetchRequest])
                    stale: Response | None = None
                    if request is HeartbeatRequest:
                        stale = HeartbeatResponse(0, ErrorCode.REBALANCE_IN_PROGRESS)
                    elif request is ConsumerGroupHeartbeatRequest:
                        stale = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
                    fates: list[Held | Lost] = [Held(20), Held(700), Held(700, stale), Lost()]
                    member.fates[request] = rng.choice(fates)
                case "leave":
                    self.members[index] = None
                    await consumer.close()
                case "stop":  # as a process that is killed: it sends nothing any more
                    self.members[index] = None
                    await consumer._membership.close()  # type: ignore[union-attr]
                    self.stopped.append(consumer)
                case "break":
                    self.broker.machine._fabric.break_connections("broker")
                case "grow":
                    self.partition_count += 1
                    await self.admin.create_partitions({"t": self.partition_count})
        except KafkaError:
            pass  # refused: a rebalance, a member that is none at present, a broken connection

    async def check_commits(self) -> None:
        for partition, committed in (await self.admin.committed_offsets("g")).items():
            assert committed.offset <= self.reached.get(partition, 0), f"{partition} is committed at {committed.offset}, not handed out"

    async def end(self) -> None:
        """The others leave, and one member reads on until it has everything."""
        await self.producer.close()
        survivor = Member(self, "survivor")
        await survivor.join()
        for member in self.members:
            if member is not None:
                await member.consumer.close()
        await self.check_commits()
        wanted = {TopicPartition("t", index): count for index, count in self.produced.items()}
        for _ in range(400):
            if all(self.reached.get(partition, 0) >= count for partition, count in wanted.items()):
                break
            for record in await survivor.consumer.poll(500):
                survivor.handed_out(record)
        assert {partition: self.reached.get(partition, 0) for partition in wanted} == wanted, "every record was handed out"
        await survivor.consumer.close()
        await self.check_commits()
        await self.admin.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer", "both"])
@settings(max_examples=max(35, settings().max_examples))
@given(st.integers(0, 2**32))
@pytest.mark.slow
def test_the_laws_of_a_group_hold_under_any_faults(protocol: str, seed: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        world = World(broker, random.Random(seed), protocol)
        for number in range(STEP_COUNT):
            await world.step(number)
            if number % 10 == 9:
                await world.check_commits()
        await world.end()

    times = {
        "session_timeout_ms": "6000",
        "min_session_timeout_ms": "1000",
        "heartbeat_interval_ms": "300",
        "min_heartbeat_interval_ms": "100",
    }
    of_group = {f"group_consumer_{name}": value for name, value in times.items()} | {"group_consumer_assignment_interval_ms": "0"}
    with_broker(body, seed, group_min_session_timeout_ms="1000", **of_group)
