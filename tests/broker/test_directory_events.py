"""What a broker in ZooKeeper mode says of replicas that it has lost, through connections that end meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tests.broker.test_zookeeper_home import Service, open_to_all

from ottla.broker.homes.zookeeper.directory_events import DirectoryEvents
from ottla.broker.replicas.store import PartitionStore
from ottla.coordination import ConnectionLostError, Session
from ottla.metadata import znodes
from ottla.sim.loop import run
from ottla.types import TopicPartition


class LostConnection:
    """A session of which the connection ends when its first write has been carried out; ``meanwhile`` happens then."""

    def __init__(self, session: Session, meanwhile: Any) -> None:
        self._session = session
        self._meanwhile: Any = meanwhile

    async def multi(self, operations: Any) -> None:
        await self._session.multi(operations)
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
            raise ConnectionLostError


def test_replicas_possibly_reported_as_lost_are_reported_again_once_they_are_back() -> None:
    """The controller may have read the notice of which the broker has not heard: it has to ask again."""

    async def body() -> int:
        service = Service()
        offline = {TopicPartition("t", 0)}
        partitions = cast("PartitionStore", SimpleNamespace(offline=offline, all=list, directories=[]))
        session = await service.session("b")
        cut = cast("Session", LostConnection(session, offline.clear))
        events = DirectoryEvents(2, partitions, lambda: cut, open_to_all)
        events.on_offline()
        events.begin()
        await asyncio.sleep(1)  # of simulated time
        return len(await session.children(znodes.LOG_DIR_EVENTS))

    assert run(body()) == 2
