"""The home of a broker in ZooKeeper mode: what is the same as with a quorum, and what is not.

The controller is where its broker is. So brokers' listeners serve what controllers and brokers ask of each other, as Kafka's do in
this mode; until this broker has joined they serve nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.formatting import random_uuid
from ottla.broker.home import Basis, Core, Life
from ottla.broker.homes.lifecycle import Lifecycle
from ottla.broker.homes.links import ASK_MS_MAX, Links, activate
from ottla.broker.homes.own_broker import own_broker
from ottla.broker.homes.zookeeper.brokers import incarnation
from ottla.broker.homes.zookeeper.directory_events import DirectoryEvents
from ottla.broker.homes.zookeeper.group_registry import GroupRegistry, keep
from ottla.broker.homes.zookeeper.lost_replicas import LostReplicas
from ottla.broker.homes.zookeeper.metadata import FoundCluster, WhileActive, ZookeeperMetadata, find_cluster
from ottla.broker.homes.zookeeper.node_id import settle_node_id
from ottla.broker.homes.zookeeper.notices import Notices
from ottla.broker.homes.zookeeper.security_notices import SecurityNotices
from ottla.broker.homes.zookeeper.services import Services
from ottla.broker.homes.zookeeper.written_deletions import WrittenDeletions
from ottla.broker.homes.zookeeper.written_moves import WrittenMoves
from ottla.broker.homes.zookeeper.written_topics import WrittenTopics
from ottla.broker.homes.zookeeper.znode_membership import ZookeeperMembership
from ottla.broker.liveness.own_address import OwnAddress
from ottla.broker.log_directories import LogDirectories
from ottla.broker.metadata.publisher import Publisher
from ottla.broker.part import Part
from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.peers import Address, Peers, SetUp
from ottla.broker.replicas.early_requests import UNHEARD_MS
from ottla.broker.requests.gate import Forward
from ottla.broker.requests.listeners import between_brokers, listeners
from ottla.broker.tasks import eager
from ottla.broker.tasks.waits import Waits
from ottla.loggers import get_logger
from ottla.messages.broker_registration import BrokerRegistrationRequest
from ottla.metadata.image import BrokerImage, ClusterImage

log = get_logger(__name__)


class ZookeeperHome:
    """A ``Home``, made by ``open``."""

    def __init__(self, basis: Basis, waits: Waits, directories: LogDirectories, found: FoundCluster) -> None:
        world, config = basis.world, basis.config
        self._basis = basis
        self.waits = waits
        self.directories = directories
        to_brokers = basis.introductions.brokers.over(world)
        self.peers = Peers(to_brokers, CallerName.of_node(config.node_id, "metadata"), silence_ms_max=ASK_MS_MAX, set_up=SetUp.of(config))
        self.metadata = metadata = ZookeeperMetadata(world, config, found, self.peers, basis.follower)
        self.own_address = OwnAddress(to_brokers, config.node_id)
        self.all_services = Services(self.own_address.on_client, between_brokers(config))
        self.services = self.all_services.of_joined
        self.voters: Mapping[int, Address] = {}

        def leader_address() -> Address | None:
            return metadata.leader_address

        # Every broker may become the controller, and watches the others.
        watches = config["ottla.failure.detection"] == "connections"
        self.ways = ways = Links(world, config, basis.introductions, leader_address, calls=lambda node_id: True, watches=watches)
        self.to_brokers = ways.to_brokers
        self.callers, self.failing, self.evidence, self.remote = ways.callers, ways.failing, ways.evidence, ways.remote
        self.links: Sequence[Part] = (ways, self.evidence, metadata)
        self.last: Sequence[Part] = (waits,)
        self.replicates = True
        self.unheard_ms = UNHEARD_MS
        self.while_active: Sequence[WhileActive] = ()
        self.incarnation_id = b""
        """That of the session in which this broker is registered; none without one."""

    @classmethod
    async def open(cls, basis: Basis) -> ZookeeperHome:
        """Opens a session and settles the broker's id. KafkaError when ZooKeeper cannot be reached."""
        world, config = basis.world, basis.config
        waits = Waits(world, lambda: f"ZooKeeper at {config['zookeeper.connect']} to answer")
        await settle_node_id(world, config)
        found = await find_cluster(world, config, config["cluster.id"] or random_uuid(world))
        directories = await LogDirectories.open(world, config, basis.failure, found.cluster_id, has_metadata_log=False)
        return cls(basis, waits, directories, found)

    @property
    def quorum(self) -> None:
        return None

    @property
    def shown_controller_id(self) -> int:
        return self.metadata.leader_id

    @property
    def knows_no_controller(self) -> bool:
        return self.metadata.leader_id < 0 or not self.metadata.session.is_connected

    def others(self) -> Mapping[int, BrokerImage]:
        return self.metadata.image.brokers

    def is_known(self, image: ClusterImage) -> bool:
        own = image.brokers.get(self._basis.config.node_id)
        return own is not None and own.incarnation_id == self.incarnation_id

    def forward(self, publisher: Publisher) -> Forward:
        return self.ways.forward(publisher)

    def membership(self, controller: ActiveController) -> ZookeeperMembership:
        """Returns this node's controller's membership, with what else is done while that is the active one."""
        world, config = self._basis.world, self._basis.config
        notices = Notices(world, controller)
        security = SecurityNotices(world, controller, config["zookeeper.max.in.flight.requests"])
        topics = WrittenTopics(world, controller, config["zookeeper.max.in.flight.requests"])
        moves = WrittenMoves(controller)
        deletions = WrittenDeletions(config, controller, topics)
        lost = LostReplicas(controller, self.peers, self.ways.listener)
        made = ZookeeperMembership(world, config, controller, self.metadata, self.evidence, self._follows, lost.on_came, deletions)
        self.while_active = (
            made.follow_znodes,
            topics.follow,
            notices.follow_configs,
            deletions.follow,
            moves.follow,
            notices.follow_elections,
            security.follow_literal_acls,
            security.follow_prefixed_acls,
            security.follow_tokens,
            lost.follow_events,
        )
        return made

    def life(self, core: Core) -> ZookeeperLife:
        return ZookeeperLife(self._basis, self, core)

    def _follows(self, broker_id: int) -> bool:
        """True when it is the controller, and connected: of two that see each other's ports closed, the one may still reach the other."""
        address = self.metadata.leader_address
        return broker_id == self.metadata.leader_id and address is not None and self.peers.is_connected(address)


class ZookeeperLife(Life):
    """The life of a broker that is registered for as long as its session lives."""

    def __init__(self, basis: Basis, home: ZookeeperHome, core: Core) -> None:
        self._basis = basis
        self._home = home
        self._core = core
        metadata = home.metadata
        self._events = DirectoryEvents(basis.config.node_id, core.partitions, lambda: metadata.session, metadata.acl_of)
        self._registration = metadata.registration(
            self._own, leads_here=self._leads_here, on_epoch=self._has_epoch
        )  # fmt: skip
        self._lifecycle = Lifecycle(
            basis.world,
            basis.config,
            home.ways.channel,
            core.publisher,
            lambda: BrokerRegistrationRequest(broker_id=basis.config.node_id),
            self._registration.epoch,
            on_registered=home.remote.registered,
            on_failed=basis.failure.note,
        )
        self._registry_task: asyncio.Task[None] | None = None
        self.replicating = (home.failing, *home.ways.replicating(core, lambda: self.broker_epoch), self._events, self._lifecycle)

    @property
    def broker_epoch(self) -> int:
        return self._lifecycle.broker_epoch

    async def start(self) -> None:
        """Opens the listeners, which serve controllers too, before the broker registers."""
        basis, core, home = self._basis, self._core, self._home
        await core.gate.bind(listeners(basis.config))
        home.waits.turn_to(self._awaited)
        core.gate.router.serve(home.all_services.of_joining)
        core.gate.open(knows_users=False)
        home.metadata.begin(self._registration, home.while_active)
        process = basis.world.random.getrandbits(128).to_bytes(16, "big")
        await home.directories.mark_running(process)
        await basis.failure.unless(self._join())
        await home.directories.mark_running(process, self.broker_epoch)
        await core.partitions.set_strays_aside()
        core.gate.router.serve(home.services)
        core.gate.open()
        if basis.config["ottla.zookeeper.group.registry"]:
            registry = GroupRegistry(basis.config.node_id, core.groups, home.metadata.acl_of)
            self._registry_task = asyncio.get_running_loop().create_task(keep(registry, lambda: home.metadata.session))
            self._registry_task.add_done_callback(_registry_ended)

    async def _join(self) -> None:
        """Joins: the broker has its znode, follows the controller, and may serve."""
        self._events.begin()
        await self._lifecycle.join()

    def on_active(self, epoch: int) -> None:
        activate(self._core)

    async def leave(self) -> None:
        await self._lifecycle.leave()

    async def stop(self) -> None:
        if self._registry_task is not None:
            self._registry_task.cancel()

    def _awaited(self) -> str | None:
        """Returns what this node waits for, to serve or to have anything changed; None when it waits for nothing."""
        metadata, servers = self._home.metadata, self._basis.config["zookeeper.connect"]
        if not metadata.session.is_connected:
            return f"ZooKeeper at {servers} to answer"
        if metadata.is_electing:
            return f"a broker to be elected the controller in ZooKeeper at {servers}"
        return self._lifecycle.awaited(metadata.leader_id)

    def _own(self) -> BrokerImage:
        """Returns what the broker says of itself in its znode."""
        home, bound = self._home, self._core.gate.addresses
        return own_broker(self._basis.config, home.directories, bound, broker_epoch=-1, incarnation_id=b"")

    async def _leads_here(self) -> bool:
        """True when this broker's address leads to this process."""
        ends = self._own().endpoints
        end = ends.get(self._home.ways.listener or "") or next(iter(ends.values()))
        return await self._home.own_address.leads_here((end.host, end.port))

    def _has_epoch(self, epoch: int) -> None:
        """Takes the broker's epoch; -1 when its session has ended: then it leads nothing, whatever the image says."""
        if epoch < 0:
            log.warning("broker_fences_itself", reason="its session has ended")
            self._home.incarnation_id = b""
            self._core.partitions.replication.may_lead = False
            eager.run(self._core.partitions.lead_nothing(), _given_up)
        else:
            self._home.incarnation_id = incarnation(epoch)
        self._lifecycle.beat_soon()


def _registry_ended(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("group_registry_ended", exc_info=error)


def _given_up(_: None, error: BaseException | None) -> None:
    if error is not None:
        log.error("leaderships_not_given_up", exc_info=error)
