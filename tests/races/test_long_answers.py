"""Answers that are made in slices, while the cluster changes."""

from __future__ import annotations

from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.tasks.slices import SLICE_US
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

        def shows_all() -> bool:
            broker = nodes.broker(ASKED)
            return broker is not None and len(broker.image.topics) == TOPICS

        async def act() -> None:
            cluster = client.cluster()
            assert leaders(await cluster.ask(None, MetadataRequest(None), MetadataResponse)) == [LOST] * TOPICS
            nodes.brokers[LOST].kill(power_cut=False)
            nodes.brokers[ASKED].machine.clock.worked_us = lambda: 50 * SLICE_US
            answer = await cluster.ask(None, MetadataRequest(None), MetadataResponse)
            assert leaders(answer) == [LOST] * TOPICS, "as the topics were when it began"
            broker = nodes.broker(ASKED)
            assert broker is not None
            assert broker.image.brokers[LOST].is_fenced, "by now"
            assert LOST in {listed.node_id for listed in answer.brokers}
            await cluster.close()

        await nodes.until(shows_all)
        await client.machine.run(act())

    play(body, broker_ids=(ASKED, LOST))


def leaders(answer: MetadataResponse) -> list[int]:
    return [topic.partitions[0].leader_id for topic in answer.topics]
