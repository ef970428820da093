"""A voter asks the others for their votes, or first whether it would get them (KIP-595; v1 KIP-853; v2 KIP-996)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=1)
    voter_directory_id: bytes = uuid(since=1)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean(since=2)


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class VoteRequest(Request, api_key=52, versions=(0, 2), flexible=0):
    cluster_id: str | None = string(default=None, nullable=0)
    voter_id: int = int32(default=-1, since=1)
    topics: list[TopicData] = array(TopicData)


class PartitionVote(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


class TopicVote(Struct):
    topic_name: str = string()
    partitions: list[PartitionVote] = array(PartitionVote)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class VoteResponse(Response, api_key=52, versions=(0, 2), flexible=0):
    error_code: int = int16()
    topics: list[TopicVote] = array(TopicVote)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0)
