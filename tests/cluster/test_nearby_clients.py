"""librdkafka with ``client.rack``, unmodified, reads from the replica in its rack (KIP-392), and from the leader when that is gone."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import confluent_kafka
import pytest
from tests.cluster.loop_clients import asking, send
from tests.cluster.one_loop import LoopCluster, cluster_on_loop
from tests.waiting import WAIT_SECONDS_MAX

from ottla.aio import NewTopic
from ottla.config.keys.cluster import RACK_AWARE

LEADER, FOLLOWER = 1, 2


class Reader(threading.Thread):
    """A librdkafka consumer of partition 0, in the follower's rack. ``values`` are what it has read."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.values: list[bytes | str | None] = []
        self._stopping = threading.Event()
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "client.rack": f"rack-{FOLLOWER}",
            "fetch.wait.max.ms": 100,
            "auto.offset.reset": "error",
            "topic.metadata.refresh.interval.ms": 1000,
        }

    def run(self) -> None:
        consumer = confluent_kafka.Consumer(self._settings)
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.values.append(message.value())
        consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join(WAIT_SECONDS_MAX)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while len(self.values) < count:
                await asyncio.sleep(0.01)


def read_bytes(cluster: LoopCluster, node: int) -> int:
    """How much consumers have read of the topic there."""
    return cluster.nodes[node].partitions.by_name["t"][0].meters.bytes_out


@pytest.mark.slow
def test_librdkafka_reads_from_the_replica_in_its_rack_and_from_the_leader_when_that_has_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster_on_loop(tmp_path, broker_rack="rack-{node}", replica_selector_class=RACK_AWARE) as cluster:
            async with asking(cluster, LEADER) as admin:
                assert await admin.create_topics([NewTopic("t", assignments={0: [LEADER, FOLLOWER]})]) == {"t": None}
            await send(cluster, b"a")
            reader = Reader(cluster.bootstrap)
            reader.start()
            try:
                await reader.until(1)
                await send(cluster, b"b")
                await reader.until(2)
                assert read_bytes(cluster, FOLLOWER) > 0
                assert read_bytes(cluster, LEADER) == 0
                await cluster.stop(FOLLOWER)
                await send(cluster, b"c")
                await reader.until(3)
                assert read_bytes(cluster, LEADER) > 0
            finally:
                await asyncio.to_thread(reader.stop)
            assert reader.values == [b"a", b"b", b"c"]

    asyncio.run(main())
