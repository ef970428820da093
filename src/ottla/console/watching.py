"""The cluster as it is now, and what has changed: looked at several times a second, as a client."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from ottla.aio import Admin
from ottla.client.admin import PartitionDescription
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.types import TopicPartition

INTERVAL_SECONDS: Final = 0.25
EVENTS_MAX: Final = 200
NO_NODE: Final = -1


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node. ``process`` is what a supervisor on this machine says of it; None where there is none."""

    node_id: int
    address: str
    rack: str | None
    broker: str  # alive, fenced or gone
    process: str | None
    leads: int
    is_controller: bool


@dataclass(frozen=True, slots=True)
class Event:
    """A change that was seen. ``kind`` is node, controller, leader or isr."""

    at: float
    kind: str
    text: str


@dataclass(slots=True)
class Seen:
    """The cluster at one moment. ``problem`` is why it could not be asked; the rest is then what it was before."""

    cluster_id: str = ""
    controller: int = NO_NODE
    nodes: dict[int, NodeState] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionDescription] = field(default_factory=dict)
    problem: str | None = None


Processes = Callable[[], Awaitable[dict[int, str]]]
"""The state of each process on this machine, by node; empty where no supervisor is known."""


class Watcher:
    """The watch over one cluster. ``seen`` is the newest look at it, ``events`` what changed between looks, the oldest first."""

    def __init__(self, admin: Admin, processes: Processes) -> None:
        self._admin = admin
        self._processes = processes
        self.seen = Seen()
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.event_count = 0

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def look(self) -> None:
        """Looks once."""
        before = self.seen
        try:
            now = await self._now(before)
        except OttlaError as error:
            before.problem = str(error)
            return
        for kind, text in changes(before, now) if before.cluster_id else ():
            self.events.append(Event(time.time(), kind, text))
            self.event_count += 1
        self.seen = now

    async def _now(self, before: Seen) -> Seen:
        processes = await self._processes()
        cluster = await self._admin.describe_cluster(include_fenced=True)
        partitions = await self._admin.describe_partitions()
        controller = await self._controller(cluster.controller_id)
        leads: dict[int, int] = {}
        for partition in partitions.values():
            leads[partition.leader] = leads.get(partition.leader, 0) + 1
        nodes = {}
        for node in cluster.nodes:
            state = "fenced" if node.node_id in cluster.fenced else "alive"
            address, process, led = f"{node.host}:{node.port}", processes.get(node.node_id), leads.get(node.node_id, 0)
            nodes[node.node_id] = NodeState(node.node_id, address, node.rack, state, process, led, node.node_id == controller)
        for node_id in sorted({*processes, *before.nodes} - nodes.keys()):
            known = before.nodes.get(node_id)
            address, rack = ("-", None) if known is None else (known.address, known.rack)
            nodes[node_id] = NodeState(node_id, address, rack, "gone", processes.get(node_id), 0, is_controller=False)
        return Seen(cluster.cluster_id, controller, dict(sorted(nodes.items())), dict(sorted(partitions.items())))

    async def _controller(self, shown: int) -> int:
        """Returns the active controller: a broker in ZooKeeper mode names it, and a quorum is asked for its leader."""
        try:
            return (await self._admin.describe_quorum()).leader_id
        except KafkaError as error:
            return shown if error.code == ErrorCode.UNSUPPORTED_VERSION else NO_NODE


def changes(before: Seen, now: Seen) -> list[tuple[str, str]]:
    """Returns the differences, each as its kind and a text."""
    found = []
    for node_id, node in now.nodes.items():
        known = before.nodes.get(node_id)
        if known is None:
            found.append(("node", f"node {node_id} is {node.broker}"))
            continue
        if known.process != node.process and node.process is not None:
            found.append(("node", f"process of node {node_id}: {node.process}"))
        if known.broker != node.broker:
            found.append(("node", f"node {node_id} is {node.broker}"))
    if now.controller not in (before.controller, NO_NODE):
        found.append(("controller", f"controller {now.controller} is active"))
    for key, partition in now.partitions.items():
        old = before.partitions.get(key)
        if old is None:
            continue
        if (old.leader, old.leader_epoch) != (partition.leader, partition.leader_epoch):
            leader = "no one" if partition.leader < 0 else f"node {partition.leader}"
            found.append(("leader", f"{key} is led by {leader} in epoch {partition.leader_epoch}"))
        if set(old.in_sync) != set(partition.in_sync):
            found.append(("isr", f"{key} is in sync on {','.join(map(str, partition.in_sync)) or 'none'}"))
    return found
