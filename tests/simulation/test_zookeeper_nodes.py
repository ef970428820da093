"""Replicated partitions of shipped nodes in ZooKeeper mode, in the simulated world: the same promises as with a quorum.

``OTTLA_SEEDS`` are explored; the share of ``make test`` is about 10 s.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest
import structlog
from tests.simulation.quorum_nodes import started
from tests.simulation.zookeeper_nodes import SESSION_MS, explore_zookeeper, nodes_in_zookeeper

from ottla.sim.cluster import Simulation
from ottla.sim.loop import run

SEEDS = int(os.environ.get("OTTLA_SEEDS", "4"))
RARE = (
    *("replica_truncated", "isr_changed", "broker_gone", "active controller killed", "controller_resigns", "controller_deposed"),
    *("zookeeper_session_expired", "broker_fences_itself", "controller_write_failed", "broker_znode_deleted"),
    *("failed log directories", "replaced disks", "replicas_lost", "trouble: disk is full", "trouble: disk fails once"),
    *("zookeeper: away", "zookeeper: cut off", "zookeeper: expired", "zookeeper: lost answers"),
)
"""What many seeds together must have met: otherwise they say nothing about it."""
MANY = 300


@pytest.mark.timeout(3600)
@pytest.mark.slow
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


@pytest.mark.slow
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
