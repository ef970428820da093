"""Replicas whose own log is damaged, beside all other trouble of three nodes: each is fetched again, or kept where nobody else has it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.quorum_nodes import QuorumNode, Run
from tests.simulation.replicated_nodes import Kinds, all_errors, explore_replication

from ottla.broker.replicas.partition import Partition
from ottla.sim.cluster import Simulation

REPLACED_SECONDS_MAX = 10
RESTART_SECONDS = 0.1
EXPECTED = frozenset({"log_append_failed", "shard_append_failed", "shard_not_loaded", "partition_offline"})
"""Errors that a broker logs of a log that is not to be written any more."""


def damaging(simulation: Simulation, nodes: list[QuorumNode], result: Run) -> Kinds:
    """What the scrubber does when it finds damage, to any replica of a node, and to several at once."""
    rng = simulation.random("damaged replicas")

    async def damage(node: QuorumNode) -> None:
        if node.broker is None:
            return
        store = node.broker.partitions
        whole = [partition for partition in store.all() if not partition.log.is_failed]
        victims = rng.sample(whole, min(len(whole), rng.choice([1, 1, 3])))
        for victim in victims:
            victim.fail()
        node.broker.made.list.on_offline()
        result.states["damaged replicas"] += len(victims)
        if await _are_replaced(node, victims):
            result.states["damaged replicas replaced"] += len(victims)
        else:  # one had what nobody else has: it is what it was, after all
            await _restart(node, rng)

    return {"replicas damaged": damage}


async def _are_replaced(node: QuorumNode, victims: Sequence[Partition]) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + REPLACED_SECONDS_MAX
    while loop.time() < deadline:
        store = None if node.broker is None else node.broker.partitions
        if store is None:  # it died meanwhile: the next process finds nothing wrong
            return False
        found = [store.find(victim.topic, victim.index) for victim in victims]
        if all(new is not None and new is not old and not new.log.is_failed for new, old in zip(found, victims, strict=True)):
            return True
        await asyncio.sleep(0.05)
    return False


async def _restart(node: QuorumNode, rng: random.Random) -> None:
    node.kill(power_cut=False)
    await asyncio.sleep(rng.uniform(RESTART_SECONDS, 1))
    node.begin()


def explore_damage(seed: int) -> Run:
    """One run. ``findings`` is empty when every promise of acks=all was kept."""
    return explore_replication(seed, more_kinds=damaging, errors_of=_unexpected)


def _unexpected(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return all_errors([event for event in events if event["event"] not in EXPECTED])
