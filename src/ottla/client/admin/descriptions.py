"""What administration finds: brokers' directories, the metadata log, groups, partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.errors import KafkaError
from ottla.types import NamedInt, TopicPartition


@dataclass(frozen=True, slots=True)
class DirectoryReplica:
    """A replica in a log directory. A future one is on its way there, and ``offset_lag`` is what it still lacks of the present one.

    A follower lacks so much of what its leader has committed, -1 where it does not know; of a Kafka broker that is always 0.
    """

    partition: TopicPartition
    """The partition."""
    size_bytes: int
    """The size of its segments on the disk."""
    offset_lag: int
    """How many offsets it lacks: of a future replica against the present one, of others against the high watermark."""
    is_future: bool
    """Whether ``alter_replica_log_dirs`` is moving the partition there; it takes the other replica's place when it has all records."""


ALMOST_FULL_BELOW_BYTES: Final = 4 << 20
"""Twice the reserve of a log directory: with less, a broker does not write again to one that was full (``storage/directory/room.py``)."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker. ``error`` says why it is offline; space is -1 where the broker does not say it."""

    path: str
    """An entry of ``log.dirs``."""
    error: KafkaError | None
    """Why it is offline, as KAFKA_STORAGE_ERROR; None while it works."""
    total_bytes: int
    """The size of its file system; -1 where the broker does not say it."""
    usable_bytes: int
    """The free space there; -1 where the broker does not say it."""
    replicas: tuple[DirectoryReplica, ...]
    """What is stored there; empty where ``describe_log_dirs`` was asked to leave it out."""

    @property
    def is_full(self) -> bool:
        """Whether the broker takes no records there: an ottla broker, which keeps some room back, says that none is usable then."""
        return self.error is None and self.usable_bytes == 0

    @property
    def is_almost_full(self) -> bool:
        """Whether so little room is left that an ottla broker which found none would take no records there yet."""
        return self.error is None and 0 < self.usable_bytes < ALMOST_FULL_BELOW_BYTES


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A node that holds the metadata log, or follows it. Times are of the leader's clock, -1 where there is none."""

    node_id: int
    """The node's id."""
    directory_id: bytes
    """16 bytes: the id of its metadata directory; zeros where the cluster does not say it."""
    end_offset: int
    """The offset after the last record that it has; -1 where the leader does not know it."""
    last_fetch_ms: int
    """When it fetched last, in milliseconds since 1970."""
    last_caught_up_ms: int
    """When it last had all that the leader had, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata log: who leads it, how far it is committed, who votes and who follows."""

    leader_id: int
    """The node that leads: the active controller."""
    leader_epoch: int
    """It grows with each election."""
    high_watermark: int
    """The offset before which all records are committed."""
    voters: tuple[QuorumReplica, ...]
    """The controllers that vote."""
    observers: tuple[QuorumReplica, ...]
    """The nodes that only follow: brokers, and controllers that do not vote."""
    unclean_elections: int = 0
    """Leaders that this controller of ottla has elected since its start, and that may lack committed records."""


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that a partition remembers. ``transaction_start_offset`` is -1 while it has no transaction open there."""

    producer_id: int
    """The id that its coordinator gave it."""
    producer_epoch: int
    """It grows when a producer with the same transactional id starts: earlier epochs are fenced."""
    last_sequence: int
    """The sequence number of its last record in the partition; -1 without one."""
    last_timestamp_ms: int
    """The time of its last record, in milliseconds since 1970."""
    coordinator_epoch: int
    """The epoch of the coordinator that wrote its last marker; -1 without one."""
    transaction_start_offset: int
    """The first offset of its open transaction; -1 while none is open."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition: -1 leads where no replica does; what is eligible is None where the cluster does not say it (KIP-966)."""

    leader: int
    """The id of the broker that leads; -1 without one."""
    leader_epoch: int
    """It grows with each election of a leader."""
    replicas: tuple[int, ...]
    """The ids of the brokers that are to have the partition, the preferred leader first."""
    in_sync: tuple[int, ...]
    """The replicas that have all records that are acknowledged."""
    eligible: tuple[int, ...] | None = None
    """Brokers out of sync that may still be elected without a loss (KIP-966); None where the cluster does not say it."""
    last_known_eligible: tuple[int, ...] | None = None
    """Those that may be tried when no other is left (KIP-966); None where the cluster does not say it."""
    offline: tuple[int, ...] = ()
    """The replicas whose brokers or log directories are not working."""
    error: KafkaError | None = None
    """Why the partition is not available, as LEADER_NOT_AVAILABLE; None while it is."""


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move of replicas that is under way."""

    replicas: tuple[int, ...]
    """All replicas while it is under way: those from before, and those that are added."""
    adding: tuple[int, ...]
    """The brokers that are getting the partition."""
    removing: tuple[int, ...]
    """The brokers that delete it when the others are in sync."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group. ``state`` is Kafka's word (Stable, Empty, PreparingRebalance, ...), and so is ``type`` (classic, ...)."""

    group_id: str
    """The group."""
    state: str
    """Kafka's word: Stable, Empty, PreparingRebalance, CompletingRebalance, Dead; of consumer groups also Assigning, Reconciling."""
    protocol_type: str
    """``consumer`` for groups of consumers; empty for a group that has only stored offsets."""
    type: str
    """``classic``, or ``consumer`` for a group of the protocol of KIP-848."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group, and the partitions that it was assigned last.

    Of consumer groups (KIP-848) also what it is to have, and the epoch that it is in.
    """

    member_id: str
    """The member's name in the group: the coordinator makes it, with ``group_protocol="consumer"`` the member."""
    group_instance_id: str | None
    """The name of a static member; None for others."""
    client_id: str
    """The member's ``client_id``."""
    host: str
    """The address that it is connected from."""
    assignment: tuple[TopicPartition, ...]
    """The partitions that it has."""
    target: tuple[TopicPartition, ...] = ()
    """In a consumer group, the partitions that it is to have; ``()`` in a classic one."""
    epoch: int | None = None
    """In a consumer group, the epoch that the member is in; None in a classic one."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members. ``state`` is Dead where the coordinator does not know it; ``assignor`` divides its partitions.

    In a consumer group (KIP-848) ``epoch`` grows with each change of members or topics; the targets are made for ``target_epoch``.
    """

    group_id: str
    """The group."""
    state: str
    """Kafka's word, as in a ``GroupListing``; Dead where the coordinator does not know the group."""
    protocol_type: str
    """``consumer`` for groups of consumers; empty where no member has said it."""
    assignor: str
    """How partitions are divided, as ``range``; empty while there are no members."""
    members: tuple[GroupMember, ...]
    """The members; ``()`` while the group is empty."""
    type: str = "classic"
    """``classic``, or ``consumer`` for a group of the protocol of KIP-848."""
    epoch: int | None = None
    """In a consumer group, what grows with each change of members or topics; None in a classic one."""
    target_epoch: int | None = None
    """In a consumer group, the epoch that the members' targets were made for; None in a classic one."""


class QuotaMatch(NamedInt):
    """A choice of a type's entities, for ``describe_client_quotas``, in place of a name."""

    DEFAULT = 1
    """The default of the type."""
    ANY = 2
    """All of the type, the default too."""
