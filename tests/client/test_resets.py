"""Positions that are to be the start or the end: a leader that does not answer keeps back no partition of another one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.simulated import consumer_of, create, fill, take, with_broker
from tests.cluster.in_simulation import SimNodes, play

from ottla.client.admin import Admin, OffsetSpec
from ottla.client.cluster import Cluster
from ottla.client.fetcher import Fetcher
from ottla.client.late_answers import AGAIN_MS, LATE_MS
from ottla.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.messages.metadata import MetadataResponse, MetadataResponseBroker
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

OF_FIRST, OF_SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
SESSION_SECONDS = 9
ELSEWHERE = 7
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


def test_a_position_is_waited_for_while_records_of_another_partition_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked for again and again without a pause then, so that nothing else ran in the loop, the look-up of the position included."""
    waits = 0
    wait = Fetcher.wait

    async def counted(fetcher: Fetcher, timeout_ms: float, **more: bool) -> None:
        nonlocal waits
        waits += 1
        assert waits < 1000, "it does not wait"
        await wait(fetcher, timeout_ms, **more)

    async def body(nodes: SimNodes) -> None:
        await two_leaders(nodes)

        async def read(cluster: Cluster) -> None:
            await cluster.refresh(["t"])
            consumer = consumer_of(cluster)
            nodes.nodes[2].machine.pause_process()
            consumer.assign([OF_SECOND, OF_FIRST])
            monkeypatch.setattr(Fetcher, "wait", counted)
            assert await consumer.position(OF_SECOND) == 0
            assert sorted(record.partition for record in await take(consumer, 2)) == [0, 1]
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


@pytest.mark.parametrize("meanwhile", ["sought", "sought at the end", "given up"])
def test_an_answer_for_a_position_that_is_another_by_now_does_not_count(meanwhile: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        await fill(broker, 3)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster)
        network.alter = lambda request, response: Held(5_000) if isinstance(request, ListOffsetsRequest) else None
        consumer.assign([OF_FIRST])
        assert await consumer.poll(1_000) == []
        match meanwhile:
            case "sought":
                consumer.seek(OF_FIRST, 2)
                assert [record.offset for record in await take(consumer, 1)] == [2]
            case "sought at the end":
                consumer.seek_to_end([OF_FIRST])
            case _:
                consumer.assign([OF_SECOND])
        assert await consumer.poll(20_000) == []
        [partition] = consumer.assignment()
        assert await consumer.position(partition) == (0 if partition == OF_SECOND else 3)
        await consumer.close()

    with_broker(body)


def test_a_late_answer_of_the_former_leader_does_not_count_once_the_next_one_has_answered() -> None:
    """Records were handed out twice: the position went back to the start."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 3)
        cluster = broker.client("c")
        network, asked = Interference(cluster), 0

        def alter(request: Request, response: Any) -> Response | Held | None:
            nonlocal asked
            if isinstance(response, MetadataResponse) and asked:
                [own] = response.brokers
                response.brokers.append(MetadataResponseBroker(ELSEWHERE, own.host, own.port))
                response.topics[0].partitions[0].leader_id = ELSEWHERE
                return response
            if isinstance(response, ListOffsetsResponse):
                asked += 1
                return Held(20_000) if asked == 1 else None
            return None

        network.alter = alter
        consumer = consumer_of(cluster)
        consumer.assign([OF_FIRST])
        assert await consumer.poll(1_000) == []
        await cluster.refresh()
        assert [record.offset for record in await take(consumer, 3)] == [0, 1, 2]
        assert await consumer.poll(30_000) == []
        assert asked == 2
        await consumer.close()

    with_broker(body)
