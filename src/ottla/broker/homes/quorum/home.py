"""The home of a node of several: a metadata log of which a majority of the voters has everything.

A node opens its controllers' listener first: no leader is elected before the voters reach each other. Then its replica follows the
metadata log; its broker registers, catches up, is unfenced, and only then lets clients in. Source: KIP-595, KIP-631, KIP-853, KIP-919.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.controller.membership import Membership
from ottla.broker.handlers import SERVICES
from ottla.broker.home import Basis, Core, Life
from ottla.broker.homes.lifecycle import Lifecycle
from ottla.broker.homes.links import Links, activate
from ottla.broker.homes.own_broker import fail_together, open_replica, own_broker
from ottla.broker.homes.quorum.awaited import election, followers
from ottla.broker.homes.quorum.controller_enrolment import ControllerEnrolment
from ottla.broker.homes.quorum.directory_reports import DirectoryReports
from ottla.broker.homes.quorum.finding_voters import find_voters
from ottla.broker.liveness.controller_calls import ControllerCalls
from ottla.broker.log_directories import LogDirectories
from ottla.broker.metadata.publisher import Publisher
from ottla.broker.metadata.replica import MetadataReplica
from ottla.broker.metadata.voters import Voters
from ottla.broker.part import Part
from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.peers import Address, Peers, SetUp
from ottla.broker.replicas.early_requests import UNHEARD_MS
from ottla.broker.requests.gate import Forward
from ottla.broker.requests.listeners import advertised_controller, controller_listeners, listeners
from ottla.broker.roles import Role
from ottla.broker.tasks.waits import Waits
from ottla.config import BrokerConfig
from ottla.consensus.quorum import Quorum
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet
from ottla.controller.features import supported_features
from ottla.loggers import get_logger
from ottla.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.metadata.image import BrokerImage, ClusterImage, ControllerImage
from ottla.types import uuid_bytes
from ottla.wire.schema import ZERO_UUID

log = get_logger(__name__)


class QuorumHome:
    """A ``Home``, made by ``open``."""

    def __init__(self, basis: Basis, waits: Waits, directories: LogDirectories, voters: Voters, metadata: MetadataReplica) -> None:
        world, config, roles = basis.world, basis.config, basis.roles
        self._basis = basis
        self.waits = waits
        self.directories = directories
        self.metadata = metadata
        self.services = SERVICES
        self.voters = voters.addresses
        self.ways_to_voters = voters

        def watches_here(node_id: int) -> bool:
            return roles.is_broker and node_id in voters.addresses

        def leader_address() -> Address | None:
            return voters.address_of(metadata.leader_id)

        def deciding_address() -> Address | None:
            return None if metadata.is_electing else leader_address()  # a leader that fell silent stays known until the next one

        sees = _sees(config)
        self.ways = ways = Links(
            world,
            config,
            basis.introductions,
            leader_address,
            deciding_address=deciding_address,
            calls=watches_here,
            watches=sees and roles.is_controller,
        )
        self.to_brokers = ways.to_brokers
        to_controllers = basis.introductions.controllers.over(world)
        called = () if roles.is_controller or not sees else voters.addresses.values()
        self.controller_calls = ControllerCalls(to_controllers, config.node_id, called)

        self.callers, self.failing, self.evidence, self.remote = ways.callers, ways.failing, ways.evidence, ways.remote
        self.links: Sequence[Part] = (voters, ways, self.controller_calls, self.evidence, metadata)
        self.last: Sequence[Part] = (waits,)
        self.replicates = True
        self.unheard_ms = UNHEARD_MS
        self.incarnation_id = world.random.getrandbits(128).to_bytes(16, "big")

    @classmethod
    async def open(cls, basis: Basis) -> QuorumHome:
        """Opens the home. Where ``controller.quorum.bootstrap.servers`` are configured, one of them has named the voters."""
        world, config, roles = basis.world, basis.config, basis.roles
        waits, to_controllers = Waits(world, lambda: None), basis.introductions.controllers.over(world)
        directories = await LogDirectories.open(world, config, basis.failure, config["cluster.id"], formats_itself=roles.formats_itself)
        addresses = roles.voters
        if roles.bootstrap:
            waits.turn_to(lambda: f"one of controller.quorum.bootstrap.servers to name the voters: {roles.bootstrap}")
            addresses = await find_voters(to_controllers, roles.bootstrap, CallerName(f"node-{config.node_id}-finding"))
            waits.turn_to(lambda: None)
        name, timeout_ms = CallerName.of_node(config.node_id, "quorum"), config["controller.quorum.request.timeout.ms"]
        peers = Peers(to_controllers, name, silence_ms_max=2 * timeout_ms, set_up=SetUp.of(config))
        voters = Voters(to_controllers, addresses, peers, name=name, is_probing=_sees(config))
        settings = _settings(basis, directories.cluster_id, addresses)
        return cls(basis, waits, directories, voters, await open_replica(basis, directories, settings, voters))

    @property
    def quorum(self) -> Quorum:
        return self.metadata.quorum

    @property
    def shown_controller_id(self) -> int:
        return -1

    @property
    def knows_no_controller(self) -> bool:
        return False

    def others(self) -> Mapping[int, BrokerImage]:
        return self.metadata.image.brokers

    def is_known(self, image: ClusterImage) -> bool:
        own = image.brokers.get(self._basis.config.node_id)
        return own is not None and own.incarnation_id == self.incarnation_id

    def forward(self, publisher: Publisher) -> Forward:
        return self.ways.forward(publisher)

    def membership(self, controller: ActiveController) -> Membership:
        return Membership(self._basis.world, self._basis.config, controller, self.directories.cluster_id, self.evidence)

    def life(self, core: Core) -> QuorumLife:
        return QuorumLife(self._basis, self, core)


class QuorumLife(Life):
    """The life of a node that is a broker, a controller, or both."""

    def __init__(self, basis: Basis, home: QuorumHome, core: Core) -> None:
        self._basis = basis
        self._home = home
        self._core = core
        fail_together(home.metadata, home.directories, core.partitions)
        self._enrolment = ControllerEnrolment(home.ways.channel, self._own_controller)
        self._reports = DirectoryReports(
            basis.world,
            basis.config.node_id,
            home.ways.channel,
            core.partitions,
            lambda: home.metadata.image,
            lambda: self.broker_epoch,
        )
        self._lifecycle = Lifecycle(
            basis.world,
            basis.config,
            home.ways.channel,
            core.publisher,
            lambda: self._registration,
            on_registered=self._registered,
            on_failed=basis.failure.note,
            on_duplicate=lambda: core.gate.say_who(home.incarnation_id),
            failed_directories=lambda: [
                uuid_bytes(found.identity.directory_id) for found in core.partitions.directories if found.is_failed
            ],
        )
        of_controller: Sequence[Part] = (self._enrolment,) if basis.roles.is_controller else ()
        of_broker: Sequence[Part] = ()
        if basis.roles.is_broker:
            of_broker = (home.failing, *home.ways.replicating(core, lambda: self.broker_epoch), self._reports, self._lifecycle)
        self.replicating = (*of_controller, *of_broker)

    @property
    def broker_epoch(self) -> int:
        return self._lifecycle.broker_epoch

    async def start(self) -> None:
        """Binds the ports, so that the other nodes may ask this one before its replica takes part."""
        basis, core, home = self._basis, self._core, self._home
        for name, reason in basis.config.contradictions():
            log.warning("config_contradiction", key=name, reason=reason)
        own = listeners(basis.config) if basis.roles.is_broker else []
        await core.gate.bind([*own, *(controller_listeners(basis.config) if basis.roles.is_controller else [])])
        home.waits.turn_to(self._awaited)
        core.gate.open(Role.CONTROLLER)
        home.metadata.begin()
        if basis.roles.is_broker:
            await home.directories.mark_running(home.incarnation_id)
            await basis.failure.unless(self._lifecycle.join())
            await home.directories.mark_running(home.incarnation_id, self.broker_epoch)
            await core.partitions.set_strays_aside()

    def on_active(self, epoch: int) -> None:
        activate(self._core)

    async def leave(self) -> None:
        await self._lifecycle.leave()

    def _registered(self, epoch: int) -> None:
        self._home.remote.registered(epoch)
        self._home.controller_calls.registered()
        self._reports.registered()

    def _awaited(self) -> str | None:
        """Returns what this node waits for, to serve or to have anything changed; None when it waits for nothing."""
        metadata, node_id = self._home.metadata, self._basis.config.node_id
        if metadata.is_electing:
            return election(self._home.ways_to_voters, node_id, metadata.last_leader_id)
        registered = self._lifecycle.awaited(metadata.leader_id) if self._basis.roles.is_broker else None
        return followers(metadata.quorum, self._home.voters, node_id) or registered

    def _own_controller(self) -> ControllerImage:
        config, home = self._basis.config, self._home
        ends = {end.listener: end for end in advertised_controller(config, self._core.gate.addresses)}
        return ControllerImage(config.node_id, home.incarnation_id, ends, supported_features(config))

    @cached_property
    def _registration(self) -> BrokerRegistrationRequest:
        """What the broker says of itself, and of the processes of which its log directories have everything."""
        home, before, bound = self._home, self._home.directories.predecessors, self._core.gate.addresses
        epoch = home.metadata.draft.end_offset
        own = own_broker(self._basis.config, home.directories, bound, broker_epoch=epoch, incarnation_id=home.incarnation_id)
        return BrokerRegistrationRequest(
            broker_id=own.broker_id,
            cluster_id=home.directories.cluster_id,
            incarnation_id=own.incarnation_id,
            listeners=[Listener(end.listener, end.host, end.port, end.security_protocol) for end in own.endpoints.values()],
            features=[Feature(name, low, high) for name, (low, high) in sorted(own.features.items())],
            rack=own.rack,
            log_dirs=list(own.directories),
            previous_broker_epoch=before.broker_epoch,
            previous_incarnations=list(before.incarnations),
        )


def _sees(config: BrokerConfig) -> bool:
    return bool(config["ottla.failure.detection"] == "connections")


def _settings(basis: Basis, cluster_id: str, voters: Mapping[int, Address]) -> QuorumSettings:
    """Returns this node's place in the quorum."""
    config = basis.config
    return QuorumSettings(
        config.node_id,
        VoterSet(dict.fromkeys(voters, ZERO_UUID)),
        cluster_id=cluster_id,
        fetch_timeout_ms=config["controller.quorum.fetch.timeout.ms"],
        election_timeout_ms=config["controller.quorum.election.timeout.ms"],
        election_backoff_max_ms=config["controller.quorum.election.backoff.max.ms"],
        request_timeout_ms=config["controller.quorum.request.timeout.ms"],
        retry_backoff_ms=config["controller.quorum.retry.backoff.ms"],
        fetch_bytes_max=config["controller.quorum.fetch.max.bytes"],
        piece_bytes_max=config["controller.quorum.fetch.snapshot.max.bytes"],
        seed=basis.world.random.getrandbits(63),
    )
