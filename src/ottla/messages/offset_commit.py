"""A group stores how far it has read."""

from __future__ import annotations

from typing import Final

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid

TOPIC_IDS_SINCE: Final = 10
"""From this version on topics have their ids in place of their names (KIP-516)."""


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, since=6)
    committed_metadata: str | None = string(nullable=0)


class OffsetCommitRequestTopic(Struct):
    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Request, api_key=8, versions=(2, 10), flexible=8):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=7, nullable=7)
    retention_time_ms: int = int64(default=-1, until=4)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Response, api_key=8, versions=(2, 10), flexible=8):
    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
