"""The log directories of one node: recognised or formatted, locked, and marked as in use by a running process."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Collection, Iterable

from ottla.broker.failure import Failure
from ottla.broker.formatting import check_first_directory, random_uuid
from ottla.broker.part import Part
from ottla.broker.tasks import eager
from ottla.config import BrokerConfig
from ottla.errors import StorageError
from ottla.loggers import get_logger
from ottla.ports import World
from ottla.storage.directory.directory import LOCK_NAME, DirectoryIdentity, LogDirectory, read_identity
from ottla.storage.directory.predecessors import Predecessors
from ottla.storage.disk_errors import SHORTAGE

log = get_logger(__name__)


class LogDirectories(Part):
    """The log directories that could be opened: the metadata log's first, then in the order of ``log.dirs``. Made by ``open``."""

    def __init__(self, world: World, config: BrokerConfig, failure: Failure, *, has_metadata_log: bool, formats_itself: bool) -> None:
        self._world = world
        self._config = config
        self._failure = failure
        self._has_metadata_log = has_metadata_log
        self._formats_itself = formats_itself
        self.opened: list[LogDirectory] = []
        self.has_offline = False
        """Whether the disk of one has failed already."""

    @classmethod
    async def open(
        cls,
        world: World,
        config: BrokerConfig,
        failure: Failure,
        cluster_id: str | None,
        *,
        has_metadata_log: bool = True,
        formats_itself: bool = True,
    ) -> LogDirectories:
        """Opens the log directories for this node alone: all of one cluster, the given one if that is known.

        ``has_metadata_log``: the first one has the metadata log. Only with ``formats_itself`` may one be empty.

        One whose disk fails is left out, but for that which holds the metadata log, and the last one. StorageError says what is wrong,
        and for want of descriptors.
        """
        made = cls(world, config, failure, has_metadata_log=has_metadata_log, formats_itself=formats_itself)
        await check_first_directory(world.disk, config.log_dirs, has_metadata_log=has_metadata_log)
        for path in config.log_dirs:
            try:
                directory = await made._open(path, cluster_id)
            except BlockingIOError as error:
                raise StorageError(f"{path} is in use by another broker ({error.strerror}): stop that one first") from None
            except OSError as error:
                if not made.opened and (has_metadata_log or path == config.log_dirs[-1]):
                    what = "which holds the metadata log" if has_metadata_log else "the last log directory"
                    raise StorageError(f"{path}, {what}, cannot be opened: {error}") from error
                if error.errno in SHORTAGE:  # of this process: the disk is well
                    raise StorageError(f"{path} cannot be opened: {error}") from error
                made.has_offline = True
                log.error("log_dir_failed", directory=path, reason=str(error))
                continue
            cluster_id = directory.identity.cluster_id
            made.opened.append(directory)
        if not made.of_replicas:
            raise StorageError(f"none of the log directories can be opened: {', '.join(config.replica_dirs)}")
        return made

    @property
    def of_replicas(self) -> list[LogDirectory]:
        """The directories for partitions: all, unless the metadata log has one of its own."""
        paths = self._config.replica_dirs
        return [directory for directory in self.opened if directory.path in paths]

    async def _open(self, path: str, cluster_id: str | None) -> LogDirectory:
        disk, node_id = self._world.disk, self._config.node_id
        if not self._formats_itself and await read_identity(disk, path) is None:
            raise StorageError(f"{path} is not formatted: {self._how_to_format(cluster_id)}")
        if not await disk.exists(path):
            await disk.make_dirs(path)
            await disk.sync_dir(posixpath.dirname(path) or ".")
        await disk.lock(_lock_path(path))
        ids = DirectoryIdentity(cluster_id or random_uuid(self._world), node_id, random_uuid(self._world))
        return await LogDirectory.open(disk, path, node_id=node_id, cluster_id=cluster_id, new_ids=ids)

    def _how_to_format(self, cluster_id: str | None) -> str:
        """Returns the way out for the next directory. After the first one only copies are missing; that has the votes of a controller."""
        if self.opened:
            command = f"`ottla storage format FILE --cluster-id {cluster_id} --ignore-formatted`"
            return f"run {command}, where FILE is the node's configuration; its replicas are then fetched from their leaders"
        once = "run `ottla storage format FILE --cluster-id ID` once, with the id that the whole cluster has"
        if "controller" not in (self._config["process.roles"] or ("controller",)):
            return once
        lost = "If it was formatted and is empty now, this controller has forgotten how it voted, and could help to elect a second leader"
        again = "or format it with --replaces-lost-controller while all others run (docs/operating.md, Replace a lost controller)"
        return f"{once}. {lost}: restore it, {again}"

    @property
    def cluster_id(self) -> str:
        return self.opened[0].identity.cluster_id

    def on_directory_failed(self, directory: LogDirectory) -> None:
        """Ends the node when nothing can be decided without the metadata log, or nothing stored without any log directory."""
        eager.run(directory.unmark_running(), lambda _, error: None)
        if self._has_metadata_log and self.opened[0].is_failed:
            self._failure.note(f"the log directory with the metadata log has failed: {self.opened[0].path}")
        elif all(found.is_failed for found in self.of_replicas):
            self._failure.note("all log directories have failed")

    async def absent(self) -> list[LogDirectory]:
        """Returns those that were removed, or whose disks were unmounted, since they were opened."""
        found = []
        for directory in self.opened:
            if not directory.is_failed:
                with contextlib.suppress(OSError):  # a disk that fails shows by what is written there
                    if await directory.is_absent():
                        found.append(directory)
        return found

    @property
    def predecessors(self) -> Predecessors:
        """The processes of which everything is here."""
        if self.has_offline or any(directory.is_failed for directory in self.opened):
            return Predecessors()
        return Predecessors.of_all([directory.predecessors for directory in self.opened])

    async def mark_running(self, incarnation: bytes, broker_epoch: int | None = None) -> None:
        """Marks as ``LogDirectory.mark_running`` does. Of a directory that has failed, or takes no mark, the next process knows nothing."""
        for directory in self.opened:
            if directory.is_failed:
                continue
            try:
                await directory.mark_running(incarnation, broker_epoch)
            except OSError as error:
                log.warning("log_dir_not_marked", directory=directory.path, error=str(error))

    async def mark_clean(self, closed: Iterable[LogDirectory], broker_epoch: int) -> None:
        """Marks as ``LogDirectory.mark_clean`` does. The next start recovers a directory that has failed, or takes no mark."""
        for directory in closed:
            if directory.is_failed:
                continue
            try:
                await directory.mark_clean(broker_epoch)
            except OSError as error:
                log.warning("log_dir_not_marked", directory=directory.path, error=str(error))

    async def release(self, closed: Collection[LogDirectory], broker_epoch: int) -> None:
        """Releases the directories to other processes. In the ``closed`` ones every replica's log was synced."""
        of_replicas = self.of_replicas
        await self.mark_clean([directory for directory in self.opened if directory in closed or directory not in of_replicas], broker_epoch)
        for directory in self.opened:
            await self._world.disk.unlock(_lock_path(directory.path))


def _lock_path(directory: str) -> str:
    return f"{directory}/{LOCK_NAME}"
