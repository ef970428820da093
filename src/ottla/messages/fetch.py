"""Record batches from partitions, in sessions that only carry what changed (KIP-227).

v12 is flexible and knows diverging epochs, v13 has topic ids, v15 moves the replica id under a tag.
"""

from __future__ import annotations

from typing import Final

from ottla.messages.values import Records
from ottla.wire.schema import Request, Response, Struct, array, int8, int16, int32, int64, records, string, struct, uuid

TOPIC_IDS_SINCE: Final = 13
"""From this version on topics have their ids in place of their names (KIP-516)."""
READ_COMMITTED: Final = 1
"""The isolation level of those who read what is stable (KIP-98)."""


class ReplicaState(Struct):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, since=9)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(default=-1, since=12)
    log_start_offset: int = int64(default=-1, since=5)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid(since=17, tag=0)
    high_watermark: int = int64(default=9223372036854775807, since=18, tag=1)


class FetchTopic(Struct):
    topic: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[int] = array(int32())


class FetchRequest(Request, api_key=1, versions=(4, 18), flexible=12):
    cluster_id: str | None = string(default=None, since=12, nullable=12, tag=0)
    replica_id: int = int32(default=-1, until=14)
    replica_state: ReplicaState | None = struct(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8()
    session_id: int = int32(since=7)
    session_epoch: int = int32(default=-1, since=7)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11)


class EpochEndOffset(Struct):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(default=-1, since=5)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable=4)
    preferred_read_replica: int = int32(default=-1, since=11)
    records: Records | None = records(nullable=0)


class FetchableTopicResponse(Struct):
    topic: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable=16)


class FetchResponse(Response, api_key=1, versions=(4, 18), flexible=12):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=7)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)
