"""A broker's reports to the active controller about its replicas' log directories (KIP-858): after a failure, others lead those replicas.

A broker of one directory says nothing while all is well: the controller need not know where its replicas are. One that it has elsewhere,
as after a start with a new directory in place of this one, it has as offline, so it is reported. A replica that cannot be
served, alone or with its directory, or not be written for want of room while another one is in sync, is reported as lost; one that can be
again, with its directory. A loss in the newest image is examined, whatever its origin and time: this process may have started since,
or an answer was lost. One request is on its way at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from ottla.broker.part import Part
from ottla.broker.peers.controller_channel import ControllerChannel
from ottla.broker.replicas.full_directories import has_full, must_leave
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import Slices
from ottla.controller.partition_change import UNASSIGNED
from ottla.controller.topic_rules import LOST, directory_of
from ottla.errors import ErrorCode
from ottla.loggers import get_logger
from ottla.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.ports import World
from ottla.types import uuid_bytes

log = get_logger(__name__)

RETRY_MS: Final = 50
TOGETHER_MAX: Final = 2000
ReplicaKey = tuple[bytes, int]


def is_misplaced(known: bytes, sole: bytes | None) -> bool:
    """True when the controller has a replica as lost, or where it may not be; ``sole`` is the broker's directory, if it has only one."""
    return known not in (UNASSIGNED, sole)


class DirectoryReports(Part):
    """Asleep until the broker is registered. ``image`` gives the newest one, ``broker_epoch`` the epoch that it has."""

    def __init__(
        self,
        world: World,
        node_id: int,
        channel: ControllerChannel,
        partitions: PartitionStore,
        image: Callable[[], ClusterImage],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._world = world
        self._node_id = node_id
        self._channel = channel
        self._partitions = partitions
        self._image = image
        self._broker_epoch = broker_epoch
        self._recorded: dict[ReplicaKey, bytes] = {}  # what the controller has recorded, and the image may not show yet
        self._due: set[str] | None = set()  # topics that are to be looked at; None for all
        self._unopened: set[str] = set()  # topics with misplaced replicas that may be opened yet
        self._is_on = self._is_telling = False

    def registered(self) -> None:
        """Starts over: the broker is registered, perhaps again."""
        self._is_on = True
        self._recorded.clear()
        self.look_soon()

    async def stop(self) -> None:
        self._is_on = False

    def look_soon(self, topics: Iterable[str] | None = None) -> None:
        """Sends the due reports of these topics, or of all."""
        self._due = None if topics is None or self._due is None else self._due | set(topics)
        self._tell_soon()

    def on_offline(self) -> None:
        self.look_soon()

    def on_relocated(self, partition: Partition) -> None:
        self.look_soon((partition.topic,))

    async def on_image(self, delta: ImageDelta) -> None:
        """Takes a newer image; what this broker has of it is open by now."""
        if len(self._partitions.directories) > 1 or self._recorded or has_full(self._partitions):
            due = {topic.name for topic in delta.changed_topics}
        else:
            sole = self._sole
            due = {topic.name for topic, numbers in delta.changes_at(self._node_id) if self._has_misplaced(topic, numbers, sole)}
        unopened, self._unopened = self._unopened, set()
        self.look_soon(due | unopened)

    def _has_misplaced(self, topic: TopicImage, numbers: Iterable[int], sole: bytes | None) -> bool:
        found = (topic.partitions[number] for number in numbers)
        return any(
            self._node_id in partition.replicas and is_misplaced(directory_of(partition, self._node_id), sole) for partition in found
        )

    @property
    def _sole(self) -> bytes | None:
        """The broker's directory, where it has one."""
        directories = self._partitions.directories
        return uuid_bytes(directories[0].identity.directory_id) if len(directories) == 1 else None

    def _tell_soon(self) -> None:
        if self._is_on and not self._is_telling and self._due != set():
            self._is_telling = True
            eager.run(self._tell_all(), self._ended)

    def _ended(self, _: None, error: BaseException | None) -> None:
        self._is_telling = False
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.error("replicas_not_assigned", exc_info=error)
        self._tell_soon()

    async def _tell_all(self) -> None:
        await asyncio.sleep(0)  # what fails with it goes along
        while self._is_on and self._due != set():
            due, self._due = self._due, set()
            wanted = await self._wanted(due)
            places = list(wanted.items())
            for first in range(0, len(places), TOGETHER_MAX):
                if not await self._tell(dict(places[first : first + TOGETHER_MAX])):
                    self._due = None if due is None or self._due is None else self._due | due
                    await asyncio.sleep(RETRY_MS / 1000)
                    break

    async def _wanted(self, due: set[str] | None) -> dict[ReplicaKey, bytes]:
        """Returns where replicas are that the controller has elsewhere, or does not know of."""
        image, slices, wanted = self._image(), Slices(self._world.clock), dict[ReplicaKey, bytes]()
        sole = self._sole
        for name in list(image.topics) if due is None else due & set(image.topics):
            topic = image.topics[name]
            for index, partition in topic.partitions.items():
                if self._node_id not in partition.replicas:
                    continue
                place, known = (topic.topic_id, index), directory_of(partition, self._node_id)
                if self._recorded.get(place) == known:
                    del self._recorded[place]
                found = self._directory_of(name, index, partition)
                if found is None and is_misplaced(known, sole):
                    self._unopened.add(name)
                if found is None or found == self._recorded.get(place, known):
                    continue
                if found == LOST or known != UNASSIGNED or sole is None:
                    wanted[place] = found
            await slices.next()
        return wanted

    def _directory_of(self, topic: str, index: int, image: PartitionImage) -> bytes | None:
        """Returns the replica's directory; None for a replica that is not open yet."""
        if must_leave(self._partitions, topic, index, image):
            return LOST
        partition = self._partitions.find(topic, index)
        return None if partition is None else uuid_bytes(self._partitions.directory_of[partition].identity.directory_id)

    async def _tell(self, wanted: dict[ReplicaKey, bytes]) -> bool:
        """Returns whether the controller has recorded it, as far as it can be."""
        directories: dict[bytes, dict[bytes, list[PartitionData]]] = {}
        for (topic_id, index), directory in wanted.items():
            directories.setdefault(directory, {}).setdefault(topic_id, []).append(PartitionData(index))
        request = AssignReplicasToDirsRequest(
            self._node_id,
            self._broker_epoch(),
            [
                DirectoryData(directory, [TopicData(topic_id, partitions) for topic_id, partitions in topics.items()])
                for directory, topics in directories.items()
            ],
        )
        answer = await self._channel.ask(request, AssignReplicasToDirsResponse)
        if answer is None or answer.error_code != ErrorCode.NONE:
            return False
        self._recorded |= wanted
        log.info("replicas_assigned", count=len(wanted), lost_count=sum(directory == LOST for directory in wanted.values()))
        return True
