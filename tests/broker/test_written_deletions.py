"""Deletions of topics that tools ask for, on the simulated service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tests.broker.principals import until
from tests.broker.test_zookeeper_home import TOPIC, Service, on_service
from tests.broker.test_zookeeper_security import Replica

from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.written_deletions import WrittenDeletions
from ottla.broker.homes.zookeeper.written_topics import WrittenTopics
from ottla.config import BrokerConfig
from ottla.controller.decided import Recorded
from ottla.coordination import Session, Watch
from ottla.metadata import znodes
from ottla.metadata.image import ClusterImage


class Deciding:
    """What the reader of deletions asks of its controller."""

    def __init__(self, reign: Reign) -> None:
        self._reign = reign
        self.replica = Replica(reign)

    async def decide(self, decisions: Sequence[Callable[[ClusterImage], Recorded]], *, is_followed: bool) -> list[Recorded]:
        results = [decision(self.replica.draft) for decision in decisions]
        for result in results:
            if result.records:
                self._reign.append(result.records)
        await self.replica.committed(self.replica.draft.end_offset)
        return results


@on_service
async def test_a_topic_that_is_made_again_stays_when_the_connection_is_lost_and_the_brokers_are_followed_anew(service: Service) -> None:
    """What the controller found at its election was carried out once, and is of the past."""
    session = await service.session("a")
    first = await service.reign(session, 1)
    first.append(TOPIC)
    carrying = asyncio.ensure_future(first.carry_out())
    await Replica(first).committed(Replica(first).draft.end_offset)
    carrying.cancel()
    await session.create(f"{znodes.DELETE_TOPICS}/t")
    await session.delete(znodes.CONTROLLER)
    found = await service.read(session)
    reign = await service.reign(session, 1)
    controller = Deciding(reign)
    topics = WrittenTopics(service.world, controller, 10)  # type: ignore[arg-type]
    deletions = WrittenDeletions(BrokerConfig({}), controller, topics)  # type: ignore[arg-type]
    carrying = asyncio.ensure_future(reign.carry_out())
    await deletions.complete(reign, found)
    assert "t" not in controller.replica.draft.topics
    assert f"{znodes.DELETE_TOPICS}/t" not in service.tree
    reign.append(TOPIC)
    await deletions.complete(reign, found)
    assert "t" in controller.replica.draft.topics
    carrying.cancel()


class Slow:
    """A controller's session. What it reads of marks is old: its own deletion is complete meanwhile, and the topic is made again."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.is_read = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names = await self._session.children(path, watch)
        if path == znodes.DELETE_TOPICS and names:
            self.is_read.set()
            await self.goes_on.wait()
        return names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@on_service
async def test_a_topic_that_is_made_again_is_not_deleted_for_the_mark_of_its_earlier_deletion(service: Service) -> None:
    """The controller leaves marks itself while it deletes topics in several requests."""
    tool = await service.session("tool")
    slow: Any = Slow(await service.session("a"))
    reign = await service.reign(slow, 1)
    controller: Any = Deciding(reign)
    deletions = WrittenDeletions(BrokerConfig({}), controller, WrittenTopics(service.world, controller, 10))
    tasks = [asyncio.ensure_future(work) for work in (reign.carry_out(), deletions.follow(reign))]
    await tool.create(f"{znodes.DELETE_TOPICS}/t")
    await slow.is_read.wait()
    await tool.delete(f"{znodes.DELETE_TOPICS}/t")
    reign.append(TOPIC)
    await controller.replica.committed(controller.replica.draft.end_offset)
    slow.goes_on.set()
    await tool.create(f"{znodes.DELETE_TOPICS}/next")  # of no topic: it goes when all before it has been looked at
    await until(lambda: f"{znodes.DELETE_TOPICS}/next" not in service.tree)
    assert "t" in controller.replica.draft.topics
    await tool.create(f"{znodes.DELETE_TOPICS}/t")
    await until(lambda: "t" not in controller.replica.draft.topics)
    for task in tasks:
        assert not task.done(), task
        task.cancel()
