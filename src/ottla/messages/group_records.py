"""The records of ``__consumer_offsets``: a 2-byte version before each key and each value."""

from __future__ import annotations

from ottla.wire.schema import Stored, Struct, array, binary, int32, int64, string, uuid


class OffsetCommitKey(Stored, api_key=1, versions=(0, 0)):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Stored, api_key=1, versions=(0, 4), flexible=4):
    offset: int = int64()
    leader_epoch: int = int32(default=-1, since=3)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(default=-1, since=1, until=1)
    topic_id: bytes = uuid(since=4, tag=0)


class GroupMetadataKey(Stored, api_key=2, versions=(0, 0)):
    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=3, nullable=3)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(default=-1, since=1)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


class GroupMetadataValue(Stored, api_key=2, versions=(0, 4), flexible=4):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=0)
    leader: str | None = string(nullable=0)
    current_state_timestamp: int = int64(default=-1, since=2)
    members: list[MemberMetadata] = array(MemberMetadata)
