"""Replicated partitions of shipped nodes in ZooKeeper mode, in the simulated world: the same promises as with a quorum.

``OTTLA_SEEDS`` are explored; the share of ``make test`` is about 15 s.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any

import pytest
import structlog
from tests.cluster.in_simulation import SimNodes
from tests.simulation.quorum_nodes import started
from tests.simulation.zookeeper_nodes import SESSION_MS, explore_zookeeper, nodes_in_zookeeper

from ottla.broker.zookeeper.among import AmongZookeeper
from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetcher import FetchSettings
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run
from ottla.types import TopicPartition

SEEDS = int(os.environ.get("OTTLA_SEEDS", "6"))
RARE = (
    *("replica_truncated", "isr_changed", "broker_gone", "active controller killed", "controller_resigns", "controller_deposed"),
    *("zookeeper_session_expired", "broker_fences_itself", "controller_write_failed", "broker_znode_deleted"),
    *("failed log directories", "replaced disks", "replicas_lost", "trouble: disk is full", "trouble: disk fails once"),
    *("zookeeper: away", "zookeeper: cut off", "zookeeper: expired", "zookeeper: lost answers"),
)
"""What many seeds together must have met: otherwise they say nothing about it."""
MANY = 300


@pytest.mark.timeout(3600)
def test_what_acks_all_has_acknowledged_is_kept_and_no_living_broker_is_taken_for_dead() -> None:
    states: Counter[str] = Counter()
    for seed in range(SEEDS):
        found = explore_zookeeper(seed)
        assert not found.findings, f"seed {seed}: {found.findings}"
        states.update(found.states)
    print(SEEDS, dict(states))
    assert states["acknowledged records"] > 500 * SEEDS
    assert states["controller_elected"] > SEEDS
    assert SEEDS < MANY or not [name for name in RARE if not states[name]], states


def test_the_same_seed_gives_the_same_run() -> None:
    assert explore_zookeeper(7).digest == explore_zookeeper(7).digest


@pytest.mark.parametrize("is_active", [False, True])
def test_a_machine_that_lost_power_does_not_wait_for_the_end_of_its_earlier_session(is_active: bool) -> None:
    """The znode that is there names its own address: it deletes it."""

    async def main() -> None:
        nodes = nodes_in_zookeeper(simulation)
        for node in nodes:
            node.begin()
        await started(nodes)
        [victim, *_] = [node for node in nodes if node.broker is not None and node.broker.controller.is_active == is_active]
        victim.kill(power_cut=True)
        await asyncio.sleep(0.1)
        begin = asyncio.get_running_loop().time()
        victim.begin()
        await started([victim])
        assert asyncio.get_running_loop().time() - begin < SESSION_MS / 1000 / 2

    simulation = Simulation(5)
    with structlog.testing.capture_logs():
        run(main())


def test_a_consumer_waits_for_a_leader_that_has_not_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its listener is open before, for the brokers that look for a controller, and Metadata names it for as long as its last session lives."""
    may_join = asyncio.Event()
    join = AmongZookeeper.join

    async def joins_late(self: AmongZookeeper, *args: Any) -> None:
        await may_join.wait()
        await join(self, *args)

    async def read(cluster: Cluster) -> None:
        consumer = Consumer(cluster, ConsumerSettings(fetch=FetchSettings(auto_offset_reset="earliest")))
        await consumer.assign([TopicPartition("events", 0)])
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
        monkeypatch.setattr(AmongZookeeper, "join", joins_late)
        await nodes.act(read)

    simulation = Simulation(5)
    node = nodes_in_zookeeper(simulation)[0]
    nodes = SimNodes(simulation, {1: node}, {})
    with structlog.testing.capture_logs() as events:
        run(main())
    assert "only the metadata log can be fetched yet" in {event.get("reason") for event in events}
