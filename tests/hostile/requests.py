"""Well-formed requests that ask for what cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from tests.hostile.case import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, MIB, Case
from tests.hostile.wire_bytes import TOPIC, request, with_long_string

from ottla.messages.alter_configs import AlterableConfig as AlterConfigsEntry
from ottla.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from ottla.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.messages.delete_groups import DeleteGroupsRequest
from ottla.messages.delete_topics import DeleteTopicsRequest
from ottla.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.heartbeat import HeartbeatRequest
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from ottla.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


def fetch(partition: FetchPartition | None = None, **fields: object) -> FetchRequest:
    values: dict[str, object] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": MIB} | fields
    wanted = partition or FetchPartition(0, fetch_offset=0, partition_max_bytes=MIB)
    return FetchRequest(**({"topics": [FetchTopic(TOPIC, partitions=[wanted])]} | values))  # type: ignore[arg-type]


def fetches() -> Iterator[Case]:
    for limit in (0, -1, INT_MIN, INT_MAX):
        yield Case(f"max bytes {limit}", request(fetch(max_bytes=limit), 11))
        yield Case(f"partition max bytes {limit}", request(fetch(FetchPartition(0, fetch_offset=0, partition_max_bytes=limit)), 11))
        yield Case(f"min bytes {limit}", request(fetch(min_bytes=limit), 11))
    for offset in (-1, -3, LONG_MIN, 1_000_000, LONG_MAX):
        yield Case(f"offset {offset}", request(fetch(FetchPartition(0, fetch_offset=offset, partition_max_bytes=MIB)), 11))
    for epoch in (-5, 100, INT_MAX):
        yield Case(f"leader epoch {epoch}", request(fetch(FetchPartition(0, epoch, 0, partition_max_bytes=MIB)), 11))
    for session, epoch in ((12345, 1), (-1, 1), (INT_MAX, INT_MAX), (0, 5), (7, -1)):
        yield Case(f"session {session} in epoch {epoch}", request(fetch(session_id=session, session_epoch=epoch), 11))
    for replica in (1, 0, 999, -2, -3, INT_MIN):
        yield Case(f"replica id {replica} from a client", request(fetch(replica_id=replica), 11))
    for level in (2, -1, 127):
        yield Case(f"isolation level {level}", request(fetch(isolation_level=level), 11))
    forgotten = [ForgottenTopic(TOPIC, partitions=list(range(1000)))] * 100
    yield Case("100,000 forgotten partitions", lambda: request(fetch(forgotten_topics_data=forgotten), 11))
    yield Case("rack of 32 KiB", request(fetch(rack_id="r" * 32_000), 11))
    yield Case("wait -1", request(fetch(max_wait_ms=-1), 11))
    yield Case("wait for 24 days", request(fetch(max_wait_ms=INT_MAX, min_bytes=INT_MAX), 11), is_answered=False)
    for index in (-1, 1000, INT_MAX):
        yield Case(f"partition {index}", request(fetch(FetchPartition(index, fetch_offset=0, partition_max_bytes=MIB)), 11))
    yield Case("unknown topic id", request(FetchRequest(topics=[FetchTopic(topic_id=b"\x17" * 16, partitions=[FetchPartition(0)])]), 13))
    many = [FetchTopic(TOPIC, partitions=[FetchPartition(0, partition_max_bytes=MIB)] * 20_000)]
    yield Case("20,000 times the same partition", lambda: request(FetchRequest(max_bytes=MIB, topics=many), 11))


def join(**fields: object) -> bytes:
    values: dict[str, object] = {
        "group_id": "hostile", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 1000, "member_id": "", "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol("range", b"")],
    }  # fmt: skip
    return request(JoinGroupRequest(**(values | fields)), 5)  # type: ignore[arg-type]


def groups_() -> Iterator[Case]:
    for timeout in (0, -1, INT_MAX, INT_MIN):
        yield Case(f"session timeout {timeout}", join(session_timeout_ms=timeout))
    for timeout in (-1, INT_MIN):
        yield Case(f"rebalance timeout {timeout}", join(rebalance_timeout_ms=timeout))
    yield Case("no group id", join(group_id=""))
    yield Case("group id of 32 KiB", join(group_id="g" * 32_000))
    yield Case("member id of another client", join(member_id="not-mine"))
    yield Case("no protocols", join(protocols=[]))
    yield Case("no protocol type", join(protocol_type=""))
    yield Case("100,000 protocols", lambda: join(protocols=[JoinGroupRequestProtocol(f"p{n}", b"") for n in range(100_000)]))
    yield Case("metadata of 7 MiB", lambda: join(protocols=[JoinGroupRequestProtocol("range", bytes(7 * MIB))]))
    yield Case("instance id of another client", join(group_instance_id="i", member_id="not-mine"))
    yield Case("empty instance id", join(group_instance_id=""))
    yield Case("heartbeat of nobody", request(HeartbeatRequest("hostile", 5, "nobody"), 3))
    yield Case("heartbeat in generation -5", request(HeartbeatRequest("hostile", -5, "nobody"), 3))
    yield Case("heartbeat without a group", request(HeartbeatRequest("", 1, ""), 3))
    assignments = [SyncGroupRequestAssignment("nobody", bytes(MIB))]
    yield Case("sync by nobody", lambda: request(SyncGroupRequest("hostile", 1, "nobody", assignments=assignments), 3))
    yield Case("sync in generation 2**31-1", request(SyncGroupRequest("hostile", INT_MAX, "nobody"), 3))
    yield Case("leave of nobody", request(LeaveGroupRequest("hostile", members=[MemberIdentity("nobody")]), 4))
    yield Case("10,000 leave", lambda: request(LeaveGroupRequest("hostile", members=[MemberIdentity(f"m{n}") for n in range(10_000)]), 4))
    for key_type in (1, 2, 3, -1, 127):
        yield Case(f"coordinator of type {key_type}", request(FindCoordinatorRequest("x", key_type), 3))
    yield Case("coordinator of nothing", request(FindCoordinatorRequest("", 0), 3))
    keys = [f"g{n}" for n in range(20_000)]
    yield Case("coordinators of 20,000 groups", lambda: request(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4))
    yield Case("delete of nobody's group", request(DeleteGroupsRequest(["nobody", "", "g" * 1000]), 1))
    for transactional_id, timeout in (("txn", 1000), ("", 1000), (None, -1), (None, INT_MAX)):
        yield Case(f"producer id for {transactional_id!r} in {timeout} ms", request(InitProducerIdRequest(transactional_id, timeout), 1))


def beat(**fields: object) -> bytes:
    """The first heartbeat of a member of the consumer protocol."""
    values: dict[str, object] = {
        "group_id": "hostile-consumers", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": [TOPIC], "topic_partitions": [],
    }  # fmt: skip
    return request(ConsumerGroupHeartbeatRequest(**(values | fields)), 1)  # type: ignore[arg-type]


def consumer_groups() -> Iterator[Case]:
    for epoch in (-1, -2, -3, 5, INT_MAX, INT_MIN):
        yield Case(f"member epoch {epoch}", beat(member_epoch=epoch))
        yield Case(f"member epoch {epoch} of an instance", beat(member_epoch=epoch, instance_id="i"))
    for timeout in (-1, 0, INT_MAX, INT_MIN):
        yield Case(f"rebalance timeout {timeout}", beat(rebalance_timeout_ms=timeout))
    yield Case("no group id", beat(group_id=""))
    yield Case("no member id", beat(member_id=""))
    for name in ("group_id", "member_id", "instance_id", "rack_id", "server_assignor", "subscribed_topic_regex"):
        yield Case(f"{name} of 32,767 bytes", lambda name=name: beat(**{name: "x" * 32_767}))  # type: ignore[misc]
        yield Case(f"{name} of 1 MiB", lambda name=name: with_long_string(beat(**{name: "longer"}), "longer", b"x" * MIB))  # type: ignore[misc]
    for name in ("instance_id", "rack_id", "server_assignor", "subscribed_topic_regex"):
        yield Case(f"{name} empty", beat(**{name: ""}))
    yield Case("no subscription", beat(subscribed_topic_names=None))
    yield Case("names of topics that cannot be", beat(subscribed_topic_names=["..", "", "a/b", "x" * 300, "nul\x00"]))
    yield Case("100,000 topics", lambda: beat(subscribed_topic_names=[f"t{n}" for n in range(100_000)]))
    yield Case("100,000 times the same topic", lambda: beat(subscribed_topic_names=[TOPIC] * 100_000))
    for pattern in ("(", "[a", "a{1000}{1000}", "(a*)*b", "\\", "(?=x)", "(" * 900, "x" * 1001, "\x00", "(?P<n>a)(?P<n>b)", "a{999999999}"):
        yield Case(f"expression {pattern[:20]!r} of {len(pattern)}", beat(subscribed_topic_names=None, subscribed_topic_regex=pattern))
    owned = [TopicPartitions(b"\x17" * 16, list(range(100_000)))]
    yield Case("owns 100,000 partitions when it joins", lambda: beat(topic_partitions=owned))
    yield Case("owns 100,000 partitions", lambda: beat(member_epoch=1, topic_partitions=owned))
    topics = [TopicPartitions(n.to_bytes(16, "big"), [-1]) for n in range(50_000)]
    yield Case("owns partitions of 50,000 topics", lambda: beat(member_epoch=1, topic_partitions=topics))
    groups = ["hostile-consumers"] * 20_000
    yield Case("20,000 times the same group described", lambda: request(ConsumerGroupDescribeRequest(groups), 1))
    of_7_mib = request(ConsumerGroupDescribeRequest(["longer"]), 1)
    yield Case("a group of 7 MiB described", lambda: with_long_string(of_7_mib, "longer", b"g" * (7 * MIB)))
    yield Case("groups that cannot be described", request(ConsumerGroupDescribeRequest(["", "nobody", "g" * 32_767]), 1))


def commit(offset: int = 1, metadata: str | None = "", group: str = "commits", topic: str = TOPIC, index: int = 0) -> bytes:
    partition = OffsetCommitRequestPartition(index, offset, -1, metadata)
    return request(OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, partitions=[partition])]), 6)


def offsets() -> Iterator[Case]:
    for offset in (-1, -2, LONG_MIN, LONG_MAX):
        yield Case(f"commit of {offset}", commit(offset))
    yield Case("commit with metadata of 30 KiB", commit(metadata="m" * 30_000))
    yield Case("commit with null metadata", commit(metadata=None))
    yield Case("commit without a group", commit(group=""))
    yield Case("commit for an unknown topic", commit(topic="unknown"))
    yield Case("commit for a topic that cannot be", commit(topic="../x"))
    for index in (-1, 1000, INT_MAX):
        yield Case(f"commit for partition {index}", commit(index=index))
        asked = [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(index, timestamp=-1)])]
        yield Case(f"offsets of partition {index}", request(ListOffsetsRequest(-1, topics=asked), 5))
        yield Case(f"fetch of commits of partition {index}", request(OffsetFetchRequest("g", [OffsetFetchRequestTopic(TOPIC, [index])]), 6))
        epochs = [OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(index, -1, 0)])]
        yield Case(f"epochs of partition {index}", request(OffsetForLeaderEpochRequest(topics=epochs), 3))
    for timestamp in (-7, -100, LONG_MIN, LONG_MAX):
        asked = [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, timestamp=timestamp)])]
        yield Case(f"offset at the time {timestamp}", request(ListOffsetsRequest(-1, topics=asked), 5))
    for epoch in (-2, INT_MAX, INT_MIN):
        epochs = [OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(0, -1, epoch)])]
        yield Case(f"end of epoch {epoch}", request(OffsetForLeaderEpochRequest(topics=epochs), 3))


def create(name: str = "made", count: int = 1, factor: int = 1, **fields: object) -> bytes:
    return request(CreateTopicsRequest([CreatableTopic(name, count, factor, **fields)], 1000), 5)  # type: ignore[arg-type]


def topics() -> Iterator[Case]:
    for count in (0, -2, 1_000_000, INT_MAX, INT_MIN):
        yield Case(f"{count} partitions", create("many", count))
    for factor in (0, -2, 100, 32767):
        yield Case(f"replication factor {factor}", create("copied", 1, factor))
    for name in ("..", ".", "a/b", "", "t" * 300, "nul\x00", "space here", "ünïcode", "new\nline", "__cluster_metadata", "..\\x", "%2e%2e"):
        yield Case(f"a topic named {name[:20]!r}", create(name))
    for label, brokers in {"duplicate": [1, 1], "unknown": [99], "no": [], "negative": [-1]}.items():
        chosen = [CreatableReplicaAssignment(0, brokers)]
        yield Case(f"assignment with {label} brokers", create("placed", -1, -1, assignments=chosen))
    gap = [CreatableReplicaAssignment(0, [1]), CreatableReplicaAssignment(5, [1])]
    yield Case("assignment with a gap", create("placed", -1, -1, assignments=gap))
    twice = [CreatableReplicaAssignment(0, [1]), CreatableReplicaAssignment(0, [1])]
    yield Case("assignment of a partition twice", create("placed", -1, -1, assignments=twice))
    yield Case("assignment and a count", create("placed", 3, 1, assignments=[CreatableReplicaAssignment(0, [1])]))
    yield Case("the same topic 1,000 times", request(CreateTopicsRequest([CreatableTopic("again", 1, 1)] * 1000), 5))
    for key, value in {
        "no.such.key": "1", "retention.ms": "soon", "cleanup.policy": "shred", "segment.bytes": "-5", "compression.type": "rar",
        "retention.bytes": "9" * 40, "min.insync.replicas": "0", "": "", "message.timestamp.type": "Never", "k" * 10_000: "v",
        "max.message.bytes": "1e3",
    }.items():  # fmt: skip
        yield Case(f"config {key[:20]}={value[:10]}", create("configured", configs=[CreatableTopicConfig(key, value)]))
    yield Case("config null", create("configured", configs=[CreatableTopicConfig("retention.ms", None)]))
    yield Case("delete of an internal topic", request(DeleteTopicsRequest(topic_names=["__consumer_offsets"]), 4))
    yield Case("delete of unknown topics", request(DeleteTopicsRequest(topic_names=["x", "..", ""]), 4))
    yield Case("delete of 10,000 topics", lambda: request(DeleteTopicsRequest(topic_names=[f"t{n}" for n in range(10_000)]), 4))
    for count in (0, -1, 1, INT_MAX):
        grown = [CreatePartitionsTopic(TOPIC, count)]
        yield Case(f"grow to {count} partitions", request(CreatePartitionsRequest(grown, 1000), 1))
    yield Case("grow an unknown topic", request(CreatePartitionsRequest([CreatePartitionsTopic("nobody", 5)], 1000), 1))
    metadata = [MetadataRequestTopic(name=name) for name in ("..", "a/b", "x" * 300, "nul\x00")]
    yield Case("metadata of topics that cannot be", request(MetadataRequest(metadata, allow_auto_topic_creation=True), 8))


def configs() -> Iterator[Case]:
    for kind, name in ((2, "nobody"), (4, "99"), (4, "x"), (0, ""), (127, "x"), (-1, "x"), (8, "1"), (16, "g"), (32, "c"), (2, "..")):
        yield Case(f"describe {kind} {name}", request(DescribeConfigsRequest([DescribeConfigsResource(kind, name)]), 3))
        changed = AlterConfigsResource(kind, name, [AlterConfigsEntry("retention.ms", "1000")])
        yield Case(f"alter {kind} {name}", request(AlterConfigsRequest([changed]), 1))
    for key, value in {
        "log.dirs": "/etc", "node.id": "7", "listeners": "PLAINTEXT://0.0.0.0:1", "no.such.key": "1", "log.cleaner.threads": "many",
        "sasl.jaas.config": "com.sun.security.auth.module.JndiLoginModule required;", "metric.reporters": "java.lang.Runtime",
    }.items():  # fmt: skip
        changed = AlterConfigsResource(4, "1", [AlterConfigsEntry(key, value)])
        yield Case(f"alter the broker's {key}", request(AlterConfigsRequest([changed]), 1))
