"""A broker: opened, started, stopped.

Start: log directories, metadata log, partitions opened and recovered, coordinators loaded, listeners bound, this broker
registered, connections accepted. Stop: no new connections, logs synced, the clean-shutdown mark written. A crash is a stop
without all of that, and recovery at the next start makes up for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators.groups import GroupShards
from ottla.broker.handlers import SERVICES
from ottla.broker.log_directories import LogDirectories
from ottla.broker.metadata.active_controller import ActiveController
from ottla.broker.metadata.leader_upkeep import LeaderUpkeep
from ottla.broker.metadata.log_limits import LogLimits
from ottla.broker.metadata.membership import Membership
from ottla.broker.metadata.neighbours import MetadataHome, NoEvidence
from ottla.broker.metadata.no_peers import NoPeers
from ottla.broker.metadata.publisher import Publisher
from ottla.broker.metadata.replica import MetadataReplica
from ottla.broker.parts import Parts
from ottla.broker.peers.callers import Callers
from ottla.broker.peers.failing_brokers import FailingBrokers
from ottla.broker.peers.finding_voters import find_voters
from ottla.broker.replicas.early_requests import EarlyRequests
from ottla.broker.replicas.full_directories import FullDirectories
from ottla.broker.replicas.leadership import Leadership
from ottla.broker.replicas.mover import ReplicaMover
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.requests.gatekeeper import Gatekeeper
from ottla.broker.requests.listeners import advertised, advertised_controller, controller_listeners, listeners
from ottla.broker.requests.parking import Parking
from ottla.broker.requests.router import Router
from ottla.broker.requests.throttling import Throttling
from ottla.broker.roles import NodeRoles, read_roles
from ottla.broker.status import Status
from ottla.broker.tasks import eager
from ottla.broker.tasks.waits import Waits
from ottla.broker.upkeep.cleaner import LogCleaner
from ottla.broker.upkeep.housekeeping import Housekeeping
from ottla.broker.upkeep.scrubber import Scrubber
from ottla.config import BrokerConfig
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet
from ottla.controller.features import FEATURES
from ottla.errors import StorageError
from ottla.loggers import get_logger
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.ports import World
from ottla.records.kernel import FORM
from ottla.replication.fetch_sessions import FetchSessions
from ottla.storage.directory.directory import LogDirectory
from ottla.types import uuid_bytes
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.among_others import AmongOthers
    from ottla.broker.zookeeper.among import AmongZookeeper

log = get_logger(__name__)


class Broker:
    """One node of a cluster, of one at least: it makes the parts, and alone knows them all. What handlers may touch is in ``parts``."""

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
            request_bytes_max=config["queued.max.request.bytes"],
        )
        self.gate = self.router.doorkeeper = Gatekeeper(world, config, self.router)
        self.parts: Parts  # all that follows is there once the log directories are open
        self.partitions: PartitionStore
        self.controller: ActiveController
        self.groups: GroupShards
        self.housekeeping: Housekeeping
        self._metadata: MetadataHome
        self._publisher: Publisher
        self._roles: NodeRoles
        self._others: AmongOthers | None = None  # for a node of several
        self._zookeeper: AmongZookeeper | None = None  # the same, where the controller is elected in ZooKeeper
        self._leadership: Leadership
        self._leader_upkeep: LeaderUpkeep
        self._cleaner: LogCleaner
        self._scrubber: Scrubber
        self.mover: ReplicaMover
        self._parking = Parking(world)
        self._full: FullDirectories
        self._waits = Waits(world)
        self.directories: LogDirectories
        self.failure: str | None = None  # why the broker cannot go on
        self.on_failure: Callable[[], None] = lambda: None

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def cluster_id(self) -> str:
        return self.directories.opened[0].identity.cluster_id

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
        self._roles = read_roles(config)
        if self._roles.is_broker:
            listeners(config)
        controller_listeners(config)  # before anything is touched: what would protect nothing is refused
        if not self._roles.is_lone:
            self._waits.begin()
        if self._roles.is_in_zookeeper:
            self._waits.what = lambda: f"ZooKeeper at {config['zookeeper.connect']} to answer"
            self._zookeeper = await _among_zookeeper(self.world, config, self._roles)
            self.node_id = config.node_id  # it may have been generated
        cluster_id = config["cluster.id"] if self._zookeeper is None else self._zookeeper.home.cluster_id
        self.directories = await LogDirectories.open(self.world, config, self._roles, cluster_id)
        if self._roles.bootstrap:
            self._waits.what = lambda: f"one of controller.quorum.bootstrap.servers to name the voters: {self._roles.bootstrap}"
            found = await find_voters(self.world, self._roles.bootstrap, f"node-{self.node_id}-finding")
            self._roles = replace(self._roles, voters=found)
        await self._make_parts()
        if self._others is None:
            await self._start_alone()
        else:
            await self._start_among(self._others)
        self.housekeeping.start()
        self._cleaner.start()
        self._scrubber.start()
        self.mover.start()
        self.gate.open()
        log.info("broker_started", node_id=self.node_id, cluster_id=self.cluster_id, listeners=self.addresses, record_kernel=FORM)

    async def _start_alone(self) -> None:
        """This node decides for itself, and is never fenced."""
        self._metadata.start()
        await self.controller.active()
        await self._publisher.catch_up()
        await self.partitions.set_strays_aside()
        await self._bind()
        await self.controller.activate()
        await self.controller.register_broker(self._own_registration())
        self.parts.membership.begin(is_own_silent=True)  # of brokers that joined this one when they could, if there are any
        self._leader_upkeep.begin(is_lone=True)
        await self._leadership.start()

    async def _start_among(self, others: AmongOthers) -> None:
        """This node is one of several: the voters elect a leader, and its broker joins the cluster."""
        for name, reason in () if self._roles.is_in_zookeeper else self.config.contradictions():
            log.warning("config_contradiction", key=name, reason=reason)
        await self._bind()
        self._waits.what = others.awaited
        others.prepare(self.gate, self.router, self._own_registration)
        self._metadata.start()
        if self._roles.is_broker:
            own, directories = self._own_registration(), self.directories
            await directories.mark_running(own.incarnation_id)
            await self._unless_failed(others.join(own, directories.predecessors, self.controller, self._publisher))
            await directories.mark_running(own.incarnation_id, others.broker_epoch)
            await self.partitions.set_strays_aside()
        others.joined(self.router)

    async def _unless_failed(self, joining: Coroutine[Any, Any, None]) -> None:
        """What has made the node fail meanwhile is raised."""
        task, failed = asyncio.create_task(joining), asyncio.create_task(self.controller.failed())
        try:
            await asyncio.wait({task, failed}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            else:
                failed.result()
        finally:
            task.cancel()
            failed.cancel()

    async def _bind(self) -> None:
        own = listeners(self.config) if self._roles.is_broker else []
        controllers = controller_listeners(self.config) if self._roles.is_controller else []
        await self.gate.bind([*own, *controllers])
        self.parts.controller_endpoints = advertised_controller(self.config, self.addresses)

    async def _make_parts(self) -> None:
        config, world, first = self.config, self.world, self.directories.opened[0]
        others = self._zookeeper or (None if self._roles.is_lone else _among_others(world, config, self._roles, self.cluster_id))
        self._others, zookeeper = others, self._zookeeper
        self._metadata = await self._open_replica(first) if zookeeper is None else zookeeper.home
        self._publisher = Publisher(lambda: self._metadata.image, self._follow)
        self.partitions = PartitionStore(
            world, config, self.node_id, self.directories.of_replicas, has_offline_folders=self.directories.has_offline
        )
        self.controller = self._metadata.follower = ActiveController(world, config, self._metadata, self._publisher)
        self.controller.on_failed = self._on_metadata_failed
        evidence = others.evidence if others else NoEvidence()
        if zookeeper is None:
            membership = Membership(world, config, self.controller, self.cluster_id, evidence)
        else:
            membership = zookeeper.membership(self.controller)
        self._leader_upkeep = LeaderUpkeep(world, config, self.controller, evidence)
        if others is not None:
            others.connect(self._metadata, self.controller, self._publisher, (membership, self._leader_upkeep), self.router)
            if self._roles.is_broker:
                others.replicate(self.partitions, self.controller)
        self.groups = GroupShards(world, config, self.controller)
        self._leadership = Leadership(world.timers, self.node_id, self.partitions.is_offline, self.controller.decide)
        self.housekeeping = Housekeeping(world, config, self.partitions, self.router, self._retry_offline)
        self._cleaner = LogCleaner(world, config, self.partitions)
        self._scrubber = Scrubber(world, config, self.partitions)
        self.mover = ReplicaMover(world, config, self.partitions)
        self.partitions.on_folder_failed = self._on_folder_failed
        if others is None:
            self.partitions.on_partition_failed = self._leadership.settle_soon
        self.partitions.on_role = self.groups.follow_role
        if isinstance(self._metadata, MetadataReplica):
            self._metadata.log.on_disk_failed = partial(self.partitions.fail_folder, first)
            self._metadata.log.has_reserve(first.room)
        self._full = FullDirectories(world, self.directories.opened, self.partitions.on_partition_failed)
        await self._full.start()
        await self.partitions.scan()
        if self.failure is not None:
            raise StorageError(self.failure)
        self.parts = self.router.parts = Parts(
            world=world,
            config=config,
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            services=SERVICES if zookeeper is None else zookeeper.services,
            controller=self.controller,
            membership=membership,
            voters={} if others is None else self._roles.voters,
            known_controller=(lambda: -1) if zookeeper is None else (lambda: zookeeper.home.leader_id),
            failing=FailingBrokers(world) if others is None else others.failing,
            callers=Callers() if others is None else others.callers,
            partitions=self.partitions,
            early_requests=EarlyRequests(world, self.partitions, lambda: self._metadata.image, is_lone=others is None),
            groups=self.groups,
            mover=self.mover,
            fetch_sessions=FetchSessions(world.random, slot_count=config["max.incremental.fetch.session.cache.slots"]),
            throttling=self.throttling,
            parking=self._parking,
            stage=self.router.burst.stage,
            fetch_bytes_max=config["fetch.max.bytes"],
        )

    async def _open_replica(self, first: LogDirectory) -> MetadataReplica:
        others, alone = self._others, VoterSet({self.node_id: ZERO_UUID})
        settings = others.settings if others else QuorumSettings(self.node_id, alone, cluster_id=self.cluster_id)
        return await MetadataReplica.open(
            self.world,
            first.path,
            replace(settings, shown_directory_id=uuid_bytes(first.identity.directory_id)),
            others.voters if others else NoPeers(),
            clean=first.was_clean,
            limits=LogLimits.of(self.config),
        )

    async def leave(self) -> None:
        """Others have what this broker led, where others can; it is fenced, and still a voter if it was one."""
        if self._others is not None:
            await self._others.leave()

    async def stop(self) -> None:
        """Orderly: others have what this broker led, what was accepted is on disk, and the next start trusts the files."""
        await self.leave()
        log.info("broker_stopping", node_id=self.node_id)
        self._waits.end()
        await self.gate.close()
        await self.housekeeping.stop()
        self._full.stop()
        self._leadership.stop()
        await self._cleaner.stop()
        await self._scrubber.stop()
        await self.mover.stop()
        self._parking.stop()
        self.groups.close()
        for connection in list(self.router.connections):
            connection.transport.close()
        self.parts.membership.end()
        self._leader_upkeep.end()
        await self.controller.close()  # what was decided is carried out before the logs are closed
        if self._others is not None:
            self._others.stop_replicating()
        closed = await self.partitions.close()
        await self._metadata.stop()
        if self._others is not None:
            self._others.close()
        of_replicas = self.directories.of_replicas
        whole = [folder for folder in self.directories.opened if folder in closed or folder not in of_replicas]
        await self.directories.mark_clean(whole, -1 if self._others is None else self._others.broker_epoch)
        await self.directories.unlock()
        log.info("broker_stopped", node_id=self.node_id)

    def _own_registration(self) -> BrokerImage:
        """What this process says of itself. As the only broker it is never fenced, and nobody waits for it to catch up."""
        ends = advertised(self.config, self.addresses)
        return BrokerImage(
            broker_id=self.node_id,
            broker_epoch=self._metadata.draft.end_offset,
            endpoints={end.listener: end for end in ends},
            rack=self.config["broker.rack"],
            is_fenced=False,
            incarnation_id=self.world.random.getrandbits(128).to_bytes(16, "big"),
            features=dict(FEATURES),
            directories=tuple(uuid_bytes(folder.identity.directory_id) for folder in self.directories.of_replicas),
        )

    def _on_metadata_failed(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason
            log.critical("broker_failed", reason=reason)
            self.on_failure()

    def _on_folder_failed(self, folder: LogDirectory) -> None:
        """Without the metadata log nothing can be decided, without any log directory nothing be stored: the broker ends."""
        eager.run(folder.unmark_running(), lambda _, error: None)
        if self._others is not None:
            self._others.directory_failed()
        if folder is self.directories.opened[0] and self._zookeeper is None:
            self.failure = f"the log directory with the metadata log has failed: {folder.path}"
        elif all(folder.is_failed for folder in self.directories.of_replicas):
            self.failure = "all log directories have failed"
        if self.failure is not None:
            log.critical("broker_failed", reason=self.failure)
            self.on_failure()

    async def _retry_offline(self) -> None:
        """Partitions that could not be opened for want of room or of descriptors are tried again."""
        if self.partitions.unopened.retry():
            await self._publisher.repeat()
            self.partitions.on_partition_failed()

    async def _follow(self, delta: ImageDelta) -> None:
        """The controller has committed the newer image: everything here is as it says."""
        image = delta.new
        if self._others is not None:
            self._others.follow(image)
        self.controller.note_brokers(image)
        self._leader_upkeep.follow(delta)
        self.throttling.follow(image)
        self.gate.follow(image)
        own, default = image.broker_configs(str(self.node_id)), image.broker_configs("")
        has_changed = self.config.set_dynamic(own=own, default=default)
        self.partitions.reconfigure(image, has_broker_changed=has_changed)
        if has_changed:
            self.gate.configure()
            if self._others is not None:
                self._others.configure()
        gone = await self.partitions.follow(delta)
        self.parts.early_requests.on_image()
        if self._others is not None:
            self._others.followed(delta)
        if gone:
            self.groups.forget_topics(gone)
            self.housekeeping.clean_up_soon()


def _among_others(world: World, config: BrokerConfig, roles: NodeRoles, cluster_id: str) -> AmongOthers:
    from ottla.broker.among_others import AmongOthers  # a lone broker starts without

    return AmongOthers(world, config, roles, cluster_id)


async def _among_zookeeper(world: World, config: BrokerConfig, roles: NodeRoles) -> AmongZookeeper:
    from ottla.broker.zookeeper.among import AmongZookeeper  # with a quorum a broker starts without

    return await AmongZookeeper.open(world, config, roles)
