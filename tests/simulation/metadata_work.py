"""A stream of topics, made by two administrators: none that was acknowledged is lost, and all nodes agree in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from tests.simulation.explorer import Trial
from tests.simulation.quorum_nodes import HEAL_SECONDS, NODES

from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimClient

ADMINS: Final = 2


class MetadataWork:
    def __init__(self, trial: Trial) -> None:
        self.acknowledged: list[str] = []
        self._trial = trial
        self._clients = [
            SimClient(trial.simulation, f"admin-{number}", trial.bootstrap, request_timeout_ms=5000) for number in range(ADMINS)
        ]

    async def prepare(self) -> None:
        """The first topics are made while nodes start."""

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [client.machine.run(self._create(number, client.cluster())) for number, client in enumerate(self._clients)]

    async def _create(self, number: int, cluster: Cluster) -> None:
        admin, count, states = Admin(cluster), 0, self._trial.states
        while not self._trial.is_over.is_set():
            count += 1
            name = f"topic-{number}-{count}"
            try:
                [(_, outcome)] = (await admin.create_topics([NewTopic(name, 1, 1)])).items()
            except KafkaError:
                states["request without an answer"] += 1
                continue
            if outcome is None or outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                self.acknowledged.append(name)
                states["acknowledged topics"] += 1
            else:
                states[f"refused: {outcome.code.name}"] += 1
            await asyncio.sleep(0.2)
        await admin.close()


async def nodes_agree(trial: Trial) -> list[str]:
    work = trial.work
    assert isinstance(work, MetadataWork)
    deadline = asyncio.get_running_loop().time() + HEAL_SECONDS
    brokers = [node.broker for node in trial.nodes]
    if any(broker is None for broker in brokers):
        return ["a node did not come back"]
    images = [broker.image for broker in brokers if broker is not None]
    while len({image.end_offset for image in images}) > 1 or any(len(image.live_brokers) < NODES for image in images):
        if asyncio.get_running_loop().time() > deadline:
            return [f"the nodes do not agree: {[(image.end_offset, len(image.live_brokers)) for image in images]}"]
        await asyncio.sleep(0.5)
        images = [broker.image for broker in brokers if broker is not None]
    findings = [] if all(image == images[0] for image in images) else ["images of one offset differ"]
    lost = [name for name in work.acknowledged if name not in images[0].topics]
    trial.states["leader epochs"] = images[0].epoch
    return findings + ([f"acknowledged topics are lost: {lost}"] if lost else [])
