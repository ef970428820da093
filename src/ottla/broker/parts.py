"""What a handler may touch, as one declared value. The node makes it; nothing else of the broker is within a handler's reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.broker.authorization import AllowAll
from ottla.broker.coordinators.groups import GroupShards
from ottla.broker.metadata.active_controller import ActiveController
from ottla.broker.metadata.membership import Membership
from ottla.broker.peers.callers import Callers
from ottla.broker.peers.failing_brokers import FailingBrokers
from ottla.broker.replicas.early_requests import EarlyRequests
from ottla.broker.replicas.mover import ReplicaMover
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.requests.parking import Parking
from ottla.broker.requests.produce_burst import Staged
from ottla.broker.requests.service import Service
from ottla.broker.requests.throttling import Throttling
from ottla.broker.roles import Role
from ottla.config import BrokerConfig
from ottla.controller.features import FEATURES
from ottla.metadata.image import ClusterImage, EndpointImage
from ottla.ports import World
from ottla.replication.fetch_sessions import FetchSessions


@dataclass(slots=True, kw_only=True)
class Parts:
    """``stage`` hands a produce request to the burst that it came with, which flushes its logs."""

    world: World
    config: BrokerConfig
    node_id: int
    cluster_id: str
    services: Mapping[Role, Mapping[int, Service]]
    features: Mapping[str, tuple[int, int]] = field(default_factory=lambda: FEATURES)
    controller: ActiveController
    membership: Membership
    failing: FailingBrokers
    callers: Callers
    partitions: PartitionStore
    early_requests: EarlyRequests
    groups: GroupShards
    mover: ReplicaMover
    fetch_sessions: FetchSessions
    throttling: Throttling
    authorizer: AllowAll = field(default_factory=AllowAll)
    parking: Parking
    stage: Callable[[Staged], None]
    fetch_bytes_max: int
    controller_endpoints: list[EndpointImage] = field(default_factory=list)
    known_controller: Callable[[], int] = lambda: -1
    voters: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """Where the controllers are, in a cluster of several nodes."""

    @property
    def image(self) -> ClusterImage:
        """The newest committed image of the cluster."""
        return self.controller.image

    @property
    def controller_id(self) -> int:
        """Whom clients may ask what a controller decides: any broker passes it on, and this one does.

        In ZooKeeper mode the controller is a broker like any other, and clients are shown it.
        """
        known = self.known_controller()
        return self.node_id if known < 0 else known

    def endpoints_for(self, listener: str, *, with_just_fenced: bool = False) -> list[tuple[int, str, int, str | None]]:
        """Id, host, port and rack of each broker, as clients of this listener reach it, or reached it until just now."""
        fenced = self.failing.just_fenced if with_just_fenced else []
        return [
            (broker.broker_id, broker.endpoints[listener].host, broker.endpoints[listener].port, broker.rack)
            for broker in [*self.image.live_brokers, *fenced]
            if listener in broker.endpoints
        ]
