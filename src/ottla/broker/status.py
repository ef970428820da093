"""What the admin pages and metrics read of a broker; they change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from ottla.broker.authorization import AclAuthorizer
from ottla.broker.coordinators.groups import GroupShards
from ottla.broker.parts import Parts
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.requests.candidate import Tally
from ottla.broker.requests.gatekeeper import Gatekeeper
from ottla.broker.requests.router import Router
from ottla.broker.upkeep.housekeeping import Housekeeping
from ottla.config import BrokerConfig
from ottla.consensus.quorum import Quorum
from ottla.messages.registry import APIS
from ottla.metadata.image import ClusterImage
from ottla.metrics import RequestMeters
from ottla.ports import World


class Status(Struct, frozen=True):
    """A view: each property is as of the moment in which it is read."""

    parts: Parts
    router: Router
    gate: Gatekeeper
    housekeeping: Housekeeping

    @property
    def node_id(self) -> int:
        return self.parts.node_id

    @property
    def cluster_id(self) -> str:
        return self.parts.cluster_id

    @property
    def image(self) -> ClusterImage:
        return self.parts.image

    @property
    def partitions(self) -> PartitionStore:
        return self.parts.partitions

    @property
    def groups(self) -> GroupShards:
        return self.parts.groups

    @property
    def is_active_controller(self) -> bool:
        return self.parts.controller.is_active

    @property
    def quorum(self) -> Quorum | None:
        """The node's part in the metadata quorum; None where the controller is elected in ZooKeeper."""
        return self.parts.home.quorum

    @property
    def fenced_counts(self) -> Mapping[str, int]:
        """Brokers that this node's controller fenced without their having asked for it, by reason."""
        return self.parts.membership.fenced_counts

    @property
    def false_alarm_count(self) -> int:
        """How many of them turned out to live."""
        return self.parts.membership.false_alarm_count

    @property
    def election_count(self) -> int:
        """Leaders that this node's controller has elected, not counting the first leaders of new partitions."""
        return self.parts.controller.election_count

    @property
    def unclean_election_count(self) -> int:
        """The ones among these that may lack committed records."""
        return self.parts.controller.unclean_election_count

    @property
    def request_meters(self) -> list[tuple[str, RequestMeters]]:
        """Of each API, by its name, in the order of the keys."""
        return [(APIS[key].name, meters) for key, meters in sorted(self.router.meters.items())]

    @property
    def authorization_counts(self) -> tuple[int, int]:
        """How many operations an authorizer has allowed, and how many it has denied, since the start."""
        authorizer = self.parts.authorizer
        return (authorizer.audit.allowed_count, authorizer.audit.denied_count) if isinstance(authorizer, AclAuthorizer) else (0, 0)

    @property
    def is_open(self) -> bool:
        """Whether connections are let in."""
        return self.gate.is_open

    @property
    def is_held(self) -> bool:
        """Whether the broker has so much to do that it reads no requests."""
        return self.router.is_held

    @property
    def working_count(self) -> int:
        """Requests that wait for the disk."""
        return self.router.working_count

    @property
    def parked_count(self) -> int:
        """Requests that wait for their deadline or what comes before it."""
        return sum(len(connection.parked) for connection in self.router.connections)

    @property
    def connection_counts(self) -> Mapping[str, int]:
        """Open connections by listener."""
        return self.gate.connection_counts

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """What became of those who had to show who they are, by listener."""
        return self.gate.threshold.tallies

    @property
    def unauthenticated(self) -> tuple[int, int]:
        """Connections that have not authenticated, and the bytes that they hold."""
        return self.gate.threshold.waiting_count, self.gate.threshold.held_bytes

    @property
    def certificate_seconds(self) -> Mapping[str, float]:
        """For how long the certificate of each listener that speaks TLS is still valid; negative once it is not."""
        now_ms = self.parts.world.clock.now_ms()
        return {name: (ends_ms - now_ms) / 1000 for name, ends_ms in self.gate.certificate_ends_ms.items()}

    @property
    def refused_count(self) -> int:
        """Connections that were closed for a limit."""
        return self.gate.refused_count

    @property
    def loop_delay_ms(self) -> int:
        """How late the last round of housekeeping started."""
        return self.housekeeping.delay_ms


class Node(Protocol):
    """A node as the admin pages show it, from before its start until it has stopped."""

    has_started: bool
    """Whether clients were let in: a start came to its end."""

    @property
    def world(self) -> World: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def is_made(self) -> bool:
        """Whether the node is put together, and has a status."""
        ...

    @property
    def status(self) -> Status: ...

    @property
    def start_step(self) -> str:
        """What a start has come to: the reason why clients are not let in yet."""
        ...
