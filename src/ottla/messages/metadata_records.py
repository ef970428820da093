"""The records of the metadata log."""

from __future__ import annotations

from ottla.wire.schema import Stored, Struct, array, binary, boolean, float64, int8, int16, int32, int64, string, uint16, uuid


class TopicRecord(Stored, api_key=2, versions=(0, 0), flexible=0):
    name: str = string()
    topic_id: bytes = uuid()


class PartitionRecord(Stored, api_key=3, versions=(0, 2), flexible=0):
    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(int32())
    isr: list[int] = array(int32())
    removing_replicas: list[int] = array(int32())
    adding_replicas: list[int] = array(int32())
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(uuid(), since=1)
    eligible_leader_replicas: list[int] | None = array(int32(), default=None, since=2, nullable=2, tag=1)
    last_known_elr: list[int] | None = array(int32(), default=None, since=2, nullable=2, tag=2)


class PartitionChangeRecord(Stored, api_key=5, versions=(0, 2), flexible=0):
    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[int] | None = array(int32(), default=None, nullable=0, tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: list[int] | None = array(int32(), default=None, nullable=0, tag=2)
    removing_replicas: list[int] | None = array(int32(), default=None, nullable=0, tag=3)
    adding_replicas: list[int] | None = array(int32(), default=None, nullable=0, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[bytes] | None = array(uuid(), default=None, since=1, nullable=1, tag=8)
    eligible_leader_replicas: list[int] | None = array(int32(), default=None, since=2, nullable=2, tag=6)
    last_known_elr: list[int] | None = array(int32(), default=None, since=2, nullable=2, tag=7)


class RemoveTopicRecord(Stored, api_key=9, versions=(0, 0), flexible=0):
    topic_id: bytes = uuid()


class ConfigRecord(Stored, api_key=4, versions=(0, 0), flexible=0):
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable=0)


class BrokerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Stored, api_key=0, versions=(0, 4), flexible=0):
    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean(since=2)
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable=0)
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean(since=1)
    log_dirs: list[bytes] = array(uuid(), since=3, tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid(), default=None, since=4, nullable=4, tag=1)


class UnregisterBrokerRecord(Stored, api_key=1, versions=(0, 0), flexible=0):
    broker_id: int = int32()
    broker_epoch: int = int64()


class FenceBrokerRecord(Stored, api_key=7, versions=(0, 0), flexible=0):
    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Stored, api_key=8, versions=(0, 0), flexible=0):
    id: int = int32()
    epoch: int = int64()


class BrokerRegistrationChangeRecord(Stored, api_key=17, versions=(0, 3), flexible=0):
    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8(since=1, tag=1)
    log_dirs: list[bytes] = array(uuid(), since=2, tag=2)
    cordoned_log_dirs: list[bytes] | None = array(uuid(), default=None, since=3, nullable=3, tag=3)


class ControllerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class ControllerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterControllerRecord(Stored, api_key=27, versions=(0, 0), flexible=0):
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)


class ClearElrRecord(Stored, api_key=28, versions=(0, 0), flexible=0):
    topic_name: str = string()


class ZkMigrationStateRecord(Stored, api_key=21, versions=(0, 0), flexible=0):
    zk_migration_state: int = int8()


class ProducerIdsRecord(Stored, api_key=15, versions=(0, 0), flexible=0):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class FeatureLevelRecord(Stored, api_key=12, versions=(0, 0), flexible=0):
    name: str = string()
    feature_level: int = int16()


class QuotaEntity(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


class ClientQuotaRecord(Stored, api_key=14, versions=(0, 0), flexible=0):
    entity: list[QuotaEntity] = array(QuotaEntity)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class UserScramCredentialRecord(Stored, api_key=11, versions=(0, 0), flexible=0):
    name: str = string()
    mechanism: int = int8()
    salt: bytes = binary()
    stored_key: bytes = binary()
    server_key: bytes = binary()
    iterations: int = int32()


class RemoveUserScramCredentialRecord(Stored, api_key=22, versions=(0, 0), flexible=0):
    name: str = string()
    mechanism: int = int8()


class AccessControlEntryRecord(Stored, api_key=18, versions=(0, 0), flexible=0):
    id: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Stored, api_key=19, versions=(0, 0), flexible=0):
    id: bytes = uuid()


class DelegationTokenRecord(Stored, api_key=10, versions=(0, 0), flexible=0):
    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string())
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class RemoveDelegationTokenRecord(Stored, api_key=26, versions=(0, 0), flexible=0):
    token_id: str = string()


class NoOpRecord(Stored, api_key=20, versions=(0, 0), flexible=0):
    pass


class BeginTransactionRecord(Stored, api_key=23, versions=(0, 0), flexible=0):
    name: str | None = string(default=None, nullable=0, tag=0)


class EndTransactionRecord(Stored, api_key=24, versions=(0, 0), flexible=0):
    pass


class AbortTransactionRecord(Stored, api_key=25, versions=(0, 0), flexible=0):
    reason: str | None = string(default=None, nullable=0, tag=0)
