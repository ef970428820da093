"""A partition moves to other brokers while it is written to and read, on three nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.cluster.loop_clients import asking, send, values
from tests.cluster.one_loop import cluster_on_loop
from tests.waiting import eventually_is

from ottla.aio import NewTopic, TopicPartition
from ottla.errors import ErrorCode

PARTITION = TopicPartition("t", 0)


@pytest.mark.slow
def test_a_partition_moves_with_its_records_and_its_leader_goes_with_its_replica(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:

            async def replicas() -> tuple[tuple[int, ...], int]:
                found = cluster.nodes[1].image.topics["t"].partitions[0]
                return found.replicas, found.leader

            async with asking(cluster, 2) as admin:
                assert await admin.create_topics([NewTopic("t", assignments={0: [1]})]) == {"t": None}
                await send(cluster, b"before")
                assert await admin.alter_partition_reassignments({PARTITION: [3, 2]}) == {PARTITION: None}
                await eventually_is(replicas, ((3, 2), 3))
                assert await admin.list_partition_reassignments() == {}

                async def is_open_on_1() -> bool:
                    return cluster.nodes[1].partitions.find("t", 0) is not None

                await eventually_is(is_open_on_1, False)

                async def is_on_disk_of_1() -> bool:
                    return (tmp_path / "node-1" / "t-0").exists()

                await eventually_is(is_on_disk_of_1, False)
                await send(cluster, b"after")
                await cluster.stop(3)
                await eventually_is(replicas, ((3, 2), 2))
                assert await values(cluster) == [b"before", b"after"]

    asyncio.run(body())


@pytest.mark.slow
def test_a_move_waits_for_a_broker_that_is_away_and_may_be_taken_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster, asking(cluster, 1) as admin:
            assert await admin.create_topics([NewTopic("t", assignments={0: [1, 2]})]) == {"t": None}
            await send(cluster, b"x")
            await cluster.stop(3)
            assert await admin.alter_partition_reassignments({PARTITION: [1, 3]}) == {PARTITION: None}
            moving = (await admin.list_partition_reassignments())[PARTITION]
            assert (moving.replicas, moving.adding, moving.removing) == ((1, 3, 2), (3,), (2,))
            assert await admin.alter_partition_reassignments({PARTITION: None}) == {PARTITION: None}
            assert await admin.list_partition_reassignments() == {}
            again = (await admin.alter_partition_reassignments({PARTITION: None}))[PARTITION]
            assert again is not None
            assert again.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            assert await admin.alter_partition_reassignments({PARTITION: [1, 3]}) == {PARTITION: None}
            await cluster.start(3)

            async def in_sync() -> tuple[tuple[int, ...], set[int]]:
                found = cluster.nodes[1].image.topics["t"].partitions[0]
                return found.replicas, set(found.isr)

            await eventually_is(in_sync, ((1, 3), {1, 3}))

    asyncio.run(body())
