"""The partitions that this broker has: opened, created and deleted as the metadata image says.

Each lives in a folder ``topic-index`` of one of the data folders; a new one goes where there are fewest. A folder whose
topic is gone from the image, or whose topic id is another, belongs to a deleted topic and is removed.

A data folder whose disk fails takes all its partitions offline; the others go on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from ottla.broker.checkpoints import Checkpoints
from ottla.broker.partition import Partition
from ottla.broker.turns import Turns
from ottla.config import TOPIC_KEYS, BrokerConfig
from ottla.errors import DecodeError, ErrorCode, KafkaError, StorageError
from ottla.loggers import get_logger
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metrics import TopicMeters
from ottla.ports import World
from ottla.storage.appending import FULL
from ottla.storage.config import LogConfig
from ottla.storage.damage import check_damage
from ottla.storage.folder import DataFolder
from ottla.storage.log import PartitionLog
from ottla.types import INTERNAL_TOPICS, TopicPartition, uuid_text

log = get_logger(__name__)

WANTED_FOLDERS_MAX: Final = 10_000
INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"
OPENED_AT_ONCE: Final = 10
"""Partitions opened before others have their turn: some milliseconds."""


class PartitionStore:
    """``by_name`` and ``by_id`` hold the same inner dictionaries: partitions of one topic by index."""

    def __init__(
        self, world: World, config: BrokerConfig, node_id: int, folders: list[DataFolder], *, has_offline_folders: bool = False
    ) -> None:
        self._world = world
        self._config = config
        self._node_id = node_id
        self._folders = folders
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self.meters: dict[str, TopicMeters] = {}  # by topic
        self._folder_of: dict[Partition, DataFolder] = {}
        self._found: dict[TopicPartition, list[tuple[DataFolder, str | None]]] = {}  # on disk and not open: where, of which topic id
        self._followed: dict[str, TopicImage] = {}  # as they were when they were looked at last
        self._overrides: dict[str, Mapping[str, str]] = {}  # of open topics, as their logs have them
        self._checkpoints = Turns(self._write_checkpoints)
        self._offsets = Checkpoints(world.disk)
        self.interrupted_moves: dict[TopicPartition, DataFolder] = {}  # found by the scan
        self._wanted_folders: dict[TopicPartition, DataFolder] = {}  # of partitions that do not exist yet
        self._must_be_found = has_offline_folders  # what is not found while starting lies in one of those, and is not made anew
        self.offline: dict[TopicPartition, DataFolder | None] = {}  # that could not be opened, and where they lie if that is known
        self.on_folder_failed: Callable[[DataFolder], None] = lambda folder: None
        self.on_partition_failed: Callable[[], None] = lambda: None

    async def scan(self) -> None:
        """Remembers which partition folders exist, and removes what an interrupted deletion left."""
        for folder in self._folders:
            await folder.remove_deleted()
            self.interrupted_moves |= dict.fromkeys(await folder.remove_futures(), folder)
            for key, topic_id in (await folder.partitions()).items():
                self._found.setdefault(key, []).append((folder, topic_id))
            await self._offsets.read(folder)

    async def follow(self, image: ClusterImage) -> tuple[list[Partition], list[str]]:
        """Open exactly what the image gives to this broker; the partitions opened and the topics gone."""
        gone = [topic for topic, followed in self._followed.items() if _is_gone(image, followed)]
        for topic in gone:
            await self._delete(topic)
        if gone:  # or a later topic of the same name would inherit where recovery begins
            await self.write_checkpoints()
        await self._make_folders(image)
        opened = []
        for _, topic_image in sorted(image.topics.items()):
            known = self.by_name.get(topic_image.name, {})
            if self._followed.get(topic_image.name) is topic_image:
                continue
            for index, partition in sorted(topic_image.partitions.items()):
                if index in known:
                    known[index].leader_epoch = partition.leader_epoch
                    continue
                if self._node_id not in partition.replicas or TopicPartition(topic_image.name, index) in self.offline:
                    continue
                found = await self._try_to_open(image, topic_image, index)
                if found is not None:
                    opened.append(found)
                    if len(opened) % OPENED_AT_ONCE == 0:
                        await asyncio.sleep(0)
            self._followed[topic_image.name] = topic_image
        return opened, gone

    async def _make_folders(self, image: ClusterImage) -> None:
        """Partitions that the image adds have their folders. What a disk refuses is met again, one by one, when they are opened."""
        if self._must_be_found:
            return
        used = Counter(self._folder_of.values())
        wanted: dict[DataFolder, dict[TopicPartition, str]] = {}
        for topic in image.topics.values():
            if self._followed.get(topic.name) is topic:
                continue
            known = self.by_name.get(topic.name, {})
            for index, partition in topic.partitions.items():
                key = TopicPartition(topic.name, index)
                if index in known or key in self._found or key in self.offline or self._node_id not in partition.replicas:
                    continue
                preferred = self._wanted_folders.pop(key, None)
                folder = min(self._live_folders(), key=lambda live: (live is not preferred, used[live]))
                used[folder] += 1
                wanted.setdefault(folder, {})[key] = uuid_text(topic.topic_id)
        for folder, topic_ids in wanted.items():
            try:
                made = await folder.create_partitions(topic_ids)
            except OSError as error:
                log.warning("partition_folders_not_made", folder=folder.path, reason=str(error))
                continue
            for key in made:
                self._offsets.forget(key)
                self._found[key] = [(folder, topic_ids[key])]

    def reconfigure(self, image: ClusterImage, *, has_broker_changed: bool) -> None:
        """Open logs have the configuration that the image and the broker's values give their topics."""
        for topic, partitions in self.by_name.items():
            overrides = image.topic_configs(topic)
            if has_broker_changed or overrides != self._overrides[topic]:
                self._overrides[topic] = overrides
                config = log_config(self._config, overrides)
                for partition in partitions.values():
                    partition.log.configure(config)

    async def remove_strays(self) -> None:
        """Folders that no topic of the image claimed are deleted."""
        for key, places in sorted(self._found.items()):
            for folder, _ in places if not key.topic.startswith("__cluster_metadata") else ():
                log.info("stray_folder_removed", folder=folder.partition_path(key))
                await self._remove_folder(folder, key)
        self._found.clear()
        self._must_be_found = False
        await self.remove_deleted()

    async def remove_deleted(self) -> None:
        """What was renamed for deletion is removed from the disk."""
        for folder in self._live_folders():
            await folder.remove_deleted()

    def absent(self, topic: str, index: int, code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> KafkaError:
        """Why the partition is not among those open: it is here and could not be opened; else ``code``."""
        if TopicPartition(topic, index) in self.offline:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} is offline: it could not be opened")
        return KafkaError(code)

    def offline_replicas(self, topic: str, index: int) -> list[int]:
        """This broker, where its replica could not be opened or has failed since."""
        return [self._node_id] if self.is_offline(topic, index) else []

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether this broker's replica could not be opened or has failed since."""
        partition = self.by_name.get(topic, {}).get(index)
        return TopicPartition(topic, index) in self.offline if partition is None else partition.log.is_failed

    @property
    def offline_folder_count(self) -> int:
        """Data folders that have failed."""
        return len(self._folders) - len(self._live_folders())

    def all(self) -> list[Partition]:
        return [partition for partitions in self.by_name.values() for partition in partitions.values()]

    def by_folder(self) -> Iterator[tuple[DataFolder, list[Partition]]]:
        """Each data folder, and the partitions in it."""
        for folder in self._folders:
            yield folder, [partition for partition in self.all() if self._folder_of[partition] is folder]

    def folder_at(self, path: str) -> DataFolder | None:
        """The data folder of that path."""
        return next((folder for folder in self._folders if folder.path == path), None)

    def folder_of(self, partition: Partition) -> DataFolder:
        return self._folder_of[partition]

    def prefer(self, key: TopicPartition, folder: DataFolder) -> None:
        """The partition, which is not here, will be made there if it is made before the broker stops."""
        if len(self._wanted_folders) >= WANTED_FOLDERS_MAX:
            self._wanted_folders.clear()
        self._wanted_folders[key] = folder

    async def relocated(self, partition: Partition, folder: DataFolder) -> None:
        """The partition's log lies in that folder now; what it was copied from is removed."""
        old = self._folder_of[partition]
        self._folder_of[partition] = folder
        partition.log.on_disk_failed = partial(self.fail_folder, folder)
        try:
            await self._remove_folder(old, key_of(partition))
        except OSError as error:
            log.error("moved_replica_not_removed", partition=str(key_of(partition)), folder=old.path, reason=str(error))
            self.fail_folder(old)

    async def write_checkpoints(self) -> None:
        """Where recovery begins, and where each log starts, as of this call, for the next start of this broker."""
        await self._checkpoints()

    async def _write_checkpoints(self) -> None:
        problem: OSError | None = None
        for folder in self._live_folders():
            try:
                await self._offsets.write(folder, self._logs_in(folder), [key for key, place in self.offline.items() if place is folder])
            except OSError as error:
                problem = error
                if error.errno not in FULL:
                    self.fail_folder(folder)
        if problem is not None:
            raise StorageError(f"checkpoints cannot be written: {problem}") from problem

    def _logs_in(self, folder: DataFolder) -> dict[TopicPartition, PartitionLog]:
        return {key_of(partition): partition.log for partition in self.all() if self._folder_of[partition] is folder}

    async def close(self) -> list[DataFolder]:
        """Every log is synced and closed, the checkpoints are written. The folders in which that is true of each partition."""
        for partition in self.all():
            await _close(partition)
        await self.write_checkpoints()
        unclosed = [*self.offline.values(), *(self._folder_of[partition] for partition in self.all() if partition.log.is_failed)]
        self.by_name.clear()
        self.by_id.clear()
        return [folder for folder in self._live_folders() if folder not in unclosed]

    def fail_folder(self, folder: DataFolder) -> None:
        """The folder's disk is not trusted any more: its partitions are offline, and nothing is tried again until the next start."""
        if folder.is_failed:
            return
        folder.is_failed = True
        log.error("log_dir_failed", folder=folder.path)
        for partition in self.all():
            if self._folder_of[partition] is folder:
                partition.fail()
        self.on_folder_failed(folder)

    def _live_folders(self) -> list[DataFolder]:
        return [folder for folder in self._folders if not folder.is_failed]

    async def _try_to_open(self, image: ClusterImage, topic: TopicImage, index: int) -> Partition | None:
        """The partition; None when it is offline."""
        key = TopicPartition(topic.name, index)
        folder, reason = None, "its data folder is offline"
        if key in self._found or not self._must_be_found:
            folder = await self._folder_for(key, uuid_text(topic.topic_id))
            try:
                return await self._open(image, topic, key, folder)
            except OSError as error:
                reason = str(error)
                self.fail_folder(folder)
            except (DecodeError, StorageError) as error:
                reason = error.message
        self.offline[key] = folder
        self.on_partition_failed()
        log.error("partition_offline", partition=str(key), folder=folder and folder.path, reason=reason)
        return None

    async def _open(self, image: ClusterImage, topic: TopicImage, key: TopicPartition, folder: DataFolder) -> Partition:
        index = key.partition
        await check_damage(self._world.disk, folder.partition_path(key))
        known = self._offsets.of(key)
        opened = await PartitionLog.open(
            self._world.disk,
            folder.partition_path(key),
            config=log_config(self._config, image.topic_configs(topic.name)),
            now_ms=self._world.clock.now_ms(),
            clean=folder.was_clean,
            recovery_point=known.recovery_point,
            log_start_offset=known.log_start_offset,
            first_dirty_offset=known.first_dirty_offset,
        )
        self._offsets.forget(key)
        opened.on_failed = self.on_partition_failed
        opened.on_disk_failed = partial(self.fail_folder, folder)
        epoch = topic.partitions[index].leader_epoch
        partition = Partition(
            topic.name,
            topic.topic_id,
            index,
            opened,
            leader_epoch=epoch,
            is_internal=topic.name in INTERNAL_TOPICS,
            meters=self.meters.setdefault(topic.name, TopicMeters()),
        )
        partitions = self.by_name.setdefault(topic.name, {})
        partitions[index] = partition
        self._overrides[topic.name] = image.topic_configs(topic.name)
        self.by_id[topic.topic_id] = partitions
        self._folder_of[partition] = folder
        return partition

    async def _folder_for(self, key: TopicPartition, topic_id: str) -> DataFolder:
        places = self._found.pop(key, [])
        own = [folder for folder, found_id in places if found_id == topic_id]
        if len(own) > 1:  # a crash came between the two renames that end a move: the copy has all that the other has, or more by now
            sizes = [await folder.log_bytes(key) for folder in own]
            own = [own[sizes.index(max(sizes))]]
            log.warning("replica_found_twice", partition=str(key), kept=own[0].path)
        for folder, _ in places:
            if folder not in own:
                await self._remove_folder(folder, key)  # the shorter one, or that of an earlier topic of this name
        if own:
            return own[0]
        self._offsets.forget(key)
        wanted = self._wanted_folders.pop(key, None)
        folder = self._folders[0]
        if len(self._folders) > 1:
            used = list(self._folder_of.values())
            folder = min(self._live_folders(), key=lambda live: (live is not wanted, used.count(live)))
        await folder.create_partition(key, topic_id)
        return folder

    async def _delete(self, topic: str) -> None:
        del self._followed[topic]
        self.offline = {key: folder for key, folder in self.offline.items() if key.topic != topic}
        partitions = self.by_name.pop(topic, {})
        self.meters.pop(topic, None)
        self._overrides.pop(topic, None)
        for partition in partitions.values():
            self.by_id.pop(partition.topic_id, None)
            for waiter in list(partition.waiters):
                waiter.on_append(2**62)  # whatever they wait for, they are answered now
            await _close(partition)
            folder = self._folder_of.pop(partition)
            if not folder.is_failed:
                await self._remove_folder(folder, key_of(partition))

    async def _remove_folder(self, folder: DataFolder, key: TopicPartition) -> None:
        await folder.delete_partition(key, f"{self._world.random.getrandbits(128):032x}")


def _is_gone(image: ClusterImage, topic: TopicImage) -> bool:
    """Whether the topic is deleted; another of its name may have come."""
    current = image.topics.get(topic.name)
    return current is None or current.topic_id != topic.topic_id


def key_of(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)


async def _close(partition: Partition) -> None:
    if not partition.log.is_failed:
        await partition.flush()
        async with partition.changing:
            await partition.log.close()


def log_config(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """A topic's settings: its overrides over the broker's values."""
    values: dict[str, Any] = {"producer_id_expiration_ms": config["producer.id.expiration.ms"]}
    for name, key in TOPIC_KEYS.items():
        field = name.replace(".", "_")
        if field in LogConfig.__dataclass_fields__:
            value = key.parse(overrides[name]) if name in overrides else config.topic_default(key)
            values[field] = ",".join(value) if isinstance(value, list) else value
    if INTERNAL_SEGMENT_BYTES in overrides:
        values["segment_bytes"] = TOPIC_KEYS[INTERNAL_SEGMENT_BYTES].parse(overrides[INTERNAL_SEGMENT_BYTES])
    return LogConfig(**values)
