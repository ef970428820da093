"""A broker among others in ZooKeeper mode: what is the same as with a quorum, and what is not.

The controller is where its broker is. So brokers' listeners serve what controllers and brokers ask of each other, as Kafka's do in
this mode; until this broker has joined they serve nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.broker.among_others import ASK_MS_MAX, AmongOthers
from ottla.broker.formatting import random_uuid
from ottla.broker.handlers import SERVICES, quorum_calls
from ottla.broker.lifecycle import Lifecycle
from ottla.broker.metadata.active_controller import ActiveController
from ottla.broker.metadata.publisher import Publisher
from ottla.broker.peers.peers import Address, Peers, SetUp
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.gatekeeper import Gatekeeper
from ottla.broker.requests.router import Router
from ottla.broker.requests.service import Service
from ottla.broker.roles import NodeRoles, Role
from ottla.broker.tasks import eager
from ottla.broker.zookeeper.brokers import incarnation
from ottla.broker.zookeeper.directory_events import DirectoryEvents
from ottla.broker.zookeeper.group_registry import GroupRegistry, keep
from ottla.broker.zookeeper.home import ZookeeperHome
from ottla.broker.zookeeper.lost_replicas import LostReplicas
from ottla.broker.zookeeper.membership import ZookeeperMembership
from ottla.broker.zookeeper.node_id import settle_node_id
from ottla.broker.zookeeper.notices import Notices
from ottla.broker.zookeeper.own_address import OwnAddress
from ottla.config import BrokerConfig
from ottla.errors import DecodeError
from ottla.loggers import get_logger
from ottla.messages.api_keys import ApiKey
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.broker_registration import BrokerRegistrationRequest
from ottla.messages.fetch import FetchRequest
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import BrokerImage
from ottla.ports import World
from ottla.storage.directory.predecessors import Predecessors

log = get_logger(__name__)

OF_CONTROLLERS: Final = frozenset(
    {ApiKey.ENVELOPE, ApiKey.ALTER_PARTITION, ApiKey.BROKER_HEARTBEAT, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.FETCH_SNAPSHOT}
)
"""What brokers ask of the controller."""
OF_QUORUMS: Final = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.UNREGISTER_BROKER})
"""What says something about a quorum, or only makes sense with one."""


class AmongZookeeper(AmongOthers):
    """The same, but for where the controller is and how a broker registers."""

    def __init__(self, world: World, config: BrokerConfig, roles: NodeRoles, home: ZookeeperHome, peers: Peers) -> None:
        super().__init__(world, config, roles, home.cluster_id)
        self.home = home
        self._home_peers = peers
        self._own_address = OwnAddress(world, config.node_id)
        self._events: DirectoryEvents | None = None
        self._registry_task: asyncio.Task[None] | None = None
        self._give_up: Callable[[], Any] = lambda: None
        between: dict[int, Service] = {
            **{key: SERVICES[Role.CONTROLLER][key] for key in OF_CONTROLLERS},
            ApiKey.API_VERSIONS: replace(_BROKERS[ApiKey.API_VERSIONS], handle=self._api_versions),
        }
        clients = {key: service for key, service in _BROKERS.items() if key not in OF_QUORUMS}
        fetch = _BROKERS[ApiKey.FETCH]
        self.services: Mapping[Role, Mapping[int, Service]] = {
            Role.BROKER: {**clients, **between, ApiKey.FETCH: replace(fetch, handle=_fetch)},
            Role.CONTROLLER: {},
        }
        """Of a broker that has joined."""
        self._first_services: Mapping[Role, Mapping[int, Service]] = {
            Role.BROKER: {**between, ApiKey.FETCH: replace(fetch, handle=_fetch_metadata)},
            Role.CONTROLLER: {},
        }
        """Before."""

    @classmethod
    async def open(cls, world: World, config: BrokerConfig, roles: NodeRoles) -> AmongZookeeper:
        """There is a session. KafkaError when ZooKeeper cannot be reached."""
        await settle_node_id(world, config)
        peers = Peers(world, f"node-{config.node_id}-metadata", silence_ms_max=ASK_MS_MAX, set_up=SetUp.of(config))
        home = await ZookeeperHome.open(world, config, peers, config["cluster.id"] or random_uuid(world))
        return cls(world, config, roles, home, peers)

    def membership(self, controller: ActiveController) -> ZookeeperMembership:
        """Of this node's controller."""
        notices = Notices(self._world, self._config, controller)
        made = ZookeeperMembership(self._world, self._config, controller, self.home, self.evidence, self._follows)
        controller.absent_brokers = made.absent
        lost = LostReplicas(controller, self._home_peers, self._between_brokers)
        made.on_came = lost.on_came
        self.home.while_active = (
            made.follow_znodes,
            notices.follow_configs,
            notices.follow_deletions,
            notices.follow_reassignments,
            notices.follow_elections,
            lost.follow_events,
        )
        return made

    def _api_versions(self, parts: Any, context: RequestContext, request: ApiVersionsRequest | None) -> Any:
        """Every connection of a broker begins with it."""
        self._own_address.on_client(context.client_id)
        return _BROKERS[ApiKey.API_VERSIONS].handle(parts, context, request)

    def _calls(self, node_id: int) -> bool:
        return True  # every broker may become the controller, and watches the others

    def _follows(self, broker_id: int) -> bool:
        """Whether it is the controller, and connected: of two that see each other's ports closed, the one may still reach the other."""
        address = self.home.leader_address
        return broker_id == self.home.leader_id and address is not None and self._home_peers.is_connected(address)

    def awaited(self) -> str | None:
        if not self.home.session.is_connected:
            return f"ZooKeeper at {self._config['zookeeper.connect']} to answer"
        return super().awaited()

    def _awaited_controller(self) -> str:
        return f"a broker to be elected the controller in ZooKeeper at {self._config['zookeeper.connect']}"

    def leader_address(self) -> Address | None:
        return self.home.leader_address

    def replicate(self, partitions: PartitionStore, controller: ActiveController) -> None:
        super().replicate(partitions, controller)
        self._reports = None  # which tells a controller that keeps what it is told
        self._events = events = DirectoryEvents(self._config.node_id, partitions, lambda: self.home.session, self.home.acl_of)
        partitions.on_partition_failed, partitions.on_relocated = events.look_soon, lambda partition: None
        has_new_controller = controller.on_controller

        def look_again() -> None:
            has_new_controller()
            events.look_soon()

        controller.on_controller = look_again
        self._give_up = lambda: eager.run(partitions.lead_nothing(), _given_up)

    def followed(self, delta: ImageDelta) -> None:
        super().followed(delta)
        if self._events is not None:
            self._events.follow()

    async def join(self, own: BrokerImage, before: Predecessors, controller: ActiveController, publisher: Publisher) -> None:
        """The broker has its znode, has followed the controller, and may serve."""
        remote = controller.remote
        assert remote is not None, "the parts are connected"
        request = BrokerRegistrationRequest(broker_id=own.broker_id)
        lifecycle = self._lifecycle = Lifecycle(self._world, self._config, self._channel, publisher, request, self.home.registration.epoch)
        lifecycle.on_registered, lifecycle.on_failed = remote.registered, controller.on_failed
        if self._events is not None:
            self._events.start()
        await lifecycle.join()

    def joined(self, router: Router) -> None:
        router.serve(self.services)
        if self._config["ottla.zookeeper.group.registry"]:
            registry = GroupRegistry(self._config.node_id, router.parts.groups, self.home.acl_of)
            self._registry_task = asyncio.get_running_loop().create_task(keep(registry, lambda: self.home.session))
            self._registry_task.add_done_callback(_registry_ended)

    def prepare(self, gate: Gatekeeper, router: Router, own: Callable[[], BrokerImage]) -> None:
        """Its listeners are those of controllers, too, and they must be open before it registers."""
        router.serve(self._first_services)
        gate.open()

        def has_epoch(epoch: int) -> None:
            if epoch < 0:
                log.warning("broker_fences_itself", reason="its session has ended")
                self._incarnation_id = b""
                if self._replication is not None:
                    self._replication.may_lead = False
                self._give_up()
            else:
                self._incarnation_id = incarnation(epoch)
            if self._lifecycle is not None:
                self._lifecycle.beat_soon()

        self.home.on_broker_epoch = has_epoch
        registered = own()
        end = registered.endpoints.get(self._between_brokers or "") or next(iter(registered.endpoints.values()))
        self.home.register(registered, lambda: self._own_address.leads_here((end.host, end.port)))

    def stop_replicating(self) -> None:
        super().stop_replicating()
        if self._events is not None:
            self._events.stop()

    def close(self) -> None:
        super().close()
        if self._registry_task is not None:
            self._registry_task.cancel()
        self._home_peers.close()


def _registry_ended(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("group_registry_ended", exc_info=error)


def _given_up(_: None, error: BaseException | None) -> None:
    if error is not None:
        log.error("leaderships_not_given_up", exc_info=error)


def _fetch(parts: Any, context: RequestContext, request: FetchRequest) -> Any:
    """That of the metadata log goes to the controller; any other one is a consumer's, or a follower's."""
    if _is_of_metadata(request):
        return quorum_calls.handle(parts, context, request)
    return SERVICES[Role.BROKER][ApiKey.FETCH].handle(parts, context, request)


def _fetch_metadata(parts: Any, context: RequestContext, request: FetchRequest) -> Any:
    """That of another log ends the connection, as all that is not served yet does: clients come who believe that this broker leads."""
    if not _is_of_metadata(request):
        raise DecodeError("only the metadata log can be fetched yet")
    return quorum_calls.handle(parts, context, request)


def _is_of_metadata(request: FetchRequest) -> bool:
    return bool(request.topics) and request.topics[0].topic_id == METADATA_TOPIC_ID


METADATA_TOPIC_ID: Final = bytes(15) + b"\1"
_BROKERS: Final = SERVICES[Role.BROKER]
