"""Users with rights at random, who ask everything: Apache Kafka 4.3 and ottla refuse the same, and show the same names."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from tests.interop.both_asked import NAMES, Both, Id, Known, Pool, Pools, drawn, one_of, some_of
from tests.interop.both_brokers import both_brokers, make_topics
from tests.interop.drawn_batches import DrawnBatch
from tests.waiting import eventually

from ottla.errors import ErrorCode
from ottla.messages import registry
from ottla.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.messages.describe_acls import DescribeAclsRequest
from ottla.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.messages.describe_user_scram_credentials import UserName
from ottla.messages.elect_leaders import TopicPartitions
from ottla.messages.fetch import ReplicaState
from ottla.messages.metadata import MetadataRequestTopic
from ottla.messages.produce import ProduceRequest
from ottla.wire.schema import ZERO_UUID, Request

SEQUENCES: Final = 60
STEPS: Final = (40, 60)
ADMIN: Final = "admin"
JAAS: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
GIVEN: Final[Mapping[str, str]] = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": " ".join(
        [JAAS, f'username="{ADMIN}" password="{ADMIN}"', *(f'user_{name}="{name}"' for name in [ADMIN, *(f"u{n}" for n in range(1000))])]
    )
    + ";",
    "delegation.token.secret.key": "secret",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
}
RIGHTS_CODES: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = 2, 3, 4, 5, 6, 7
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(2, 13)
OPERATIONS: Final[Mapping[int, tuple[int, ...]]] = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, ALL, ALL),
    GROUP: (READ, DESCRIBE, DELETE, DESCRIBE_CONFIGS, ALTER_CONFIGS, ALL),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, ALL),
    TRANSACTIONAL_ID: (WRITE, DESCRIBE, ALL),
    TOKEN: (DESCRIBE,),
    USER: (13, 14),
}
PLAIN: Final = DrawnBatch((b"v",))
TRANSACTIONAL: Final = DrawnBatch((b"v",), producer=99_999, epoch=0, sequence=0, is_transactional=True)
LITERAL, PREFIXED, ALLOW, DENY = 3, 4, 3, 2
LEFT_OUT: Final = frozenset({"SaslHandshake", "SaslAuthenticate", "ApiVersions", "UpdateFeatures", "Envelope"})
KNOWN: Final = (
    Known(
        "DescribeQuorum", "nodes.listeners.name", "CONTROLLER", "PLAINTEXT", "a broker of ottla that is a controller, too, has one listener"
    ),
)


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    with both_brokers(GIVEN, ADMIN) as ports:
        yield ports


def seen(value: Any) -> Any:
    """Which names are shown, and what is refused for want of rights."""
    if isinstance(value, list):
        return [seen(item) for item in value if not isinstance(item, str)] or value
    if not isinstance(value, dict):
        return value
    if value.get("error_code", "0") != "0":
        return {"error_code": value["error_code"] if int(value["error_code"]) in RIGHTS_CODES else "another"}
    shown = {}
    for name, found in value.items():
        if isinstance(found, dict | list) and name not in ("records", "configs"):
            shown[name] = seen(found)
        elif "error_code" in name:
            shown[name] = found if int(found) in RIGHTS_CODES else "another"
        elif name == "topic_id":
            shown[name] = found if found.startswith("Id") else "another"
        elif name in NAMES or name.endswith("authorized_operations"):
            shown[name] = found
    return shown


class Rights:
    """One user, and two topics, groups and transactional ids each, to which it may have some rights."""

    def __init__(self, both: Both, number: int) -> None:
        self.admin = both
        self.user = f"u{number}"
        self.both = Both(
            both.sides[0].port, both.sides[1].port, KNOWN, user=self.user, view=seen, compared=("topic_authorized_operations",)
        )
        self.rng = random.Random(number)
        self.topics = [f"t{number}", f"s{number}"]
        self.groups = [f"g{number}", f"h{number}"]
        self.ids = [f"x{number}", f"y{number}"]
        self.pools = self._pools()
        served = {api.request for api in registry.API_OF_REQUEST.values()}
        self.kinds = [kind for kind in served if kind.__name__.removesuffix("Request") not in LEFT_OUT and self._is_served(kind)]
        self.kinds.sort(key=lambda kind: kind.__name__)

    def _is_served(self, kind: type[Request]) -> bool:
        try:
            low, high = self.admin.versions(kind)
        except KeyError:
            return False
        return low <= high

    def _acls(self) -> list[AclCreation]:
        made = []
        for _ in range(self.rng.choice([0, 1, 2, 4, 7, 10])):
            kind = self.rng.choice([TOPIC, TOPIC, TOPIC, GROUP, GROUP, CLUSTER, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER])
            names = {TOPIC: self.topics, GROUP: self.groups, TRANSACTIONAL_ID: self.ids, USER: ["User:other"]}.get(kind, ["*"])
            name = "kafka-cluster" if kind == CLUSTER else self.rng.choice([*names * 3, "*", names[0][:1]])
            pattern = PREFIXED if kind != CLUSTER and name != "*" and self.rng.random() < 0.3 else LITERAL
            operation = self.rng.choice(OPERATIONS[kind])
            permission = self.rng.choice([ALLOW, ALLOW, ALLOW, DENY])
            made.append(AclCreation(kind, name, pattern, f"User:{self.user}", "*", operation, permission))
        return made

    def _pools(self) -> Pools:
        topic: Pool = one_of(*self.topics * 3, "missing")
        group: Pool = one_of(*self.groups * 3, "missing")
        transactional: Pool = one_of(*self.ids * 3, "missing")
        index: Pool = one_of(0)
        return {
            **dict.fromkeys(("name", "topic", "topic_name"), topic),
            "topic_names": some_of(topic),
            "topic_id": one_of(*(Id("topic", name) for name in self.topics * 3), bytes([7]) * 16),
            **dict.fromkeys(("group_id",), group),
            **dict.fromkeys(("coordinator_keys", "groups_names", "group_ids", "DescribeGroups.groups"), some_of(group)),
            "FindCoordinator.key": one_of(*self.groups, *self.ids),
            "FindCoordinator.coordinator_keys": some_of(one_of(*self.groups, *self.ids)),
            "key_type": one_of(0, 1),
            **dict.fromkeys(("transactional_id", "v3_and_below_transactional_id"), transactional),
            "Produce.transactional_id": one_of(None, *self.ids),
            "InitProducerId.transactional_id": one_of(None, *self.ids),
            "transactional_ids": some_of(transactional),
            **dict.fromkeys(("producer_id", "v3_and_below_producer_id"), one_of(-1)),
            **dict.fromkeys(("producer_epoch", "v3_and_below_producer_epoch"), one_of(-1)),
            "transaction_timeout_ms": one_of(60_000),
            "enable_2_pc": one_of(False),
            "keep_prepared_txn": one_of(False),
            **dict.fromkeys(("partition_index", "index", "partition"), index),
            **dict.fromkeys(("partition_indexes", "AddPartitionsToTxn.v3_and_below_topics.partitions"), some_of(index)),
            "ElectLeaders.topic_partitions": lambda rng: [TopicPartitions(topic(rng), [0])],
            "ElectLeaders.topic_partitions.partitions": some_of(index),
            "acks": one_of(1, -1),
            "timeout_ms": one_of(5000),
            "isolation_level": one_of(0, 1),
            "protocol_name": one_of("range"),
            "DescribeQuorum.topics.topic_name": one_of("__cluster_metadata"),
            "records": one_of(PLAIN),
            "max_wait_ms": one_of(0),
            "session_id": one_of(0),
            "session_epoch": one_of(-1),
            "forgotten_topics_data": one_of([]),
            "replica_id": one_of(-1),
            "replica_state": one_of(ReplicaState()),
            "cluster_id": one_of(None),
            "replica_directory_id": one_of(ZERO_UUID),
            "high_watermark": one_of(2**63 - 1),
            "rack_id": one_of(""),
            "partition_max_bytes": one_of(1000),
            "max_bytes": one_of(1000),
            "Metadata.topics": lambda rng: rng.choice([None, [MetadataRequestTopic(name=name) for name in some_of(topic)(rng)]]),
            "allow_auto_topic_creation": one_of(False),
            "num_partitions": one_of(1),
            "replication_factor": one_of(1),
            "CreateTopics.topics.name": one_of(*(name + "-new" for name in self.topics), *self.topics),
            "CreateTopics.topics.assignments": one_of([]),
            "CreateTopics.topics.configs": one_of([]),
            "validate_only": one_of(True),
            "count": one_of(3),
            "CreatePartitions.topics.assignments": one_of(None),
            "DeleteTopics.topics.name": one_of("missing", "missing too", None),
            "DeleteTopics.topic_names": some_of(one_of("missing", "missing too")),
            "DeleteTopics.topics.topic_id": one_of(bytes([7]) * 16),
            "DeleteRecords.topics.partitions.offset": one_of(0),
            "DescribeTopicPartitions.cursor": one_of(None),
            "response_partition_limit": one_of(2000),
            "endpoint_type": one_of(1),
            "resource_type": one_of(2, 2, 4, 32),
            "resource_name": one_of(*self.topics, *self.groups, "missing"),
            "configuration_keys": one_of(None),
            "AlterConfigs.resources.configs": one_of([]),
            "IncrementalAlterConfigs.resources.configs": one_of([]),
            "replicas": one_of([1]),
            "path": one_of("/nowhere"),
            "broker_id": one_of(99),
            **dict.fromkeys(("resource_type_filter", "CreateAcls.creations.resource_type"), one_of(2, 3)),
            **dict.fromkeys(("resource_name_filter", "CreateAcls.creations.resource_name"), one_of("acl-test")),
            **dict.fromkeys(("pattern_type_filter", "resource_pattern_type"), one_of(3)),
            **dict.fromkeys(("principal", "principal_filter"), one_of("User:other")),
            **dict.fromkeys(("host_filter",), one_of(None)),
            **dict.fromkeys(("operation", "permission_type"), one_of(3)),
            "host": one_of("*"),
            "AlterUserScramCredentials.deletions.name": one_of("none"),
            "AlterUserScramCredentials.upsertions.name": one_of(""),
            "member_id": one_of(""),
            "group_instance_id": one_of(None),
            "session_timeout_ms": one_of(0),  # which no group takes: members that come and go in their time are seen by one alone
            "rebalance_timeout_ms": one_of(1),
            "protocol_type": one_of("consumer"),
            "subscribed_topic_names": lambda rng: some_of(topic)(rng),
            "subscribed_topic_regex": one_of(None),
            "member_epoch": one_of(0),
            "server_assignor": one_of(None),
            "topic_partitions": one_of([]),
            "transaction_version": one_of(0),
            "coordinator_epoch": one_of(0),
            "WriteTxnMarkers.markers.topics.name": one_of("missing"),
            "state_filters": one_of([]),
            "producer_id_filters": one_of([]),
            "transactional_id_pattern": one_of(None),
            "duration_filter": one_of(-1),
            "timestamp": one_of(-1, -2),
            "DescribeUserScramCredentials.users": one_of([], [UserName("none")]),
            **dict.fromkeys(("owner_principal_type", "principal_type"), one_of("User")),
            **dict.fromkeys(("owner_principal_name", "principal_name"), one_of("other")),
            "hmac": one_of(b"x"),
        }

    def play(self) -> None:
        make_topics(self.admin, {name: (1, {}) for name in self.topics})
        for side, known in zip(self.both.sides, self.admin.sides):
            side.ids, side.named = known.ids, known.named
        made = self._acls()
        if made:
            self.admin.ask(CreateAclsRequest(made), 3)
            eventually(self._counts, lambda counts: counts[0] == counts[1] == len({str(acl) for acl in made}))
        try:
            for _ in range(self.rng.randrange(*STEPS)):
                kind = self.rng.choice(self.kinds)
                version = self.rng.randint(*self.admin.versions(kind))
                request: Any = drawn(kind, version, self.pools, self.rng)
                for resource in getattr(request, "resources", ()):
                    if resource.resource_type == 4:
                        resource.resource_name = "1"
                if isinstance(request, ProduceRequest) and request.transactional_id is not None:
                    for topic in request.topic_data:
                        for data in topic.partition_data:
                            data.records = TRANSACTIONAL  # type: ignore[assignment]
                self.both.ask(request, version)
                if kind is CreateDelegationTokenRequest:
                    eventually(self._tokens, lambda counts: counts[0] == counts[1])
        except AssertionError as error:
            raise AssertionError(f"{error}\nby {made}") from None
        finally:
            self.both.close()
            self.admin.met.update(self.both.met)
            self.admin.unneeded = [row for row in self.admin.unneeded if row in self.both.unneeded]

    def _tokens(self) -> list[int]:
        """How many tokens both show: Kafka's broker does later than its controller."""
        return [len(answer.tokens) for answer in self.admin.answers(DescribeDelegationTokenRequest(None), 3)]

    def _counts(self) -> list[int]:
        """How many ACLs the user has in both."""
        wanted = DescribeAclsRequest(1, None, 1, f"User:{self.user}", None, 1, 1)
        return [sum(len(found.acls) for found in answer.resources) for answer in self.admin.answers(wanted, 3)]


def test_rights(ports: tuple[int, int]) -> None:
    both = Both(*ports, KNOWN, user=ADMIN)
    for number in range(SEQUENCES):
        Rights(both, number).play()
    both.close()
    print(both.met.most_common())
    assert not both.unneeded, "what may differ, and does not"
    assert {code for _, codes in both.met for code in codes.split(",")} >= {str(int(code)) for code in RIGHTS_CODES}
    assert len({api for api, _ in both.met}) == len(Rights(both, 0).kinds), "each API was asked"
