"""What consumers put into the opaque bytes of JoinGroup and SyncGroup: a 2-byte version, then one of these."""

from __future__ import annotations

from ottla.wire.schema import Stored, Struct, array, binary, int32, string


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class ConsumerProtocolSubscription(Stored, api_key=-1, versions=(0, 3)):
    topics: list[str] = array(string())
    user_data: bytes | None = binary(default=None, nullable=0)
    owned_partitions: list[TopicPartition] = array(TopicPartition, since=1)
    generation_id: int = int32(default=-1, since=2)
    rack_id: str | None = string(default=None, since=3, nullable=3)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class ConsumerProtocolAssignment(Stored, api_key=-1, versions=(0, 3)):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = array(ConsumerProtocolAssignmentTopicPartition)
    user_data: bytes | None = binary(default=None, nullable=0)


class StickyUserData(Stored, api_key=-1, versions=(0, 1)):
    """The data that the eager ``sticky`` strategy keeps of the last generation (KIP-54); no version precedes it."""

    previous_assignment: list[TopicPartition] = array(TopicPartition)
    generation: int = int32(default=-1, since=1)
