"""Positions that are to be the start or the end: a leader that does not answer keeps back no partition of another one."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.simulated import consumer_of, create, fill, take, with_broker
from tests.cluster.in_simulation import SimNodes, play

from ottla.client.admin import Admin, OffsetSpec
from ottla.client.cluster import Cluster
from ottla.client.late_answers import AGAIN_MS, LATE_MS
from ottla.messages.list_offsets import ListOffsetsRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference
from ottla.types import TopicPartition

OF_FIRST, OF_SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
SESSION_SECONDS = 9
SOON = 1.0


def now() -> float:
    return asyncio.get_running_loop().time()


async def two_leaders(nodes: SimNodes) -> None:
    """Each of the first two nodes leads a partition with one record, and the second one hangs."""
    await nodes.create("t", [1, 2, 3], [2, 1, 3])
    for index in range(2):
        await nodes.send("t", b"value", index=index)


def test_a_partition_is_read_from_its_start_while_the_leader_of_another_one_hangs() -> None:
    async def body(nodes: SimNodes) -> None:
        await two_leaders(nodes)

        async def read(cluster: Cluster) -> None:
            await cluster.refresh(["t"])
            consumer = consumer_of(cluster)
            nodes.nodes[2].machine.pause_process()
            consumer.assign([OF_SECOND, OF_FIRST])
            began = now()
            assert [record.partition for record in await take(consumer, 1)] == [0]
            assert now() - began < SOON
            assert [record.partition for record in await take(consumer, 1)] == [1]
            assert now() - began < SESSION_SECONDS + (LATE_MS + AGAIN_MS) / 1000
            await consumer.close()

        await nodes.act(read)
        nodes.nodes[2].machine.resume_process()

    play(body)


def test_the_next_leader_is_asked_for_an_offset_when_one_hangs() -> None:
    """Its request would have half a minute."""

    async def body(nodes: SimNodes) -> None:
        await two_leaders(nodes)

        async def ask(cluster: Cluster) -> None:
            await cluster.refresh(["t"])
            nodes.nodes[2].machine.pause_process()
            began = now()
            found = await Admin(cluster).offsets_for_times({OF_FIRST: OffsetSpec.LATEST, OF_SECOND: OffsetSpec.LATEST})
            assert [found[key].offset for key in (OF_FIRST, OF_SECOND)] == [1, 1]
            assert now() - began < SESSION_SECONDS + (LATE_MS + AGAIN_MS) / 1000

        await nodes.act(ask)
        nodes.nodes[2].machine.resume_process()

    play(body)


@pytest.mark.parametrize("is_sought", [False, True])
def test_an_answer_for_a_position_that_is_another_by_now_does_not_count(is_sought: bool) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        await fill(broker, 3)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster)
        network.alter = lambda request, response: Held(5_000) if isinstance(request, ListOffsetsRequest) else None
        consumer.assign([OF_FIRST])
        assert await consumer.poll(1_000) == []
        if is_sought:
            consumer.seek(OF_FIRST, 2)
            assert [record.offset for record in await take(consumer, 1)] == [2]
        else:
            consumer.assign([OF_SECOND])
        assert await consumer.poll(20_000) == []
        assert await consumer.position(OF_FIRST if is_sought else OF_SECOND) == (3 if is_sought else 0)
        await consumer.close()

    with_broker(body)
