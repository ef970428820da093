"""The brokers, and of each topic asked for its partitions and their leaders.

v0: an empty list asks for all topics; from v1 null does. v12 accepts topic ids.
"""

from __future__ import annotations

from typing import Final

from ottla.wire.schema import Request, Response, Struct, array, boolean, int16, int32, string, uuid

TOPIC_IDS_SINCE: Final = 12
"""From this version on topics have their ids in place of their names (KIP-516)."""


class MetadataRequestTopic(Struct):
    topic_id: bytes = uuid(since=10)
    name: str | None = string(nullable=10)


class MetadataRequest(Request, api_key=3, versions=(0, 13), flexible=9):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable=1)
    allow_auto_topic_creation: bool = boolean(default=True, since=4)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, since=1, nullable=1)


class MetadataResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, since=7)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    offline_replicas: list[int] = array(int32(), since=5)


class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable=12)
    topic_id: bytes = uuid(since=10)
    is_internal: bool = boolean(since=1)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(default=-2147483648, since=8)


class MetadataResponse(Response, api_key=3, versions=(0, 13), flexible=9):
    throttle_time_ms: int = int32(since=3)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(default=None, since=2, nullable=2)
    controller_id: int = int32(default=-1, since=1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(default=-2147483648, since=8, until=10)
    error_code: int = int16(since=13)
