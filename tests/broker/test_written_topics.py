"""Topics and partitions that tools write into ZooKeeper while a controller is at work: on the simulated service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from tests.broker.test_zookeeper_home import ID, TOPIC, Service, on_service
from tests.broker.test_zookeeper_security import Replica

from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.written_topics import WrittenTopics
from ottla.coordination import Session
from ottla.messages.metadata_records import PartitionRecord, RegisterBrokerRecord, RemoveTopicRecord
from ottla.metadata import znodes
from ottla.metadata.image import RESOURCE_TOPIC, ClusterImage
from ottla.metadata.znodes import TopicZnode

PATH = znodes.topic_path("t")


def assignment(*replicas: tuple[int, ...], topic_id: bytes | None = None) -> bytes:
    return TopicZnode(topic_id, dict(enumerate(replicas))).encode()


@asynccontextmanager
async def active(service: Service, session: Session) -> AsyncIterator[Reign]:
    """A controller of brokers 1 and 2, which are registered, at work; it neither resigns nor fails."""
    reign = await service.reign(session, 1)
    for node in (1, 2):
        reign.append([RegisterBrokerRecord(broker_id=node, fenced=False)], is_known=True)
    topics = WrittenTopics(service.world, SimpleNamespace(replica=Replica(reign)), 10)  # type: ignore[arg-type]
    tasks = [asyncio.ensure_future(work) for work in (reign.carry_out(), topics.follow(reign))]
    await asyncio.sleep(1)
    yield reign
    for task in tasks:
        assert not task.done(), task
        task.cancel()


def image_of(reign: Reign) -> ClusterImage:
    return Replica(reign).draft


@on_service
async def test_a_topic_is_made_with_its_configuration_an_id_and_the_states_of_its_partitions(service: Service) -> None:
    session = await service.session("tool")
    async with active(service, await service.session("a")) as reign:
        await session.create("/config/topics/t", znodes.encode_config({"retention.ms": "5000"}))
        await session.create(PATH, assignment((2, 1), (1, 9), (9,)))
        await asyncio.sleep(1)
        topic = image_of(reign).topics["t"]
        assert [(p.leader, list(p.isr)) for p in topic.partitions.values()] == [(2, [2, 1]), (1, [1]), (-1, [9])]
        assert image_of(reign).configs[RESOURCE_TOPIC, "t"] == {"retention.ms": "5000"}
        found = await service.read(session)
        assert found.image.topics["t"] == topic
        assert not found.unnamed
        assert not found.unborn
        assert topic.topic_id != bytes(16)


@on_service
async def test_partitions_that_are_added_get_states_and_those_that_are_known_stay_as_they_are(service: Service) -> None:
    session = await service.session("tool")
    async with active(service, await service.session("a")) as reign:
        reign.append(TOPIC)
        await asyncio.sleep(1)
        _, stat = await session.get(PATH)
        await session.set(PATH, assignment((1, 2), (2,), (1,), topic_id=ID), stat.version)
        await asyncio.sleep(1)
        partitions = image_of(reign).topics["t"].partitions
        assert [list(partition.replicas) for partition in partitions.values()] == [[1, 2], [2], [1]]
        found = await service.read(session)
        assert found.image.topics == image_of(reign).topics
        reign.append([PartitionRecord(3, ID, [2], [2], leader=2, leader_epoch=0, partition_epoch=0)])  # the version is known
        await asyncio.sleep(1)
        assert (await service.read(session)).image.topics == image_of(reign).topics


@on_service
async def test_what_this_controller_writes_is_not_taken_for_a_tools(service: Service) -> None:
    session = await service.session("a")
    async with active(service, session) as reign:
        reign.append(TOPIC)
        reign.append([PartitionRecord(1, ID, [2], [2], leader=2, leader_epoch=0, partition_epoch=0)])
        await asyncio.sleep(1)
        end_offset = image_of(reign).end_offset
        reign.append([RemoveTopicRecord(ID)])
        await asyncio.sleep(1)
        assert image_of(reign).end_offset == end_offset + 1
        assert PATH not in service.tree


@pytest.mark.parametrize("ms", range(4, 14))
def test_a_topic_that_is_deleted_while_its_znode_is_read_is_not_made_again(ms: int) -> None:
    """The znode is read because of two changes of this controller, of which one is on its way."""

    async def test(service: Service) -> None:
        async with active(service, await service.session("a")) as reign:
            reign.append(TOPIC)
            await asyncio.sleep(1)
            for index in (1, 2):
                reign.append([PartitionRecord(index, ID, [2], [2], leader=2, leader_epoch=0, partition_epoch=0)])
                await asyncio.sleep(0.001)
            await asyncio.sleep(ms / 1000)
            reign.append([RemoveTopicRecord(ID)])
            await asyncio.sleep(1)
            assert not image_of(reign).topics
            assert PATH not in service.tree

    on_service(test)()


@on_service
async def test_a_topic_of_a_copied_znode_has_an_id_of_its_own(service: Service) -> None:
    session = await service.session("tool")
    async with active(service, await service.session("a")) as reign:
        reign.append(TOPIC)
        await asyncio.sleep(1)
        await session.create(znodes.topic_path("copy"), assignment((1,), topic_id=ID))
        await asyncio.sleep(1)
        assert image_of(reign).topics["copy"].topic_id != ID
        assert image_of(reign).topics["t"].topic_id == ID


@on_service
async def test_what_is_written_while_the_connection_is_lost_is_taken_when_it_is_followed_again(service: Service) -> None:
    """As by a controller that starts: what came between its reading of the topics and its watches."""
    session, own = await service.session("tool"), await service.session("a")
    reign = await service.reign(own, 1)
    reign.append([RegisterBrokerRecord(broker_id=1, fenced=False)], is_known=True)
    await session.create(PATH, assignment((1,)))
    topics = WrittenTopics(service.world, SimpleNamespace(replica=Replica(reign)), 10)  # type: ignore[arg-type]
    tasks = [asyncio.ensure_future(work) for work in (reign.carry_out(), topics.follow(reign))]
    await asyncio.sleep(1)
    assert image_of(reign).topics["t"].partitions[0].leader == 1
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("t", b"{"),
        ("t", b'{"version":1,"partitions":{"0":"x"}}'),
        ("t", b'{"version":1,"partitions":{}}'),
        ("t", b""),
        ("no name", assignment((1,))),
        ("__consumer_offsets", assignment((1,), (1,))),
        ("large", assignment(*[(1,)] * 50_001)),
    ],
)
def test_what_cannot_be_made_is_logged_and_stays_and_the_next_topic_is_made(name: str, data: bytes) -> None:
    async def test(service: Service) -> None:
        session = await service.session("tool")
        async with active(service, await service.session("a")) as reign:
            if name == "__consumer_offsets":
                reign.append([type(TOPIC[0])(name, ID), PartitionRecord(0, ID, [1], [1], leader=1, leader_epoch=0, partition_epoch=0)])
                await asyncio.sleep(1)
                await session.set(znodes.topic_path(name), data, 0)
            else:
                await session.create(znodes.topic_path(name), data)
            await asyncio.sleep(1)
            topic = image_of(reign).topics.get(name)
            assert topic is None or len(topic.partitions) == 1
            assert service.tree[znodes.topic_path(name)] == data
            await session.create(znodes.topic_path("next"), assignment((1,)))
            await asyncio.sleep(1)
            assert image_of(reign).topics["next"].partitions[0].leader == 1

    on_service(test)()
