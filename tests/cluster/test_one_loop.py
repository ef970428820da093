"""Three nodes on one event loop, with real sockets: topics spread, any node serves all, nodes leave and come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.cluster.loop_clients import asking
from tests.cluster.one_loop import LoopCluster, cluster_on_loop
from tests.waiting import eventually_is

from ottla.aio import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.broker.requests import forwarding
from ottla.client.connection import ClientConnection
from ottla.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.metadata.delta import ImageDelta
from ottla.runtime.world import real_world

NODES = (1, 2, 3)


async def leaders(cluster: LoopCluster, asked: int, topic: str) -> list[int]:
    admin = Admin(cluster.bootstrap_of(asked))
    try:
        return sorted(partition.leader for partition in (await admin.describe_topic(topic)).partitions.values())
    finally:
        await admin.close()


async def create(cluster: LoopCluster, asked: int, topic: NewTopic) -> None:
    admin = Admin(cluster.bootstrap_of(asked))
    assert await admin.create_topics([topic]) == {topic.name: None}
    await admin.close()


@pytest.mark.parametrize("asked", NODES)
@pytest.mark.slow
def test_records_go_in_and_out_through_any_node(tmp_path: Path, asked: int) -> None:
    """Mechanism 9: six partitions, two for each broker."""

    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            await create(cluster, asked, NewTopic("t", 6, 1))
            for node_id in NODES:
                await eventually_is(lambda node_id=node_id: leaders(cluster, node_id, "t"), [1, 1, 2, 2, 3, 3])  # type: ignore[misc]
            producer = Producer(cluster.bootstrap_of(asked))
            sent = [await producer.send("t", f"{number}".encode(), partition=number % 6) for number in range(60)]
            found = [await record for record in sent]
            assert [record.offset for record in found] == [number // 6 for number in range(60)]
            await producer.close()
            consumer = Consumer(cluster.bootstrap_of(asked % 3 + 1), group_id="g", auto_offset_reset="earliest")
            consumer.subscribe(["t"])
            read: list[int] = []
            while len(read) < 60:
                read += [int(record.value or b"") for record in await consumer.poll(10_000)]
            assert sorted(read) == list(range(60))
            await consumer.commit()
            await consumer.close()
            admin = Admin(cluster.bootstrap_of((asked + 1) % 3 + 1))
            assert sum(offset.offset for offset in (await admin.committed_offsets("g")).values()) == 60
            await admin.close()

    asyncio.run(body())


@pytest.mark.slow
def test_a_restarted_controller_has_the_decisions_made_meanwhile(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            await create(cluster, 1, NewTopic("before", 3, 1))
            active = next(iter(cluster.nodes.values())).controller.replica.leader_id
            other = next(node_id for node_id in NODES if node_id != active)
            await cluster.stop(active)
            await create(cluster, other, NewTopic("meanwhile", 2, 1))
            assert active not in await leaders(cluster, other, "meanwhile")
            await cluster.start(active)
            await eventually_is(lambda: leaders(cluster, active, "before"), [1, 2, 3])
            assert active not in await leaders(cluster, active, "meanwhile")

    asyncio.run(body())


@pytest.mark.slow
def test_all_nodes_stop_and_start_with_their_records(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            await create(cluster, 2, NewTopic("t", 3, 1))
            producer = Producer(cluster.bootstrap)
            for partition in range(3):
                await (await producer.send("t", b"kept", partition=partition))
            await producer.close()
            await cluster.stop()
            assert len(list(tmp_path.glob("node-*/.kafka_cleanshutdown"))) == 3
            await cluster.start(*NODES)
            consumer = Consumer(cluster.bootstrap, auto_offset_reset="earliest")
            consumer.assign([TopicPartition("t", partition) for partition in range(3)])
            read: list[bytes | None] = []
            while len(read) < 3:
                read += [record.value for record in await consumer.poll(10_000)]
            assert read == [b"kept"] * 3
            await consumer.close()

    asyncio.run(body())


@pytest.mark.slow
def test_every_controller_is_known_to_every_node_and_a_tool_may_ask_any_of_them(tmp_path: Path) -> None:
    """KIP-919: DescribeCluster on a controllers' listener."""

    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            ports = {node_id: controller_port for node_id, (_, controller_port) in cluster.ports.items()}

            async def known() -> list[dict[int, int]]:
                images = [node.image for node in cluster.nodes.values()]
                return [{node_id: found.endpoints["CONTROLLER"].port for node_id, found in image.controllers.items()} for image in images]

            await eventually_is(known, [ports] * 3)
            before = cluster.nodes[1].image.controllers[2].incarnation_id
            await cluster.stop(2)
            await cluster.start(2)

            async def is_another() -> bool:
                return cluster.nodes[1].image.controllers[2].incarnation_id != before

            await eventually_is(is_another, True)
            for port in ports.values():
                connection = await ClientConnection.connect(real_world(), "127.0.0.1", port, client_id="tool", timeout_ms=10_000)
                answer = await connection.ask(DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse, timeout_ms=10_000)
                assert {node.broker_id: node.port for node in answer.brokers} == ports
                connection.close()

    asyncio.run(body())


@pytest.mark.parametrize("is_patient", [True, False])
@pytest.mark.slow
def test_a_broker_that_passes_a_change_on_answers_once_it_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_patient: bool
) -> None:
    """But for one that takes too long to open what is new."""
    monkeypatch.setattr(forwarding, "SHOWN_MS_MAX", 60_000 if is_patient else 1)

    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            active = next(iter(cluster.nodes.values())).controller.replica.leader_id
            asked = next(node for node_id, node in cluster.nodes.items() if node_id != active)
            may_follow, follow = asyncio.Event(), asked.made.publisher._publish

            async def held_up(delta: ImageDelta) -> None:
                await may_follow.wait()
                await follow(delta)

            asked.made.publisher._publish = held_up
            try:
                async with asking(cluster, asked.node_id) as admin:
                    creating = asyncio.create_task(admin.create_topics([NewTopic("t", assignments={0: [asked.node_id]})]))
                    if is_patient:
                        done, _ = await asyncio.wait({creating}, timeout=0.5)
                        assert not done
                        may_follow.set()
                    assert await creating == {"t": None}
                    assert (asked.partitions.find("t", 0) is not None) == is_patient
            finally:
                may_follow.set()

    asyncio.run(body())
