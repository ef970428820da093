"""The records of consumer groups (KIP-848) in ``__consumer_offsets``. Source: Kafka 4.3's record schemas; the numbers are record types."""

from __future__ import annotations

from ottla.wire.schema import Stored, Struct, array, binary, int8, int32, int64, string, struct, uuid


class ConsumerGroupMetadataKey(Stored, api_key=3, versions=(0, 0)):
    group_id: str = string()


class ConsumerGroupMetadataValue(Stored, api_key=3, versions=(0, 0), flexible=0):
    epoch: int = int32()
    metadata_hash: int = int64(default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Stored, api_key=4, versions=(0, 0)):
    group_id: str = string()


class PartitionRacks(Struct):
    partition: int = int32()
    racks: list[str] = array(string())


class SubscribedTopicMetadata(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionRacks] = array(PartitionRacks)


class ConsumerGroupPartitionMetadataValue(Stored, api_key=4, versions=(0, 0), flexible=0):
    """The topics of a group of Kafka before 4.1; the hash of ``ConsumerGroupMetadataValue`` took its place."""

    topics: list[SubscribedTopicMetadata] = array(SubscribedTopicMetadata)


class ConsumerGroupMemberMetadataKey(Stored, api_key=5, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = binary()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Stored, api_key=5, versions=(0, 0), flexible=0):
    instance_id: str | None = string(default=None, nullable=0)
    rack_id: str | None = string(default=None, nullable=0)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    subscribed_topic_regex: str | None = string(default=None, nullable=0)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(default=None, nullable=0)
    classic_member_metadata: ClassicMemberMetadata | None = struct(ClassicMemberMetadata, nullable=0, tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Stored, api_key=6, versions=(0, 0)):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Stored, api_key=6, versions=(0, 0), flexible=0):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Stored, api_key=7, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class TargetPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class ConsumerGroupTargetAssignmentMemberValue(Stored, api_key=7, versions=(0, 0), flexible=0):
    topic_partitions: list[TargetPartitions] = array(TargetPartitions)


class ConsumerGroupCurrentMemberAssignmentKey(Stored, api_key=8, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class CurrentPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())
    assignment_epochs: list[int] | None = array(int32(), default=None, nullable=0, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Stored, api_key=8, versions=(0, 0), flexible=0):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentPartitions] = array(CurrentPartitions)
    partitions_pending_revocation: list[CurrentPartitions] = array(CurrentPartitions)


class ConsumerGroupRegularExpressionKey(Stored, api_key=16, versions=(0, 0)):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Stored, api_key=16, versions=(0, 0), flexible=0):
    topics: list[str] = array(string())
    version: int = int64()
    timestamp: int = int64()
