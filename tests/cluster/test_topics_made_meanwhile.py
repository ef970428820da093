"""Topics that are made while one of three brokers is down: it gets its replicas as well, and joins them when it is back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.cluster.loop_clients import asking, send
from tests.cluster.one_loop import cluster_on_loop
from tests.waiting import eventually_is

from ottla.aio import Consumer, NewTopic
from ottla.runtime.zookeeper_server import ZooKeeperServer
from ottla.types import GROUP_METADATA_TOPIC


@pytest.mark.slow
def test_topics_of_three_replicas_are_made_while_one_of_three_brokers_is_down(tmp_path: Path) -> None:
    makes_topics(tmp_path, "")


def test_in_zookeeper_mode_too_where_registrations_end_with_sessions(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    makes_topics(tmp_path, f"{zookeeper.address}/{tmp_path.name}")


def makes_topics(directory: Path, zookeeper: str) -> None:
    async def body() -> None:
        async with cluster_on_loop(directory, zookeeper=zookeeper, auto_leader_rebalance_enable="false") as cluster:
            async with asking(cluster, 1) as admin:
                if zookeeper:  # who is absent is known by what it holds, or by having been seen
                    assert await admin.create_topics([NewTopic("before", assignments={0: [2, 3, 1]})]) == {"before": None}
                await cluster.stop(3)
                assert await admin.create_topics([NewTopic("t", 4, 3)]) == {"t": None}
                assert await admin.create_partitions({"t": 6}) == {"t": None}
            await send(cluster, b"meanwhile")
            consumer = Consumer(cluster.bootstrap_of(1), group_id="g", auto_offset_reset="earliest")
            consumer.subscribe(["t"])
            assert [record.value for record in await consumer.poll(20_000)] == [b"meanwhile"]
            await consumer.close()

            async def state(topic: str) -> set[tuple[frozenset[int], frozenset[int], bool]]:
                partitions = cluster.nodes[1].image.topics[topic].partitions.values()
                return {(frozenset(found.replicas), frozenset(found.isr), found.replicas[-1] == 3) for found in partitions}

            all_three, two = frozenset({1, 2, 3}), frozenset({1, 2})
            for topic in ("t", GROUP_METADATA_TOPIC):
                assert await state(topic) == {(all_three, two, True)}
            await cluster.start(3)
            await eventually_is(lambda: state("t"), {(all_three, all_three, True)})
            await eventually_is(lambda: state(GROUP_METADATA_TOPIC), {(all_three, all_three, True)})

    asyncio.run(body())
