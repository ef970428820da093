"""The idempotent producer's laws, on a network that refuses, loses and delays, under topics that grow and go.

Kafka's own statement of them (ProducerIdempotence): what was acknowledged is stored at its offset, nothing is stored twice, and the
records of a partition are stored in the order in which they were sent, whatever becomes of single batches.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.client.simulated import consumer_of, create, end_of, produce_answer, take, with_broker

from ottla.client.admin import Admin
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.metadata import MetadataRequest
from ottla.messages.produce import PartitionProduceData, ProduceRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference, Lost
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

MAY_PASS = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS]
FINAL = ErrorCode.MESSAGE_TOO_LARGE

STEP_COUNT = 45


def script(rng: random.Random) -> list[tuple[Any, ...]]:
    """What the application and the world do, drawn evenly: hypothesis prefers short and simple ones, in which little goes wrong at once."""

    def step() -> tuple[Any, ...]:
        kind = rng.choices(["send", "wait", "refuse", "lose", "hold", "slow metadata", "event"], [50, 10, 15, 5, 10, 1, 9])[0]
        after = rng.randrange(4)  # how many Produce requests go well before
        match kind:
            case "send":
                return kind, rng.choice(["t", "t", "t", "t", "doomed"]), rng.randint(1, 6)
            case "wait":
                return kind, rng.choice([0, 1, 3, 20, 200, 1500])
            case "refuse":
                return kind, rng.choice([*MAY_PASS, FINAL, FINAL]), after
            case "lose":
                return kind, after
            case "hold":
                return kind, rng.choice([5, 80, 700, 4000]), after
            case "slow metadata":
                return kind, rng.choice([50, 2000])
            case _:
                return (rng.choice(["break", "break", "restart", "grow", "delete", "flush"]),)

    return [step() for _ in range(STEP_COUNT)]


def payload_of(data: PartitionProduceData) -> bytes:
    """What distinguishes a batch from others, whatever its numbers are: all after its base sequence."""
    assert isinstance(data.records, bytes | bytearray | memoryview)
    return bytes(data.records[57:])


class World:
    """One run: a producer, its network, and what was asked of both."""

    def __init__(self, broker: SimBroker, *, linger_ms: int, batch_size: int) -> None:
        self.broker = broker
        cluster = broker.client("p", metadata_max_age_ms=1000, request_timeout_ms=3000)
        self.network = Interference(cluster)
        self.network.refuse, self.network.alter = self._refuse, self._alter
        self.refusals: deque[ErrorCode | None] = deque()  # of the next Produce requests; None lets one through
        self.seen: set[bytes] = set()
        self.fates: deque[Held | Lost | None] = deque()  # of the next answers to them
        self.metadata_ms = 0
        self.producer = Producer(
            cluster, ProducerSettings(linger_ms=linger_ms, batch_size=batch_size, delivery_timeout_ms=8000, max_block_ms=2000)
        )
        self.admin = Admin(broker.client("a"))
        self.sent: dict[bytes, asyncio.Future[Any]] = {}
        self.partition_count = 1

    def _refuse(self, request: Request) -> Response | None:
        if not isinstance(request, ProduceRequest):
            return None
        code = self.refusals.popleft() if self.refusals else None
        batches = {payload_of(part) for topic in request.topic_data for part in topic.partition_data}
        is_again = not batches.isdisjoint(self.seen)
        self.seen |= batches
        if code is None or (code == FINAL and is_again):
            return None  # a broker that took a batch once, and whose answer was lost, does not refuse it for good
        return produce_answer(request, code)

    def _alter(self, request: Request, response: Any) -> Held | Lost | None:
        if isinstance(request, MetadataRequest | InitProducerIdRequest) and self.metadata_ms:
            return Held(self.metadata_ms)
        return self.fates.popleft() if isinstance(request, ProduceRequest) and self.fates else None

    async def take(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("send", topic, count):
                for _ in range(count):
                    value = b"%d" % len(self.sent)
                    partition = len(self.sent) % self.partition_count if topic == "t" else 0
                    try:
                        self.sent[value] = await self.producer.send(topic, value, partition=partition)
                        await asyncio.sleep(0)  # the sender gets to see each record, and has several requests out
                    except KafkaError:
                        continue  # the topic is gone, or the metadata does not know the partition yet
            case ("wait", delay_ms):
                await asyncio.sleep(delay_ms / 1000)
            case ("refuse", code, after):
                self.refusals.extend([*[None] * after, code])
            case ("lose", after):
                self.fates.extend([*[None] * after, Lost()])
            case ("hold", delay_ms, after):
                self.fates.extend([*[None] * after, Held(delay_ms)])
            case ("slow metadata", delay_ms):
                self.metadata_ms = delay_ms
            case ("break",):
                self.broker.machine._fabric.break_connections("broker")
            case ("restart",):
                self.broker.kill(power_cut=False)
                await asyncio.sleep(0.05)
                await self.broker.start()
            case ("grow",):
                self.partition_count += 1
                await self._try(self.admin.create_partitions({"t": self.partition_count}))
            case ("delete",):
                await self._try(self.admin.delete_topics(["doomed"]))
            case ("flush",):
                await self._try(self.producer.flush())

    @staticmethod
    async def _try(coroutine: Any) -> None:
        try:
            await coroutine
        except KafkaError:
            pass

    async def end(self) -> None:
        """The faults are over; everything comes to an end."""
        self.refusals.clear()
        self.fates.clear()
        self.metadata_ms = 0
        await self._try(self.producer.close())
        await self.admin.close()

    async def check(self) -> None:
        assert all(future.done() for future in self.sent.values()), "flush has waited for each"
        reader = Admin(self.broker.client("look"))
        partitions = [TopicPartition("t", index) for index in (await reader.describe_topic("t")).partitions]
        await reader.close()
        stored: dict[bytes, tuple[int, int]] = {}
        for partition in partitions:
            order = []
            for record in await self._all_of(partition):
                assert record.value not in stored, "nothing is stored twice"
                stored[record.value] = (record.partition, record.offset)
                order.append(int(record.value))
            assert order == sorted(order), "records are stored in the order in which they were sent"
        for value, future in self.sent.items():
            error = future.exception()
            if error is None and future.result().topic == "t":
                assert stored[value] == (future.result().partition, future.result().offset), "what was acknowledged is where it was said"
            elif isinstance(error, KafkaError) and error.code == FINAL:
                assert value not in stored, "what was refused for good is not stored"

    async def _all_of(self, partition: TopicPartition) -> list[Any]:
        end = await end_of(self.broker, partition)
        consumer = consumer_of(self.broker.client("reader"))
        consumer.assign([partition])
        records = await take(consumer, end) if end else []
        await consumer.close()
        return records


@settings(max_examples=max(200, settings().max_examples))
@given(st.integers(0, 2**32))
@example(125)
@pytest.mark.slow
def test_the_producers_laws_hold_under_any_faults(seed: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await create(broker, "doomed")
        rng = random.Random(seed)
        world = World(broker, linger_ms=rng.choice([0, 5]), batch_size=rng.choice([1, 200]))
        for step in script(rng):
            await world.take(step)
        await world.end()
        await world.check()

    with_broker(body, seed, auto_create_topics_enable="false")
