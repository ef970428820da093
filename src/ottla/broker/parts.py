"""What a handler may touch, as one declared value: these parts, and the home of its node. Nothing else is within its reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from ottla.broker.authorization import Authorizer
from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.controller.membership import Membership
from ottla.broker.coordinators.end_markers import EndMarkers
from ottla.broker.coordinators.groups import GroupShards
from ottla.broker.coordinators.permits import TransactionPermits
from ottla.broker.coordinators.transactions import TransactionShards
from ottla.broker.home import Home
from ottla.broker.replicas.early_requests import EarlyRequests
from ottla.broker.replicas.mover import ReplicaMover
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.requests.gatekeeper import Gatekeeper
from ottla.broker.requests.listeners import advertised_controller
from ottla.broker.requests.parking import Parking
from ottla.broker.requests.produce_burst import Staged
from ottla.broker.requests.stores import TlsStores
from ottla.broker.requests.throttling import Throttling
from ottla.config import BrokerConfig
from ottla.controller.features import supported_features
from ottla.metadata.image import ClusterImage, EndpointImage
from ottla.ports import World
from ottla.replication.fetch_sessions import FetchSessions


class Parts(Struct, frozen=True, kw_only=True):
    """``stage`` hands a produce request to the burst that it came with, which flushes its logs."""

    world: World
    config: BrokerConfig
    home: Home
    controller: ActiveController
    membership: Membership
    partitions: PartitionStore
    early_requests: EarlyRequests
    groups: GroupShards
    transactions: TransactionShards
    permits: TransactionPermits
    end_markers: EndMarkers
    mover: ReplicaMover
    fetch_sessions: FetchSessions
    gate: Gatekeeper
    stores: TlsStores
    throttling: Throttling
    authorizer: Authorizer
    parking: Parking
    stage: Callable[[Staged], None]
    fetch_bytes_max: int

    @property
    def features(self) -> Mapping[str, tuple[int, int]]:
        """Feature name to the levels that this node supports."""
        return supported_features(self.config)

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def cluster_id(self) -> str:
        return self.home.directories.cluster_id

    @property
    def image(self) -> ClusterImage:
        """The newest committed image of the cluster."""
        return self.controller.image

    @property
    def controller_id(self) -> int:
        """Whom clients may ask what a controller decides: any broker passes it on, and this one does.

        In ZooKeeper mode the controller is a broker like any other, and clients are shown it.
        """
        known = self.home.shown_controller_id
        return self.node_id if known < 0 else known

    @property
    def controller_endpoints(self) -> list[EndpointImage]:
        """Where this node's controller is reached; empty without a listener of its own."""
        return advertised_controller(self.config, self.gate.addresses)

    def endpoints_for(self, listener: str, *, with_just_fenced: bool = False) -> list[tuple[int, str, int, str | None]]:
        """Returns id, host, port and rack of each broker, as clients of this listener reach it, or reached it until just now.

        Each broker comes once. One that was fenced just now, as far as this node follows, may serve again in the newest image; Kafka's Java
        client never asks for metadata again after an answer that lists a broker twice.
        """
        listed = {broker.broker_id: broker for broker in self.image.live_brokers}
        for broker in self.home.failing.just_fenced if with_just_fenced else []:
            listed.setdefault(broker.broker_id, broker)
        return [
            (broker.broker_id, broker.endpoints[listener].host, broker.endpoints[listener].port, broker.rack)
            for broker in listed.values()
            if listener in broker.endpoints
        ]
