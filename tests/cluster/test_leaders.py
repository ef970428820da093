"""Who leads, on three nodes: preferred leaders return when they are asked for, and by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.loop_clients import asking, send, values
from tests.cluster.one_loop import LoopCluster, cluster_on_loop
from tests.waiting import eventually_is

from ottla.aio import Admin, NewTopic, Topic, TopicPartition
from ottla.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicRequest

REPLICAS = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}


async def leaders(cluster: LoopCluster, asked: int) -> list[int]:
    async with asking(cluster, asked) as admin:
        return [partition.leader for _, partition in sorted((await admin.describe_topic("t")).partitions.items())]


async def in_sync(cluster: LoopCluster, asked: int) -> list[int]:
    """How many replicas of each partition are in sync."""
    return [len(partition.isr) for _, partition in sorted(cluster.nodes[asked].image.topics["t"].partitions.items())]


@asynccontextmanager
async def after_broker_2_was_away(directory: Path, **properties: Any) -> AsyncIterator[LoopCluster]:
    async with cluster_on_loop(directory, 3, **properties) as cluster:
        async with asking(cluster, 1) as admin:
            assert await admin.create_topics([NewTopic("t", assignments=REPLICAS)]) == {"t": None}
        await eventually_is(lambda: leaders(cluster, 1), [1, 2, 3])
        await cluster.stop(2)
        await eventually_is(lambda: leaders(cluster, 1), [1, 3, 3])
        await cluster.start(2)
        await eventually_is(lambda: in_sync(cluster, 1), [3, 3, 3])
        yield cluster


@pytest.mark.parametrize("asks_for_all", [True, False])
@pytest.mark.slow
def test_a_preferred_leader_returns_when_it_is_asked_for_through_any_node(tmp_path: Path, asks_for_all: bool) -> None:
    async def body() -> None:
        async with after_broker_2_was_away(tmp_path, auto_leader_rebalance_enable="false") as cluster:
            active = next(iter(cluster.nodes.values())).controller.replica.leader_id
            asked = next(node_id for node_id in cluster.nodes if node_id != active)
            wanted = [TopicPartition("t", 0), TopicPartition("t", 1)]
            async with asking(cluster, asked) as admin:
                outcomes = await admin.elect_leaders(None if asks_for_all else wanted)
            found = {partition.partition: error for partition, error in outcomes.items() if partition.topic == "t"}
            assert found[1] is None
            assert sorted(found) == ([1] if asks_for_all else [0, 1])
            await eventually_is(lambda: leaders(cluster, asked), [1, 2, 3])

    asyncio.run(body())


@pytest.mark.slow
def test_preferred_leaders_return_by_themselves(tmp_path: Path) -> None:
    async def body() -> None:
        async with after_broker_2_was_away(tmp_path, leader_imbalance_check_interval_seconds="1") as cluster:
            for node_id in cluster.nodes:
                await eventually_is(lambda node_id=node_id: leaders(cluster, node_id), [1, 2, 3])  # type: ignore[misc]

    asyncio.run(body())


@pytest.mark.slow
def test_the_last_leader_is_told_while_nobody_leads(tmp_path: Path) -> None:
    """Broker 2 has the only replica."""

    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            wanted = DescribeTopicPartitionsRequest([TopicRequest("t")])

            async def ask(admin: Admin) -> tuple[int, list[int] | None, list[int] | None]:
                answer = await admin._cluster.ask(1, wanted, DescribeTopicPartitionsResponse)
                [found] = answer.topics[0].partitions
                return found.leader_id, found.eligible_leader_replicas, found.last_known_elr

            async with asking(cluster, 1) as admin:
                assert await admin.create_topics([NewTopic("t", assignments={0: [2]})]) == {"t": None}
                await admin._cluster.refresh()
                await eventually_is(lambda: ask(admin), (2, [], []))
                await cluster.stop(2)
                await eventually_is(lambda: ask(admin), (-1, [2], [2]))
                await cluster.start(2)
                await eventually_is(lambda: ask(admin), (2, [], []))

    asyncio.run(body())


@pytest.mark.parametrize("is_asked_for", [True, False])
@pytest.mark.slow
def test_a_leader_that_may_lack_records_is_elected_when_that_is_allowed(tmp_path: Path, is_asked_for: bool) -> None:
    """Broker 1 had all of it; once it is back, it has what broker 2 has."""

    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:

            def state() -> tuple[int, tuple[int, ...], bool]:
                found = cluster.nodes[3].image.topics["t"].partitions[0]
                return found.leader, found.isr, found.is_recovering

            async def ask() -> tuple[int, tuple[int, ...], bool]:
                return state()

            async with asking(cluster, 3) as admin:
                assert await admin.create_topics([NewTopic("t", assignments={0: [1, 2]})]) == {"t": None}
            await send(cluster, b"both")
            await cluster.stop(2)
            await eventually_is(ask, (1, (1,), False))
            await send(cluster, b"lost")
            await cluster.stop(1)
            await cluster.start(2)
            assert state()[0] == -1, "broker 2 does not have everything"
            async with asking(cluster, 3) as admin:
                if is_asked_for:
                    [error] = (await admin.elect_leaders([TopicPartition("t", 0)], unclean=True)).values()
                    assert error is None
                else:
                    await admin.alter_configs({Topic("t"): {"unclean.leader.election.enable": True}})
            await eventually_is(ask, (2, (2,), True))
            assert sum(node.status.unclean_election_count for node in cluster.nodes.values()) == 1
            await send(cluster, b"new")
            await cluster.start(1)
            await eventually_is(ask, (2, (2, 1), False))
            await cluster.stop(2)
            await eventually_is(ask, (1, (1,), False))
            assert await values(cluster) == [b"both", b"new"]

    asyncio.run(body())
