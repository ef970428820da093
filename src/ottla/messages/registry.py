"""Every API that ottla has a declaration for: by key, by name, by request class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from ottla.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from ottla.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from ottla.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.messages.fetch import FetchRequest, FetchResponse
from ottla.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from ottla.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.messages.metadata import MetadataRequest, MetadataResponse
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ottla.messages.produce import ProduceRequest, ProduceResponse
from ottla.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.wire.schema import Request, Response, declaration_of


class ApiKey(IntEnum):
    """The keys of the wire."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    LIST_TRANSACTIONS = 66
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its messages, and the versions they are declared for (both ends inclusive)."""

    key: int
    name: str
    request: type[Request]
    response: type[Response]
    version_min: int
    version_max: int
    flexible: int

    def is_flexible(self, version: int) -> bool:
        """Whether requests of this version have header v2."""
        return version >= self.flexible

    def has_flexible_response_header(self, version: int) -> bool:
        return version >= self.flexible and self.key != ApiKey.API_VERSIONS


def _api(request: type[Request], response: type[Response]) -> Api:
    declaration = declaration_of(request)
    low, high = declaration.versions
    return Api(declaration.code, request.__name__.removesuffix("Request"), request, response, low, high, declaration.flexible)


APIS: Final[Mapping[int, Api]] = {
    api.key: api
    for api in (
        _api(ProduceRequest, ProduceResponse),
        _api(FetchRequest, FetchResponse),
        _api(ListOffsetsRequest, ListOffsetsResponse),
        _api(MetadataRequest, MetadataResponse),
        _api(OffsetCommitRequest, OffsetCommitResponse),
        _api(OffsetFetchRequest, OffsetFetchResponse),
        _api(FindCoordinatorRequest, FindCoordinatorResponse),
        _api(JoinGroupRequest, JoinGroupResponse),
        _api(HeartbeatRequest, HeartbeatResponse),
        _api(LeaveGroupRequest, LeaveGroupResponse),
        _api(SyncGroupRequest, SyncGroupResponse),
        _api(DescribeGroupsRequest, DescribeGroupsResponse),
        _api(ListGroupsRequest, ListGroupsResponse),
        _api(ApiVersionsRequest, ApiVersionsResponse),
        _api(CreateTopicsRequest, CreateTopicsResponse),
        _api(DeleteTopicsRequest, DeleteTopicsResponse),
        _api(DeleteRecordsRequest, DeleteRecordsResponse),
        _api(InitProducerIdRequest, InitProducerIdResponse),
        _api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
        _api(DescribeConfigsRequest, DescribeConfigsResponse),
        _api(AlterConfigsRequest, AlterConfigsResponse),
        _api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
        _api(DescribeLogDirsRequest, DescribeLogDirsResponse),
        _api(CreatePartitionsRequest, CreatePartitionsResponse),
        _api(DeleteGroupsRequest, DeleteGroupsResponse),
        _api(ElectLeadersRequest, ElectLeadersResponse),
        _api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
        _api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
        _api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
        _api(OffsetDeleteRequest, OffsetDeleteResponse),
        _api(DescribeClientQuotasRequest, DescribeClientQuotasResponse),
        _api(AlterClientQuotasRequest, AlterClientQuotasResponse),
        _api(DescribeQuorumRequest, DescribeQuorumResponse),
        _api(UpdateFeaturesRequest, UpdateFeaturesResponse),
        _api(DescribeClusterRequest, DescribeClusterResponse),
        _api(DescribeProducersRequest, DescribeProducersResponse),
        _api(UnregisterBrokerRequest, UnregisterBrokerResponse),
        _api(ListTransactionsRequest, ListTransactionsResponse),
        _api(ListConfigResourcesRequest, ListConfigResourcesResponse),
        _api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
    )
}
API_OF_REQUEST: Final[Mapping[type[Request], Api]] = {api.request: api for api in APIS.values()}
API_BY_NAME: Final[Mapping[str, Api]] = {api.name: api for api in APIS.values()}
