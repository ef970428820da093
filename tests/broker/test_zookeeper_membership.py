"""The active controller in ZooKeeper mode, while what it looks at changes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.test_membership import Neighbourhood, Undecided
from tests.controller.test_brokers import Cluster

from ottla.broker.homes.zookeeper import znode_membership as membership
from ottla.broker.homes.zookeeper.lost_replicas import LostReplicas
from ottla.broker.homes.zookeeper.znode_membership import ZookeeperMembership
from ottla.config import BrokerConfig
from ottla.controller.sweeps import Sweep
from ottla.errors import KafkaError
from ottla.messages.metadata_records import RemoveTopicRecord, TopicRecord
from ottla.metadata.image import ClusterImage
from ottla.metadata.replay import ImageBuilder
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run


class InPlace(Undecided):
    """Its draft changes in place, as it does between two images."""

    def __init__(self, image: ClusterImage) -> None:
        super().__init__(image)
        self.gone: list[int] = []

    async def sweep(self, sweep: Sweep) -> KafkaError | None:
        broker_id = next(node for node in self.draft.brokers if node not in self.gone)
        self.gone.append(broker_id)
        del self.draft.brokers[broker_id]  # type: ignore[attr-defined]
        return None


def test_brokers_that_are_gone_together_are_fenced_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        cluster = Cluster(has_elr=True)
        epochs = {broker: cluster.serve(broker) for broker in (1, 2, 3)}
        controller: Any = InPlace(cluster.image)
        home: Any = SimpleNamespace(cluster_id="cluster", registered={}, base_offset=0, absent=set())
        world, config = Simulation(1).machine("controller").boot(), BrokerConfig({"node.id": "1"})
        deletions: Any = None
        made = ZookeeperMembership(
            world, config, controller, home, Neighbourhood(epochs), lambda node: False, lambda node: None, deletions
        )  # fmt: skip

        async def nothing(*_: Any) -> dict[int, Any]:
            return {}

        monkeypatch.setattr(membership, "read_brokers", nothing)
        monkeypatch.setattr(made, "_complete", nothing)
        following = asyncio.ensure_future(made.follow_znodes(SimpleNamespace(session=None)))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        assert not following.done()
        assert controller.gone == [1, 2, 3]
        following.cancel()

    run(body())


def test_a_topic_that_is_deleted_while_a_broker_is_asked_for_its_replicas_does_no_harm() -> None:
    async def body() -> None:
        cluster = Cluster(has_elr=True)
        for broker in (1, 2, 3):
            cluster.serve(broker)
        cluster.create([1, 2], [2, 1])
        builder = ImageBuilder(cluster.image)
        builder.add(TopicRecord("other", b"o" * 16))  # from now on the dictionary of topics changes in place
        controller: Any = Undecided(builder.draft)
        asking = LostReplicas(controller, None, None)  # type: ignore[arg-type]

        async def answer(address: Any, request: Any) -> Any:
            [asked] = request.topics
            builder.add(RemoveTopicRecord(b"t" * 16))
            controller.draft = builder.draft
            parts = [SimpleNamespace(partition=part.partition, error_code=0) for part in asked.partitions]
            return SimpleNamespace(topics=[SimpleNamespace(topic=asked.topic, partitions=parts)])

        asking._answer = answer  # type: ignore[method-assign]
        asked = asyncio.ensure_future(asking._ask(SimpleNamespace(), 2))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        [decision] = controller.decisions
        decision.set_result([SimpleNamespace(records=())])
        assert await asked

    run(body())
