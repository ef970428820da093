"""What befalls nodes with replicated partitions, beyond what befalls any: several at once, and stops in order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from tests.simulation.quorum_nodes import NODES, QuorumNode

from ottla.sim.cluster import Simulation


class Trouble:
    """Of one run.

    Without eligible leader replicas one loss of power may cost records that were acknowledged, as with Kafka: the last replica that the
    controller has heard from stays in sync, whatever it has lost.
    """

    def __init__(self, simulation: Simulation, nodes: list[QuorumNode], states: Counter[str], *, has_elr: bool) -> None:
        self._rng = simulation.random("more trouble")
        self._nodes = nodes
        self._states = states
        self._has_elr = has_elr
        self._has_lost_power = False  # since all replicas were last in sync

    @property
    def kinds(self) -> Mapping[str, Callable[[QuorumNode], Awaitable[None]]]:
        return {"stopped": self._stop, "all, one after the other": self._kill_all}

    def may_cut_power(self) -> bool:
        """Fewer machines may lose what was not synced than replicas must have it (KIP-966): one, until all are in sync again."""
        if _are_in_sync(self._nodes):
            self._has_lost_power = False
        may = self._has_elr and not self._has_lost_power
        self._has_lost_power |= may
        return may

    async def _stop(self, node: QuorumNode) -> None:
        if node.broker is None:
            return
        await node.stop()
        await asyncio.sleep(self._rng.uniform(0.05, 3))
        node.begin()

    async def _kill_all(self, last: QuorumNode) -> None:
        """The last one has everything. Two return before it, and one of them may have lost what it had."""
        first, second = self._rng.sample([node for node in self._nodes if node is not last], 2)
        first.kill(power_cut=False)
        await asyncio.sleep(self._rng.uniform(0.3, 2))
        power_cut = self.may_cut_power()
        self._states["power lost by one of those that die together"] += power_cut
        second.kill(power_cut=power_cut)
        await asyncio.sleep(self._rng.uniform(0, 0.1))
        last.kill(power_cut=False)
        returning = self._rng.sample([first, second], 2)
        for node in [*returning, last]:
            await asyncio.sleep(self._rng.uniform(0.05, 1))
            node.begin()


def _are_in_sync(nodes: list[QuorumNode]) -> bool:
    images = [node.broker.image for node in nodes if node.broker is not None]
    partitions = [partition for image in images for topic in image.topics.values() for partition in topic.partitions.values()]
    return len(images) == NODES and all(set(partition.isr) == set(partition.replicas) for partition in partitions)
