"""A broker: opened, started, stopped.

Start: log directories, metadata log, partitions opened and recovered, coordinators loaded, listeners bound, this broker
registered, connections accepted. Stop: no new connections, logs synced, the clean-shutdown mark written. A crash is a stop
without all of that, and recovery at the next start makes up for it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import partial

from ottla.broker.coordinators.groups import GroupShards
from ottla.broker.formatting import random_uuid
from ottla.broker.handlers import SERVICES
from ottla.broker.metadata.active_controller import ActiveController
from ottla.broker.metadata.log import MetadataLog, has_metadata
from ottla.broker.parts import Parts
from ottla.broker.replicas.leadership import Leadership
from ottla.broker.replicas.mover import ReplicaMover
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.requests.gatekeeper import Gatekeeper
from ottla.broker.requests.listeners import advertised, advertised_controller, controller_listeners, listeners
from ottla.broker.requests.parking import Parking
from ottla.broker.requests.router import Router
from ottla.broker.requests.throttling import Throttling
from ottla.broker.roles import check_roles
from ottla.broker.status import Status
from ottla.broker.upkeep.cleaner import LogCleaner
from ottla.broker.upkeep.housekeeping import Housekeeping
from ottla.broker.upkeep.scrubber import Scrubber
from ottla.config import BrokerConfig
from ottla.errors import StorageError
from ottla.loggers import get_logger
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import ClusterImage
from ottla.ports import World
from ottla.records.kernel import FORM
from ottla.replication.fetch_sessions import FetchSessions
from ottla.storage.directory.directory import FolderIdentity, LogDirectory, is_used
from ottla.types import GROUP_METADATA_TOPIC

log = get_logger(__name__)


class Broker:
    """One node of a cluster of one: it makes the parts, and alone knows them all. What handlers may touch is in ``parts``."""

    def __init__(self, world: World, config: BrokerConfig) -> None:
        self.world = world
        self.config = config
        self.node_id = config.node_id
        self.throttling = Throttling(world, config)
        self.router = Router(
            world,
            SERVICES,
            self.throttling,
            frame_bytes_max=config["socket.request.max.bytes"],
            requests_max=config["queued.max.requests"],
        )
        self.gate = self.router.doorkeeper = Gatekeeper(world, config, self.router)
        self.parts: Parts  # all that follows is there once the log directories are open
        self.partitions: PartitionStore
        self.controller: ActiveController
        self.groups: GroupShards
        self.housekeeping: Housekeeping
        self._metadata_log: MetadataLog
        self._leadership: Leadership
        self._cleaner: LogCleaner
        self._scrubber: Scrubber
        self.mover: ReplicaMover
        self._parking = Parking(world)
        self._folders: list[LogDirectory] = []
        self._has_offline_folders = False
        self.failure: str | None = None  # why the broker cannot go on
        self.on_failure: Callable[[], None] = lambda: None

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def cluster_id(self) -> str:
        return self._folders[0].identity.cluster_id

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Each listener's host and port, as bound."""
        return self.gate.addresses

    @property
    def status(self) -> Status:
        """For the admin pages, once the broker has started."""
        return Status(self.parts, self.router, self.gate, self.housekeeping)

    async def start(self) -> None:
        """Clients are served when this returns. KafkaError or StorageError says what was wrong."""
        config = self.config
        for name, hint in config.unknown.items():
            log.warning("config_unknown", key=name, did_you_mean=hint)
        check_roles(config)
        await self._open_folders()
        await self._make_parts()
        await self.controller.publish()
        await self.partitions.set_strays_aside()
        await self.gate.bind([*listeners(config), *controller_listeners(config)])
        self.parts.controller_endpoints = advertised_controller(config, self.addresses)
        await self.controller.activate()
        await self.controller.register_broker(self.node_id, advertised(config, self.addresses), config["broker.rack"])
        await self._leadership.start()
        self.housekeeping.start()
        self._cleaner.start()
        self._scrubber.start()
        self.mover.start()
        self.gate.open()
        log.info("broker_started", node_id=self.node_id, cluster_id=self.cluster_id, listeners=self.addresses, record_kernel=FORM)

    async def _make_parts(self) -> None:
        config, world, first = self.config, self.world, self._folders[0]
        self._metadata_log = await MetadataLog.open(
            world.disk,
            first.path,
            now_ms=world.clock.now_ms(),
            clean=first.was_clean,
            bytes_between_snapshots=config["metadata.log.max.record.bytes.between.snapshots"],
        )
        self.partitions = PartitionStore(world, config, self.node_id, self._folders, has_offline_folders=self._has_offline_folders)
        self.controller = ActiveController(world, config, self._metadata_log, self._follow)
        self.groups = GroupShards(world, config, self.controller)
        self._leadership = Leadership(world.timers, self.node_id, self.partitions.is_offline, self.controller.decide)
        self.housekeeping = Housekeeping(world, config, self.partitions, self.router, self._retry_offline)
        self._cleaner = LogCleaner(world, config, self.partitions)
        self._scrubber = Scrubber(world, config, self.partitions)
        self.mover = ReplicaMover(world, config, self.partitions)
        self.partitions.on_folder_failed = self._on_folder_failed
        self.partitions.on_partition_failed = self._leadership.settle_soon
        self._metadata_log.on_disk_failed = partial(self.partitions.fail_folder, first)
        await self.partitions.scan()
        self.parts = self.router.parts = Parts(
            world=world,
            config=config,
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            services=SERVICES,
            controller=self.controller,
            partitions=self.partitions,
            groups=self.groups,
            mover=self.mover,
            fetch_sessions=FetchSessions(world.random, slot_count=config["max.incremental.fetch.session.cache.slots"]),
            throttling=self.throttling,
            parking=self._parking,
            stage=self.router.burst.stage,
            fetch_bytes_max=config["fetch.max.bytes"],
        )

    async def stop(self) -> None:
        """Orderly: what was accepted is on disk, and the next start trusts the files."""
        await self.gate.close()
        await self.housekeeping.stop()
        self._leadership.stop()
        await self._cleaner.stop()
        await self._scrubber.stop()
        await self.mover.stop()
        self._parking.stop()
        self.groups.close()
        for connection in list(self.router.connections):
            connection.transport.close()
        await self.controller.close()  # what was decided is carried out before the logs are closed
        closed = await self.partitions.close()
        await self._metadata_log.close()
        for folder in closed:
            if not folder.is_failed:
                await folder.mark_clean()
        for folder in self._folders:
            await self.world.disk.unlock(_lock_path(folder.path))
        log.info("broker_stopped", node_id=self.node_id)

    async def _open_folders(self) -> None:
        """The log directories are this broker's alone, and all of one cluster. One whose disk fails is left out, but for the first."""
        cluster_id = self.config["cluster.id"]
        await self._check_first_folder()
        for path in self.config.log_dirs:
            try:
                folder = await self._open_folder(path, cluster_id)
            except BlockingIOError:
                raise StorageError(f"{path} is in use by another broker") from None
            except OSError as error:
                if not self._folders:
                    raise StorageError(f"{path}, which holds the metadata log, cannot be opened: {error}") from error
                self._has_offline_folders = True
                log.error("log_dir_failed", folder=path, error=str(error))
                continue
            cluster_id = folder.identity.cluster_id
            self._folders.append(folder)

    async def _check_first_folder(self) -> None:
        """StorageError when the metadata log must lie in another directory than the first: whatever is missing there would be lost."""
        first, *others = self.config.log_dirs
        if not others or await has_metadata(self.world.disk, first):
            return
        for path in others:
            if await has_metadata(self.world.disk, path):
                where = f"{first}, the first of log.dirs, has no metadata log, and {path} has one"
                raise StorageError(f"{where}: list {path} first; nothing was changed")
        used = [path for path in others if await is_used(self.world.disk, path)]
        if used and not await is_used(self.world.disk, first):
            raise StorageError(
                f"{first}, the first of log.dirs, is empty, and {used[0]} is not: the metadata log is missing. Mount or restore the disk "
                f"of {first}, or remove {used[0]} from log.dirs to start a new cluster; nothing was changed"
            )

    async def _open_folder(self, path: str, cluster_id: str | None) -> LogDirectory:
        disk = self.world.disk
        if not await disk.exists(path):
            await disk.make_dirs(path)
            await disk.sync_dir(posixpath.dirname(path))
        await disk.lock(_lock_path(path))
        ids = FolderIdentity(cluster_id or random_uuid(self.world), self.node_id, random_uuid(self.world))
        return await LogDirectory.open(disk, path, node_id=self.node_id, cluster_id=cluster_id, new_ids=ids)

    def _on_folder_failed(self, folder: LogDirectory) -> None:
        """Without the metadata log nothing can be decided, without any log directory nothing be stored: the broker ends."""
        if folder is self._folders[0]:
            self.failure = f"the log directory with the metadata log has failed: {folder.path}"
        elif all(folder.is_failed for folder in self._folders):
            self.failure = "all log directories have failed"
        if self.failure is not None:
            log.critical("broker_failed", reason=self.failure)
            self.on_failure()

    async def _retry_offline(self) -> None:
        """Partitions that could not be opened for want of room or of descriptors are tried again."""
        if self.partitions.retry():
            await self.controller.publish()
            self._leadership.settle_soon()

    async def _follow(self, delta: ImageDelta) -> None:
        """The controller has committed the newer image: everything here is as it says."""
        image = delta.new
        self.throttling.follow(image)
        self.gate.follow(image)
        own, default = image.broker_configs(str(self.node_id)), image.broker_configs("")
        has_changed = self.config.set_dynamic(own=own, default=default)
        self.partitions.reconfigure(image, has_broker_changed=has_changed)
        if has_changed:
            self.gate.configure()
        self.groups.leave(image)
        opened, gone = await self.partitions.follow(delta)
        for partition in opened:
            if partition.topic == GROUP_METADATA_TOPIC:
                await self.groups.open(partition)
        if gone:
            self.groups.forget_topics(gone)
            self.housekeeping.clean_up_soon()


def _lock_path(folder: str) -> str:
    return f"{folder}/.lock"
