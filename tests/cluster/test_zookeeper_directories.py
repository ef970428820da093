"""As ``test_directories.py`` with a quorum: what a failed log directory of a broker in ZooKeeper mode had is led by others."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cluster.loop_clients import asking, send, values
from tests.cluster.one_loop import LoopCluster, cluster_on_loop
from tests.cluster.test_directories import directory, opened, partition
from tests.waiting import eventually_is

from ottla.aio import NewTopic
from ottla.broker.homes.zookeeper.served_log import EPOCH_SPAN
from ottla.controller.topic_rules import is_lost
from ottla.coordination import Session
from ottla.metadata import znodes
from ottla.runtime.zookeeper import ZooKeeper
from ottla.runtime.zookeeper_server import ZooKeeperServer
from ottla.types import uuid_bytes


def active(cluster: LoopCluster) -> int:
    """The controller; 0 while there is none."""
    return next((number for number, node in cluster.nodes.items() if node.controller.is_active), 0)


async def events(session: Session) -> list[str]:
    return await session.children(znodes.LOG_DIR_EVENTS)


def test_replicas_of_a_failed_directory_get_other_leaders_under_each_controller(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """The broker writes a notice, the controller asks it and deletes that; the next controller learns it again."""
    address = f"{zookeeper.address}/{tmp_path.name}"

    async def body() -> None:
        async with cluster_on_loop(tmp_path, directory_count=2, zookeeper=address) as cluster:
            failing = 1 if active(cluster) != 1 else 2
            others = [number for number in (1, 2, 3) if number != failing]
            assignments = {index: [failing, *others] for index in range(4)}
            async with asking(cluster, others[0]) as admin:
                assert await admin.create_topics([NewTopic("t", assignments=assignments)]) == {"t": None}

            async def leaders() -> list[int]:
                return [partition(cluster, index, others[0]).leader for index in range(4)]

            async def left() -> list[bool]:
                """Whether another one leads: which one, brokers that have only just come decide by who came first."""
                return [leader in others for leader in await leaders()]

            await eventually_is(leaders, [failing] * 4)
            await send(cluster, b"before")
            await opened(cluster, 4, failing)
            lost = cluster.nodes[failing].directories.opened[0]  # the first one as well as any: there is no metadata log in it
            there = [directory(cluster, index, failing) == uuid_bytes(lost.identity.directory_id) for index in range(4)]
            assert sum(there) == 2, "new partitions go where there are fewest"
            session = await ZooKeeper().connect(address, session_timeout_ms=9000)
            cluster.nodes[failing].partitions.fail_directory(lost, "a test")
            await eventually_is(left, there)

            async def shown() -> list[bool]:
                return [is_lost(partition(cluster, index, others[1]), failing) for index in range(4)]

            await eventually_is(shown, there)
            await eventually_is(lambda: events(session), [])
            assert [failing in partition(cluster, index, others[1]).isr for index in range(4)] == [not is_there for is_there in there]
            assert not cluster.nodes[others[0]].image.brokers[failing].is_fenced
            await session.delete(znodes.CONTROLLER)  # any broker may be elected now

            async def is_of_the_next_controller() -> bool:
                return cluster.nodes[others[1]].image.end_offset >= 2 * EPOCH_SPAN

            await eventually_is(is_of_the_next_controller, True)
            await eventually_is(shown, there)
            await eventually_is(left, there)
            await send(cluster, b"after")

            await cluster.stop(failing)
            Path(lost.path).rename(tmp_path / "lost")
            Path(lost.path).write_bytes(b"no directory")  # which no disk that fails could be more
            await cluster.start(failing)
            await eventually_is(shown, there)
            await eventually_is(left, [True] * 4)

            async def in_sync() -> list[bool]:
                return [failing in partition(cluster, index, others[1]).isr for index in range(4)]

            await eventually_is(in_sync, [not is_there for is_there in there])
            await eventually_is(shown, there)
            await eventually_is(lambda: events(session), [])
            assert await values(cluster) == [b"before", b"after"]
            await session.close()

    asyncio.run(body())


def test_a_replica_that_cannot_be_served_alone_is_lost_until_it_is_fetched_again(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """One log of a broker fails, its disk does not. Notices that nobody can read, or of no broker, are passed over.

    What nobody else has is lost until the broker has restarted.
    """
    address = f"{zookeeper.address}/{tmp_path.name}"

    async def body() -> None:
        async with cluster_on_loop(tmp_path, zookeeper=address) as cluster:
            failing = 1 if active(cluster) != 1 else 2
            others = [number for number in (1, 2, 3) if number != failing]
            assignments = {index: [failing, *others] for index in range(2)}
            async with asking(cluster, others[0]) as admin:
                new = [NewTopic("t", assignments=assignments), NewTopic("alone", assignments={0: [failing]})]
                assert await admin.create_topics(new) == {"t": None, "alone": None}
            await send(cluster, b"before")
            session = await ZooKeeper().connect(address, session_timeout_ms=9000)
            for data in (b"no JSON", znodes.encode_log_dir_event(77)):
                await session.create(f"{znodes.LOG_DIR_EVENTS}/of-nobody-{len(data)}", data)
            await opened(cluster, 2, failing)
            found = cluster.nodes[failing].partitions.find("t", 0)
            assert found is not None
            found.log.health.fail()

            async def alone() -> tuple[int, bool]:
                only = cluster.nodes[others[1]].image.topics["alone"].partitions[0]
                return only.leader, is_lost(only, failing)

            async def is_open() -> bool:
                return cluster.nodes[failing].partitions.find("alone", 0) is not None

            await eventually_is(alone, (failing, False))
            await eventually_is(is_open, True)
            only = cluster.nodes[failing].partitions.find("alone", 0)
            assert only is not None
            only.log.health.fail()

            async def standing() -> tuple[bool, bool, bool, bool]:
                """Of the first partition: whether others lead, whether it is in sync there, and lost; whether others lead the second."""
                first, second = partition(cluster, 0, others[1]), partition(cluster, 1, others[1])
                return first.leader in others, failing in first.isr, is_lost(first, failing), second.leader in others

            await eventually_is(standing, (True, True, False, False))
            await eventually_is(alone, (-1, True))
            assert cluster.nodes[failing].partitions.find("t", 0) is not found
            await eventually_is(lambda: events(session), [])
            await send(cluster, b"after")
            await cluster.stop(failing)
            await cluster.start(failing)
            await eventually_is(standing, (True, True, False, True))
            await eventually_is(alone, (failing, False))
            assert await values(cluster) == [b"before", b"after"]
            await session.close()

    asyncio.run(body())
