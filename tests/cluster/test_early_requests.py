"""Requests that come before this broker leads the partition that they are for: they are held, and answered in order.

Clients hear who leads from a broker that has read further, or that names a partition that its leader is still opening.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import pytest
from tests.cluster.in_simulation import SimNodes, play
from tests.foreign_clients.wire import batch_of
from tests.hostile.wire_bytes import request

from ottla.broker.node import Broker
from ottla.broker.replicas.early_requests import OPENING_MS, UNHEARD_MS
from ottla.broker.replicas.replication import CEASED_MS
from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.ports import Connection
from ottla.records.builder import BatchBuilder
from ottla.sim.cluster import PORT
from ottla.sim.disk_faults import ANY, Slow
from ottla.types import TopicPartition

T = TypeVar("T")
OPENING_SLOWLY_MS = 300


def numbered(sequence: int) -> bytes:
    builder = BatchBuilder()
    builder.append(None, b"%d" % sequence, timestamp_ms=1)
    return bytes(builder.build(producer_id=7, producer_epoch=0, base_sequence=sequence))


async def produce(nodes: SimNodes, cluster: Cluster, node: int, topic: str, records: bytes, acks: int = 1) -> tuple[int, int]:
    """Error and base offset."""
    await cluster.refresh()
    topic_id = next((broker.image.topics[topic].topic_id for broker in brokers(nodes) if topic in broker.image.topics), bytes(16))
    data = TopicProduceData(topic, topic_id, [PartitionProduceData(0, records)])
    answer = await cluster.ask(node, ProduceRequest(None, acks, 5000, [data]), ProduceResponse)
    [result] = answer.responses[0].partition_responses
    return result.error_code, result.base_offset


def brokers(nodes: SimNodes) -> list[Broker]:
    return [broker for node in nodes.nodes if (broker := nodes.broker(node)) is not None]


async def begin_topic(nodes: SimNodes, replicas: list[int]) -> None:
    """A topic that node 1 opens slowly: it is created, and other nodes say that node 1 leads."""
    nodes.nodes[1].machine.disk.slow.append(Slow(ANY, "", OPENING_SLOWLY_MS, within="/data/t-0"))

    async def create(cluster: Cluster) -> None:
        made = await Admin(cluster).create_topics([NewTopic("t", assignments={0: replicas})])
        assert made == {"t": None}

    creating = asyncio.ensure_future(nodes.act(create))
    await nodes.until(lambda: "t" in nodes.nodes[2].broker.image.topics)  # type: ignore[union-attr]
    assert not nodes.has(1, "t"), "that is what this is about"
    creating.add_done_callback(lambda done: done.result())


def test_what_is_sent_while_the_leader_opens_the_partition_is_taken_in_order() -> None:
    async def body(nodes: SimNodes) -> None:
        await begin_topic(nodes, [1, 2])

        async def send(cluster: Cluster) -> None:
            sending = [produce(nodes, cluster, 1, "t", numbered(sequence), acks=-1) for sequence in range(4)]
            assert await asyncio.gather(*sending) == [(0, offset) for offset in range(4)]

        await nodes.act(send)

    play(body)


def test_a_reader_is_answered_once_the_partition_is_open() -> None:
    async def body(nodes: SimNodes) -> None:
        await begin_topic(nodes, [1])

        async def read(cluster: Cluster) -> None:
            await cluster.refresh()
            topic_id = nodes.nodes[2].broker.image.topics["t"].topic_id  # type: ignore[union-attr]
            listed = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])])
            wanted = FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)
            fetched = FetchRequest(max_wait_ms=0, topics=[FetchTopic("t", topic_id, [wanted])])
            offsets, data = await asyncio.gather(
                cluster.ask(1, listed, ListOffsetsResponse), cluster.ask(1, fetched, FetchResponse)
            )  # fmt: skip
            assert (offsets.topics[0].partitions[0].error_code, offsets.topics[0].partitions[0].offset) == (0, 0)
            assert data.responses[0].partitions[0].error_code == 0

        await nodes.act(read)

    play(body)


async def milliseconds_of(asking: Awaitable[T]) -> tuple[T, float]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    return await asking, (loop.time() - began) * 1000


@pytest.mark.parametrize("is_own", [True, False])
def test_nobody_is_held_for_ever(is_own: bool) -> None:
    """A partition that is not opened within a second is refused, one that this broker has never heard of much sooner."""

    async def body(nodes: SimNodes) -> None:
        nodes.nodes[1].machine.disk.slow.append(Slow(ANY, "", 10_000, within="/data/t-0"))

        async def create(cluster: Cluster) -> None:
            await Admin(cluster).create_topics([NewTopic("t", assignments={0: [1]})])

        creating = asyncio.ensure_future(nodes.act(create))
        await nodes.until(lambda: "t" in nodes.nodes[1].broker.image.topics)  # type: ignore[union-attr]

        async def send(cluster: Cluster) -> None:
            topic = "t" if is_own else "unknown"
            (code, _), ms = await milliseconds_of(produce(nodes, cluster, 1, topic, batch_of(b"x")))
            wanted_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_own else ErrorCode.UNKNOWN_TOPIC_ID
            assert code == wanted_code
            held_ms = OPENING_MS if is_own else UNHEARD_MS
            assert held_ms <= ms < held_ms + 200

        await nodes.act(send)
        await creating

    play(body)


def test_a_leader_that_was_just_replaced_refuses_requests_at_once() -> None:
    """Its clients are behind, not it."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])

        async def move(cluster: Cluster) -> None:
            admin = Admin(cluster)
            await admin.alter_partition_reassignments({TopicPartition("t", 0): [2, 1]})
            await nodes.until(lambda: tuple(nodes.nodes[1].broker.image.topics["t"].partitions[0].replicas) == (2, 1))  # type: ignore[union-attr]
            await admin.elect_leaders([TopicPartition("t", 0)])
            await admin.close()

        async def send(cluster: Cluster) -> float:
            await cluster.refresh()
            (code, _), ms = await milliseconds_of(produce(nodes, cluster, 1, "t", batch_of(b"x")))
            assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ms

        await nodes.act(move)
        await nodes.until(lambda: nodes.partition(1, "t").led_epoch < 0)
        assert await nodes.act(send) < UNHEARD_MS
        await asyncio.sleep(CEASED_MS / 1000)
        assert await nodes.act(send) >= UNHEARD_MS

    play(body)


def test_an_early_request_does_not_count_as_written_with_the_rest_of_its_burst() -> None:
    """An earlier request of the burst waits for its disk; when that has written, all that was staged by then counted as in the log.

    acks=all was answered for records that no other replica had (seed 1091 in ZooKeeper mode).
    """

    async def body(nodes: SimNodes) -> None:
        for topic in ("slow", "open"):
            await nodes.create(topic, [1])
        disk = nodes.nodes[1].machine.disk
        disk.slow.append(Slow("append", ".log", 2 * OPENING_SLOWLY_MS, within="/data/slow-0"))
        await begin_topic(nodes, [1, 2])
        disk.slow.append(Slow("append", ".log", 3 * OPENING_SLOWLY_MS, within="/data/t-0"))

        image = nodes.nodes[2].broker.image  # type: ignore[union-attr]

        def frame_of(*topics: str) -> bytes:
            data = [TopicProduceData(topic, image.topics[topic].topic_id, [PartitionProduceData(0, batch_of(b"x"))]) for topic in topics]
            return request(ProduceRequest(None, -1, 5000, data), 13)

        answers = Answers()
        client = nodes.simulation.machine("raw")
        world = client.boot()

        async def send() -> None:
            connection = await world.network.connect("node-1", PORT, answers.made)
            connection.send([frame_of("slow") + frame_of("open", "t")])  # one burst
            nodes.simulation.fabric.slow_link("node-1", "node-2", OPENING_SLOWLY_MS)
            await nodes.until(lambda: answers.count == 2)
            assert nodes.partition(2, "t").log.log_end_offset == 1, "it was acknowledged by all"

        await client.run(send())

    play(body)


class Answers:
    """Counts the frames that come back."""

    def __init__(self) -> None:
        self._data = bytearray()

    def made(self, connection: Connection) -> Answers:
        return self

    @property
    def count(self) -> int:
        found, position = 0, 0
        while position + 4 <= len(self._data):
            position += 4 + int.from_bytes(self._data[position : position + 4])
            found += position <= len(self._data)
        return found

    def on_data(self, data: memoryview) -> bool:
        self._data += data
        return False

    def room(self) -> memoryview | None:
        return None

    def on_drain(self) -> None: ...
    def on_close(self, error: Exception | None) -> None: ...
