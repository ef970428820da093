"""A snapshot of the metadata log, in pieces that may end inside a batch (KIP-630; v1 KIP-853)."""

from __future__ import annotations

from ottla.messages.values import Records
from ottla.wire.schema import Request, Response, Struct, array, int16, int32, int64, records, string, struct, uint16, uuid


class SnapshotId(Struct):
    end_offset: int = int64()
    epoch: int = int32()


class PartitionSnapshot(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: bytes = uuid(since=1, tag=0)


class TopicSnapshot(Struct):
    name: str = string()
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot)


class FetchSnapshotRequest(Request, api_key=59, versions=(0, 1), flexible=0):
    cluster_id: str | None = string(default=None, nullable=0, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2147483647)
    topics: list[TopicSnapshot] = array(TopicSnapshot)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionPiece(Struct):
    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = struct(SnapshotId)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Records = records(default=b"")


class TopicPiece(Struct):
    name: str = string()
    partitions: list[PartitionPiece] = array(PartitionPiece)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class FetchSnapshotResponse(Response, api_key=59, versions=(0, 1), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicPiece] = array(TopicPiece)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0)
