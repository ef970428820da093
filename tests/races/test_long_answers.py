"""Answers that are made in slices, while the cluster changes."""

from __future__ import annotations

import asyncio

from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.tasks.slices import SLICE_US
from ottla.client.cluster import Cluster
from ottla.messages.metadata import MetadataRequest, MetadataResponse
from ottla.sim.cluster import SimClient

ASKED, LOST = 4, 5
TOPICS = 60


def test_a_leader_that_is_fenced_while_topics_are_described_is_listed() -> None:
    """librdkafka would look for a leader that no broker of the answer is."""

    async def body(nodes: SimNodes) -> None:
        for number in range(TOPICS):
            await nodes.create(f"t{number:02}", [LOST, 1])

        client = SimClient(nodes.simulation, "asking", nodes.brokers[ASKED].bootstrap, request_timeout_ms=600_000)

        async def act() -> None:
            cluster = client.cluster()
            assert await leaders(cluster) == [LOST] * TOPICS
            nodes.brokers[LOST].kill(power_cut=False)
            nodes.brokers[ASKED].machine.clock.worked_us = lambda: 50 * SLICE_US
            answer = await cluster.ask(None, MetadataRequest(None), MetadataResponse)
            assert {topic.partitions[0].leader_id for topic in answer.topics} == {LOST}, "as the topics were when it began"
            broker = nodes.broker(ASKED)
            assert broker is not None
            assert broker.image.brokers[LOST].is_fenced, "by now"
            assert LOST in {listed.node_id for listed in answer.brokers}

            await cluster.close()

        await client.machine.run(act())

    play(body, broker_ids=(ASKED, LOST))


async def leaders(cluster: Cluster) -> list[int]:
    while True:
        answer = await cluster.ask(None, MetadataRequest(None), MetadataResponse)
        found = [topic.partitions[0].leader_id for topic in answer.topics]
        if len(found) == TOPICS:
            return found
        await asyncio.sleep(0.1)
