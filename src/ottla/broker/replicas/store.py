"""The partitions that this broker has: opened, created and deleted as the metadata image says.

Each lives in a directory ``topic-index`` of a log directory (``placement.py``). What a start finds and the image does not
name is kept (``found_replicas.py``). A deleted partition is not closed in order: its directory is renamed, which needs no room on disk.

A log directory whose disk fails takes all its partitions offline; the others go on. A partition that could not be opened for want
of room or of descriptors is tried again (``unopened.py``), one that is damaged fetched again (``damaged_replicas.py``).
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Final

from ottla.broker.part import Part
from ottla.broker.replicas.checkpoints import Checkpoints
from ottla.broker.replicas.damaged_replicas import DamagedReplicas
from ottla.broker.replicas.deleted_topics import DeletedTopics
from ottla.broker.replicas.departures import Changes, Departures, moved_away, unique_name
from ottla.broker.replicas.found_replicas import FoundReplicas
from ottla.broker.replicas.missing_replicas import MissingReplica, MissingReplicas
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.placement import Placement
from ottla.broker.replicas.replication import Replication
from ottla.broker.replicas.topic_configs import TopicConfigs
from ottla.broker.replicas.unopened import Unopened
from ottla.broker.tasks.single_flight import SingleFlight
from ottla.broker.tasks.slices import Slices
from ottla.config import BrokerConfig
from ottla.errors import DecodeError, StorageError
from ottla.loggers import get_logger
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metrics import TopicMeters
from ottla.ports import World
from ottla.storage.directory.directory import LogDirectory
from ottla.storage.disk_errors import PASSING, is_disk_at_fault
from ottla.types import TopicPartition, uuid_text

log = get_logger(__name__)
Keep = Callable[[Partition, LogDirectory], None]

SINGLY_MAX: Final = 32
"""Above so many partitions one sync of the file system is cheaper than theirs one by one."""


class PartitionStore(Part):
    """``by_name`` and ``by_id`` hold the same inner dictionaries: partitions of one topic by index. ``node`` follows their roles."""

    def __init__(
        self, world: World, config: BrokerConfig, shared: Replication, directories: list[LogDirectory], node: Part, *, has_offline: bool
    ) -> None:
        self.replication = shared
        self._node = node
        self._world = world
        self._config = config
        self._node_id = node_id = shared.node_id
        self.directories = directories
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self.meters: dict[str, TopicMeters] = {}  # by topic
        self.directory_of: dict[Partition, LogDirectory] = {}
        unique = partial(unique_name, world.random)
        self._found = FoundReplicas(directories, unique, self.fail_directory)
        self._deleted = DeletedTopics()
        self.departures: Final = Departures(unique, self.fail_directory)
        self.role_changes = 0  # how often a partition was led differently, at most
        self._configs = TopicConfigs(config, shared.throttles)
        self._left: dict[Partition, LogDirectory] = {}  # moved ones whose offsets only the checkpoints of their old directory have
        self._checkpoints = SingleFlight(self._write_checkpoints)
        self._offsets = Checkpoints(world, shared.damage)
        self._missing = MissingReplicas(node_id, directories, self._offsets)
        self._damaged = DamagedReplicas(node_id, unique, self.fail_directory, shared.damage, self._missing.pass_over)
        self.interrupted_moves: dict[TopicPartition, LogDirectory] = {}  # found by the scan
        self.placement: Final = Placement()
        self._must_be_found = has_offline  # what is not found while starting is in one of those, and is not created again
        self.unopened: Final = Unopened(node.on_offline)
        self.offline: Final = self.unopened.offline
        self._is_closed = False
        self.closed: list[LogDirectory] = []  # in which ``stop`` has synced and closed every log

    async def scan(self) -> None:
        """Remembers which partition directories exist, and removes what an interrupted deletion left."""
        self.interrupted_moves, failed = await self._found.scan(self._offsets.read)
        self._must_be_found |= bool(failed)
        for directory, error in failed.items():
            self.fail_directory(directory, error)

    async def on_image(self, delta: ImageDelta) -> None:
        """Opens exactly what the newer image gives to this broker, each with its role.

        What is made for it survives a power cut. A partition that cannot be opened, or not be deleted, keeps no other one back.
        """
        slices, image, changes = Slices(self._world.clock), delta.new, delta.changes_at(self._node_id)
        for name, config in self._configs.changed(image):
            for partition in self.by_name.get(name, {}).values():
                partition.configure(config)
        await self._take_roles(changes, slices)
        leaving = [partition async for partition in self._retire(delta.deleted_topics, changes, slices)]
        lying = self._forget_unopened(delta.deleted_topics, changes)
        if leaving or lying:  # first: what a crash leaves in them would count for a later topic of that name
            await self._try_to_write_checkpoints()
        for partition in leaving:
            await partition.stand_still(partial(self._discard, partition))
            await slices.next()
        await self.departures.delete_all(lying)
        for partition in (interrupted := self.unopened.take_interrupted()):
            if self.find(partition.topic, partition.index) is partition:
                partition.fail()  # who waits is to ask again
                await self._give_up(partition, self._open_again)
        changes = self.unopened.with_retried(changes, image, self._node_id)
        is_many = sum(len(numbers) for _, numbers in changes) > SINGLY_MAX
        opened = []
        for topic_image, numbers in changes:
            for index in numbers:
                if (found := await self._open_if_new(image, topic_image, index, is_durable=not is_many)) is not None:
                    opened.append(found)
                await slices.next()
        if is_many and opened:
            await self.make_durable(opened)
        if interrupted:
            self._node.on_offline()  # the controller has them as lost

    async def _take_roles(self, changes: Changes, slices: Slices) -> None:
        """Gives open partitions the roles of the newer image. This comes first: opening others may take long."""
        for topic, numbers in changes:
            for index in numbers:
                partition = self.find(topic.name, index)
                if partition is not None and partition.topic_id == topic.topic_id:
                    partition.take_role(topic.partitions[index])
                    self.role_changes += 1
                    await slices.next()

    async def make_durable(self, partitions: Iterable[Partition]) -> None:
        """Makes all that was written of these durable, by one sync of each directory that they are in."""
        used = {self.directory_of[found] for found in partitions if found in self.directory_of}
        for directory in [live for live in self._live_directories() if live in used]:
            try:
                await self._world.disk.sync_file_system(directory.path)
            except OSError as error:
                log.error("log_dir_not_synced", directory=directory.path, reason=str(error))
                self.fail_directory(directory, error)

    async def lead_nothing(self) -> None:
        """Ends all leading of this process, whatever the image says; requests that wait there are answered."""
        slices = Slices(self._world.clock)
        for partition in self.all():
            partition.take_role_again()
            self.role_changes += 1
            await slices.next()

    def configure(self) -> None:
        self._configs.broker_changed()

    async def set_strays_aside(self) -> None:
        """Renames directories that no topic of the image claimed; they are kept."""
        await self._found.set_aside_unclaimed()
        self._must_be_found = False
        self._missing.end()
        await self.remove_departed()

    async def remove_departed(self) -> None:
        """Removes replicas that are no longer this broker's from its disks, unless one refuses: call it again."""
        if self.departures.has_some:
            await self.departures.remove_deleted(self._live_directories())

    def find(self, topic: str, index: int) -> Partition | None:
        """Returns the partition, if it is open here."""
        return self.by_name.get(topic, {}).get(index)

    def is_offline(self, topic: str, index: int) -> bool:
        """True when this broker's replica could not be opened or has failed since."""
        partition = self.find(topic, index)
        return TopicPartition(topic, index) in self.offline if partition is None else partition.log.is_failed

    @property
    def offline_directory_count(self) -> int:
        """Those that could not be opened are counted, too."""
        return len(self._config.replica_dirs) - len(self._live_directories())

    def all(self) -> list[Partition]:
        return [partition for partitions in self.by_name.values() for partition in partitions.values()]

    def in_directory(self, directory: LogDirectory) -> list[Partition]:
        return [partition for partition in self.all() if self.directory_of[partition] is directory]

    async def relocated(self, partition: Partition, directory: LogDirectory) -> None:
        """Takes note of the partition's move to that directory; what it was copied from is removed."""
        old = self._left[partition] = self.directory_of[partition]
        self.directory_of[partition] = directory
        partition.log.health.on_disk_failed, partition.log.health.room = partial(self.fail_directory, directory), directory.room
        self._node.on_relocated(partition)
        await self.departures.delete(old, partition.key)

    async def write_checkpoints(self) -> None:
        """Writes the recovery-point and log-start checkpoints as of this call, for the next start of this broker."""
        await self._checkpoints()

    async def _try_to_write_checkpoints(self) -> bool:
        try:
            await self.write_checkpoints()
        except StorageError as error:
            log.error("checkpoints_not_written", reason=error.message)
            return False
        return True

    async def _write_checkpoints(self) -> None:
        if self._is_closed:  # the files say how the logs were closed, and the next start believes them
            return
        problem: OSError | None = None
        left = dict(self._left)
        for directory in self._live_directories():
            try:
                unopened = [*self.unopened.lying_in(directory), *self._found.in_directory(directory)]
                logs = {found.key: found.log for found in self.all() if directory in (self.directory_of[found], self._left.get(found))}
                await self._offsets.write(directory, logs, unopened)
            except OSError as error:
                problem = error
                if await directory.is_lost(error):
                    self.fail_directory(directory, error)
        if problem is None:
            self._left = {partition: directory for partition, directory in self._left.items() if left.get(partition) is not directory}
        else:
            raise StorageError(f"checkpoints cannot be written: {problem}") from problem

    async def stop(self) -> None:
        """Syncs and closes every log, and writes the checkpoints. In ``closed`` are the directories in which that succeeded."""
        partitions, slices, closed = self.all(), Slices(self._world.clock), dict[Partition, None]()
        is_many = len(partitions) > SINGLY_MAX
        for partition in partitions:
            if await partition.close(is_durable=not is_many):
                closed[partition] = None
            await slices.next()
        if is_many:
            await self.make_durable(closed)
            for partition in closed:
                partition.log.closed_durably()
        are_offsets_kept = await self._try_to_write_checkpoints()
        self._is_closed = True
        unclosed = [*self.offline.values(), *(self.directory_of[partition] for partition in self.all() if partition not in closed)]
        self.by_name.clear()
        self.by_id.clear()
        self.closed = [directory for directory in self._live_directories() if are_offsets_kept and directory not in unclosed]

    def fail_directory(self, directory: LogDirectory, reason: OSError | str) -> None:
        """Fails a directory whose disk is no longer trusted: its partitions are offline, and nothing is retried until the next start."""
        if directory.is_failed:
            return
        directory.is_failed = True
        log.error("log_dir_failed", directory=directory.path, reason=str(reason))
        for partition in self.in_directory(directory):
            partition.fail()
        self._node.on_directory_failed(directory)

    def _live_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.is_failed]

    async def _open_if_new(self, image: ClusterImage, topic: TopicImage, index: int, *, is_durable: bool) -> Partition | None:
        """Opens the partition, if it is this broker's and was not open; a damaged one makes way for another. None when it is not opened."""
        key, partition = TopicPartition(topic.name, index), topic.partitions[index]
        is_replaceable = self._damaged.is_replaceable(partition)
        is_replaced = is_replaceable and await self._replace(key)
        if self._node_id not in partition.replicas or self.find(topic.name, index) is not None or key in self.offline:
            return None
        found = await self._try_to_open(image, topic, index, is_durable=is_durable)
        if found is None and is_replaceable and await self._replace(key):
            found, is_replaced = await self._try_to_open(image, topic, index, is_durable=is_durable), True
        if is_replaced:
            self._node.on_offline()  # the controller has it as lost
        return found

    async def _replace(self, key: TopicPartition) -> bool:
        """True when the replica was damaged, and its place is free now."""
        partition = self.find(key.topic, key.partition)
        if partition is not None and partition.log.is_failed and not self.directory_of[partition].is_failed:
            await self._give_up(partition, self._keep_damaged)
        if key not in self.offline:
            return False
        if not await self._damaged.make_way(key):
            if self._damaged.has(key):
                self.unopened.look_again(key.topic)
            return False
        del self.offline[key]
        await self._try_to_write_checkpoints()
        return True

    async def _try_to_open(self, image: ClusterImage, topic: TopicImage, index: int, *, is_durable: bool) -> Partition | None:
        """Opens the partition; None when it is offline."""
        key = TopicPartition(topic.name, index)
        directory, reason, may_pass = None, "its log directory is offline", False
        if key in self._found or self.unopened.retried(key) or not self._must_be_found:
            try:
                if self._world.disk.open_files_left() <= 0:
                    raise OSError(errno.EMFILE, "too many open files (ulimit -n)")
                if key not in self._found and not self.unopened.retried(key):
                    self._missing.check(key, topic.partitions[index])
                directory = await self._directory_for(key, uuid_text(topic.topic_id), is_durable=is_durable)
                return await self._open(image, topic, key, directory, is_durable=is_durable)
            except OSError as error:
                reason = str(error)
                if directory is not None and is_disk_at_fault(error):
                    self.fail_directory(directory, error)
                may_pass = error.errno in PASSING
            except (DecodeError, StorageError) as error:
                reason = error.message
                may_pass = directory is None and isinstance(error.__cause__, OSError)  # it is full, or no longer in use
                directory = error.directory if isinstance(error, MissingReplica) else directory
                if directory is not None:
                    self._damaged.note_unopened(key, directory, error)
        if key in self._found:
            self._found.keep(key)
        self.unopened.add(key, directory, reason, may_pass=may_pass)
        log.error("partition_offline", partition=str(key), directory=directory and directory.path, reason=reason)
        return None

    async def _open(
        self, image: ClusterImage, topic: TopicImage, key: TopicPartition, directory: LogDirectory, *, is_durable: bool
    ) -> Partition:
        config = self._configs.for_log(topic.name, image)
        is_clean = directory.was_clean and not self.unopened.was_open(key)
        opened, committed = await self._offsets.open_log(key, directory, config, is_clean=is_clean, is_durable=is_durable)
        opened.producers.may_lack_some |= topic.name in self._deleted
        self.unopened.opened(key)
        opened.health.on_disk_failed, opened.health.room = partial(self.fail_directory, directory), directory.room
        meters = self.meters.setdefault(topic.name, TopicMeters())
        partition = Partition(
            topic.name, topic.topic_id, key.partition, opened, meters=meters, replication=self.replication, high_watermark=committed,
            on_failed=self.unopened.log_failed, on_role=self._node.on_role,
        )  # fmt: skip
        partition.take_role(topic.partitions[key.partition])
        self.role_changes += 1
        partitions = self.by_name.setdefault(topic.name, {})
        partitions[key.partition] = partition
        self.by_id[topic.topic_id] = partitions
        self.directory_of[partition] = directory
        return partition

    async def _directory_for(self, key: TopicPartition, topic_id: str, *, is_durable: bool) -> LogDirectory:
        await self.departures.make_way(key)
        own = self.unopened.retried(key) or await self._found.claim(key, topic_id)
        if own is not None:
            return own
        if key in self._offsets:  # an earlier topic's: a start after a crash must not take them for this one's
            await self.write_checkpoints()
            self._offsets.forget(key)
        used = self.directory_of.values()
        return await self.placement.make(
            key, topic_id, self._live_directories, used, set_aside=self._found.set_aside, on_failed=self.fail_directory,
            is_durable=is_durable,
        )  # fmt: skip

    async def _retire(self, gone: Iterable[TopicImage], changes: Changes, slices: Slices) -> AsyncIterator[Partition]:
        """Yields the open partitions that are no longer this broker's; they are out of use by then."""
        for partition in moved_away(changes, self.by_name, self._node_id):
            del self.by_name[partition.topic][partition.index]
            partition.retire()
            yield partition
        for topic in self._deleted.note(gone):
            self.meters.pop(topic, None)
            self._configs.forget(topic)
            for partition in self.by_name.pop(topic, {}).values():
                self.by_id.pop(partition.topic_id, None)
                partition.retire()
                yield partition
            await slices.next()

    def _forget_unopened(self, gone: Iterable[TopicImage], changes: Changes) -> dict[TopicPartition, LogDirectory]:
        """Forgets what could not be opened and is no longer this broker's; returns where its files are."""
        keys = self.unopened.departed(gone, changes, self._node_id)
        for key in keys:
            self._damaged.forget(key)
        places = {key: self.unopened.forget(key) or self.placement.forget(key) for key in keys}
        return {key: place for key, place in places.items() if place is not None and not place.is_failed}

    async def _give_up(self, partition: Partition, keep: Keep) -> None:
        """Closes the partition and leaves its files where they are: ``keep`` takes note of that."""
        del self.by_name[partition.topic][partition.index]
        partition.retire()
        await partition.stand_still(partial(self._discard, partition, keep))

    async def _discard(self, partition: Partition, keep: Keep | None = None) -> None:
        self._left.pop(partition, None)
        partition.log.let_go()  # a request that still refers to the partition must not keep its descriptors
        directory = self.directory_of.pop(partition)  # not before its appends are held: it may be about to arrive in another one
        if keep is not None:
            keep(partition, directory)
        elif not directory.is_failed:
            await self.departures.delete(directory, partition.key)

    def _keep_damaged(self, partition: Partition, directory: LogDirectory) -> None:
        """Keeps the damaged replica: until it is out of the way nothing is put in its place."""
        self._damaged.note(partition.key, directory)
        self.unopened.add(partition.key, directory, partition.log.health.reason, may_pass=False)

    def _open_again(self, partition: Partition, directory: LogDirectory) -> None:
        self._offsets.keep(partition.key, directory, partition.log)
        self.unopened.closed(partition.key, directory)
