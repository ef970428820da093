"""Topics and partitions that tools write into ZooKeeper while a controller is at work: on the simulated service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.principals import until
from tests.broker.test_zookeeper_home import ID, TOPIC, Service, on_service
from tests.broker.test_zookeeper_security import Replica

from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.written_topics import WrittenTopics
from ottla.coordination import Session, Stat, Watch
from ottla.messages.metadata_records import PartitionRecord, RegisterBrokerRecord, RemoveTopicRecord, TopicRecord
from ottla.metadata import znodes
from ottla.metadata.image import RESOURCE_TOPIC, ClusterImage
from ottla.metadata.znodes import TopicZnode
from ottla.wire.schema import Stored

PATH = znodes.topic_path("t")


def assignment(*replicas: tuple[int, ...], topic_id: bytes | None = None) -> bytes:
    return TopicZnode(topic_id, dict(enumerate(replicas))).encode()


@asynccontextmanager
async def active(service: Service, session: Session) -> AsyncIterator[Reign]:
    """A controller of brokers 1 and 2, which are registered, at work; it neither resigns nor fails."""
    reign = await service.reign(session, 1)
    for node in (1, 2):
        reign.append([RegisterBrokerRecord(broker_id=node, fenced=False)], is_known=True)
    tasks = [asyncio.ensure_future(work) for work in (reign.carry_out(), topics_of(service, reign).follow(reign))]
    yield reign
    for task in tasks:
        assert not task.done(), task
        task.cancel()


def topics_of(service: Service, reign: Reign) -> WrittenTopics:
    controller: Any = SimpleNamespace(replica=Replica(reign))
    return WrittenTopics(service.world, controller, 10)


async def append(reign: Reign, *records: Stored) -> None:
    """The controller decides the records, and they are in ZooKeeper."""
    await Replica(reign).committed(reign.append(records))


async def taken(reign: Reign, session: Session, another: str = "next") -> None:
    """``another`` topic is written, and the controller has made it: all that was written before has been looked at."""
    await session.create(znodes.topic_path(another), assignment((1,)))
    await until(lambda: another in image_of(reign).topics)
    await Replica(reign).committed(image_of(reign).end_offset)


def partition(index: int) -> PartitionRecord:
    return PartitionRecord(index, ID, [2], [2], leader=2, leader_epoch=0, partition_epoch=0)


def image_of(reign: Reign) -> ClusterImage:
    return Replica(reign).draft


@on_service
async def test_a_topic_is_made_with_its_configuration_an_id_and_the_states_of_its_partitions(service: Service) -> None:
    session = await service.session("tool")
    async with active(service, await service.session("a")) as reign:
        await session.create("/config/topics/t", znodes.encode_config({"retention.ms": "5000"}))
        await session.create(PATH, assignment((2, 1), (1, 9), (9,)))
        await taken(reign, session)
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
        await append(reign, *TOPIC)
        await taken(reign, session, "watched")
        _, stat = await session.get(PATH)
        await session.set(PATH, assignment((1, 2), (2,), (1,), topic_id=ID), stat.version)
        await taken(reign, session)
        partitions = image_of(reign).topics["t"].partitions
        assert [list(partition.replicas) for partition in partitions.values()] == [[1, 2], [2], [1]]
        assert (await service.read(session)).image.topics == image_of(reign).topics
        await append(reign, partition(3))  # the version is known
        assert (await service.read(session)).image.topics == image_of(reign).topics


@on_service
async def test_what_this_controller_writes_is_not_taken_for_a_tools(service: Service) -> None:
    session = await service.session("a")
    async with active(service, session) as reign:
        await append(reign, *TOPIC)
        await append(reign, partition(1))
        await append(reign, RemoveTopicRecord(ID))
        await taken(reign, session)
        assert list(image_of(reign).topics) == ["next"]
        assert PATH not in service.tree


class Old:
    """A controller's session. Its first reading of ``path`` is held until ``goes_on``, and is old by then."""

    def __init__(self, session: Session, path: str) -> None:
        self._session = session
        self._path = path
        self.is_read = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        try:
            return await self._session.get(path, watch)
        finally:
            if path == self._path:
                self.is_read.set()
                await self.goes_on.wait()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.parametrize("path", [PATH, "/config/topics/t"])
def test_a_topic_that_is_deleted_while_its_znodes_are_read_is_not_made_again(path: str) -> None:
    async def test(service: Service) -> None:
        session: Any = Old(await service.session("a"), path)
        reign = await service.reign(session, 1)
        carrying = asyncio.ensure_future(reign.carry_out())
        await append(reign, *TOPIC)
        taking = asyncio.ensure_future(topics_of(service, reign).take(reign, PATH))
        await session.is_read.wait()
        await append(reign, RemoveTopicRecord(ID))
        session.goes_on.set()
        await taking
        await Replica(reign).committed(image_of(reign).end_offset)
        assert not image_of(reign).topics
        assert PATH not in service.tree
        assert not carrying.done()
        carrying.cancel()

    on_service(test)()


@on_service
async def test_a_topic_of_a_copied_znode_has_an_id_of_its_own(service: Service) -> None:
    session = await service.session("tool")
    async with active(service, await service.session("a")) as reign:
        await append(reign, *TOPIC)
        await session.create(znodes.topic_path("copy"), assignment((1,), topic_id=ID))
        await taken(reign, session)
        assert image_of(reign).topics["copy"].topic_id != ID
        assert image_of(reign).topics["t"].topic_id == ID


@on_service
async def test_what_came_between_the_reading_of_the_topics_and_the_watches_is_taken(service: Service) -> None:
    session = await service.session("tool")
    reign = await service.reign(await service.session("a"), 1)
    await session.create(PATH, assignment((1,)))
    tasks = [asyncio.ensure_future(work) for work in (reign.carry_out(), topics_of(service, reign).follow(reign))]
    await until(lambda: "t" in image_of(reign).topics)
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
        ("large", json.dumps({"version": 1, "partitions": {str(partition): [1] for partition in range(50_001)}}).encode()),
    ],
)
def test_what_cannot_be_made_stays_and_the_next_topic_is_made(name: str, data: bytes) -> None:
    async def test(service: Service) -> None:
        session = await service.session("tool")
        async with active(service, await service.session("a")) as reign:
            if name == "__consumer_offsets":
                await append(reign, TopicRecord(name, ID), PartitionRecord(0, ID, [1], [1], leader=1, leader_epoch=0, partition_epoch=0))
                await session.set(znodes.topic_path(name), data, 0)
            else:
                await session.create(znodes.topic_path(name), data)
            await taken(reign, session)
            topic = image_of(reign).topics.get(name)
            assert topic is None or len(topic.partitions) == 1
            assert service.tree[znodes.topic_path(name)] == data

    on_service(test)()
