"""The cluster itself: its brokers, their directories, its metadata log and features, the producers of its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla import __version__
from ottla.client.admin.base import AdminBase, HasMoved, at_broker, by_topic, error_of, raise_for
from ottla.client.admin.descriptions import ActiveProducer, DirectoryReplica, LogDir, QuorumDescription, QuorumReplica
from ottla.client.cluster_metadata import Node
from ottla.client.connection import SOFTWARE_NAME
from ottla.client.positions import ByPartition, PartitionLike, keyed, partitions_of
from ottla.client.wrong_calls import check_count, mapped, node_ids_of
from ottla.errors import KafkaError
from ottla.messages import alter_replica_log_dirs as moving
from ottla.messages import describe_producers as producers
from ottla.messages import describe_quorum as quorum
from ottla.messages.acl_codes import Operation
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult
from ottla.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse, UpgradeType
from ottla.types import TopicPartition

METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, its controller and its brokers."""

    cluster_id: str
    """The cluster's id, 22 characters."""
    controller_id: int
    """The id of a broker that takes requests for the controller; -1 where none is known."""
    nodes: list[Node]
    """The brokers that serve; with ``include_fenced``, all that are registered."""
    fenced: frozenset[int] = frozenset()
    """Ids of the nodes that are registered and do not serve."""
    authorized_operations: frozenset[Operation] | None = None
    """What the user may do with the cluster, where that was asked for; nothing where the user lacks DESCRIBE."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of the cluster (KIP-584); its level is 0 where it is not in use."""

    name: str
    """Its name, as ``metadata.version``."""
    level: int
    """The level in force; 0 where it is not in use."""
    level_min: int
    """The lowest level that the broker which answers has."""
    level_max: int
    """The highest level that it has."""


class BrokerAdmin(AdminBase):
    async def describe_cluster(self, *, include_fenced: bool = False, include_authorized_operations: bool = False) -> ClusterDescription:
        """Returns the cluster's id, its controller and its brokers: the serving ones, or all that are registered (KIP-1073).

        ``include_authorized_operations``: and what the user may do with the cluster (KIP-430).
        """
        request = DescribeClusterRequest(include_authorized_operations, include_fenced_brokers=include_fenced)
        response = await self._cluster.ask(None, request, DescribeClusterResponse)
        raise_for(response.error_code, response.error_message)
        nodes = [Node(broker.broker_id, broker.host, broker.port, broker.rack) for broker in response.brokers]
        fenced = frozenset(broker.broker_id for broker in response.brokers if broker.is_fenced)
        bits = response.cluster_authorized_operations
        allowed = frozenset(operation for operation in Operation if bits >> operation & 1) if include_authorized_operations else None
        return ClusterDescription(response.cluster_id, response.controller_id, nodes, fenced, allowed)

    async def describe_log_dirs(self, node_ids: Iterable[int] | None = None, *, with_replicas: bool = True) -> dict[int, list[LogDir]]:
        """Returns the log directories of each broker, or of the given ones, with their replicas, sizes and space."""
        wanted = None if node_ids is None else node_ids_of(node_ids, "describe_log_dirs")
        request = DescribeLogDirsRequest(None if with_replicas else [])
        answers = await self._ask_brokers(wanted, request, DescribeLogDirsResponse)
        return {node_id: [_log_dir(found) for found in response.results] for node_id, response in answers.items()}

    async def alter_replica_log_dirs(self, node_id: int, directories: ByPartition[str]) -> dict[TopicPartition, KafkaError | None]:
        """Asks the broker to move replicas to these log directories; ``describe_log_dirs`` shows the progress.

        REPLICA_NOT_AVAILABLE says that the partition is not there, and will be made in the directory if it comes to be.
        """
        check_count("node_id", node_id)
        by_path: dict[str, list[TopicPartition]] = {}
        for key, path in keyed(directories).items():
            by_path.setdefault(path, []).append(key)
        dirs = [
            moving.AlterReplicaLogDir(path, [moving.AlterReplicaLogDirTopic(*item) for item in by_topic(keys).items()])
            for path, keys in by_path.items()
        ]
        await self._cluster.refresh()
        response = await self._cluster.ask(node_id, moving.AlterReplicaLogDirsRequest(dirs), moving.AlterReplicaLogDirsResponse)
        return {
            TopicPartition(topic.topic_name, found.partition_index): error_of(found.error_code, None)
            for topic in response.results
            for found in topic.partitions
        }

    async def describe_quorum(self) -> QuorumDescription:
        """Returns leader, voters and observers of the metadata log."""
        topic = quorum.TopicData(METADATA_TOPIC, [quorum.PartitionData(0)])
        request = quorum.DescribeQuorumRequest([topic], asks_unclean_elections=True)
        response = await self._cluster.ask(None, request, quorum.DescribeQuorumResponse)
        raise_for(response.error_code, response.error_message)
        found = response.topics[0].partitions[0]
        raise_for(found.error_code, found.error_message)
        voters, observers = (tuple(map(_quorum_replica, replicas)) for replicas in (found.current_voters, found.observers))
        return QuorumDescription(found.leader_id, found.leader_epoch, found.high_watermark, voters, observers, found.unclean_election_count)

    async def describe_features(self) -> list[Feature]:
        """Returns the features by name: the level of each in the cluster, and the levels that the broker supports."""
        response = await self._cluster.ask(None, ApiVersionsRequest(SOFTWARE_NAME, __version__), ApiVersionsResponse)
        raise_for(response.error_code, None)
        levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
        supported = {feature.name: (feature.min_version, feature.max_version) for feature in response.supported_features}
        return [Feature(name, levels.get(name, 0), *supported.get(name, (0, 0))) for name in sorted(levels.keys() | supported.keys())]

    async def unregister_broker(self, node_id: int) -> None:
        """Removes a broker that no longer runs from the cluster; its replicas stay where they are assigned."""
        check_count("node_id", node_id)
        response = await self._cluster.ask(None, UnregisterBrokerRequest(node_id), UnregisterBrokerResponse)
        raise_for(response.error_code, response.error_message)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Sets all these features to these levels, or none: KafkaError."""
        for name, level in mapped(levels, "update_features", '{"transaction.version": 2}').items():
            check_count(f"the level of {name!r}", level)
        updates = [FeatureUpdateKey(name, level, upgrade_type is not UpgradeType.UPGRADE, upgrade_type) for name, level in levels.items()]
        request = UpdateFeaturesRequest(at_broker(timeout_ms), updates, validate_only)
        response = await self._ask_within(None, request, UpdateFeaturesResponse, timeout_ms)
        raise_for(response.error_code, response.error_message)

    async def describe_producers(
        self, partitions: Iterable[PartitionLike], *, broker_id: int | None = None
    ) -> dict[TopicPartition, list[ActiveProducer] | KafkaError]:
        """Returns the producers that each partition's leader remembers, or the replica of that broker.

        KAFKA_STORAGE_ERROR for one that the broker cannot open says why, to users who may describe the cluster.
        """

        async def ask(
            node_id: int, led: list[TopicPartition], has_moved: HasMoved
        ) -> dict[TopicPartition, list[ActiveProducer] | KafkaError]:
            request = producers.DescribeProducersRequest([producers.TopicRequest(*item) for item in by_topic(led).items()])
            response = await self._ask_unless_moved(node_id, request, producers.DescribeProducersResponse, has_moved)
            return {
                TopicPartition(topic.name, found.partition_index): error_of(found.error_code, found.error_message)
                or list(map(_producer, found.active_producers))
                for topic in response.topics
                for found in topic.partitions
            }

        async def never() -> bool:
            return False

        if broker_id is None:
            return await self._ask_leaders(partitions_of(partitions), ask)
        check_count("broker_id", broker_id)
        await self._cluster.refresh()
        return await ask(broker_id, partitions_of(partitions), never)


def _log_dir(found: DescribeLogDirsResult) -> LogDir:
    replicas = tuple(
        DirectoryReplica(TopicPartition(topic.name, one.partition_index), one.partition_size, one.offset_lag, one.is_future_key)
        for topic in found.topics
        for one in topic.partitions
    )
    return LogDir(found.log_dir, error_of(found.error_code, found.log_dir), found.total_bytes, found.usable_bytes, replicas)


def _quorum_replica(found: quorum.ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        found.replica_id, found.replica_directory_id, found.log_end_offset, found.last_fetch_timestamp, found.last_caught_up_timestamp
    )


def _producer(found: producers.ProducerState) -> ActiveProducer:
    return ActiveProducer(
        found.producer_id, found.producer_epoch, found.last_sequence, found.last_timestamp, found.coordinator_epoch,
        found.current_txn_start_offset,
    )  # fmt: skip
