"""Deletions of topics that tools ask for: the names below ``/admin/delete_topics``.

The controller deletes the topic and then the mark. A topic that a tool wrote just before, and that is not taken yet, is taken first; one
that cannot be taken is deleted as it is. With ``delete.topic.enable=false`` marks are deleted, and topics stay, except for one whose
deletion a controller has started. Source: Kafka 3.9 (KafkaController: TopicDeletion; TopicDeletionManager).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.homes.zookeeper.notices import settled
from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.tree import children, delete_below
from ottla.broker.homes.zookeeper.waiting import despite_lost_connections
from ottla.broker.homes.zookeeper.written_topics import WrittenTopics
from ottla.config import BrokerConfig
from ottla.controller.decided import Recorded
from ottla.errors import KafkaError
from ottla.loggers import get_logger
from ottla.messages.metadata_records import RemoveTopicRecord
from ottla.metadata import znodes
from ottla.metadata.image import ClusterImage
from ottla.metadata.znode_reader import Cluster

log = get_logger(__name__)


class WrittenDeletions:
    """The reader of the marks, at work while this node's controller is active."""

    def __init__(self, config: BrokerConfig, controller: ActiveController, topics: WrittenTopics) -> None:
        self._is_enabled: bool = config["delete.topic.enable"]
        self._controller = controller
        self._topics = topics

    async def follow(self, reign: Reign) -> None:
        """Deletes topics whose names are below ``/admin/delete_topics``."""
        while True:
            changed = asyncio.Event()
            for name in await children(reign.session, znodes.DELETE_TOPICS, changed.set):
                if f"{znodes.DELETE_TOPICS}/{name}" not in reign.writer.known.versions:
                    await self._delete(reign, name)
            await changed.wait()

    async def _delete(self, reign: Reign, name: str) -> None:
        mark, path = f"{znodes.DELETE_TOPICS}/{name}", znodes.topic_path(name)
        if not await self._is_wanted(reign, mark):
            return
        if not self._is_enabled:
            log.warning("request_refused", reason=f"topic {name} stays: delete.topic.enable is false on the controller's broker")
            await reign.delete(mark)
            return
        if name not in self._controller.replica.draft.topics:
            await self._topics.take(reign, path)
            if not await self._is_wanted(reign, mark):
                return
        if name in self._controller.replica.draft.topics:
            reign.writer.known.versions[mark] = -1  # it goes with the topic
            await self._decide([partial(removed, name=name)])
            return
        await delete_below(reign.session, reign.check, path)
        await reign.delete(path)
        reign.writer.known.note(path, None)
        await reign.delete(mark)

    async def _is_wanted(self, reign: Reign, mark: str) -> bool:
        """Returns whether the mark is there when this controller's own deletions, which leave none, are complete."""
        found = await settled(reign, self._controller, mark)
        return found is not None and found[1] is not None

    async def complete(self, reign: Reign, found: Cluster) -> None:
        """Completes deletions that were asked for, or started, before this controller was elected: once, through lost connections, too."""
        deleting, found.deleting = found.deleting, []
        begun = {name for name, *_ in found.unborn}  # states are deleted first
        wanted = [name for name in deleting if self._is_enabled or name in begun]
        await self._decide([partial(removed, name=name) for name in wanted])
        for name in deleting:
            mark = f"{znodes.DELETE_TOPICS}/{name}"
            if mark in reign.writer.known.versions:  # of a topic that is not there, or stays
                await despite_lost_connections(partial(reign.delete, mark))
                reign.writer.known.note(mark, None)

    async def _decide(self, decisions: list[Callable[[ClusterImage], Recorded]]) -> None:
        for result in await self._controller.decide(decisions, is_followed=False):
            if isinstance(result, KafkaError):
                log.error("topic_not_deleted", reason=result.message)


def removed(image: ClusterImage, *, name: str) -> Recorded:
    """Decides that the topic of that name is deleted; nothing where there is none."""
    topic = image.topics.get(name)
    return Recorded(() if topic is None else (RemoveTopicRecord(topic.topic_id),))
