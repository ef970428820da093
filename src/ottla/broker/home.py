"""Where the truth about a cluster lives, and how a node lives there.

There are three homes: a metadata log of which this node is the only voter (``homes/lone.py``), one that a quorum has
(``homes/quorum/``), and ZooKeeper (``homes/zookeeper/``). Which one a node has is asked once, when it is opened
(``homes/choice.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.controller.membership import Membership
from ottla.broker.coordinators.groups import GroupShards
from ottla.broker.failure import Failure
from ottla.broker.liveness.callers import Callers
from ottla.broker.liveness.evidence import Evidence
from ottla.broker.liveness.failing_brokers import FailingBrokers
from ottla.broker.log_directories import LogDirectories
from ottla.broker.metadata.neighbours import MetadataFollower, MetadataStore
from ottla.broker.metadata.publisher import Publisher
from ottla.broker.part import Part
from ottla.broker.peers.introduction import UNKNOWN_EVERYWHERE, Introductions
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.requests.gate import Forward
from ottla.broker.requests.gatekeeper import Gatekeeper
from ottla.broker.requests.service import Service
from ottla.broker.roles import NodeRoles, Role
from ottla.config import BrokerConfig
from ottla.consensus.quorum import Quorum
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.ports import World

if TYPE_CHECKING:
    from ottla.broker.controller.remote import RemoteController  # a lone broker starts without them
    from ottla.broker.peers.peers import Address


class Basis(Struct, frozen=True):
    """The things that a node has before it has a home. ``follower`` learns what happens to the metadata."""

    world: World
    config: BrokerConfig
    roles: NodeRoles
    follower: MetadataFollower
    failure: Failure
    introductions: Introductions = UNKNOWN_EVERYWHERE


class Core(Struct, frozen=True, kw_only=True):
    """The things that every node has, whatever its home; a life is made from them."""

    publisher: Publisher
    controller: ActiveController
    membership: Membership
    partitions: PartitionStore
    groups: GroupShards
    gate: Gatekeeper


class Life(Part):
    """The life of a node at its home. It joins the cluster when it starts; before that, no client is let in."""

    replicating: Sequence[Part] = ()
    """Parts that stop before the logs are closed, and after the controller."""

    @property
    def broker_epoch(self) -> int:
        """By which other nodes' controllers know this process; -1 where they do not."""
        return -1

    async def leave(self) -> None:
        """Leaves the cluster: others lead what this broker led, where there are others."""


class Home(Protocol):
    """The place of a node's truth, made by ``open`` before every other part of the node."""

    @property
    def directories(self) -> LogDirectories: ...

    @property
    def metadata(self) -> MetadataStore:
        """Where decisions are kept."""
        ...

    @property
    def services(self) -> Mapping[Role, Mapping[int, Service]]:
        """What a broker serves that has joined."""
        ...

    @property
    def voters(self) -> Mapping[int, Address]:
        """Where other nodes reach the controllers; empty where every broker may be the controller."""
        ...

    @property
    def links(self) -> Sequence[Part]:
        """Parts that start first and stop last: the ways to other nodes, what is seen of them, and the metadata."""
        ...

    @property
    def last(self) -> Sequence[Part]:
        """Parts that stop first."""
        ...

    @property
    def to_brokers(self) -> World:
        """The world in which other brokers are reached: this node makes itself known there."""
        ...

    @property
    def callers(self) -> Callers: ...

    @property
    def failing(self) -> FailingBrokers: ...

    @property
    def evidence(self) -> Evidence: ...

    @property
    def remote(self) -> RemoteController | None:
        """The active controller, when that may be another node's."""
        ...

    @property
    def replicates(self) -> bool:
        """Whether partitions may have several replicas: other brokers can join."""
        ...

    @property
    def unheard_ms(self) -> int:
        """So long a request may wait for a partition that this node's image does not have: other nodes may have read further."""
        ...

    @property
    def quorum(self) -> Quorum | None:
        """This node's part in the metadata quorum; None where there is none."""
        ...

    @property
    def shown_controller_id(self) -> int:
        """The broker that clients are shown as the controller; -1 for whichever they ask."""
        ...

    @property
    def knows_no_controller(self) -> bool:
        """Whether none is elected, or it cannot be known which one is, where no quorum could say so."""
        ...

    def others(self) -> Mapping[int, BrokerImage]:
        """Returns the brokers that may have replicas of this one's partitions."""
        ...

    def is_known(self, image: ClusterImage) -> bool:
        """True when the image knows this process, and not only an earlier one of its broker."""
        ...

    def forward(self, publisher: Publisher) -> Forward | None:
        """Returns the way of requests to the active controller; None where that is this node's."""
        ...

    def membership(self, controller: ActiveController) -> Membership:
        """Returns the membership, which this node's controller has."""
        ...

    def life(self, core: Core) -> Life:
        """Returns the life of this node."""
        ...
