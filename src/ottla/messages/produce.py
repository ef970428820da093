"""Record batches for partitions, and where they landed.

Versions 0-2 are listed by the broker and refused (old librdkafka looks for v0 before it compresses). v9 is flexible,
v10 adds leader hints (KIP-951), v12 implicit transaction partitions (KIP-890), v13 topic ids.
"""

from __future__ import annotations

from typing import Final

from ottla.messages.values import Records
from ottla.wire.schema import Request, Response, Struct, array, int16, int32, int64, records, string, struct, uuid

TOPIC_IDS_SINCE: Final = 13
"""From this version on topics have their ids in place of their names (KIP-516)."""


class PartitionProduceData(Struct):
    index: int = int32()
    records: Records | None = records(nullable=0)


class TopicProduceData(Struct):
    name: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request, api_key=0, versions=(3, 13), flexible=9):
    transactional_id: str | None = string(default=None, nullable=3)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(default=None, nullable=8)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(default=-1, since=5)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8)
    error_message: str | None = string(default=None, since=8, nullable=8)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, since=10, tag=0)


class TopicProduceResponse(Struct):
    name: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable=10)


class ProduceResponse(Response, api_key=0, versions=(3, 13), flexible=9):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)
