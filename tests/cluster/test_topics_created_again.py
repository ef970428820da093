"""A topic that was deleted and created again under its name: it has another id, and nothing of the earlier one is in it."""

from __future__ import annotations

import pytest
from tests.broker.transactional import TransactionalProducer
from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.replicas.deleted_topics import NAMES_MAX, DeletedTopics
from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode
from ottla.metadata.image import TopicImage
from ottla.records.builder import BatchBuilder
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


PARTITION = TopicPartition("t", 0)


async def written(cluster: Cluster, sequence: int) -> int:
    """The code that an idempotent producer is answered to its batch of this number."""
    builder = BatchBuilder()
    builder.append(None, b"v", timestamp_ms=1)
    batch = builder.build(producer_id=7, producer_epoch=0, base_sequence=sequence)
    return await TransactionalProducer(cluster).produce(PARTITION, batch, transactional_id=None)


@pytest.mark.parametrize("leader", [1, 2])
def test_a_producer_goes_on_in_the_later_topic(leader: int) -> None:
    """librdkafka numbers its batches as if it were the earlier one, and is finished for good when it is refused; Kafka takes them."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])

        async def act(cluster: Cluster) -> None:
            admin = Admin(cluster)
            assert [await written(cluster, sequence) for sequence in (1, 0, 1)] == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, 0]
            assert await admin.delete_topics(["t"]) == {"t": None}
            assert await admin.create_topics([NewTopic("t", assignments={0: [leader, 3 - leader]})]) == {"t": None}
            await nodes.until(lambda: nodes.has(leader, "t") and nodes.partition(leader, "t").log.log_end_offset == 0)
            assert [await written(cluster, sequence) for sequence in (2, 4, 3)] == [0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]

        await nodes.act(act)

    play(body)


def test_the_names_of_deleted_topics_have_a_bound() -> None:
    deleted = DeletedTopics()
    deleted.note([TopicImage("again", b""), TopicImage("first", b"")])
    deleted.note([TopicImage("again", b"")])
    deleted.note(TopicImage(f"t{number}", b"") for number in range(NAMES_MAX - 1))
    assert [name in deleted for name in ("first", "again", "t0")] == [False, True, True]
