"""Topics that tools write into ZooKeeper, and what else happens at that moment: on the simulated service."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.broker.principals import until
from tests.broker.test_zookeeper_home import Service, on_service
from tests.broker.test_zookeeper_security import Replica

from ottla.broker.homes.zookeeper.notices import Notices
from ottla.broker.homes.zookeeper.written_topics import WrittenTopics
from ottla.coordination import Create, Session, Set, Stat, Watch
from ottla.metadata import znodes
from ottla.metadata.image import RESOURCE_TOPIC
from ottla.metadata.known_znodes import Known
from ottla.metadata.znodes import TopicZnode

PATH = znodes.topic_path("t")
CONFIG_PATH = "/config/topics/t"


class Configuring:
    """A controller's session. Before the assignment is read the second time, the ``tool`` changes the configuration, with a notice."""

    def __init__(self, session: Session, tool: Session) -> None:
        self._session = session
        self.known = Known()
        self._tool = tool
        self._is_changed = False

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        if path == PATH and watch is None and not self._is_changed:
            self._is_changed = True
            notice = Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("topics/t"), is_sequential=True)
            await self._tool.multi([Set(CONFIG_PATH, znodes.encode_config({"retention.ms": "6000"}), 0), notice])
            await until(lambda: self.known.versions.get(CONFIG_PATH) == 1)  # the notice is taken
        return await self._session.get(path, watch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@on_service
async def test_a_configuration_that_changes_while_its_topic_is_taken_is_in_force(service: Service) -> None:
    """The notice is of a topic that the controller does not know yet."""
    tool, session = await service.session("tool"), await service.session("a")
    slow: Any = Configuring(session, tool)
    reign = await service.reign(slow, 1)
    slow.known = reign.writer.known
    controller: Any = SimpleNamespace(replica=Replica(reign))
    follows = (WrittenTopics(service.world, controller, 10).follow, Notices(service.world, controller).follow_configs)
    tasks = [asyncio.ensure_future(work) for work in (reign.carry_out(), *(follow(reign) for follow in follows))]
    await tool.create(CONFIG_PATH, znodes.encode_config({"retention.ms": "5000"}))
    await tool.create(PATH, TopicZnode(None, {0: (1,)}).encode())
    await until(lambda: "t" in controller.replica.draft.topics)
    await controller.replica.committed(controller.replica.draft.end_offset)
    assert controller.replica.draft.configs == {(RESOURCE_TOPIC, "t"): {"retention.ms": "6000"}}
    for task in tasks:
        assert not task.done(), task
        task.cancel()
