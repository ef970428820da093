"""What is asked of the group coordinator, and what it answers.

A command with a token is answered once: by the decision it leads to, or by a later one while it is parked (JoinGroup
waits for the other members, SyncGroup for the leader). Commands without a token come from timers.
"""

from __future__ import annotations

import msgspec

from ottla.machine import Command, Marker, Writer
from ottla.metadata.image import ClusterImage
from ottla.types import NO_EPOCH, NO_OFFSET

NO_GENERATION = -1
NO_MEMBER = ""


class JoinGroup(Command["JoinResult"], msgspec.Struct, frozen=True):
    """``fresh_member_id`` names the member when ``member_id`` is empty. ``protocols`` are in order of preference."""

    token: int
    group_id: str
    member_id: str
    fresh_member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    requires_known_member_id: bool
    supports_skip_assignment: bool
    image: ClusterImage | None = None  # the newest that the broker has


class JoinedMember(msgspec.Struct, frozen=True):
    """``metadata`` is that of the protocol which was chosen."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(msgspec.Struct, frozen=True):
    """``members`` is filled for the leader only."""

    error_code: int
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncGroup(Command["SyncResult"], msgspec.Struct, frozen=True):
    """``assignments`` come from the leader; a member that it leaves out is assigned nothing."""

    token: int
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


class SyncResult(msgspec.Struct, frozen=True):
    error_code: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Heartbeat(Command["HeartbeatResult"], msgspec.Struct, frozen=True):
    token: int
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    image: ClusterImage | None = None  # the newest that the broker has


class HeartbeatResult(msgspec.Struct, frozen=True):
    error_code: int


class LeavingMember(msgspec.Struct, frozen=True):
    """``member_id`` is empty when an administrator removes a static member by its instance id."""

    member_id: str
    group_instance_id: str | None


class LeaveGroup(Command["LeaveResult"], msgspec.Struct, frozen=True):
    token: int
    group_id: str
    members: tuple[LeavingMember, ...]


class LeaveResult(msgspec.Struct, frozen=True):
    """``members`` are (member_id, group_instance_id, error_code), in the order of the command."""

    error_code: int
    members: tuple[tuple[str, str | None, int], ...] = ()


class OffsetToCommit(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: bytes = bytes(16)


class CommitOffsets(Command["CommitResult"], msgspec.Struct, frozen=True):
    """``generation_id`` is -1 and ``member_id`` empty for a consumer that is no member of the group; a member epoch in consumer groups.

    ``speaks_epochs`` is False for a client of before member epochs (OffsetCommit below v9).
    ``retention_ms`` is how long an old client (OffsetCommit v2-4) wants the offsets kept; -1 leaves it to the broker.
    """

    token: int
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = -1
    speaks_epochs: bool = True


class CommitInTransaction(Command["CommitResult"], msgspec.Struct, frozen=True):
    """The offsets count when the producer's transaction is committed. Member and generation are checked where they are given (KIP-447)."""

    token: int
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    writer: Writer


class EndTransaction(Command[None], msgspec.Struct, frozen=True):
    """The offsets of a transaction count from now on, or never will."""

    token: int
    marker: Marker


class CommitResult(msgspec.Struct, frozen=True):
    """One code for each offset, in the order of the command."""

    error_codes: tuple[int, ...]


class FetchOffsets(Command["FetchResult"], msgspec.Struct, frozen=True):
    """``topics`` are (topic, partition); None asks for all that the group has. Members of consumer groups may say who they are."""

    token: int
    group_id: str
    topics: tuple[tuple[str, int], ...] | None
    require_stable: bool
    member_id: str | None = None
    member_epoch: int = -1


class CommittedOffset(msgspec.Struct, frozen=True):
    """``offset`` is -1 where nothing was committed."""

    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error_code: int = 0


class FetchResult(msgspec.Struct, frozen=True):
    error_code: int
    offsets: tuple[CommittedOffset, ...] = ()


class DescribeGroup(Command["DescribeResult"], msgspec.Struct, frozen=True):
    token: int
    group_id: str


class DescribedMember(msgspec.Struct, frozen=True):
    """``metadata`` and ``assignment`` are empty unless the group is Stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeResult(msgspec.Struct, frozen=True):
    """``state`` is Dead for a group that is not known, or ``is_other``: of another kind."""

    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()
    is_other: bool = False


class ListGroups(Command["ListResult"], msgspec.Struct, frozen=True):
    token: int


class ListedGroup(msgspec.Struct, frozen=True):
    """``group_type`` is Kafka's name for the kind of group."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


class ListResult(msgspec.Struct, frozen=True):
    groups: tuple[ListedGroup, ...]


class DeleteGroup(Command["DeleteResult"], msgspec.Struct, frozen=True):
    token: int
    group_id: str


class DeleteOffsets(Command["DeleteOffsetsResult"], msgspec.Struct, frozen=True):
    """``partitions`` are (topic, partition)."""

    token: int
    group_id: str
    partitions: tuple[tuple[str, int], ...]


class DeleteOffsetsResult(msgspec.Struct, frozen=True):
    """An error for all of them, or one code for each, in the order of the command."""

    error_code: int
    error_codes: tuple[int, ...] = ()


class DeleteTopicOffsets(Command["DeleteResult"], msgspec.Struct, frozen=True):
    """The topics were deleted: what groups had committed for them is deleted."""

    token: int
    topics: tuple[str, ...]


class DeleteResult(msgspec.Struct, frozen=True):
    error_code: int


class ExpireMember(Command[None], msgspec.Struct, frozen=True):
    """No sign of life for a session timeout, or a named member never came back to join."""

    group_id: str
    member_id: str


class EndInitialDelay(Command[None], msgspec.Struct, frozen=True):
    """The first rebalance of an empty group has waited ``delay_ms``; ``remaining_ms`` of its rebalance timeout are left."""

    group_id: str
    generation_id: int
    delay_ms: int
    remaining_ms: int


class ExpireRebalance(Command[None], msgspec.Struct, frozen=True):
    """The rebalance that follows this generation has waited long enough for its members."""

    group_id: str
    generation_id: int


class ExpireSync(Command[None], msgspec.Struct, frozen=True):
    """Members of this generation should have asked for their assignments by now."""

    group_id: str
    generation_id: int


class ExpireOffsets(Command[None], msgspec.Struct, frozen=True):
    """Looks for offsets older than the retention, and for groups that have nothing left."""
