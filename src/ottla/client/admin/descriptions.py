"""What administration finds: brokers' directories, the metadata log, groups, partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.errors import KafkaError
from ottla.types import NamedInt, TopicPartition


@dataclass(frozen=True, slots=True)
class DirectoryReplica:
    """A replica in a log directory. A future one is on its way there, and ``offset_lag`` is what it still lacks of the present one.

    A follower lacks so much of what its leader has committed; of a Kafka broker that is always 0.
    """

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


ALMOST_FULL_BELOW_BYTES: Final = 4 << 20
"""Twice the reserve of a log directory: with less, a broker does not write again to one that was full (``storage/directory/room.py``)."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker. ``error`` says why it is offline; space is -1 where the broker does not say it."""

    path: str
    error: KafkaError | None
    total_bytes: int
    usable_bytes: int
    replicas: tuple[DirectoryReplica, ...]

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
    directory_id: bytes
    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata log: who leads it, how far it is committed, who votes and who follows."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that a partition remembers. ``transaction_start_offset`` is -1 while it has no transaction open there."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition: -1 leads where no replica does; what is eligible is None where the cluster does not say it (KIP-966)."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    eligible: tuple[int, ...] | None = None
    last_known_eligible: tuple[int, ...] | None = None
    offline: tuple[int, ...] = ()
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move of replicas that is under way."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group. ``state`` is Kafka's word (Stable, Empty, PreparingRebalance, ...), and so is ``type`` (classic, ...)."""

    group_id: str
    state: str
    protocol_type: str
    type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group, and the partitions that it was assigned last.

    Of consumer groups (KIP-848) also what it is to have, and the epoch that it is in.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] = ()
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members. ``state`` is Dead where the coordinator does not know it; ``assignor`` divides its partitions.

    In a consumer group (KIP-848) ``epoch`` grows with each change of members or topics; the targets are made for ``target_epoch``.
    """

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]
    type: str = "classic"
    epoch: int | None = None
    target_epoch: int | None = None


class QuotaMatch(NamedInt):
    """A choice of a type's entities, for ``describe_client_quotas``, in place of a name."""

    DEFAULT = 1
    """The default of the type."""
    ANY = 2
    """All of the type, the default too."""
