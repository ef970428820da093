"""What a reassignment copies is counted apart, on both sides, and under Kafka's names; what replicas copy before and after it is not."""

from __future__ import annotations

from tests.cluster.in_simulation import SimNodes, play
from tests.cluster.test_throttles import RECORD_BYTES, RECORDS, filled, metric, move

TOPICS = "kafka_server_brokertopicmetrics_"
NODES = (1, 2, 3)


def bytes_of(nodes: SimNodes, name: str) -> list[float]:
    return [metric(nodes, node, f"{TOPICS}{name}_total") for node in NODES]


def is_adding(nodes: SimNodes, node: int) -> bool:
    broker = nodes.nodes[node].broker
    assert broker is not None
    return len(broker.image.topics["t"].partitions[0].adding) > 0


def test_bytes_of_a_replica_that_is_added_are_counted_until_it_belongs_to_the_partition() -> None:
    async def body(nodes: SimNodes) -> None:
        await filled(nodes)
        assert bytes_of(nodes, "replicationbytesin")[1] > RECORDS * RECORD_BYTES
        assert bytes_of(nodes, "reassignmentbytesin") == bytes_of(nodes, "reassignmentbytesout") == [0, 0, 0]
        await move(nodes, "t", 1, 3)
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 3})
        size = float(nodes.partition(1, "t").log.size_bytes)
        assert size > RECORDS * RECORD_BYTES
        assert bytes_of(nodes, "reassignmentbytesin") == [0, 0, size]
        assert bytes_of(nodes, "reassignmentbytesout") == [size, 0, 0]
        assert bytes_of(nodes, "replicationbytesin")[2] == size, "it counts as replication as well"
        assert bytes_of(nodes, "bytesout")[0] == 0, "and not as what consumers read"
        await nodes.until(lambda: not any(is_adding(nodes, node) for node in NODES))
        await nodes.send("t", b"after")
        assert bytes_of(nodes, "replicationbytesin")[2] > size
        assert bytes_of(nodes, "reassignmentbytesin") == [0, 0, size]
        assert bytes_of(nodes, "reassignmentbytesout") == [size, 0, 0]

    play(body)
