"""Kafka's Java consumer with ``client.rack`` reads from the replica in its rack (KIP-392)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cluster.loop_clients import asking, send
from tests.cluster.one_loop import cluster_on_loop
from tests.interop.tools import run

from ottla.aio import NewTopic
from ottla.config.keys.cluster import RACK_AWARE

LEADER, FOLLOWER = 1, 2
TOOL_SECONDS_MAX = 60


def test_a_java_consumer_reads_from_the_replica_in_its_rack(java: list[str], tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster_on_loop(tmp_path, broker_rack="rack-{node}", replica_selector_class=RACK_AWARE) as cluster:
            async with asking(cluster, LEADER) as admin:
                assert await admin.create_topics([NewTopic("t", assignments={0: [LEADER, FOLLOWER]})]) == {"t": None}
            for value in (b"one", b"two"):
                await send(cluster, value)
            consume = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap, "--topic", "t")
            options = ("--from-beginning", "--max-messages", "2", "--command-property", f"client.rack=rack-{FOLLOWER}")
            read = await asyncio.to_thread(lambda: run(*java, *consume, *options, seconds_max=TOOL_SECONDS_MAX))
            assert read == "one\ntwo\n"
            sent = {node: cluster.nodes[node].partitions.by_name["t"][0].meters.bytes_out for node in (LEADER, FOLLOWER)}
            assert sent[LEADER] == 0
            assert sent[FOLLOWER] > 0

    asyncio.run(main())
