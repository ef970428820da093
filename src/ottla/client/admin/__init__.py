"""Administration: topics, groups, configuration, cluster. Each method answers for each item; one failure spoils no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.client.cluster import Cluster, Node, TopicMetadata
from ottla.client.fetcher import offsets_for_times
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from ottla.types import TopicPartition

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
DEFAULT_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1 means the broker's default."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None
    assignments: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    nodes: list[Node]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str


class Admin:
    """Owns its cluster: ``close`` closes the connections."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def close(self) -> None:
        await self._cluster.close()

    # Topics

    async def create_topics(self, topics: Sequence[NewTopic], *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> dict[str, KafkaError | None]:
        """None for each topic that was created, else why not."""
        request = CreateTopicsRequest([_creatable(topic) for topic in topics], timeout_ms, False)
        response = await self._cluster.ask(None, request, CreateTopicsResponse)
        return {result.name: _error(result.error_code, result.error_message) for result in response.topics}

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> dict[str, KafkaError | None]:
        """None for each topic that is gone, else why not."""
        request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], list(names), timeout_ms)
        response = await self._cluster.ask(None, request, DeleteTopicsResponse)
        return {result.name or "": _error(result.error_code, result.error_message) for result in response.responses}

    async def list_topics(self) -> dict[str, TopicMetadata]:
        """Every topic, internal ones too."""
        return await self._cluster.all_topics()

    async def describe_topic(self, name: str) -> TopicMetadata:
        """UNKNOWN_TOPIC_OR_PARTITION when there is none."""
        await self._cluster.refresh([name])
        found = self._cluster.topics.get(name)
        if found is None:
            raise KafkaError(self._cluster.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {name!r}")
        return found

    async def describe_configs(self, resource_type: int, name: str) -> list[DescribeConfigsResourceResult]:
        """Every key of a topic (2) or broker (4), with source, synonyms and documentation."""
        request = DescribeConfigsRequest([DescribeConfigsResource(resource_type, name, None)], True, True)
        [result] = (await self._cluster.ask(None, request, DescribeConfigsResponse)).results
        _raise(result.error_code, result.error_message)
        return result.configs

    async def describe_cluster(self) -> ClusterDescription:
        response = await self._cluster.ask(None, DescribeClusterRequest(), DescribeClusterResponse)
        _raise(response.error_code, response.error_message)
        nodes = [Node(broker.broker_id, broker.host, broker.port, broker.rack) for broker in response.brokers]
        return ClusterDescription(response.cluster_id, response.controller_id, nodes)

    # Offsets

    async def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int, int]]:
        """Offset, timestamp and leader epoch of the first record not older than each time; -1 the end, -2 the start."""
        return await offsets_for_times(self._cluster, dict(times))

    # Groups

    async def list_groups(self) -> list[ListedGroup]:
        """The groups of every broker."""
        await self._cluster.refresh()
        groups: list[ListedGroup] = []
        for node_id in sorted(self._cluster.nodes):
            response = await self._cluster.ask(node_id, ListGroupsRequest(), ListGroupsResponse)
            _raise(response.error_code, None)
            groups += response.groups
        return groups

    async def describe_group(self, group_id: str) -> DescribedGroup:
        """State "Dead" when the group is not known."""
        node_id = await self._coordinator(group_id)
        response = await self._cluster.ask(node_id, DescribeGroupsRequest([group_id]), DescribeGroupsResponse)
        [group] = response.groups
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            group.group_state = "Dead"
            return group
        _raise(group.error_code, group.error_message)
        return group

    async def delete_groups(self, group_ids: Sequence[str]) -> dict[str, KafkaError | None]:
        results: dict[str, KafkaError | None] = {}
        for group_id in group_ids:
            node_id = await self._coordinator(group_id)
            response = await self._cluster.ask(node_id, DeleteGroupsRequest([group_id]), DeleteGroupsResponse)
            for result in response.results:
                results[result.group_id] = _error(result.error_code, None)
        return results

    async def committed_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed; partitions without a commit are left out. All partitions when None."""
        wanted = None
        if partitions is not None:
            by_topic: dict[str, list[int]] = {}
            for partition in partitions:
                by_topic.setdefault(partition.topic, []).append(partition.partition)
            wanted = [OffsetFetchRequestTopic(topic, indexes) for topic, indexes in by_topic.items()]
        connection = await self._cluster.connection(await self._coordinator(group_id))
        # Version 7 names topics, and one group: newer ones name them by id, which a committed topic may have lost.
        request = OffsetFetchRequest(group_id, wanted, [OffsetFetchRequestGroup(group_id)], True)
        response = await connection.ask(request, OffsetFetchResponse, timeout_ms=self._cluster.request_timeout_ms, version_max=7)
        _raise(response.error_code, None)
        return {
            TopicPartition(topic.name, found.partition_index): CommittedOffset(
                found.committed_offset, found.committed_leader_epoch, found.metadata or ""
            )
            for topic in response.topics
            for found in topic.partitions
            if not found.error_code and found.committed_offset >= 0
        }

    async def set_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """The empty group's offsets are set. KafkaError when it has members, or a partition is not known."""
        by_topic: dict[str, OffsetCommitRequestTopic] = {}
        for partition, offset in offsets.items():
            topic = by_topic.setdefault(partition.topic, OffsetCommitRequestTopic(partition.topic))
            topic.partitions.append(OffsetCommitRequestPartition(partition.partition, offset, -1, ""))
        request = OffsetCommitRequest(group_id, topics=list(by_topic.values()))
        connection = await self._cluster.connection(await self._coordinator(group_id))
        response = await connection.ask(request, OffsetCommitResponse, timeout_ms=self._cluster.request_timeout_ms, version_max=9)
        for answer in response.topics:
            for result in answer.partitions:
                _raise(result.error_code, f"{answer.name}-{result.partition_index} of group {group_id!r}")

    async def _coordinator(self, group_id: str) -> int:
        """Waits while the coordinator is being found or loaded."""
        deadline_ms = self._cluster.world.clock.monotonic_ms() + DEFAULT_TIMEOUT_MS
        attempt = 0
        while True:
            try:
                return await self._cluster.coordinator(group_id)
            except KafkaError as error:
                if not error.is_retriable:
                    raise
                await self._cluster.pause(attempt, deadline_ms, error)
                attempt += 1


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = [CreatableReplicaAssignment(index, list(nodes)) for index, nodes in (topic.assignments or {}).items()]
    configs = [CreatableTopicConfig(name, value) for name, value in (topic.configs or {}).items()]
    return CreatableTopic(topic.name, topic.partition_count, topic.replication_factor, assignments, configs)


def _error(code: int, message: str | None) -> KafkaError | None:
    return KafkaError(code, message or "") if code else None


def _raise(code: int, message: str | None) -> None:
    if code:
        raise KafkaError(code, message or "")
