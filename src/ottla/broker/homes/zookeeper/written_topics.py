"""Topics, and more partitions of one, that tools write into ZooKeeper: the controller makes what they assign.

A tool creates ``/brokers/topics/<topic>``, whose configuration it has written before, or adds partitions to that znode. The controller
gives the topic an id and each new partition its state. What is written there about a known partition is not taken: the next write of this
controller to that znode fails, and the next controller reads it. Source: Kafka 3.9 (KafkaController: TopicChange, PartitionModifications).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.homes.zookeeper.loading import each
from ottla.broker.homes.zookeeper.notices import report_problems, settled
from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.tree import children
from ottla.broker.homes.zookeeper.watch_list import WatchList
from ottla.controller.reconciliation import born
from ottla.coordination import NoNodeError
from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.messages.metadata_records import TopicRecord
from ottla.metadata import znodes
from ottla.metadata.image import ClusterImage
from ottla.metadata.known_znodes import Known
from ottla.metadata.replay import replay
from ottla.metadata.znode_reader import Cluster, config_records
from ottla.metadata.znodes import TopicZnode
from ottla.ports import World
from ottla.types import INTERNAL_TOPICS, topic_name_problem
from ottla.wire.schema import Stored

log = get_logger(__name__)


class WrittenTopics:
    """The reader of the topics' znodes, at work while this node's controller is active. ``in_flight_max`` requests wait at a time."""

    def __init__(self, world: World, controller: ActiveController, in_flight_max: int) -> None:
        self._world = world
        self._controller = controller
        self._in_flight_max = in_flight_max

    async def follow(self, reign: Reign) -> None:
        """Takes what tools write from now on, and what they have written since the controller has read the topics."""
        due = WatchList()
        while True:
            due.wakes.clear()
            if due.lists:
                due.lists = False
                for name in await children(reign.session, znodes.TOPICS, due.listed):
                    if not due.is_watched(znodes.topic_path(name)):
                        due.add(znodes.topic_path(name))
            await each(due.take(), partial(self._look, reign, due), self._in_flight_max)
            await due.wakes.wait()

    async def _look(self, reign: Reign, due: WatchList, path: str) -> None:
        """Watches the topic's znode, and takes it where it is none that this controller knows."""
        try:
            _, stat = await reign.session.get(path, due.watch_of(path))
        except NoNodeError:
            due.forget(path)
            return
        if reign.writer.known.versions.get(path) != stat.version:
            await self.take(reign, path)

    async def take(self, reign: Reign, path: str) -> None:
        """Makes what the topic's znode assigns, as far as it is not made yet; logs what cannot be made."""
        name = path.rpartition("/")[2]
        config_path, known = f"{znodes.CONFIG}/topics/{name}", reign.writer.known
        while True:
            found = await settled(reign, self._controller, path)
            change_count = known.change_counts.get(path)
            config = await settled(reign, self._controller, config_path)  # last: a notice of it is passed over until the topic is made
            if config is None or found is None or found[1] is None:
                return
            if known.change_counts.get(path) == change_count:
                break
        draft = self._controller.replica.draft  # nothing is awaited from here on
        try:
            topic = TopicZnode.decode(found[0], name)
            added = {index: nodes for index, nodes in topic.partitions.items() if nodes and not _is_known(draft, name, index)}
            if not added:
                return
            problem = _problem(draft, name)
            if problem is not None:
                log.error("topic_znode_refused", path=path, reason=problem)
                return
            records = [] if name in draft.topics else self._new_topic(topic, name, draft)
            if records:
                with_topic = replay(draft, records)
                records += _configured(config_path, config[0], known, with_topic)
            records += born(replay(draft, records), _in_order(name, added)).records
        except DecodeError as error:
            log.error("topic_znode_unreadable", path=path, reason=error.message)
            return
        if name not in draft.topics:
            known.note(config_path, config[1])
        version_before = known.versions.get(path)
        known.note(path, found[1])
        try:
            reign.append(records)
        except KafkaError as error:  # it is too large
            known.note(path, version_before)
            if error.code == ErrorCode.NOT_CONTROLLER:
                raise
            log.error("topic_znode_refused", path=path, reason=error.message)
        else:
            log.info("topic_znode_taken", path=path, partitions=len(added))

    def _new_topic(self, topic: TopicZnode, name: str, draft: ClusterImage) -> list[Stored]:
        topic_id = topic.topic_id
        if topic_id is None or topic_id in draft.topic_names:  # an old tool writes none, and who copies a znode copies its id
            topic_id = self._world.random.getrandbits(128).to_bytes(16, "big")
        return [TopicRecord(name, topic_id)]


def _configured(path: str, data: bytes, known: Known, image: ClusterImage) -> list[Stored]:
    """Returns the records of the new topic's configuration; one that cannot be read counts as empty, as at an election."""
    try:
        records = config_records(path, data, known, image, image.topics) if data else []
    except DecodeError as error:
        known.problems.append(error.message)
        records = []
    report_problems(known)
    return records


def _is_known(image: ClusterImage, name: str, index: int) -> bool:
    return name in image.topics and index in image.topics[name].partitions


def _in_order(name: str, partitions: Mapping[int, Sequence[int]]) -> list[tuple[str, int, Sequence[int]]]:
    return [(name, index, nodes) for index, nodes in sorted(partitions.items())]


def _problem(image: ClusterImage, name: str) -> str | None:
    """Returns why no partition can be added to what has that name."""
    if name in INTERNAL_TOPICS and name in image.topics:
        return f"what is in {name} was placed by the number of its partitions"
    return topic_name_problem(name)


def make_unborn(reign: Reign, image: ClusterImage, found: Cluster) -> None:
    """Makes the partitions that have an assignment, and no state. A topic that is too large for ZooKeeper stays as it is, and is logged."""
    by_topic: dict[str, list[Stored]] = {}
    for partition in found.unborn:
        by_topic.setdefault(partition[0], []).extend(born(image, [partition]).records)
    for name, births in list(by_topic.items()):
        try:
            reign.check_size(births)
        except KafkaError as error:
            log.error("topic_znode_refused", path=znodes.topic_path(name), reason=error.message)
            del by_topic[name]
            found.unnamed = [unnamed for unnamed in found.unnamed if unnamed != name]  # or its znode would be written without them
    births = [birth for of_topic in by_topic.values() for birth in of_topic]
    if births:
        reign.append(births)
