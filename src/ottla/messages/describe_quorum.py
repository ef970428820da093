"""Leader, voters and observers of the metadata log, and how far each of them is (KIP-836).

Two tagged fields are ottla's own: by the one a client asks how many leaders the active controller has elected since its start that may lack
committed records. Some clients cannot read an answer with a tag that they do not know.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class DescribeQuorumRequest(Request, api_key=55, versions=(0, 2), flexible=0):
    topics: list[TopicData] = array(TopicData)
    asks_unclean_elections: bool = boolean(tag=10_000)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(default=-1, since=1)
    last_caught_up_timestamp: int = int64(default=-1, since=1)


class PartitionQuorum(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)
    unclean_election_count: int = int32(tag=10_000)


class TopicQuorum(Struct):
    topic_name: str = string()
    partitions: list[PartitionQuorum] = array(PartitionQuorum)


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class Node(Struct):
    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


class DescribeQuorumResponse(Response, api_key=55, versions=(0, 2), flexible=0):
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2)
    topics: list[TopicQuorum] = array(TopicQuorum)
    nodes: list[Node] = array(Node, since=2)
