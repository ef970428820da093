"""What happens to brokers while a client works with them, and since when each of them is well: for the models of clients."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from tests.cluster.in_simulation import SimNodes

from ottla.client.admin import Admin
from ottla.types import TopicPartition

NODES: Final = (1, 2, 3)
NEVER: Final = float("inf")
KINDS: Final = ("kill", "hang", "leave", "elect", "slow", "cut", "break")


class Faults:
    """Of three nodes, and of the links between them and the machine ``client``."""

    def __init__(self, nodes: SimNodes, rng: random.Random, client: str) -> None:
        self.nodes = nodes
        self.rng = rng
        self.client = client
        self.well_at: dict[int, float] = dict.fromkeys(NODES, -NEVER)

    def is_under_way(self, node: int) -> bool:
        return self.well_at[node] == NEVER

    def leader(self, key: TopicPartition) -> int | None:
        """The newest one: an older one that hangs does not know of it."""
        nodes = [node for node in NODES if self.nodes.has(node, key.topic, key.partition)]
        epochs = {node: self.nodes.partition(node, key.topic, key.partition).led_epoch for node in nodes}
        leader = max(epochs, key=epochs.__getitem__, default=None)
        return leader if leader is not None and epochs[leader] >= 0 else None

    async def befall(self, kind: str) -> None:
        """One of the nodes, until it is well again."""
        number = self.rng.choice(NODES)
        self.well_at[number] = NEVER
        await self._harm(number, kind)
        await self.nodes.until(lambda: self.nodes.broker(number) is not None)
        self.well_at[number] = asyncio.get_running_loop().time()

    async def _harm(self, number: int, kind: str) -> None:
        node, fabric = self.nodes.nodes[number], self.nodes.simulation.fabric
        name = node.machine.name
        match kind:
            case "kill":
                node.kill(power_cut=False)
                await asyncio.sleep(self.rng.choice([0, 3, 12]))
                node.begin()
            case "hang":
                node.machine.pause_process()
                await asyncio.sleep(self.rng.choice([1, 4, 10, 20, 40]))
                node.machine.resume_process()
            case "leave":
                await node.stop()
                await asyncio.sleep(self.rng.choice([0, 3]))
                node.begin()
            case "elect":
                await self.nodes.act(lambda cluster: Admin(cluster).elect_leaders(None))
            case "slow":
                fabric.slow_link(name, self.client, self.rng.choice([50, 400]))
                await asyncio.sleep(self.rng.choice([5, 20]))
                fabric.slow_link(name, self.client, 0)
            case "cut":
                ends = self.rng.choice([(name, self.client), (self.client, name)])
                fabric.cut_link(*ends)
                await asyncio.sleep(self.rng.choice([2, 8, 40]))
                fabric.join_link(*ends)
            case "break":
                fabric.break_connections(name)
