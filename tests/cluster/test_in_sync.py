"""A partition whose replicas are missing shows: in the metrics of its leader, and in ``ottla topic describe``."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.loop_clients import asking
from tests.cluster.one_loop import LoopCluster, cluster_on_loop
from tests.waiting import eventually_is

from ottla.admin_http.kafka_names import broker_families
from ottla.admin_http.replica_names import replica_families
from ottla.aio import NewTopic, Producer
from ottla.broker.tasks.slices import Slices

TOPICS = "kafka_server_brokertopicmetrics_"
MANAGER = "kafka_server_replicamanager_"


async def metrics(cluster: LoopCluster, node_id: int) -> dict[str, Any]:
    """Those without labels."""
    status = cluster.nodes[node_id].status
    clock = status.parts.world.clock
    families = [*await replica_families(status, Slices(clock), now_ms=clock.now_ms()), *broker_families(status, idle_share=0.0)]
    return {family.name: sample.value for family in families for sample in family.samples if not sample.labels}


async def listed(cluster: LoopCluster, *arguments: str) -> list[tuple[str, int]]:
    """What the command line lists, while the nodes' loop goes on."""
    command = [sys.executable, "-m", "ottla", "topic", "describe", *arguments, "-B", cluster.bootstrap, "--format", "json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    shown, _ = await process.communicate()
    assert process.returncode == 0
    return [(row["topic"], row["partition"]) for row in json.loads(shown)["items"]]


async def send(cluster: LoopCluster, topic: str, partition: int, value: bytes) -> None:
    """Acknowledged by all in-sync replicas."""
    async with Producer(cluster.bootstrap) as producer:
        await (await producer.send(topic, value, partition=partition))


@pytest.mark.slow
def test_missing_replicas_are_counted_and_listed(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            topics = [
                NewTopic("two", assignments={0: [1, 2], 1: [1, 3]}, configs={"min.insync.replicas": "2"}),
                NewTopic("one", assignments={0: [2]}),
            ]
            async with asking(cluster, 1) as admin:
                assert await admin.create_topics(topics) == {"two": None, "one": None}

            async def shown() -> tuple[int, ...]:
                found = await metrics(cluster, 1)
                names = ("underreplicatedpartitions", "underminisrpartitioncount", "atminisrpartitioncount", "leadercount")
                return tuple(int(found[MANAGER + name]) for name in names)

            await eventually_is(shown, (0, 0, 2, 2))
            assert await listed(cluster, "--under-replicated") == []
            assert await listed(cluster, "two", "--at-min-isr") == [("two", 0), ("two", 1)]
            before = {node_id: await metrics(cluster, node_id) for node_id in cluster.nodes}
            assert sum(found["kafka_controller_kafkacontroller_activecontrollercount"] for found in before.values()) == 1
            assert len({found["kafka_server_raftmetrics_current_leader"] for found in before.values()}) == 1
            assert {found["kafka_server_raftmetrics_current_epoch"] for found in before.values()} == {1}
            assert all(found["kafka_server_raftmetrics_high_watermark"] > 0 for found in before.values())
            await send(cluster, "two", 0, b"x" * 1000)
            copied = {node_id: await metrics(cluster, node_id) for node_id in cluster.nodes}
            assert copied[1][TOPICS + "replicationbytesout_total"] == copied[2][TOPICS + "replicationbytesin_total"] > 1000
            assert [copied[node_id][TOPICS + "bytesout_total"] for node_id in (1, 2, 3)] == [0, 0, 0], "no consumer has fetched"
            assert copied[3][TOPICS + "replicationbytesin_total"] == copied[1][TOPICS + "replicationbytesin_total"] == 0
            await cluster.stop(2)
            await eventually_is(shown, (1, 1, 1, 2))

            async def offline() -> list[int]:
                shown = [await metrics(cluster, node_id) for node_id in cluster.nodes]
                return [int(found["kafka_controller_kafkacontroller_offlinepartitionscount"]) for found in shown]

            await eventually_is(offline, [1, 1])
            assert await listed(cluster, "--under-replicated", "--unavailable") == [("one", 0), ("two", 0)]
            assert await listed(cluster, "--under-min-isr") == [("one", 0), ("two", 0)], "a partition without a leader is one, too"
            assert await listed(cluster, "--unavailable") == [("one", 0)]
            await cluster.start(2)
            await eventually_is(shown, (0, 0, 2, 2))

            async def isr_changes() -> tuple[int, int]:
                found = await metrics(cluster, 1)
                return int(found[MANAGER + "isrshrinks_total"]), int(found[MANAGER + "isrexpands_total"])

            await eventually_is(isr_changes, (0, 1))  # the controller took it out; the image may come before its answer
            assert sum(found.status.election_count for found in cluster.nodes.values()) == 1, "broker 2 leads topic one again"

    asyncio.run(body())
