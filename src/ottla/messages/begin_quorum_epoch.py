"""A new leader of the metadata quorum makes itself known to the voters (KIP-595; v1 KIP-853)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32()
    voter_directory_id: bytes = uuid(since=1)
    leader_id: int = int32()
    leader_epoch: int = int32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class LeaderEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class BeginQuorumEpochRequest(Request, api_key=53, versions=(0, 1), flexible=1):
    cluster_id: str | None = string(default=None, nullable=0)
    voter_id: int = int32(default=-1, since=1)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, since=1)


class PartitionEpoch(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class TopicEpoch(Struct):
    topic_name: str = string()
    partitions: list[PartitionEpoch] = array(PartitionEpoch)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class BeginQuorumEpochResponse(Response, api_key=53, versions=(0, 1), flexible=1):
    error_code: int = int16()
    topics: list[TopicEpoch] = array(TopicEpoch)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0)
