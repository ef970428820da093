"""Log directories that fail on one node of three: others lead what was there, and the rest stays where it is (KIP-858)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cluster.loop_clients import asking, send, values
from tests.cluster.one_loop import LoopCluster, cluster_on_loop
from tests.waiting import eventually_is

from ottla.aio import NewTopic
from ottla.metadata.image import PartitionImage
from ottla.types import uuid_bytes


def partition(cluster: LoopCluster, index: int, asked: int = 3) -> PartitionImage:
    return cluster.nodes[asked].image.topics["t"].partitions[index]


def directory(cluster: LoopCluster, index: int, node: int = 1) -> bytes:
    store = cluster.nodes[node].partitions
    found = store.find("t", index)
    assert found is not None
    return uuid_bytes(store.directory_of[found].identity.directory_id)


async def opened(cluster: LoopCluster, count: int, node: int = 1) -> None:
    """The node has all of the topic's partitions: it may learn of them later than others."""

    async def is_open() -> bool:
        return all(cluster.nodes[node].partitions.find("t", index) is not None for index in range(count))

    await eventually_is(is_open, True)


def test_replicas_of_a_failed_directory_get_other_leaders_and_the_rest_stay(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path, directory_count=2) as cluster:
            async with asking(cluster, 2) as admin:
                assert await admin.create_topics([NewTopic("t", assignments={index: [1, 2, 3] for index in range(4)})]) == {"t": None}

            async def told() -> list[bytes]:
                return [(partition(cluster, index).directories or (b"",))[0] for index in range(4)]

            await opened(cluster, 4)
            lying = [directory(cluster, index) for index in range(4)]
            assert len(set(lying)) == 2, "new partitions go where there are fewest"
            await eventually_is(told, lying)
            await send(cluster, b"before")

            lost = cluster.nodes[1].directories.opened[1]  # without the first one the node would end: its metadata log lies there
            failed = uuid_bytes(lost.identity.directory_id)
            there = [index for index in range(4) if lying[index] == failed]
            cluster.nodes[1].partitions.fail_directory(lost, "a test")

            async def left() -> list[int]:
                """What others lead: which one, brokers that have only just come decide by who came first."""
                return [index for index in range(4) if partition(cluster, index).leader in (2, 3)]

            await eventually_is(left, there)
            for index in range(4):
                assert (1 in partition(cluster, index).isr) == (index not in there)

            async def up() -> tuple[bytes, ...]:
                return cluster.nodes[3].image.brokers[1].directories

            await eventually_is(up, (uuid_bytes(cluster.nodes[1].directories.opened[0].identity.directory_id),))
            assert not cluster.nodes[3].image.brokers[1].is_fenced
            await send(cluster, b"after")
            assert await values(cluster) == [b"before", b"after"]

    asyncio.run(body())


def test_a_replica_that_cannot_be_served_alone_is_given_up_and_fetched_again(tmp_path: Path) -> None:
    """A broker of one directory: its disk is well, one log is not."""

    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            async with asking(cluster, 2) as admin:
                assert await admin.create_topics([NewTopic("t", assignments={0: [1, 2, 3], 1: [1, 2, 3]})]) == {"t": None}
            await send(cluster, b"before")
            assert partition(cluster, 0).directories == (), "all is well: there is nothing to tell"
            await opened(cluster, 2)
            found = cluster.nodes[1].partitions.find("t", 0)
            assert found is not None
            found.log.health.fail()

            async def standing() -> tuple[bool, bool, bool]:
                """Whether others lead the first partition, whether broker 1 is in sync there, and whether others lead the second."""
                first, second = partition(cluster, 0), partition(cluster, 1)
                return first.leader in (2, 3), 1 in first.isr, second.leader in (2, 3)

            await eventually_is(standing, (True, True, False))
            assert cluster.nodes[1].partitions.find("t", 0) is not found
            assert partition(cluster, 0).directories[0] == directory(cluster, 0)
            await send(cluster, b"after")
            await cluster.stop(1)
            await cluster.start(1)
            await eventually_is(standing, (True, True, True))
            assert partition(cluster, 0).directories[0] == directory(cluster, 0)
            assert await values(cluster) == [b"before", b"after"]

    asyncio.run(body())
