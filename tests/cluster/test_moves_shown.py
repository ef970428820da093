"""``ottla partition moves``: how much of a move is left, and what holds it back."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.loop_clients import asking, send
from tests.cluster.one_loop import LoopCluster, cluster_on_loop

from ottla.aio import Broker, NewTopic, Topic, TopicPartition

RECORD = b"x" * 10_000
RATE = 20_000


async def moves(cluster: LoopCluster, *options: str) -> tuple[int | None, str]:
    """The exit code and the output, while the nodes' loop goes on."""
    command = [sys.executable, "-m", "ottla", "partition", "moves", "-B", cluster.bootstrap, *options]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    shown, _ = await process.communicate()
    return process.returncode, shown.decode()


async def shown(cluster: LoopCluster) -> list[dict[str, Any]]:
    code, output = await moves(cluster, "--json")
    assert code == 0, output
    items: list[dict[str, Any]] = json.loads(output)["items"]
    return items


@pytest.mark.slow
def test_a_throttled_move_shows_what_is_left_and_its_throttle(tmp_path: Path) -> None:
    """The same three lists of brokers were printed from its begin to its end."""

    async def body() -> None:
        small = cluster_on_loop(tmp_path, replica_fetch_max_bytes="10000", replica_fetch_response_max_bytes="20000")
        async with small as cluster, asking(cluster, 1) as admin:
            configs = {"follower.replication.throttled.replicas": "0:3", "leader.replication.throttled.replicas": "*"}
            await admin.create_topics([NewTopic("t", assignments={0: [1, 2]}, configs=configs), NewTopic("u", assignments={0: [1]})])
            for _ in range(100):
                await send(cluster, RECORD)
            await admin.alter_configs({Broker(3): {"follower.replication.throttled.rate": RATE}})
            await admin.alter_configs({Broker(1): {"leader.replication.throttled.rate": 10 * RATE}})
            assert (await moves(cluster))[1].split() == [
                "TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING", "SIZE-BYTES", "LEFT-BYTES", "PERCENT", "THROTTLE-RATE",
            ]  # fmt: skip
            await admin.alter_partition_reassignments({TopicPartition("t", 0): [1, 3]})
            [first] = await shown(cluster)
            size = first["size_bytes"]
            assert size > 100 * len(RECORD)
            assert 0 <= first["left_bytes"] <= size
            assert first["percent"] == 100 * (size - first["left_bytes"]) // size
            assert (first["adding"], first["removing"], first["throttle_rate"]) == ([3], [2], RATE)
            [later] = await shown(cluster)
            while later["left_bytes"] >= first["left_bytes"]:
                [later] = await shown(cluster)
            await admin.alter_configs({Topic("t"): {"follower.replication.throttled.replicas": None}})
            assert [move["throttle_rate"] for move in await shown(cluster)] in ([10 * RATE], [])

    asyncio.run(body())


@pytest.mark.slow
def test_the_size_of_a_move_to_a_broker_that_is_away_is_shown_and_what_is_left_is_not_known(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster, asking(cluster, 1) as admin:
            await admin.create_topics([NewTopic("t", assignments={0: [1, 2]})])
            await send(cluster, RECORD)
            await cluster.stop(3)
            await admin.alter_partition_reassignments({TopicPartition("t", 0): [1, 3]})
            code, output = await moves(cluster)
            assert code == 1
            assert "the sizes of replicas of broker 3 are not shown" in output
            row = next(line for line in output.splitlines() if line.startswith("t "))
            assert row.split()[5].isdigit()
            assert row.split()[6:] == ["-", "-", "-"]

    asyncio.run(body())
