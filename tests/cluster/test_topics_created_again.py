"""A topic that was deleted and created again under its name: it has another id, and nothing of the earlier one is in it."""

from __future__ import annotations

from tests.cluster.in_simulation import SimNodes, play

from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.types import TopicPartition

EARLIER, LATER = (b"a", b"b", b"c"), (b"x", b"y", b"z")


def test_a_broker_that_was_away_meanwhile_does_not_take_its_log_for_that_of_the_later_topic() -> None:
    """Both logs have as many records of one leader epoch: only the topic ids tell them apart."""

    async def recreate(cluster: Cluster) -> None:
        admin = Admin(cluster)
        assert await admin.delete_topics(["t"]) == {"t": None}
        assert await admin.create_topics([NewTopic("t", assignments={0: [1, 2]})]) == {"t": None}

    async def add_the_third(cluster: Cluster) -> None:
        partition = TopicPartition("t", 0)
        assert await Admin(cluster).alter_partition_reassignments({partition: [1, 2, 3]}) == {partition: None}

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await nodes.send("t", *EARLIER)
        await nodes.nodes[3].stop()
        await nodes.act(recreate)
        await nodes.send("t", *LATER)
        await nodes.act(add_the_third)
        nodes.nodes[3].begin()
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 2, 3})
        await nodes.until(lambda: all(nodes.partition(number, "t").high_watermark == len(LATER) for number in nodes.nodes))
        for node in nodes.nodes.values():
            logs = await node.logs()
            assert logs[TopicPartition("t", 0)] == list(enumerate(LATER))

    play(body)
