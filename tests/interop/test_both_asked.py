"""Thousands of requests at random, right ones and wrong ones, that Apache Kafka 4.3 and ottla answer alike."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import pytest
from tests.interop.both_asked import Both, Id, Known, Pool, Pools, Side, drawn, one_of, some_of
from tests.interop.both_brokers import make_topics
from tests.interop.known_of_reads import ORDER
from tests.waiting import eventually

from ottla.messages import alter_configs as replacing
from ottla.messages import incremental_alter_configs as changing
from ottla.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.messages.create_partitions import CreatePartitionsRequest
from ottla.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.messages.delete_groups import DeleteGroupsRequest
from ottla.messages.delete_records import DeleteRecordsRequest
from ottla.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.messages.describe_cluster import DescribeClusterRequest
from ottla.messages.describe_configs import DescribeConfigsRequest
from ottla.messages.describe_groups import DescribeGroupsRequest
from ottla.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.messages.elect_leaders import ElectLeadersRequest
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.heartbeat import HeartbeatRequest
from ottla.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.messages.leave_group import LeaveGroupRequest
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.messages.offset_commit import OffsetCommitRequest
from ottla.messages.offset_delete import OffsetDeleteRequest
from ottla.messages.offset_fetch import OffsetFetchRequest
from ottla.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.messages.sync_group import SyncGroupRequest
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from ottla.wire.schema import ZERO_UUID, Request

SEQUENCES: Final = 80
STEPS: Final = (8, 30)
TOPICS: Final = {"t1": 3, "t2": 1}
SUBSCRIPTION: Final = b"\0\0\0\0\0\1\0\2t1\xff\xff\xff\xff"
UNKNOWN_ID: Final = bytes([7]) * 16
BROKER_SHARE: Final = 0.3
LIFE_MS: Final = 60_000
"""Of sessions, and of what members have to give up: longer than a sequence takes, so that no time is over at one of the two alone."""
PATIENCE_MS: Final = 3000
"""Of members that join for the others, which one thread plays too: a join where others do not come back takes as long."""


@pytest.fixture(scope="module")
def ports(both_ports: tuple[int, int]) -> tuple[int, int]:
    """Of brokers that have the topics."""
    both = Both(*both_ports, ())
    make_topics(both, {name: (count, {}) for name, count in TOPICS.items()})
    both.close()
    return both_ports


def told(both: Both) -> None:
    """Learns the ids of the topics."""
    for side, answer in zip(both.sides, both.answers(MetadataRequest(None), 12)):
        for topic in answer.topics:
            side.learn(Id("topic", topic.name), topic.topic_id)


# -- groups -----------------------------------------------------------------------------------------------------------

GROUP_REQUESTS: Final[Mapping[type[Request], int]] = {
    JoinGroupRequest: 6,
    SyncGroupRequest: 6,
    HeartbeatRequest: 3,
    LeaveGroupRequest: 3,
    OffsetCommitRequest: 6,
    OffsetFetchRequest: 4,
    OffsetDeleteRequest: 3,
    DescribeGroupsRequest: 3,
    DeleteGroupsRequest: 2,
    FindCoordinatorRequest: 1,
    ConsumerGroupHeartbeatRequest: 7,
    ConsumerGroupDescribeRequest: 3,
}
NAMED: Final = "Kafka has an empty group of each name that a refused join or commit has had"
GROUPS_KNOWN: Final = (
    Known("ConsumerGroupHeartbeat", "error_code", "69", "25", "docs/decisions/0023: clients join again, which Kafka's code ends"),
    Known("JoinGroup", "member_id", "", None, "a refused member is shown its id: no client looks at it then"),
    Known("OffsetDelete", "error_code", "0", "69", NAMED),
    Known("OffsetDelete", "topics", None, None, NAMED),
    Known("DeleteGroups", "results.error_code", "0", "69", NAMED),
    Known("DescribeGroups", "groups.group_state", "Empty", "Dead", NAMED),
    Known("OffsetCommit", "partitions.error_code", "25", "22", NAMED),
    Known("OffsetCommit", "partitions.error_code", "25", "69", NAMED),
)


class Groups:
    """One classic group, one of consumers, and their members."""

    def __init__(self, both: Both, number: int) -> None:
        self.both = both
        self.rng = random.Random(number)
        self.names = [f"c{number}", f"n{number}"]
        self.members: dict[type[Request], list[Id]] = {JoinGroupRequest: [], ConsumerGroupHeartbeatRequest: []}  # by what they joined with
        self.instances: dict[Id, str | None] = {}
        self.epochs = [0]
        self.pools = self._pools()

    def _pools(self) -> Pools:
        group: Pool = one_of(*self.names * 5, f"missing-from-{self.names[0]}")
        epoch: Pool = lambda rng: rng.choice([-1, 0, 1, 2, *self.epochs * 3])  # noqa: E731
        topic: Pool = one_of("t1", "t1", "t2", "missing", "", "bad name!")
        return {
            "group_id": group,
            "FindCoordinator.key": group,
            "key_type": one_of(0, 0, 0, 2, 7, -1),
            **dict.fromkeys(("coordinator_keys", "groups_names", "group_ids", "DescribeGroups.groups"), some_of(group)),
            "member_id": lambda rng: rng.choice(["", "bogus", *(known for members in self.members.values() for known in members * 2)]),
            "JoinGroup.member_id": lambda rng: rng.choice(["", "bogus", *self.members[JoinGroupRequest] * 2]),
            "ConsumerGroupHeartbeat.member_id": lambda rng: rng.choice(["", "stranger", *self.members[ConsumerGroupHeartbeatRequest] * 2]),
            **dict.fromkeys(("generation_id", "generation_id_or_member_epoch", "member_epoch"), epoch),
            **dict.fromkeys(("group_instance_id", "instance_id"), one_of(None, None, None, "i1", "i2")),
            "session_timeout_ms": one_of(LIFE_MS, LIFE_MS, LIFE_MS, 0, 10**7),
            "rebalance_timeout_ms": one_of(LIFE_MS, LIFE_MS, -1),
            "JoinGroup.rebalance_timeout_ms": one_of(PATIENCE_MS),
            "protocol_type": one_of("consumer", "consumer", "connect", "", None),
            "JoinGroup.protocols": some_of(one_of("range", "range", "rr")),
            "protocol_name": one_of("range", "range", "rr", None),
            "committed_offset": one_of(0, 5, 100, -1, -5),
            "committed_metadata": one_of("", "m", None),
            "OffsetCommit.topics.name": one_of("t1", "t2"),
            "OffsetCommit.topics.topic_id": one_of(Id("topic", "t1"), Id("topic", "t2")),
            "OffsetCommit.topics.partitions.partition_index": one_of(0),
            "partition_index": one_of(0, 1, 2, 3, -1),
            "partition_indexes": some_of(one_of(0, 1, 3)),
            "name": topic,
            "topic_id": one_of(Id("topic", "t1"), Id("topic", "t2"), UNKNOWN_ID, ZERO_UUID),
            "subscribed_topic_names": one_of(None, ["t2"], ["t2"]),  # assignors have no choice, and Kafka assigns once a second
            "subscribed_topic_regex": one_of(None, None, ""),  # Kafka matches it later
            "server_assignor": one_of(None, None, "uniform", "range", "none"),
            "rack_id": one_of(None, "r"),
            "topic_partitions": one_of(None, []),
        }

    def play(self) -> None:
        for _ in range(self.rng.randrange(*STEPS)):
            [kind] = self.rng.choices(list(GROUP_REQUESTS), list(GROUP_REQUESTS.values()))
            version = self.rng.randint(*self.both.versions(kind))
            request = drawn(kind, version, self.pools, self.rng)
            if isinstance(request, JoinGroupRequest):
                request.protocols = [JoinGroupRequestProtocol(str(name), SUBSCRIPTION) for name in request.protocols]
                self._ask_as_itself(request, version, request.group_instance_id, "group_instance_id", "generation_id")
            elif isinstance(request, ConsumerGroupHeartbeatRequest):
                if isinstance(request.member_id, Id) and self.instances[request.member_id]:
                    request.member_epoch = max(1, request.member_epoch)  # one that joined and joins again is served, and by Kafka refused
                self._ask_as_itself(request, version, request.instance_id, "instance_id", "member_epoch")
            else:
                self.both.ask(request, version)

    def _ask_as_itself(self, request: Any, version: int, instance: str | None, name: str, epoch: str) -> None:
        """A member that is known keeps its instance id; one that joins is known from then on."""
        known = request.member_id
        if isinstance(known, Id):
            setattr(request, name, self.instances[known])
        elif known:
            setattr(request, name, None)
        fresh = Id("member", f"{self.names[0]}-{len(self.instances)}")

        def learn(side: Side, answer: Any) -> None:
            if answer.member_id and not known:
                side.learn(fresh, answer.member_id)

        answer = self.both.ask(request, version, learn)
        if not known and answer.member_id:
            self.members[type(request)].append(fresh)
            self.instances[fresh] = getattr(request, name)
        if not answer.error_code:
            self.epochs.append(getattr(answer, epoch))


def test_groups(ports: tuple[int, int]) -> None:
    both = Both(*ports, GROUPS_KNOWN)
    told(both)
    for number in range(SEQUENCES):
        Groups(both, number).play()
    both.close()
    print(both.met.most_common())
    assert not both.unneeded, "what may differ, and does not"
    assert {api for api, _ in both.met} == {kind.__name__.removesuffix("Request") for kind in GROUP_REQUESTS}
    assert {("JoinGroup", "0"), ("SyncGroup", "0"), ("ConsumerGroupHeartbeat", "0"), ("OffsetCommit", "0")} <= both.met.keys()


# -- topics and their configurations ----------------------------------------------------------------------------------

TOPIC_REQUESTS: Final[Mapping[type[Request], int]] = {
    CreateTopicsRequest: 6,
    DeleteTopicsRequest: 1,
    CreatePartitionsRequest: 4,
    MetadataRequest: 4,
    DescribeTopicPartitionsRequest: 2,
    DescribeClusterRequest: 1,
    replacing.AlterConfigsRequest: 3,
    changing.IncrementalAlterConfigsRequest: 8,
    DescribeConfigsRequest: 3,
    ElectLeadersRequest: 2,
    AlterPartitionReassignmentsRequest: 3,
    ListPartitionReassignmentsRequest: 2,
    DeleteRecordsRequest: 2,
    ListOffsetsRequest: 2,
    OffsetForLeaderEpochRequest: 2,
    DescribeUserScramCredentialsRequest: 1,
    AlterUserScramCredentialsRequest: 2,
}
VALUES: Final[Mapping[str, tuple[str | None, ...]]] = {
    "cleanup.policy": ("delete", "compact", "compact,delete", "Compact", "", None, "nonsense", "delete,delete"),
    "retention.ms": ("-1", "-2", "1000", "abc", "", None, "99999999999999999999", "1e3", "0x10"),
    "min.insync.replicas": ("1", "2", "0", "-1", None, "1.5"),
    "segment.bytes": ("1048576", "1", "0", "99999999999", None),
    "compression.type": ("producer", "gzip", "zstd", "GZIP", "uncompressed", ""),
    "max.message.bytes": ("0", "-1", "1000000", "2147483648"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime"),
    "min.cleanable.dirty.ratio": ("0.0", "1.0", "0.5", "1.1", "-0.1"),
    "unclean.leader.election.enable": ("true", "false", "TRUE", "yes", ""),
    "flush.messages": ("0", "1", "9223372036854775807", "9223372036854775808"),
    "leader.replication.throttled.replicas": ("*", "", "0:1", "0:1,1:1", "x", "none", "0", None),
    "compression.gzip.level": ("-1", "1", "9", "10", "0"),
    "compression.zstd.level": ("-131072", "22", "23", "3"),
    "max.compaction.lag.ms": ("0", "1"),
    "nonsense.key": ("x",),
}
SHOWN_LATER: Final = frozenset({CreateTopicsRequest, DeleteTopicsRequest, CreatePartitionsRequest})
"""Kafka's controller answers before the broker shows it."""
BROKER_VALUES: Final[Mapping[str, tuple[str | None, ...]]] = {  # none that topics show: Kafka's show it later
    "log.cleaner.io.max.bytes.per.second": ("-1", "1000", "abc", None),
    "log.cleaner.threads": ("1", "2", "0", "100"),
    "leader.replication.throttled.rate": ("1", "0", "-1", "1000"),
    "log.dirs": ("/x",),
    "node.id": ("7",),
    "nonsense": ("1",),
    "producer.id.expiration.ms": ("0", "1", "100000"),
}
TOPICS_KNOWN: Final = (
    *(
        Known(api, "responses.error_code", code, None, ORDER)
        for api in ("AlterConfigs", "IncrementalAlterConfigs")
        for code in ("40", "42")
    ),
    Known("IncrementalAlterConfigs", "responses.error_code", "-1", "42", "an operation that there is not: Kafka fails"),
    Known("ListOffsets", "partitions.error_code", "35", "3", ORDER),
    Known("ElectLeaders", "replica_election_results", None, [], "of a request that is refused, and where there is nothing to elect"),
)


class Topics:
    """Two topics, which come and go."""

    def __init__(self, both: Both, number: int) -> None:
        self.both = both
        self.rng = random.Random(number)
        self.names = [f"a{number}", f"b{number}"]
        self.pools = self._pools()

    def _pools(self) -> Pools:
        topic: Pool = one_of(*self.names * 8, "another", "bad name!", "", "..", "x" * 250)
        replicas: Pool = one_of([1], [1], [], [2], [1, 1], [1, 2])
        index: Pool = one_of(0, 0, 1, 2, 7, -1)

        def alterable(declared: Any, values: Mapping[str, tuple[str | None, ...]]) -> Pool:
            def draw(rng: random.Random) -> Any:
                names = rng.sample(list(values), rng.choice([0, 1, 1, 2]))
                more = {"config_operation": rng.choice([0, 0, 0, 1, 2, 3, 9])} if declared is changing.AlterableConfig else {}
                return [declared(name, value=rng.choice(values[name]), **more) for name in names]

            return draw

        def assignments(rng: random.Random) -> list[CreatableReplicaAssignment]:
            indexes = rng.choice([[], [], [], [], [], [], [], [0], [0, 1], [1], [0, 2]])
            return [CreatableReplicaAssignment(at, replicas(rng)) for at in indexes]

        return {
            "name": topic,
            "topic": topic,
            "topic_id": one_of(*(Id("topic", name) for name in self.names * 2), UNKNOWN_ID, ZERO_UUID),
            "topic_names": some_of(topic),
            "DescribeTopicPartitions.topics.name": one_of(*self.names, "another", "bad name!"),
            "DeleteTopics.topics": self._to_delete,
            "num_partitions": one_of(1, 1, 2, 3, 3, 0, -1),
            "replication_factor": one_of(1, 1, 1, 1, -1, 0, 2),
            "timeout_ms": one_of(10_000),
            "CreateTopics.topics.assignments": assignments,
            "CreateTopics.topics.configs": alterable(CreatableTopicConfig, VALUES),
            "CreatePartitions.topics.assignments": one_of(None),
            "count": one_of(1, 2, 3, 4, 0, -1),
            "Metadata.topics": lambda rng: [MetadataRequestTopic(name=name) for name in some_of(topic)(rng)],
            "allow_auto_topic_creation": one_of(False),
            **dict.fromkeys(("include_cluster_authorized_operations", "include_topic_authorized_operations"), one_of(False)),
            "response_partition_limit": one_of(2000),
            "DescribeTopicPartitions.cursor": one_of(None),
            "DescribeCluster.endpoint_type": one_of(1, 2, 9),
            "resource_type": one_of(RESOURCE_TOPIC),
            "resource_name": one_of(*self.names * 3, "another"),
            "AlterConfigs.resources.configs": alterable(replacing.AlterableConfig, VALUES),
            "IncrementalAlterConfigs.resources.configs": alterable(changing.AlterableConfig, VALUES),
            "configuration_keys": some_of(one_of(*VALUES), 1, 2),
            "include_documentation": one_of(False),
            "include_synonyms": one_of(False),
            "election_type": one_of(0, 1, 2),
            "ElectLeaders.topic_partitions.partitions": some_of(index),
            "AlterPartitionReassignments.topics.partitions.replicas": one_of(None, [1], [2], [], [1, 1], [-1]),
            "partition_index": index,
            "partition": index,
            "partition_indexes": some_of(index),
            "offset": one_of(0, -1, 5, -2),
            "timestamp": one_of(-1, -2, -3, 0, 10),
            "current_leader_epoch": one_of(-1, 0, 1, 9),
            "OffsetForLeaderEpoch.topics.partitions.leader_epoch": one_of(0, 0, 1, -1, 9),
            "replica_id": one_of(-1),
            "isolation_level": one_of(0, 1),
            "mechanism": one_of(1, 2, 0, 9),
            "iterations": one_of(4096, 8192, 1, 100_000),
            "DescribeUserScramCredentials.users": one_of([], [UserName("u1")], [UserName("none")], [UserName("")]),
            **dict.fromkeys(
                ("AlterUserScramCredentials.deletions.name", "AlterUserScramCredentials.upsertions.name"), one_of("u1", "u2", "")
            ),
            "salt": one_of(b"salt"),
            "salted_password": one_of(b"p" * 32, b"p" * 64),
        }

    def play(self) -> None:
        self.both.ask(CreateTopicsRequest([CreatableTopic(name, 2, 1) for name in self.names], 10_000), 7, self._learn)
        eventually(self._shown, lambda shown: shown[0] == shown[1] and -1 not in shown[0].values())
        for _ in range(self.rng.randrange(*STEPS)):
            [kind] = self.rng.choices(list(TOPIC_REQUESTS), list(TOPIC_REQUESTS.values()))
            version = self.rng.randint(*self.both.versions(kind))
            request = drawn(kind, version, self.pools, self.rng)
            if isinstance(request, changing.IncrementalAlterConfigsRequest) and self.rng.random() < BROKER_SHARE:
                own = _value_of_broker(self.rng)
                request.resources = [changing.AlterConfigsResource(RESOURCE_BROKER, self.rng.choice(["1", "", "2", "x", "-1"]), own)]
            if isinstance(request, AlterUserScramCredentialsRequest) and request.upsertions:
                request.deletions = []  # Kafka changes one credential of a user in a request
            self.both.ask(request, version, self._learn)
            if kind in SHOWN_LATER:
                eventually(self._shown, lambda shown: shown[0] == shown[1] and -1 not in shown[0].values())

    def _to_delete(self, rng: random.Random) -> list[DeleteTopicState]:
        name = rng.choice(self.names)
        return [rng.choice([DeleteTopicState(name), DeleteTopicState(None, Id("topic", name)), DeleteTopicState(name, UNKNOWN_ID)])]  # type: ignore[arg-type]

    def _shown(self) -> list[dict[str, int]]:
        """The topics of both with their counts of partitions that are led."""
        shown = []
        for answer in self.both.answers(MetadataRequest(None), 12):
            wanted = {topic.name: range(len(topic.partitions)) for topic in answer.topics if topic.name in self.names}
            topics = [ListOffsetsTopic(name, [ListOffsetsPartition(index) for index in indexes]) for name, indexes in wanted.items()]
            led = [found for each in self.both.answers(ListOffsetsRequest(-1, topics=topics), 1) for found in each.topics]
            counts = {topic.name: len(topic.partitions) for topic in answer.topics}
            shown.append(counts | {topic.name: -1 for topic in led if any(found.error_code for found in topic.partitions)})
        return shown

    def _learn(self, side: Side, answer: Any) -> None:
        for topic in getattr(answer, "topics", ()):
            if getattr(topic, "topic_id", ZERO_UUID) != ZERO_UUID and topic.name:
                side.learn(Id("topic", topic.name), topic.topic_id)


def _value_of_broker(rng: random.Random) -> list[changing.AlterableConfig]:
    name = rng.choice(list(BROKER_VALUES))
    return [changing.AlterableConfig(name, rng.choice([0, 0, 0, 1, 2]), rng.choice(BROKER_VALUES[name]))]


def test_topics(ports: tuple[int, int]) -> None:
    both = Both(*ports, TOPICS_KNOWN)
    for number in range(SEQUENCES):
        Topics(both, number).play()
    both.close()
    print(both.met.most_common())
    assert not both.unneeded, "what may differ, and does not"
    assert {api for api, _ in both.met} == {kind.__name__.removesuffix("Request") for kind in TOPIC_REQUESTS}
    assert {("CreateTopics", "0"), ("DeleteTopics", "0"), ("CreatePartitions", "0"), ("IncrementalAlterConfigs", "0")} <= both.met.keys()
