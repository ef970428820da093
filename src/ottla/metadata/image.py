"""What the cluster looks like at one offset of the metadata log.

An image never changes: ``replay`` makes the next one. The dictionaries in it are shared between images and must not be
written to. Source: KIP-500, KIP-631.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from ottla.messages.metadata_records import AccessControlEntryRecord, DelegationTokenRecord, UserScramCredentialRecord
from ottla.metadata.acls import NO_ACLS, AclTables
from ottla.metadata.partition_index import EMPTY_INDEX, PartitionIndex, Places
from ottla.types import NO_LEADER
from ottla.wire.schema import ZERO_UUID

RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4
RESOURCE_BROKER_LOGGER: Final = 8
RESOURCE_CLIENT_METRICS: Final = 16
RESOURCE_GROUP: Final = 32

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
CONNECTION_RATE: Final = "connection_creation_rate"
QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of type (one of the three above) and name, sorted by type; a name of None is the default of its type."""

_NOTHING: Final[Mapping[str, str]] = {}


LOST_DIRECTORY: Final = (2).to_bytes(16, "big")
"""Of a replica that its broker cannot serve (KIP-858)."""


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. Invariant: ``isr`` and ``elr`` are within ``replicas`` and apart; ``leader`` is in ``isr`` or NO_LEADER."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    """Eligible leader replicas: no longer in sync, yet known to have everything that was committed (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    """The replicas that were eligible and went down uncleanly; the last leader when none is eligible."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds; they are among ``replicas``."""
    removing: tuple[int, ...] = ()
    """Replicas that a reassignment removes in the end; until then they are among ``replicas``."""
    directories: tuple[bytes, ...] = ()
    """The log directory of each replica, in their order (KIP-858); empty where none was reported."""
    is_recovering: bool = False
    """The leader was elected uncleanly and has not yet said that it has recovered (KIP-704)."""

    @property
    def lost_replicas(self) -> frozenset[int]:
        """Those whose brokers cannot serve them, as far as is recorded."""
        if LOST_DIRECTORY not in self.directories:
            return frozenset()
        return frozenset(node for node, directory in zip(self.replicas, self.directories, strict=True) if directory == LOST_DIRECTORY)

    def __post_init__(self) -> None:
        if self.isr != self.replicas or self.elr:  # of new partitions, which come by the thousand, all replicas are in sync
            assert {*self.isr, *self.elr} <= set(self.replicas), "the ISR and the ELR are within the replicas"
            assert not set(self.isr) & set(self.elr), "who is in sync is not merely eligible"
        if self.adding or self.removing:
            assert {*self.adding, *self.removing} <= set(self.replicas), "who is added or removed is among the replicas"
        assert self.leader == NO_LEADER or self.leader in self.isr, "the leader is in the ISR"


class TopicImage(Struct, frozen=True):
    """One topic: its id never changes, a topic of the same name created later has another."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionImage] = msgspec.field(default_factory=dict)


class EndpointImage(Struct, frozen=True):
    """The address of one listener of a broker or controller."""

    listener: str
    host: str
    port: int
    security_protocol: int = 0


class BrokerImage(Struct, frozen=True):
    """A registered broker. Its epoch is the offset of the record that registered it: a later process of the same id has a higher one."""

    broker_id: int
    broker_epoch: int
    endpoints: Mapping[str, EndpointImage]
    rack: str | None
    is_fenced: bool
    incarnation_id: bytes = ZERO_UUID
    """Drawn by each process: it distinguishes two with one id."""
    features: Mapping[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """The lowest and highest level of each feature that it supports."""
    in_controlled_shutdown: bool = False
    directories: tuple[bytes, ...] = ()
    """Its log directories that are up (KIP-858)."""
    cordoned_directories: tuple[bytes, ...] | None = None
    """The directories that get no new replicas; None until the broker has reported them."""


class ControllerImage(Struct, frozen=True):
    """A registered controller, active or not (KIP-919)."""

    controller_id: int
    incarnation_id: bytes
    endpoints: Mapping[str, EndpointImage]
    features: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Everything. ``configs`` is by (resource type, resource name); ``quotas`` are limits by Kafka's names."""

    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    scram_credentials: Mapping[tuple[str, int], UserScramCredentialRecord] = field(default_factory=dict)
    """By user and mechanism. These, and the tokens, are kept for others: nothing is enforced here yet."""
    acls: Mapping[bytes, AccessControlEntryRecord] = field(default_factory=dict)
    """By their ids."""
    delegation_tokens: Mapping[str, DelegationTokenRecord] = field(default_factory=dict)
    """By their ids."""
    next_producer_id: int = 0
    metric_names: Mapping[str, str] = field(default_factory=dict)
    """Topics with '.' or '_' in their names, by the name in which both are '_'."""
    index: PartitionIndex = field(default=EMPTY_INDEX, compare=False, repr=False)
    """Which of the partitions each broker has to do with."""
    acl_tables: AclTables = field(default=NO_ACLS, compare=False, repr=False)
    """The same ACLs, as they are asked."""
    end_offset: int = field(default=0, compare=False)
    """The offset after the last record of the metadata log that is in it."""
    epoch: int = field(default=0, compare=False)
    """The leader epoch of that record."""

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """Returns the topic's overrides."""
        return self.configs.get((RESOURCE_TOPIC, topic), _NOTHING)

    def broker_configs(self, name: str) -> Mapping[str, str]:
        """Returns the dynamic values of one broker, by its id, or those that all brokers share, under the empty name."""
        return self.configs.get((RESOURCE_BROKER, name), _NOTHING)

    @property
    def live_brokers(self) -> list[BrokerImage]:
        """Brokers that are not fenced, by id."""
        return [broker for _, broker in sorted(self.brokers.items()) if not broker.is_fenced]


EMPTY_IMAGE: Final = ClusterImage()


class CommittedImages(Protocol):
    """The holder of a node's newest committed image."""

    @property
    def committed(self) -> ClusterImage: ...


def metric_name(topic: str) -> str | None:
    """Returns the name under which metrics could mistake the topic for another one; None when they cannot."""
    return topic.replace(".", "_") if "." in topic or "_" in topic else None


def partitions_at(topics: Mapping[str, TopicImage], places: Places) -> Iterator[tuple[str, bytes, int, PartitionImage]]:
    """Yields the topic, its id, the index and the partition of each place."""
    for name, numbers in places.items():
        topic = topics[name]
        for number in numbers:
            yield name, topic.topic_id, number, topic.partitions[number]
