"""What a node of several has beside a lone broker: ways to the others, and how its broker joins and leaves them.

A node opens its controllers' listener first: no leader is elected before the voters reach each other. Then its replica follows the
metadata log; its broker registers, catches up, is unfenced, and only then lets clients in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.formatting import random_uuid
from ottla.broker.lifecycle import Lifecycle
from ottla.broker.metadata.active_controller import ActiveController
from ottla.broker.metadata.neighbours import Evidence, MetadataHome, NoEvidence, WhileActive
from ottla.broker.metadata.publisher import Publisher
from ottla.broker.metadata.remote import RemoteController
from ottla.broker.peers.callers import Callers
from ottla.broker.peers.controller_calls import ControllerCalls
from ottla.broker.peers.controller_channel import ControllerChannel
from ottla.broker.peers.controller_enrolment import ControllerEnrolment
from ottla.broker.peers.directory_reports import DirectoryReports
from ottla.broker.peers.failing_brokers import FailingBrokers
from ottla.broker.peers.isr_requests import IsrRequests
from ottla.broker.peers.peers import Address, Peers, SetUp
from ottla.broker.peers.replica_fetchers import ReplicaFetchers
from ottla.broker.peers.sentinels import Sentinels
from ottla.broker.peers.voters import Voters
from ottla.broker.replicas.replication import Replication
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.requests.forwarding import Forwarding
from ottla.broker.requests.gatekeeper import Gatekeeper
from ottla.broker.requests.listeners import advertised_controller
from ottla.broker.requests.router import Router
from ottla.broker.roles import NodeRoles, Role
from ottla.broker.tasks import eager
from ottla.config import BrokerConfig
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet
from ottla.controller.features import FEATURES
from ottla.errors import KafkaError
from ottla.loggers import get_logger
from ottla.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import BrokerImage, ClusterImage, ControllerImage
from ottla.ports import World
from ottla.storage.directory.predecessors import Predecessors
from ottla.types import uuid_bytes
from ottla.wire.schema import ZERO_UUID

log = get_logger(__name__)

ASK_MS_MAX: Final = 5_000
"""How long a controller may be silent before its connection is given up, where it answers at once."""


class AmongOthers:
    """Made before the replica, which needs the way to the voters; ``connect`` needs all the rest."""

    def __init__(self, world: World, config: BrokerConfig, roles: NodeRoles, cluster_id: str) -> None:
        self._world = world
        self._config = config
        self._roles = roles
        self._cluster_id = cluster_id
        timeout_ms: int = config["controller.quorum.request.timeout.ms"]
        node, set_up = f"node-{config.node_id}", SetUp.of(config)
        self._quorum_peers = Peers(world, f"{node}-quorum", silence_ms_max=2 * timeout_ms, set_up=set_up)
        self._controller_peers = Peers(world, f"{node}-broker", silence_ms_max=ASK_MS_MAX, set_up=set_up)
        self._deciding_peers = Peers(world, f"{node}-forward", silence_ms_max=config["request.timeout.ms"], set_up=set_up)
        sees = config["ottla.failure.detection"] == "connections"
        self.voters = Voters(world, roles.voters, self._quorum_peers, client_id=f"{node}-quorum", is_probing=sees)
        self._sentinels: Sentinels | None = None
        self._replication: Replication | None = None
        self.failing = FailingBrokers(world)
        self.callers = Callers(self._calls)
        self._incarnation_id = b""  # none before it joins
        self._fetchers: ReplicaFetchers | None = None
        self._isr_requests: IsrRequests | None = None
        self._reports: DirectoryReports | None = None
        self._failed_directories: Callable[[], list[bytes]] = list
        if sees and roles.is_controller:
            self._sentinels = Sentinels(world, config.node_id, self._between_brokers, self.callers)
            self._sentinels.on_ended, self._sentinels.on_answered = self.failing.doubt, self.failing.trust
        self._gate: Gatekeeper
        self._controller_calls = ControllerCalls(world, config.node_id, () if roles.is_controller or not sees else roles.voters.values())
        self._channel: ControllerChannel
        self._deciding: ControllerChannel  # for what a controller may need long for: answers on one connection wait for each other
        self._replica: MetadataHome
        self._lifecycle: Lifecycle | None = None
        self._enrolment: ControllerEnrolment | None = None

    def _calls(self, node_id: int) -> bool:
        """Whether the node, as a controller, watches the broker here."""
        return self._roles.is_broker and node_id in self._roles.voters

    @property
    def evidence(self) -> Evidence:
        """What this node sees of other brokers' processes."""
        return NoEvidence() if self._sentinels is None else self._sentinels

    def follow(self, image: ClusterImage) -> None:
        """Brokers come and go, and move; this process leads nothing before it is one of them."""
        own = image.brokers.get(self._config.node_id)
        if self._replication is not None:
            self._replication.may_lead = own is not None and own.incarnation_id == self._incarnation_id
            self._replication.brokers_changed()
        if self._sentinels is not None:
            self._sentinels.follow(image)
        if self._fetchers is not None:
            self._fetchers.follow_image(image)
        if self._enrolment is not None:
            self._enrolment.follow(image)

    def configure(self) -> None:
        """The broker's configuration has changed."""
        if self._fetchers is not None:
            self._fetchers.configure()

    def followed(self, delta: ImageDelta) -> None:
        """What this broker has of the newer image is open."""
        self.failing.follow(delta)
        if self._reports is not None:
            self._reports.follow(delta)

    def directory_failed(self) -> None:
        """The controller is to hear of it, and need not wait for the next heartbeat."""
        if self._lifecycle is not None:
            self._lifecycle.beat_soon()

    def replicate(self, partitions: PartitionStore, controller: ActiveController) -> None:
        """Partitions that others lead are fetched, and leaders here ask for the ISRs that they find."""

        def may_join(node: int, epoch: int) -> bool:
            broker = controller.image.brokers.get(node)
            return broker is not None and not broker.is_fenced and not broker.in_controlled_shutdown and epoch in (-1, broker.broker_epoch)

        def is_live(node: int) -> bool:
            broker = controller.image.brokers.get(node)
            return broker is not None and not broker.is_fenced

        shared, listener = partitions.replication, self._between_brokers
        self._replication = shared
        self._failed_directories = lambda: partitions.failed_directories
        self._reports = reports = DirectoryReports(
            self._world, self._config.node_id, self._channel, partitions, lambda: controller.image, lambda: self.broker_epoch
        )
        partitions.on_partition_failed = reports.look_soon
        partitions.on_relocated = lambda partition: reports.look_soon((partition.topic,))
        shared.may_lead = False
        self._fetchers = ReplicaFetchers(self._world, self._config, listener, lambda: self.broker_epoch, self.failing, partitions)
        self._isr_requests = IsrRequests(self._world, shared, self._channel, lambda: self.broker_epoch, partitions.all)
        shared.may_join, shared.is_live, shared.on_following = may_join, is_live, self._fetchers.follow
        self._isr_requests.start()

    @property
    def _between_brokers(self) -> str | None:
        """The listener on which brokers reach each other; None for the first of each."""
        name: str | None = self._config["inter.broker.listener.name"]
        return name.upper() if name else None

    @property
    def settings(self) -> QuorumSettings:
        """This node's place in the quorum."""
        config = self._config
        return QuorumSettings(
            config.node_id,
            VoterSet(dict.fromkeys(self._roles.voters, ZERO_UUID)),
            cluster_id=self._cluster_id,
            fetch_timeout_ms=config["controller.quorum.fetch.timeout.ms"],
            election_timeout_ms=config["controller.quorum.election.timeout.ms"],
            election_backoff_max_ms=config["controller.quorum.election.backoff.max.ms"],
            request_timeout_ms=config["controller.quorum.request.timeout.ms"],
            retry_backoff_ms=config["controller.quorum.retry.backoff.ms"],
            fetch_bytes_max=config["controller.quorum.fetch.max.bytes"],
            piece_bytes_max=config["controller.quorum.fetch.snapshot.max.bytes"],
            seed=self._world.random.getrandbits(63),
        )

    def connect(
        self, replica: MetadataHome, controller: ActiveController, publisher: Publisher, at_work: Sequence[WhileActive], router: Router
    ) -> None:
        """The parts know each other: what this node's controller must not decide goes to the one that may.

        ``at_work`` begin when this node's controller is active, and end when it is not any more.
        """

        def activated() -> None:
            for part in at_work:
                part.begin()
            eager.run(controller.activate(), _activated)

        def deactivated() -> None:
            for part in at_work:
                part.end()

        def has_new_controller() -> None:
            self._channel.on_controller()
            self._deciding.on_controller()
            if self._lifecycle is not None:
                self._lifecycle.beat_soon()

        self._replica = replica
        self._channel = ControllerChannel(self._world, self.leader_address, self._controller_peers)
        self._deciding = ControllerChannel(self._world, self.leader_address, self._deciding_peers)
        controller.on_controller = has_new_controller
        controller.replicates = True
        controller.remote = RemoteController(self._deciding, self._config.node_id)
        controller.on_activated, controller.on_deactivated = activated, deactivated
        self.failing.on_held, self.failing.on_released = router.end_work, router.begin_work
        router.forward = Forwarding(self._deciding, publisher.reached, wait_ms_max=self._config["request.timeout.ms"]).forward
        router.is_active = lambda: controller.is_active

    def prepare(self, gate: Gatekeeper, router: Router, own: Callable[[], BrokerImage]) -> None:
        """The ports are bound: the other nodes may ask this one. ``own`` is the broker that will join."""
        self._gate = gate
        gate.open(Role.CONTROLLER)
        if self._roles.is_controller:
            ends = {end.listener: end for end in advertised_controller(self._config, gate.addresses)}
            incarnation = uuid_bytes(random_uuid(self._world))
            self._enrolment = ControllerEnrolment(self._channel, ControllerImage(self._config.node_id, incarnation, ends, FEATURES))

    def joined(self, router: Router) -> None:
        """Clients are about to be let in."""

    def leader_address(self) -> Address | None:
        """Where the active controller is asked."""
        return self.voters.address_of(self._replica.leader_id)

    async def join(self, own: BrokerImage, before: Predecessors, controller: ActiveController, publisher: Publisher) -> None:
        """The broker is one of the cluster, and may serve. KafkaError when it is refused.

        ``before`` are the processes of which the log directories have everything.
        """
        self._incarnation_id = own.incarnation_id
        request = BrokerRegistrationRequest(
            broker_id=own.broker_id,
            cluster_id=self._cluster_id,
            incarnation_id=own.incarnation_id,
            listeners=[Listener(end.listener, end.host, end.port, end.security_protocol) for end in own.endpoints.values()],
            features=[Feature(name, low, high) for name, (low, high) in sorted(own.features.items())],
            rack=own.rack,
            log_dirs=list(own.directories),
            previous_broker_epoch=before.broker_epoch,
            previous_incarnations=list(before.incarnations),
        )
        remote = controller.remote
        assert remote is not None, "the parts are connected"
        self._lifecycle = Lifecycle(self._world, self._config, self._channel, publisher, request)
        self._lifecycle.on_failed, reports = controller.on_failed, self._reports
        self._lifecycle.failed_directories = self._failed_directories
        self._lifecycle.on_duplicate = lambda: self._gate.say_who(own.incarnation_id)

        def registered(epoch: int) -> None:
            remote.registered(epoch)
            self._controller_calls.start()
            if reports is not None:
                reports.start()

        self._lifecycle.on_registered = registered
        await self._lifecycle.join()

    def awaited(self) -> str | None:
        """What this node waits for, to serve or to have anything changed; None when it waits for nothing."""
        leader_id, lifecycle = self._replica.leader_id, self._lifecycle
        if self._replica.is_electing:
            return self._awaited_controller()
        if lifecycle is None:
            return None
        if lifecycle.broker_epoch < 0:
            return f"controller {leader_id} to register this broker" + (f": {lifecycle.refusal}" if lifecycle.refusal else "")
        return f"controller {leader_id} to unfence this broker, whose epoch is {lifecycle.broker_epoch}" if lifecycle.is_fenced else None

    def _awaited_controller(self) -> str:
        voters = ", ".join(f"{voter}@{host}:{port}" for voter, (host, port) in sorted(self._roles.voters.items()))
        return f"a majority of the controllers to elect a leader ({voters}); that needs {len(self._roles.voters) // 2 + 1} of them"

    @property
    def broker_epoch(self) -> int:
        """By which the controller knows this process; -1 when it never registered a broker."""
        return -1 if self._lifecycle is None else self._lifecycle.broker_epoch

    async def leave(self) -> None:
        """Others lead what this broker led, where there are others."""
        if self._lifecycle is not None:
            await self._lifecycle.leave()

    def stop_replicating(self) -> None:
        """Nothing is fetched any more, and no ISR asked for: the logs are about to be closed."""
        if self._fetchers is not None:
            self._fetchers.close()
        if self._isr_requests is not None:
            self._isr_requests.stop()
        if self._reports is not None:
            self._reports.stop()

    def close(self) -> None:
        if self._enrolment is not None:
            self._enrolment.close()
        if self._sentinels is not None:
            self._sentinels.close()
        self._controller_calls.close()
        self._controller_peers.close()
        self._deciding_peers.close()
        self._quorum_peers.close()


def _activated(_: None, error: BaseException | None) -> None:
    if isinstance(error, KafkaError):  # it was not for long
        log.info("controller_not_activated", reason=error.message)
    elif error is not None:
        log.error("controller_not_activated", exc_info=error)
