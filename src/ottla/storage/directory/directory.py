"""The log directory of one broker: whose it is, which partitions are in it, and whether it was closed in order.

``meta.properties`` says that a directory is ours and whose. A directory that has files but no such mark of ours is refused and not
touched: it may be Kafka's, or another program's. The mark of a clean stop, ``.kafka_cleanshutdown``, is written as the last thing of
an orderly end and removed as the first thing of a start, durably, so that a crash never finds an old one.

A partition has a directory ``topic-0`` with a file ``partition.metadata`` that names the topic's id. A deleted one is renamed to
``topic-0.<id>-delete`` at once, which is atomic, and removed later; what a crash left of it is removed at the next start. One that
is on its way here from another log directory is ``topic-0.<id>-future``, one that no topic claims ``topic-0.<id>-stray``.

``replica.generation`` counts the moves of a replica between log directories. Of two copies of one partition, which a failing disk
may leave, the one with the higher number counts: it took the records that came after the move.
"""

from __future__ import annotations

import errno
import json
import re
from typing import Final

from msgspec import Struct

from ottla.errors import StorageError
from ottla.ports import Disk
from ottla.storage.directory.predecessors import BootMark, Predecessors
from ottla.storage.directory.room import RESERVE_NAME, Room
from ottla.storage.disk_errors import ABSENT, is_disk_at_fault
from ottla.storage.segment.files import overwrite
from ottla.types import TopicPartition

META_NAME: Final = "meta.properties"
CLEAN_SHUTDOWN_NAME: Final = ".kafka_cleanshutdown"
LOCK_NAME: Final = ".lock"
RUNNING_NAME: Final = ".ottla-running"
PARTITION_METADATA_NAME: Final = "partition.metadata"
GENERATION_NAME: Final = "replica.generation"
FORMAT_VERSION: Final = 1

_MARK: Final = "ottla.format.version"
_DIRECTORY: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_FUTURE: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)\.[0-9a-zA-Z_-]+-future")
_DELETED: Final = re.compile(r".+\.[0-9a-zA-Z_-]+-delete")
_NAME_LENGTH_MAX: Final = 255
_HARMLESS: Final = frozenset({"lost+found", LOCK_NAME})  # found in directories that are otherwise empty
NAMED_IN: Final = "log.dirs of a node, --data of a command"
_LEFT_BEHIND: Final = frozenset({RESERVE_NAME, RUNNING_NAME, CLEAN_SHUTDOWN_NAME})  # what `rm -rf DIR/*` leaves


class DirectoryIdentity(Struct, frozen=True):
    """Whose directory it is."""

    cluster_id: str
    node_id: int
    directory_id: str

    def to_text(self) -> str:
        return (
            f"{_MARK}={FORMAT_VERSION}\ncluster.id={self.cluster_id}\nnode.id={self.node_id}\ndirectory.id={self.directory_id}\nversion=1\n"
        )

    @classmethod
    def from_text(cls, text: str, path: str) -> DirectoryIdentity:
        """Parses the file. StorageError when it is not one of ours."""
        pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
        if _MARK not in pairs:
            raise StorageError(f"{path} belongs to another system (it has no {_MARK}); name an empty directory ({NAMED_IN})")
        if pairs[_MARK] != str(FORMAT_VERSION):
            raise StorageError(f"{path} has {_MARK}={pairs[_MARK]}; this version reads {FORMAT_VERSION}")
        try:
            return cls(pairs["cluster.id"], int(pairs["node.id"]), pairs["directory.id"])
        except (KeyError, ValueError):
            raise StorageError(f"{path} is damaged: it needs cluster.id, node.id and directory.id") from None


class DirectoryAbsent(OSError):
    """The log directory was removed, or its disk unmounted, while this process had it open."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EIO, text)


class AnotherTopics(StorageError):
    """The directory of that partition's name is a replica of another topic, which ``topic_id`` names."""

    def __init__(self, path: str, topic_id: str, wanted: str) -> None:
        super().__init__(f"{path} holds topic id {topic_id}, not {wanted}")
        self.topic_id = topic_id


class LogDirectory:
    """An open log directory. Made by ``open``."""

    __slots__ = ("_disk", "_is_marked", "identity", "is_failed", "path", "predecessors", "room", "was_clean")

    def __init__(self, disk: Disk, path: str, identity: DirectoryIdentity, *, was_clean: bool, predecessors: Predecessors) -> None:
        self._disk: Final = disk
        self._is_marked = False  # as that of a process that runs
        self.path: Final = path
        self.identity: Final = identity
        self.was_clean: Final = was_clean
        """Whether the last one who had it closed it in order."""
        self.predecessors: Final = predecessors
        self.room: Final = Room(disk, path)
        self.is_failed = False  # its disk refused something: nothing in it is served, and it is not marked as clean

    @classmethod
    async def open(cls, disk: Disk, path: str, *, node_id: int, cluster_id: str | None, new_ids: DirectoryIdentity) -> LogDirectory:
        """Opens the directory, created or recognised, and removes its mark of a clean stop.

        ``new_ids`` is what an empty directory gets. StorageError, and nothing is touched, when the directory is not ours, or is
        another node's or another cluster's (``cluster_id`` None: whichever it is).
        """
        await disk.make_dirs(path)
        identity = await read_identity(disk, path)
        if identity is None:
            identity = new_ids
            await disk.write_file_atomic(f"{path}/{META_NAME}", identity.to_text().encode())
        if identity.node_id != node_id:
            raise StorageError(f"{path} belongs to node.id={identity.node_id}, this is node.id={node_id}")
        if cluster_id is not None and identity.cluster_id != cluster_id:
            raise StorageError(f"{path} belongs to cluster {identity.cluster_id}, this is cluster {cluster_id}")
        mark = f"{path}/{CLEAN_SHUTDOWN_NAME}"
        predecessors = Predecessors()
        was_clean = await disk.exists(mark)
        if was_clean:
            predecessors = Predecessors.from_mark(await disk.read_file(mark))
            await disk.remove(mark)
            await disk.sync_dir(path)
        elif await disk.exists(f"{path}/{RUNNING_NAME}"):  # it was killed: if nothing worse has happened, all that it wrote is there
            predecessors = Predecessors.from_mark(await disk.read_file(f"{path}/{RUNNING_NAME}"), place=await _place_of(disk, path))
        return cls(disk, path, identity, was_clean=was_clean, predecessors=predecessors)

    async def mark_clean(self, broker_epoch: int = -1) -> None:
        """Marks a clean stop, so that the next start trusts the files. To be called once every log is closed."""
        text = json.dumps({"version": 0, "brokerEpoch": broker_epoch})
        await self.room.surely(lambda: self._disk.write_file_atomic(f"{self.path}/{CLEAN_SHUTDOWN_NAME}", text.encode()))

    async def mark_running(self, incarnation: bytes, broker_epoch: int | None = None) -> None:
        """Marks the directory with the running process's incarnation: the next process can find out whether only that process has died.

        Once it is registered it has an epoch, and earlier ones no longer count. A registration may be committed while its process
        is killed: it has to be marked before it asks for one, too.
        """
        known = self.predecessors if broker_epoch is None else Predecessors(broker_epoch)
        mark = known.followed_by(incarnation).to_mark(await _place_of(self._disk, self.path))
        await self.room.surely(lambda: self._disk.write_file_atomic(f"{self.path}/{RUNNING_NAME}", mark))
        self._is_marked = True

    async def unmark_running(self) -> None:
        """Removes the mark: the disk has failed, and writes may be lost, though the machine runs on. The disk may refuse this, too."""
        if not self._is_marked:
            return
        try:
            await self._disk.remove(f"{self.path}/{RUNNING_NAME}")
            await self._disk.sync_dir(self.path)
        except OSError:
            pass

    async def is_lost(self, error: OSError) -> bool:
        """True when that error of its own files says that nothing in it can be trusted: its disk is at fault, or it is no longer there."""
        try:
            return is_disk_at_fault(error) or (error.errno in ABSENT and await self.is_absent())
        except OSError as unsaid:
            return is_disk_at_fault(unsaid)

    async def is_absent(self) -> bool:
        """True when the directory was removed or its disk unmounted: neither mark nor lock is there, though another may be in its place.

        Files that are open go on there, and no later process finds what they take.
        """
        return not await self._disk.exists(f"{self.path}/{META_NAME}") and not await self._disk.exists(f"{self.path}/{LOCK_NAME}")

    async def _check_presence(self) -> None:
        if await self.is_absent():
            raise DirectoryAbsent(f"{self.path} is no longer there")

    def partition_path(self, key: TopicPartition) -> str:
        return f"{self.path}/{key}"

    async def partitions(self) -> dict[TopicPartition, str | None]:
        """Returns the partitions whose directories exist, with their topic ids; None where a crash came before the id was written."""
        found: dict[TopicPartition, str | None] = {}
        for name in await self._disk.list_dir(self.path):
            match = _DIRECTORY.fullmatch(name)
            if match and not _DELETED.fullmatch(name) and await self._disk.is_dir(f"{self.path}/{name}"):
                found[TopicPartition(match[1], int(match[2]))] = await self._topic_id(name)
        return found

    async def create_partition(self, key: TopicPartition, topic_id: str, *, is_durable: bool = True) -> str:
        """Creates the partition's directory, durable unless the caller sees to that; AnotherTopics when it exists with another topic id.

        DirectoryAbsent where the log directory is no longer there: its path is not made again.
        """
        path = self.partition_path(key)
        await self._check_presence()
        if await self._disk.exists(path):
            known = await self._topic_id(str(key))
            if known is not None and known != topic_id:
                raise AnotherTopics(path, known, topic_id)
            if known == topic_id:
                return path
        await self._disk.make_dirs(path)
        if is_durable:
            await self._disk.sync_dir(self.path)
            await self._write_topic_id(path, topic_id)
        else:
            await overwrite(self._disk, f"{path}/{PARTITION_METADATA_NAME}", _metadata_text(topic_id))
        return path

    async def create_future(self, key: TopicPartition, topic_id: str, unique: str, *, generation: int) -> str:
        """Creates an empty directory, durably, for a partition that is to move here."""
        path = self._renamed(key, unique, "future")
        await self._check_presence()
        await self._disk.make_dirs(path)
        await self._disk.sync_dir(self.path)
        await self._write_topic_id(path, topic_id)
        await self._write_generation(path, generation)
        return path

    async def generation(self, key: TopicPartition) -> int:
        """Returns how often the replica was moved, as its directory says; 0 where it does not."""
        try:
            return int(await self._disk.read_file(f"{self.partition_path(key)}/{GENERATION_NAME}"))
        except (FileNotFoundError, ValueError):
            return 0

    async def raise_generation(self, key: TopicPartition, generation: int) -> None:
        """Makes the replica here count before any with a lower number, durably."""
        await self._write_generation(self.partition_path(key), generation)

    async def promote(self, key: TopicPartition, future: str) -> str:
        """Gives the directory ``future`` the partition's name, durably: the partition is here now."""
        path = self.partition_path(key)
        await self._disk.rename(future, path)
        await self._disk.sync_dir(self.path)
        return path

    async def remove_futures(self) -> list[TopicPartition]:
        """Deletes what was copied of partitions whose move to this directory was not completed. Returns these partitions."""
        found = [(name, match) for name in await self._disk.list_dir(self.path) if (match := _FUTURE.fullmatch(name))]
        for name, _ in found:
            await self._disk.remove_tree(f"{self.path}/{name}")
        return [TopicPartition(match[1], int(match[2])) for _, match in found]

    async def log_bytes(self, key: TopicPartition) -> int:
        """Returns the size of the partition's log files; -1 where it has none, because it was never opened."""
        path, sizes = self.partition_path(key), []
        for name in await self._disk.list_dir(path) if await self._disk.exists(path) else ():
            if name.endswith(".log"):
                file = await self._disk.open(f"{path}/{name}")
                sizes.append(file.size)
                await file.close()
        return sum(sizes) if sizes else -1

    def _renamed(self, key: TopicPartition, unique: str, kind: str) -> str:
        suffix = f"-{key.partition}.{unique}-{kind}"
        return f"{self.path}/{key.topic[: _NAME_LENGTH_MAX - len(suffix)]}{suffix}"

    async def delete_partition(self, key: TopicPartition, unique: str) -> str | None:
        """Renames the directory of a partition, which no longer exists then. Returns the new path; ``remove_deleted`` removes it.

        None where there was none: an earlier call may have renamed it, and the disk have refused what comes after that.
        """
        return await self._rename(key, unique, "delete")

    async def set_aside(self, key: TopicPartition, unique: str) -> str | None:
        """Renames the replica's directory, which is kept and is no longer a partition. Returns its path, or None as for a deletion."""
        return await self._rename(key, unique, "stray")

    async def _rename(self, key: TopicPartition, unique: str, kind: str) -> str | None:
        renamed = self._renamed(key, unique, kind)
        try:
            await self._disk.rename(self.partition_path(key), renamed)
        except FileNotFoundError:
            return None
        await self._disk.sync_dir(self.path)
        return renamed

    async def remove_deleted(self) -> int:
        """Removes the directories of deleted partitions. Returns how many there were."""
        deleted = [name for name in await self._disk.list_dir(self.path) if _DELETED.fullmatch(name)]
        for name in deleted:
            await self._disk.remove_tree(f"{self.path}/{name}")
        return len(deleted)

    async def _write_topic_id(self, path: str, topic_id: str) -> None:
        await self._disk.write_file_atomic(f"{path}/{PARTITION_METADATA_NAME}", _metadata_text(topic_id))

    async def _write_generation(self, path: str, generation: int) -> None:
        await self._disk.write_file_atomic(f"{path}/{GENERATION_NAME}", f"{generation}\n".encode())

    async def _topic_id(self, name: str) -> str | None:
        return await topic_id_in(self._disk, f"{self.path}/{name}")


async def read_identity(disk: Disk, path: str) -> DirectoryIdentity | None:
    """Returns the directory's owner; None for an empty or absent one. StorageError for other contents, or another system's mark."""
    if not await disk.exists(path):
        return None
    names = [name for name in await disk.list_dir(path) if name not in _HARMLESS]
    meta_path = f"{path}/{META_NAME}"
    if META_NAME in names:
        return DirectoryIdentity.from_text((await disk.read_file(meta_path)).decode(errors="replace"), meta_path)
    others = [name for name in names if name != f"{META_NAME}.tmp"]  # an atomic write that never finished leaves its .tmp
    if others and _LEFT_BEHIND.issuperset(others):
        hidden = ", ".join(sorted(others))
        way_out = "restore them; or, if they shall be lost, remove these, too, and format the directory again"
        raise StorageError(f"{path} has no {META_NAME}, only {hidden}, which a broker left: its other files were removed; {way_out}")
    if others:
        way_out = f"name an empty one ({NAMED_IN}), or mount the disk of {path} if it is not mounted"
        raise StorageError(f"{path} is not empty and has no {META_NAME}: it is not a log directory; {way_out}")
    return None


async def _place_of(disk: Disk, path: str) -> BootMark:
    return BootMark.of(disk.boot_id(), await disk.file_number(f"{path}/{META_NAME}"))


async def topic_id_in(disk: Disk, partition_path: str) -> str | None:
    """Returns the id of the partition's topic, as its directory says; None where it does not."""
    path = f"{partition_path}/{PARTITION_METADATA_NAME}"
    if not await disk.exists(path):
        return None
    for line in (await disk.read_file(path)).decode(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key == "topic_id" and value.strip():
            return value.strip()
    return None


async def is_used(disk: Disk, path: str) -> bool:
    """True when it is a log directory that a broker has had."""
    return await disk.exists(f"{path}/{META_NAME}")


def _metadata_text(topic_id: str) -> bytes:
    return f"version: 0\ntopic_id: {topic_id}\n".encode()
