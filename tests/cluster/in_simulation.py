"""Three shipped nodes in the simulated world, for tests that say what happens in which order: time passes when all wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import structlog
from structlog.typing import EventDict
from tests.simulation.quorum_nodes import NODES, QuorumNode, broker_alone, format_broker

from ottla.broker.node import Broker
from ottla.broker.replicas.partition import Partition
from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.sim.cluster import SimBroker, SimClient, Simulation
from ottla.sim.loop import run

WAIT_SECONDS_MAX = 120
T = TypeVar("T")


class SimNodes:
    """``nodes`` by their ids, which serve; ``brokers`` are those that are no controllers."""

    def __init__(self, simulation: Simulation, nodes: dict[int, QuorumNode], brokers: dict[int, SimBroker]) -> None:
        self.simulation = simulation
        self.nodes = nodes
        self.brokers = brokers
        self.bootstrap = ",".join(node.bootstrap for node in nodes.values())
        self._client_count = 0

    async def act(self, body: Callable[[Cluster], Awaitable[T]]) -> T:
        """What a client of its own does."""
        self._client_count += 1
        client = SimClient(self.simulation, f"client-{self._client_count}", self.bootstrap, request_timeout_ms=60_000)

        async def session() -> T:
            cluster = client.cluster()
            try:
                return await body(cluster)
            finally:
                await cluster.close()

        return await client.machine.run(session())

    async def create(self, topic: str, *replicas: list[int], **configs: str) -> None:
        """A topic with these replicas of each partition, all of them open and in sync."""
        given = {key.replace("_", "."): value for key, value in configs.items()}

        async def body(cluster: Cluster) -> None:
            assert await Admin(cluster).create_topics([NewTopic(topic, assignments=dict(enumerate(replicas)), configs=given)]) == {
                topic: None
            }

        await self.act(body)
        for index, nodes in enumerate(replicas):
            for node in nodes:
                await self.until(lambda n=node, i=index: self.has(n, topic, i))  # type: ignore[misc]
            await self.until(lambda n=nodes[0], i=index: self.partition(n, topic, i).led_epoch >= 0)  # type: ignore[misc]

    async def send(self, topic: str, *values: bytes, index: int = 0, together: bool = False) -> None:
        """Acknowledged by all replicas in sync; each in a batch of its own, or all in one."""

        async def body(cluster: Cluster) -> None:
            producer = Producer(cluster, ProducerSettings(acks="all", linger_ms=100 if together else 0))
            sending = [producer.send_and_wait(topic, value, partition=index) for value in values]
            if together:
                await asyncio.gather(*sending)
            else:
                for sent in sending:
                    await sent
            await producer.close()

        await self.act(body)

    def broker(self, node: int) -> Broker | None:
        """None while it does not run."""
        return (self.brokers[node] if node in self.brokers else self.nodes[node]).broker

    def has(self, node: int, topic: str, index: int = 0) -> bool:
        broker = self.broker(node)
        return broker is not None and broker.partitions.find(topic, index) is not None

    def partition(self, node: int, topic: str, index: int = 0) -> Partition:
        broker = self.broker(node)
        assert broker is not None
        found = broker.partitions.find(topic, index)
        assert found is not None, f"node {node} has no replica of {topic}-{index}"
        return found

    def in_sync(self, node: int, topic: str, index: int = 0) -> set[int]:
        """As that node's image has it."""
        broker = self.broker(node)
        assert broker is not None
        return set(broker.image.topics[topic].partitions[index].isr)

    async def until(self, is_so: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_SECONDS_MAX
        while not is_so():
            assert loop.time() < deadline, "it never is"
            await asyncio.sleep(0.01)


def play(
    body: Callable[[SimNodes], Awaitable[None]],
    *,
    seed: int = 1,
    features: Mapping[str, int] = {},
    broker_ids: Sequence[int] = (),
    **properties: str,
) -> Sequence[EventDict]:
    """``body`` with three nodes of these properties, and with these brokers beside them; what they logged.

    Dots of a property are underscores; ``{node}`` in its value is the node's id.
    """

    def given(node: int) -> dict[str, str]:
        own = {key.replace("_", "."): value.replace("{node}", str(node)) for key, value in properties.items()}
        return {"min.insync.replicas": "1"} | own

    async def main() -> None:
        simulation = Simulation(seed)
        nodes = {number: QuorumNode(simulation, number, given(number)) for number in range(1, NODES + 1)}
        for node in nodes.values():
            await node.format(features)
            node.begin()
        await asyncio.gather(*(node.starting for node in nodes.values() if node.starting is not None))
        brokers = {number: broker_alone(simulation, number, f"node-{number}", given(number)) for number in broker_ids}
        for broker in brokers.values():
            await format_broker(broker)
            await broker.start()
        await body(SimNodes(simulation, nodes, brokers))

    with structlog.testing.capture_logs() as events:
        run(main())
    return events
