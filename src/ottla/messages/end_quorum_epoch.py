"""The leader of the metadata quorum resigns, and says who should follow it (KIP-595; v1 KIP-853)."""

from __future__ import annotations

from ottla.messages.begin_quorum_epoch import LeaderEndpoint, NodeEndpoint, TopicEpoch
from ottla.wire.schema import Request, Response, Struct, array, int16, int32, string, uuid


class ReplicaInfo(Struct):
    candidate_id: int = int32()
    candidate_directory_id: bytes = uuid()


class PartitionData(Struct):
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = array(int32(), until=0)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, since=1)


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class EndQuorumEpochRequest(Request, api_key=54, versions=(0, 1), flexible=1):
    cluster_id: str | None = string(default=None, nullable=0)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, since=1)


class EndQuorumEpochResponse(Response, api_key=54, versions=(0, 1), flexible=1):
    error_code: int = int16()
    topics: list[TopicEpoch] = array(TopicEpoch)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0)
