"""Requests of administrators and clients at random, right ones and wrong ones: what two clusters are asked alike.

Each draw is a function of the cluster that is asked: ids of topics, producers and tokens differ between two of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from ottla.messages import alter_client_quotas as quotas
from ottla.messages import alter_configs as replacing
from ottla.messages import incremental_alter_configs as changing
from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from ottla.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from ottla.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion, ScramCredentialUpsertion
from ottla.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.messages.create_delegation_token import CreatableRenewer, CreateDelegationTokenRequest
from ottla.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from ottla.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.messages.delete_groups import DeleteGroupsRequest
from ottla.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.metadata.image import CLIENT_ID, IP, RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_TOPIC, USER
from ottla.wire.schema import Request

BROKERS: Final = (1, 2, 3)
UNKNOWN_BROKER: Final = 9
UNKNOWN_KIND: Final = 3
TOPICS: Final = ("a", "b", "c.d", "c_d", "e-f")
WRONG_TOPICS: Final = ("", "..", "a/b", "x" * 250, "__consumer_offsets", "unknown", "é", "<default>")
GROUPS: Final = ("g", "h", "", "g/h")
TOPIC_VALUES: Final[Mapping[str, tuple[str | None, ...]]] = {
    "retention.ms": ("60000000", "-1", "-2", "x", "", None, " 5000000 "),
    "cleanup.policy": ("compact", "delete", "compact,delete", "", "shred", "delete,compact,delete"),
    "min.insync.replicas": ("1", "2", "0", "7"),
    "unclean.leader.election.enable": ("true", "false", "TRUE", "yes"),
    "max.message.bytes": ("1000", "-1", "9999999999"),
    "compression.type": ("zstd", "producer", "brotli"),
    "leader.replication.throttled.replicas": ("*", "0:1,1:2", "x", ""),
    "min.cleanable.dirty.ratio": ("0.25", "2", "1e-3"),
    "segment.bytes": ("1048576", "14", "1"),
    "message.timestamp.type": ("LogAppendTime", "CreateTime", "logappendtime"),
    "no.such.key": ("1",),
}
BROKER_VALUES: Final[Mapping[str, tuple[str | None, ...]]] = {
    "log.retention.ms": ("70000000", "-1", "x"),
    "log.cleaner.threads": ("1", "2", "0"),
    "min.insync.replicas": ("1", "2", "0"),
    "leader.replication.throttled.rate": ("100000", "-5"),
    "num.io.threads": ("9",),
    "broker.id": ("5",),
    "log.dirs": ("/x",),
    "max.connections.per.ip.overrides": ("10.0.0.1:5", "", "x"),
    "no.such.key": ("1",),
    "unclean.leader.election.enable": ("true", "false"),
    "message.max.bytes": ("2000000", "x"),
    "listener.name.plaintext.ssl.keystore.password": ("secret",),
}
LISTS: Final = ("cleanup.policy", "leader.replication.throttled.replicas")
USERS: Final = ("alice", "b b", "é%/", "*", "", "<default>", "x,y=z")
QUOTAS: Final = (
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    *("connection_creation_rate", "no"),
)
LEVELS: Final = (1.0, 1024.0, 5e9, 77.0, 0.5, 1e15, 1234567.25, 1.0000001, 0.0, -1.0, 1e19, 1e300)


class Asked(Protocol):
    """The cluster that is asked."""

    def topic_id(self, name: str) -> bytes: ...

    def hmac(self, number: int) -> bytes: ...


Draw = Callable[[Asked], Request]


class Requests:
    """``draw`` returns the next one."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._kinds: tuple[Callable[[], Draw], ...] = (
            self._create_topics,
            self._create_topics,
            self._create_topics,
            self._create_partitions,
            self._delete_topics,
            self._change_configs,
            self._change_configs,
            self._change_loggers,
            self._replace_configs,
            self._reassign,
            self._reassign,
            self._elect,
            self._quotas,
            self._quotas,
            self._users,
            self._create_acls,
            self._delete_acls,
            self._create_token,
            self._change_token,
            self._producer_id,
            self._commit,
            self._delete_groups,
            self._delete_offsets,
            self._delete_records,
            self._move_directory,
        )

    def draw(self) -> Draw:
        return self._rng.choice(self._kinds)()

    def _few(self, of: Callable[[], object]) -> list[object]:
        return [of() for _ in range(self._rng.choice((1, 1, 1, 2, 3, 0)))]

    def _topic(self) -> str:
        return self._rng.choice(WRONG_TOPICS) if self._rng.random() < 0.1 else self._rng.choice(TOPICS)

    def _is_rare(self) -> bool:
        return self._rng.random() < 0.1

    def _replicas(self) -> list[int]:
        if self._is_rare():
            return self._rng.choice(([], [1, 1], [UNKNOWN_BROKER], [1, UNKNOWN_BROKER], [-1]))
        return self._rng.sample(BROKERS, self._rng.randint(1, 3))

    def _value(self, of: Mapping[str, tuple[str | None, ...]]) -> tuple[str, str | None]:
        name = self._rng.choice(list(of))
        return name, self._rng.choice(of[name])

    # -- topics

    def _create_topics(self) -> Draw:
        rng = self._rng

        def one() -> CreatableTopic:
            first = self._replicas()
            assignments = [first] + [rng.sample(BROKERS, len(first) if 0 < len(first) <= 3 else 1) for _ in range(rng.randint(0, 2))]
            if self._is_rare():
                assignments.append(self._replicas())
            given = [CreatableReplicaAssignment(index + self._is_rare(), nodes) for index, nodes in enumerate(assignments)]
            configs = [CreatableTopicConfig(*self._value(TOPIC_VALUES)) for _ in range(rng.choice((0, 0, 1, 2)))]
            if rng.random() < 0.15:
                count, factor = rng.choice(((3, 5), (0, 1), (1, 0), (-2, 3), (2, 0)))
                return CreatableTopic(self._topic(), count, factor, [], configs)
            count, factor = (1, 1) if self._is_rare() else (-1, -1)
            return CreatableTopic(self._topic(), count, factor, given, configs)

        request = CreateTopicsRequest(self._few(one), 30_000, self._is_rare())  # type: ignore[arg-type]
        return lambda asked: request

    def _create_partitions(self) -> Draw:
        rng = self._rng

        def one() -> CreatePartitionsTopic:
            count = rng.choice((2, 3, 4, 5, 1, 0, -1))
            added = [CreatePartitionsAssignment(self._replicas()) for _ in range(rng.randint(1, 3))]
            return CreatePartitionsTopic(self._topic(), count, added)

        request = CreatePartitionsRequest(self._few(one), 30_000, self._is_rare())  # type: ignore[arg-type]
        return lambda asked: request

    def _delete_topics(self) -> Draw:
        names = [self._topic() for _ in range(self._rng.choice((1, 1, 2)))]
        if self._rng.random() < 0.5:
            return lambda asked: DeleteTopicsRequest([DeleteTopicState(name) for name in names], timeout_ms=30_000)
        return lambda asked: DeleteTopicsRequest([DeleteTopicState(None, asked.topic_id(name)) for name in names], timeout_ms=30_000)

    def _reassign(self) -> Draw:
        def one() -> ReassignableTopic:
            index = self._rng.choice((0, 0, 0, 1, 2, 7))
            return ReassignableTopic(self._topic(), [ReassignablePartition(index, None if self._is_rare() else self._replicas())])

        request = AlterPartitionReassignmentsRequest(30_000, not self._is_rare(), self._few(one))  # type: ignore[arg-type]
        return lambda asked: request

    def _elect(self) -> Draw:
        named = [TopicPartitions(self._topic(), self._rng.choice(([0], [0, 1], [7]))) for _ in range(self._rng.choice((1, 2)))]
        request = ElectLeadersRequest(self._rng.choice((0, 0, 0, 1, 5)), None if self._is_rare() else named, 30_000)
        return lambda asked: request

    # -- configurations

    def _resource(self) -> tuple[int, str, tuple[str, str | None]]:
        rng = self._rng
        kind = UNKNOWN_KIND if self._is_rare() else rng.choice((RESOURCE_TOPIC, RESOURCE_BROKER))
        if kind == RESOURCE_TOPIC:
            return kind, self._topic(), self._value(TOPIC_VALUES)
        if kind == RESOURCE_BROKER:
            return kind, rng.choice(("", "", "1", "2", "3", "9", "x")), self._value(BROKER_VALUES)
        return kind, "x", ("a", "b")

    def _change_loggers(self) -> Draw:
        """Nothing else is in the request."""
        level = self._rng.choice(("DEBUG", "INFO", "LOUD", "WARN"))
        change = changing.AlterableConfig(self._rng.choice(("ottla.broker", "no.logger")), self._rng.choice((0, 0, 1, 2)), level)
        request = changing.IncrementalAlterConfigsRequest(
            [changing.AlterConfigsResource(RESOURCE_BROKER_LOGGER, self._rng.choice(("1", "2", "3", "x", "")), [change])], self._is_rare()
        )
        return lambda asked: request

    def _change_configs(self) -> Draw:
        def one() -> changing.AlterConfigsResource:
            kind, name, (key, value) = self._resource()
            operations = (0, 1, 2, 3, 9) if self._is_rare() else (2, 3, 0) if key in LISTS else (0, 0, 0, 1)
            made = [changing.AlterableConfig(key, self._rng.choice(operations), value)]
            return changing.AlterConfigsResource(kind, name, made)

        request = changing.IncrementalAlterConfigsRequest(self._few(one), self._is_rare())  # type: ignore[arg-type]
        return lambda asked: request

    def _replace_configs(self) -> Draw:
        def one() -> replacing.AlterConfigsResource:
            kind, name, (key, value) = self._resource()
            return replacing.AlterConfigsResource(kind, name, [] if self._is_rare() else [replacing.AlterableConfig(key, value)])

        request = replacing.AlterConfigsRequest(self._few(one), self._is_rare())  # type: ignore[arg-type]
        return lambda asked: request

    # -- users

    def _quotas(self) -> Draw:
        rng = self._rng

        def name() -> str | None:
            return None if rng.random() < 0.2 else rng.choice(USERS)

        def entity() -> list[quotas.EntityData]:
            kinds: tuple[str, ...] = rng.choice(((USER,), (CLIENT_ID,), (USER, CLIENT_ID), (IP,), (CLIENT_ID, USER)))
            if self._is_rare():
                kinds = rng.choice(((USER, IP), ("group",), (USER, USER), ()))
            return [quotas.EntityData(kind, rng.choice(("10.0.0.1", "localhost", "", None)) if kind == IP else name()) for kind in kinds]

        def one() -> quotas.EntryData:
            parts = entity()
            keys: tuple[str, ...] = ("connection_creation_rate",) if any(part.entity_type == IP for part in parts) else QUOTAS[:4]
            if self._is_rare():
                keys = QUOTAS
            changes = [quotas.OpData(rng.choice(keys), rng.choice(LEVELS), rng.random() < 0.3) for _ in range(rng.choice((1, 1, 2)))]
            return quotas.EntryData(parts, changes)

        request = quotas.AlterClientQuotasRequest(self._few(one), self._is_rare())  # type: ignore[arg-type]
        return lambda asked: request

    def _users(self) -> Draw:
        rng = self._rng
        made = [
            ScramCredentialUpsertion(
                rng.choice(USERS), rng.choice((1, 1, 2, 2, 3)), rng.choice((4096, 8192, 4095, 20000)), b"s" * 9, b"p" * 32
            )
            for _ in range(rng.choice((0, 1, 2)))
        ]
        ended = [ScramCredentialDeletion(rng.choice(USERS), rng.choice((1, 2, 0))) for _ in range(rng.choice((0, 1)))]
        request = AlterUserScramCredentialsRequest(ended, made)
        return lambda asked: request

    def _create_acls(self) -> Draw:
        rng = self._rng

        def one() -> AclCreation:
            if self._is_rare():
                kind, operation, permission = (rng.choice(list(one)) for one in (ResourceType, Operation, Permission))
            else:
                kind = rng.choice((ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.USER))
                operation, permission = (
                    rng.choice((Operation.READ, Operation.ALL, Operation.ALTER)),
                    rng.choice((Permission.ALLOW, Permission.DENY)),
                )
            name = rng.choice(("kafka-cluster", "a", "*", "g", "", "User:alice", "x y"))
            pattern = rng.choice((PatternType.LITERAL, PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH))
            principal = rng.choice(("User:alice", "User:*", "Group:g", "alice", "", "User:é"))
            return AclCreation(kind, name, pattern, principal, rng.choice(("*", "10.0.0.1", "")), operation, permission)

        request = CreateAclsRequest(self._few(one) + self._few(one))  # type: ignore[arg-type]
        return lambda asked: request

    def _delete_acls(self) -> Draw:
        rng = self._rng
        wanted = DeleteAclsFilter(
            rng.choice((ResourceType.ANY, ResourceType.TOPIC, ResourceType.GROUP, *ResourceType)),
            rng.choice((None, "a", "*")),
            rng.choice((PatternType.ANY, PatternType.MATCH, *PatternType)),
            rng.choice((None, "User:alice", "alice")),
            rng.choice((None, "*")),
            rng.choice((Operation.ANY, Operation.READ, *Operation)),
            rng.choice((Permission.ANY, Permission.ANY, *Permission)),
        )
        return lambda asked: DeleteAclsRequest([wanted])

    def _create_token(self) -> Draw:
        rng = self._rng
        renewers = [
            CreatableRenewer(rng.choice(("User", "User", "Group")), rng.choice(("bob", "", "é"))) for _ in range(rng.choice((0, 1, 2)))
        ]
        owner = rng.choice(((None, None), (None, None), ("User", "alice"), ("User", ""), ("Group", "x")))
        request = CreateDelegationTokenRequest(owner[0], owner[1], renewers, rng.choice((-1, 100_000_000, 0, -7)))
        return lambda asked: request

    def _change_token(self) -> Draw:
        rng = self._rng
        number, period = rng.randrange(4), rng.choice((50_000_000, -1, 100, 0))
        if rng.random() < 0.5:
            return lambda asked: RenewDelegationTokenRequest(asked.hmac(number), period)
        return lambda asked: ExpireDelegationTokenRequest(asked.hmac(number), period)

    # -- clients

    def _producer_id(self) -> Draw:
        request = InitProducerIdRequest(self._rng.choice((None, "t", "", "t/u")), self._rng.choice((60_000, 0, -1, 2**31 - 1)))
        return lambda asked: request

    def _commit(self) -> Draw:
        rng = self._rng
        topic = rng.choice(TOPICS)
        part = OffsetCommitRequestPartition(
            rng.choice((0, 0, 1, 7)), rng.choice((0, 5, -1)), committed_metadata=rng.choice(("", "m" * 5000))
        )
        group, generation, member = rng.choice(GROUPS), rng.choice((-1, -1, 3)), rng.choice(("", "", "m"))
        return lambda asked: OffsetCommitRequest(
            group, generation, member, topics=[OffsetCommitRequestTopic(topic, asked.topic_id(topic), [part])]
        )

    def _delete_groups(self) -> Draw:
        request = DeleteGroupsRequest([self._rng.choice(GROUPS)])
        return lambda asked: request

    def _delete_offsets(self) -> Draw:
        request = OffsetDeleteRequest(
            self._rng.choice(GROUPS), [OffsetDeleteRequestTopic(self._topic(), [OffsetDeleteRequestPartition(0)])]
        )
        return lambda asked: request

    def _delete_records(self) -> Draw:
        part = DeleteRecordsPartition(self._rng.choice((0, 1)), self._rng.choice((0, -1, 5, -7)))
        request = DeleteRecordsRequest([DeleteRecordsTopic(self._topic(), [part])], 10_000)
        return lambda asked: request

    def _move_directory(self) -> Draw:
        place = AlterReplicaLogDir(self._rng.choice(("/data", "/more", "/x", "")), [AlterReplicaLogDirTopic(self._topic(), [0])])
        return lambda asked: AlterReplicaLogDirsRequest([place])
