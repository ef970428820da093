"""Topics: created, described, grown, deleted; their records; who leads their partitions and where the replicas are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.client.admin.base import AdminBase, HasMoved, at_broker, by_topic, error_of, raise_for
from ottla.client.admin.descriptions import PartitionDescription, Reassignment
from ottla.client.admin.resources import ConfigValue, text_of
from ottla.client.cluster_metadata import TopicMetadata
from ottla.client.offset_lookup import FoundOffset, offsets_for_times
from ottla.client.other_keywords import with_hints
from ottla.client.positions import ByPartition, PartitionLike, keyed, partitions_of
from ottla.client.wrong_calls import check_count, check_name, check_times, mapped, named, node_ids_of
from ottla.errors import ErrorCode, KafkaError
from ottla.messages import alter_partition_reassignments as reassigning
from ottla.messages import delete_records as deleting
from ottla.messages import describe_topic_partitions as describing
from ottla.messages import elect_leaders as electing
from ottla.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NamedInt, TopicPartition, topic_text

PARTITIONS_MAX = 2_000
"""Of one page."""


@with_hints
@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 means the broker's default."""

    name: str
    """1 to 249 of the characters ``a-z A-Z 0-9 . _ -``."""
    partition_count: int = -1
    """How many partitions it has, 1 or more; -1 for the brokers' ``num.partitions``."""
    replication_factor: int = -1
    """How many brokers have each partition, 1 or more; -1 for the brokers' ``default.replication.factor``."""
    configs: Mapping[str, ConfigValue] | None = None
    """The topic's own values, by key."""
    assignments: Mapping[int, Sequence[int]] | None = None
    """The replicas of each partition, in place of the two counts."""


class OffsetSpec(NamedInt):
    """The start or the end of a partition, in place of a time."""

    EARLIEST = EARLIEST_TIMESTAMP
    """The offset of the first record."""
    LATEST = LATEST_TIMESTAMP
    """The offset after the last record."""


class TopicAdmin(AdminBase):
    """Each method answers for each item; one failure spoils no other."""

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int | None = None, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Creates topics, or only asks whether it can: None for each topic that was created or could be, else why not."""
        wanted = [_creatable(topic) for topic in _several(topics)]
        request = CreateTopicsRequest(wanted, at_broker(timeout_ms), validate_only)
        response = await self._ask_within(None, request, CreateTopicsResponse, timeout_ms)
        return {result.name: error_of(result.error_code, result.error_message) for result in response.topics}

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int | None = None) -> dict[str, KafkaError | None]:
        """Deletes topics: None for each topic that was deleted, else why not."""
        names = named(names, "delete_topics")
        request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], names, at_broker(timeout_ms))
        response = await self._ask_within(None, request, DeleteTopicsResponse, timeout_ms)
        return {result.name or "": error_of(result.error_code, result.error_message) for result in response.responses}

    async def list_topics(self) -> dict[str, TopicMetadata]:
        """Returns every topic, internal ones too."""
        return await self._cluster.all_topics()

    async def describe_topic(self, name: str) -> TopicMetadata:
        """Describes the topic. UNKNOWN_TOPIC_OR_PARTITION when there is none."""
        check_name("name", name)
        await self._cluster.refresh([name])
        found = self._cluster.topics.get(name)
        if found is None:
            code = self._cluster.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise KafkaError(code, topic_text(name, is_absent=code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return found

    async def describe_partitions(self) -> dict[TopicPartition, PartitionDescription]:
        """Returns all partitions of all topics with their eligible leader replicas (KIP-966), read page by page."""
        found: dict[TopicPartition, PartitionDescription] = {}
        cursor: describing.Cursor | None = None
        while True:
            request = describing.DescribeTopicPartitionsRequest([], PARTITIONS_MAX, cursor)
            response = await self._cluster.ask(None, request, describing.DescribeTopicPartitionsResponse)
            for topic in response.topics:
                found |= {
                    TopicPartition(topic.name or "", partition.partition_index): _description(partition) for partition in topic.partitions
                }
            if response.next_cursor is None:
                return found
            cursor = describing.Cursor(response.next_cursor.topic_name, response.next_cursor.partition_index)

    async def offsets_for_times(self, times: ByPartition[int]) -> dict[TopicPartition, FoundOffset]:
        """Returns the first record not older than each time, in milliseconds since 1970; the start or the end for an ``OffsetSpec``."""
        wanted = keyed(times)
        check_times(wanted)
        return await offsets_for_times(self._cluster, {partition: int(time) for partition, time in wanted.items()})

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str, KafkaError | None]:
        """Raises the topics' partition counts to these. ``assignments`` are the replicas of the new partitions, by topic."""
        topics = []
        for name, count in mapped(counts, "create_partitions", '{"orders": 6}').items():
            check_count(f"the partition count of {name!r}", count)
            rows = (assignments or {}).get(name)
            topics.append(
                CreatePartitionsTopic(name, count, None if rows is None else [CreatePartitionsAssignment(list(row)) for row in rows])
            )
        request = CreatePartitionsRequest(topics, at_broker(timeout_ms), validate_only)
        response = await self._ask_within(None, request, CreatePartitionsResponse, timeout_ms)
        return {result.name: error_of(result.error_code, result.error_message) for result in response.results}

    async def delete_records(self, offsets: ByPartition[int], *, timeout_ms: int | None = None) -> dict[TopicPartition, int | KafkaError]:
        """Deletes the records before the offsets (-1: before the high watermark). Returns each partition's new start, or the error."""
        wanted = keyed(offsets)
        for partition, offset in wanted.items():
            check_count(f"the offset of {partition}", offset)

        async def delete(leader: int, partitions: list[TopicPartition], has_moved: HasMoved) -> dict[TopicPartition, int | KafkaError]:
            topics = [
                deleting.DeleteRecordsTopic(
                    topic, [deleting.DeleteRecordsPartition(index, wanted[TopicPartition(topic, index)]) for index in indexes]
                )
                for topic, indexes in by_topic(partitions).items()
            ]
            request = deleting.DeleteRecordsRequest(topics, at_broker(timeout_ms))
            response = await self._ask_unless_moved(leader, request, deleting.DeleteRecordsResponse, has_moved, timeout_ms=timeout_ms)
            results: dict[TopicPartition, int | KafkaError] = {}
            for answer in response.topics:
                for result in answer.partitions:
                    key = TopicPartition(answer.name, result.partition_index)
                    results[key] = error_of(result.error_code, _where(key, wanted[key], result.error_code)) or result.low_watermark
            return results

        return await self._ask_leaders(wanted, delete)

    async def elect_leaders(
        self, partitions: Iterable[PartitionLike] | None = None, *, unclean: bool = False, timeout_ms: int | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Lets the preferred replicas lead; with ``unclean`` any replica, where a partition has no leader. All partitions when None."""
        wanted = None if partitions is None else [electing.TopicPartitions(*item) for item in by_topic(partitions_of(partitions)).items()]
        request = electing.ElectLeadersRequest(int(unclean), wanted, at_broker(timeout_ms))
        response = await self._ask_within(None, request, electing.ElectLeadersResponse, timeout_ms)
        raise_for(response.error_code, None)
        return {
            TopicPartition(found.topic, result.partition_id): error_of(result.error_code, result.error_message)
            for found in response.replica_election_results
            for result in found.partition_result
        }

    async def alter_partition_reassignments(
        self, replicas: ByPartition[Sequence[int] | None], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Starts to move the partitions to these replicas; None cancels a move."""
        topics = []
        wanted = {key: None if row is None else node_ids_of(row, f"the move of {key}") for key, row in keyed(replicas).items()}
        for topic, indexes in by_topic(wanted).items():
            rows = {index: wanted[TopicPartition(topic, index)] for index in indexes}
            parts = [reassigning.ReassignablePartition(index, row) for index, row in rows.items()]
            topics.append(reassigning.ReassignableTopic(topic, parts))
        request = reassigning.AlterPartitionReassignmentsRequest(at_broker(timeout_ms), topics=topics)
        response = await self._ask_within(None, request, reassigning.AlterPartitionReassignmentsResponse, timeout_ms)
        raise_for(response.error_code, response.error_message)
        return {
            TopicPartition(found.name, result.partition_index): error_of(result.error_code, result.error_message)
            for found in response.responses
            for result in found.partitions
        }

    async def list_partition_reassignments(self, *, timeout_ms: int | None = None) -> dict[TopicPartition, Reassignment]:
        """Returns the moves that are in progress."""
        request = ListPartitionReassignmentsRequest(at_broker(timeout_ms))
        response = await self._ask_within(None, request, ListPartitionReassignmentsResponse, timeout_ms)
        raise_for(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, found.partition_index): Reassignment(
                tuple(found.replicas), tuple(found.adding_replicas), tuple(found.removing_replicas)
            )
            for topic in response.topics
            for found in topic.partitions
        }


def _not_new(given: object) -> TypeError:
    return TypeError(f'create_topics takes a list of NewTopic, such as [NewTopic("orders", partition_count=3)], and not {given!r}')


def _where(partition: TopicPartition, offset: int, code: int) -> str:
    if code != ErrorCode.OFFSET_OUT_OF_RANGE:
        return str(partition)
    return f"{partition}: offset {offset} is after its end, or negative; -1 deletes all that may be read"


def _several(topics: Any) -> Iterable[NewTopic]:
    """Returns what was given. TypeError for one topic alone, or its name, which is no list."""
    if not isinstance(topics, Iterable) or isinstance(topics, str):
        raise _not_new(topics)
    return topics


def _creatable(topic: NewTopic) -> CreatableTopic:
    """Returns the topic as the request has it. TypeError for what is no NewTopic, such as a name."""
    if not isinstance(topic, NewTopic):
        raise _not_new(topic)
    assignments = [
        CreatableReplicaAssignment(index, node_ids_of(nodes, f"NewTopic(assignments=) of partition {index!r}"))
        for index, nodes in mapped(topic.assignments or {}, "NewTopic(assignments=)", "{0: [1, 2]}").items()
    ]
    check_name("name", topic.name)
    configs_of_topic = mapped(topic.configs or {}, "NewTopic(configs=)", '{"retention.ms": 3_600_000}')
    check_count("partition_count", topic.partition_count)
    check_count("replication_factor", topic.replication_factor)
    configs = [CreatableTopicConfig(name, text_of(name, value)) for name, value in configs_of_topic.items()]
    return CreatableTopic(topic.name, topic.partition_count, topic.replication_factor, assignments, configs)


def _description(found: describing.DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        found.leader_id,
        found.leader_epoch,
        tuple(found.replica_nodes),
        tuple(found.isr_nodes),
        None if found.eligible_leader_replicas is None else tuple(found.eligible_leader_replicas),
        None if found.last_known_elr is None else tuple(found.last_known_elr),
        tuple(found.offline_replicas),
        error_of(found.error_code, None),
    )
