"""A broker: opened, started, stopped.

Start: data folders, metadata log, partitions opened and recovered, coordinators loaded, listeners bound, this broker
registered, connections accepted. Stop: no new connections, logs synced, the clean-shutdown mark written. A crash is a stop
without all of that, and recovery at the next start makes up for it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from functools import partial

from ottla.broker.cleaner import LogCleaner
from ottla.broker.context import fail_loudly
from ottla.broker.controller import Controller
from ottla.broker.gatekeeper import Gatekeeper
from ottla.broker.group_shards import GroupShards
from ottla.broker.handlers import SERVICES
from ottla.broker.housekeeping import Housekeeping
from ottla.broker.leadership import Leadership
from ottla.broker.listeners import advertised, advertised_controller, controller_listeners, listeners
from ottla.broker.metadata_log import MetadataLog, has_metadata
from ottla.broker.partitions import PartitionStore
from ottla.broker.replica_mover import ReplicaMover
from ottla.broker.roles import check_roles
from ottla.broker.router import Router, Service
from ottla.broker.scrubber import Scrubber
from ottla.broker.throttling import Throttling
from ottla.config import BrokerConfig
from ottla.controller.features import FEATURES
from ottla.errors import StorageError
from ottla.loggers import get_logger
from ottla.metadata.image import ClusterImage, EndpointImage
from ottla.ports import Random, TimerHandle, World
from ottla.records.kernel import FORM
from ottla.replication.fetch_sessions import FetchSessions
from ottla.replication.purgatory import Purgatory, Waiter
from ottla.storage.directory.directory import DataFolder, FolderIdentity, is_used
from ottla.types import GROUP_METADATA_TOPIC, uuid_text

log = get_logger(__name__)


class Broker:
    """One node of a cluster of one. Everything public is for the handlers and for tests."""

    def __init__(self, world: World, config: BrokerConfig) -> None:
        self.world = world
        self.config = config
        self.node_id = config.node_id
        self.cluster_id = ""
        self.features = FEATURES
        self.services: Mapping[int, Service] = SERVICES
        self.fetch_bytes_max: int = config["fetch.max.bytes"]
        self.throttling = Throttling(world, config)
        self.router = Router(
            self,
            self.services,
            frame_bytes_max=config["socket.request.max.bytes"],
            requests_max=config["queued.max.requests"],
        )
        self.gate = Gatekeeper(world, config, self.router)
        self.fetch_sessions = FetchSessions(world.random, slot_count=config["max.incremental.fetch.session.cache.slots"])
        self.groups = GroupShards(self)
        self.partitions: PartitionStore
        self.controller: Controller
        self._metadata_log: MetadataLog
        self._folders: list[DataFolder] = []
        self._purgatory = Purgatory()
        self._sweep: TimerHandle | None = None
        self.housekeeping = Housekeeping(self)
        self._leadership = Leadership(self)
        self._cleaner = LogCleaner(self)
        self._scrubber = Scrubber(self)
        self.mover = ReplicaMover(self)
        self._has_offline_folders = False
        self.controller_endpoints: list[EndpointImage] = []
        self.failure: str | None = None  # why the broker cannot go on
        self.on_failure: Callable[[], None] = lambda: None

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Each listener's host and port, as bound."""
        return self.gate.addresses

    async def start(self) -> None:
        """Clients are served when this returns. KafkaError or StorageError says what was wrong."""
        config, world = self.config, self.world
        for name, hint in config.unknown.items():
            log.warning("config_unknown", key=name, did_you_mean=hint)
        check_roles(config)
        await self._open_folders()
        first = self._folders[0]
        self.cluster_id = first.identity.cluster_id
        self._metadata_log = await MetadataLog.open(
            world.disk,
            first.path,
            now_ms=world.clock.now_ms(),
            clean=first.was_clean,
            bytes_between_snapshots=config["metadata.log.max.record.bytes.between.snapshots"],
        )
        self.partitions = PartitionStore(world, config, self.node_id, self._folders, has_offline_folders=self._has_offline_folders)
        self.partitions.on_folder_failed = self._on_folder_failed
        self.partitions.on_partition_failed = self._leadership.settle_soon
        self._metadata_log.on_disk_failed = partial(self.partitions.fail_folder, first)
        await self.partitions.scan()
        self.controller = Controller(world, config, self._metadata_log, self._publish)
        await self._follow(self.controller.image)
        await self.partitions.set_strays_aside()
        await self.gate.bind([*listeners(config), *controller_listeners(config)])
        self.controller_endpoints = advertised_controller(config, self.addresses)
        await self.controller.activate()
        await self.controller.register_broker(self.node_id, advertised(config, self.addresses), config["broker.rack"])
        await self._leadership.start()
        self.housekeeping.start()
        self._cleaner.start()
        self._scrubber.start()
        self.mover.start()
        self.gate.open()
        log.info("broker_started", node_id=self.node_id, cluster_id=self.cluster_id, listeners=self.addresses, record_kernel=FORM)

    async def stop(self) -> None:
        """Orderly: what was accepted is on disk, and the next start trusts the files."""
        await self.gate.close()
        await self.housekeeping.stop()
        self._leadership.stop()
        await self._cleaner.stop()
        await self._scrubber.stop()
        await self.mover.stop()
        if self._sweep is not None:
            self._sweep.cancel()
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
        """The data folders are this broker's alone, and all of one cluster. One whose disk fails is left out, but for the first."""
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
        """StorageError when the metadata log must lie in another folder than the first: whatever is missing there would be lost."""
        first, *others = self.config.log_dirs
        if not others or await has_metadata(self.world.disk, first):
            return
        for path in others:
            if await has_metadata(self.world.disk, path):
                where = f"{first}, the first of log.dirs, has no metadata log, and {path} has one"
                raise StorageError(f"{where}: list {path} first; nothing was touched")
        used = [path for path in others if await is_used(self.world.disk, path)]
        if used and not await is_used(self.world.disk, first):
            raise StorageError(
                f"{first}, the first of log.dirs, is empty, and {used[0]} is not: the metadata log is missing. Mount or restore the disk "
                f"of {first}, or take {used[0]} out of log.dirs to begin a new cluster; nothing was touched"
            )

    async def _open_folder(self, path: str, cluster_id: str | None) -> DataFolder:
        disk, random = self.world.disk, self.world.random
        if not await disk.exists(path):
            await disk.make_dirs(path)
            await disk.sync_dir(posixpath.dirname(path))
        await disk.lock(_lock_path(path))
        ids = FolderIdentity(cluster_id or _fresh_id(random), self.node_id, _fresh_id(random))
        return await DataFolder.open(disk, path, node_id=self.node_id, cluster_id=cluster_id, new_ids=ids)

    def _on_folder_failed(self, folder: DataFolder) -> None:
        """Without the metadata log nothing can be decided, without any data folder nothing be stored: the broker ends."""
        if folder is self._folders[0]:
            self.failure = f"the data folder with the metadata log has failed: {folder.path}"
        elif all(folder.is_failed for folder in self._folders):
            self.failure = "all data folders have failed"
        if self.failure is not None:
            log.critical("broker_failed", reason=self.failure)
            self.on_failure()

    def is_controller_listener(self, listener: str) -> bool:
        """Whether those who connect there ask the controller, and not a broker."""
        return any(endpoint.listener == listener for endpoint in self.controller_endpoints)

    def endpoints_for(self, listener: str) -> list[tuple[int, str, int, str | None]]:
        """Id, host, port and rack of each broker, as clients of this listener reach it."""
        return [
            (broker.broker_id, broker.endpoints[listener].host, broker.endpoints[listener].port, broker.rack)
            for broker in self.image.live_brokers
            if listener in broker.endpoints
        ]

    def park(self, waiter: Waiter, wait_ms: int) -> None:
        """``waiter.expire()`` is called after ``wait_ms``, unless it is done by then."""
        deadline_ms = self.world.clock.monotonic_ms() + wait_ms
        if self._purgatory.park(waiter, deadline_ms):
            self._schedule_sweep(deadline_ms)

    @property
    def parked_count(self) -> int:
        """Requests that wait for their deadline or what comes before it."""
        return sum(len(connection.parked) for connection in self.router.connections)

    def unpark(self) -> None:
        """A waiter is done, by its deadline or before."""
        self._purgatory.done_early()

    def _schedule_sweep(self, deadline_ms: int) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        delay_ms = deadline_ms - self.world.clock.monotonic_ms()
        self._sweep = self.world.timers.call_later_ms(max(0, delay_ms), self._on_sweep)

    def _on_sweep(self) -> None:
        self._sweep = None
        for waiter in self._purgatory.expired(self.world.clock.monotonic_ms()):
            try:
                waiter.expire()
            except Exception as error:  # noqa: BLE001 - one waiter's mistake must not leave all others waiting for ever
                fail_loudly("expiry", error)
        deadline_ms = self._purgatory.next_deadline_ms()
        if deadline_ms is not None and self._sweep is None:
            self._schedule_sweep(deadline_ms)

    async def retry_offline(self) -> None:
        """Partitions that could not be opened for want of room or of descriptors are tried again."""
        if self.partitions.retry():
            await self.controller.publish_again()
            self._leadership.settle_soon()

    async def _publish(self, image: ClusterImage) -> None:
        """The controller has committed an image."""
        await self._follow(image)

    async def _follow(self, image: ClusterImage) -> None:
        self.throttling.follow(image)
        self.gate.follow(image)
        own, default = image.broker_configs(str(self.node_id)), image.broker_configs("")
        has_changed = self.config.set_dynamic(own=own, default=default)
        self.partitions.reconfigure(image, has_broker_changed=has_changed)
        if has_changed:
            self.gate.configure()
        self.groups.leave(image)
        opened, gone = await self.partitions.follow(image)
        for partition in opened:
            if partition.topic == GROUP_METADATA_TOPIC:
                await self.groups.open(partition)
        if gone:
            self.groups.forget_topics(gone)
            self.housekeeping.clean_up_soon()


def _lock_path(folder: str) -> str:
    return f"{folder}/.lock"


def _fresh_id(random: Random) -> str:
    return uuid_text(random.getrandbits(128).to_bytes(16, "big"))
