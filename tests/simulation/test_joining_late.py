"""What clients meet at a broker in ZooKeeper mode that has started, and has not joined its cluster yet."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from tests.cluster.in_simulation import SimNodes
from tests.simulation.quorum_nodes import started
from tests.simulation.zookeeper_nodes import nodes_in_zookeeper

from ottla.broker.homes.zookeeper.home import ZookeeperLife
from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run
from ottla.types import TopicPartition


def test_a_consumer_waits_for_a_leader_that_has_not_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its listener is open for brokers that look for a controller; Metadata names it for as long as its last session lives."""
    may_join = asyncio.Event()
    join = ZookeeperLife._join

    async def joins_late(self: ZookeeperLife) -> None:
        await may_join.wait()
        await join(self)

    async def read(cluster: Cluster) -> None:
        consumer = Consumer(cluster, ConsumerSettings(fetch=FetchSettings(auto_offset_reset="earliest")))
        consumer.assign([TopicPartition("events", 0)])
        while not await consumer.poll(100):
            pass
        node.kill(power_cut=False)
        node.begin()
        for _ in range(20):
            assert await consumer.poll(100) == []
        may_join.set()
        await started([node])
        await nodes.send("events", b"later")
        async with asyncio.timeout(20):
            while not (found := await consumer.poll(100)):
                pass
        assert [record.value for record in found] == [b"later"]
        await consumer.close()

    async def main() -> None:
        node.begin()
        await started([node])
        await nodes.create("events", [1])
        await nodes.send("events", b"before")
        monkeypatch.setattr(ZookeeperLife, "_join", joins_late)
        await nodes.act(read)

    simulation = Simulation(5)
    node = nodes_in_zookeeper(simulation)[0]
    nodes = SimNodes(simulation, {1: node}, {})
    with structlog.testing.capture_logs() as events:
        run(main())
    assert "only the metadata log can be fetched yet" in {event.get("reason") for event in events}
