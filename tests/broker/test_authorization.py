"""Rights come and go with ACLs, for whatever outlives a request too."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.principals import ASK_MS, allow, connected, fill_as_admin, forget, until, with_secured

from ottla.admin_http.kafka_names import broker_families
from ottla.broker import authorization
from ottla.broker.audit import LINES_MAX, LOGGER
from ottla.broker.authorization import AclAuthorizer
from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import send_to
from ottla.messages.acl_codes import CLUSTER, Operation, PatternType, Permission, ResourceType
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.messages.metadata_records import AccessControlEntryRecord
from ottla.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.metadata.image import EMPTY_IMAGE
from ottla.metadata.replay import replay
from ottla.records.builder import BatchBuilder
from ottla.replication.fetch_sessions import FetchSession
from ottla.runtime.world import real_world
from ottla.security.authorizer import allowed_operations
from ottla.security.principal import Principal
from ottla.sim.cluster import SimBroker
from ottla.types import TopicPartition


async def fetched(client: Cluster, request: FetchRequest) -> FetchResponse:
    connection = await connected(client)
    return await connection.ask(request, FetchResponse, timeout_ms=ASK_MS, version_max=12)


def a_fetch(*, offset: int = 0, session_id: int = 0, session_epoch: int = -1, wait_ms: int = 0, count: int = 1) -> FetchRequest:
    partitions = [FetchPartition(index, fetch_offset=offset, partition_max_bytes=1 << 20) for index in range(count)]
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=session_epoch,
        topics=[FetchTopic("t", bytes(16), partitions)] if session_epoch <= 0 else [],
    )  # fmt: skip


def codes_of(response: FetchResponse) -> list[int]:
    return [partition.error_code for topic in response.responses for partition in topic.partitions]


def test_rights_come_and_go_with_acls() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        alice = broker.client("alice")
        assert codes_of(await fetched(alice, a_fetch())) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        await allow(admin, "alice", Operation.READ, ResourceType.TOPIC, "t")
        assert codes_of(await fetched(alice, a_fetch())) == [0]
        assert codes_of(await fetched(broker.client("bob"), a_fetch())) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        await allow(admin, "alice", Operation.READ, ResourceType.TOPIC, "t", permission=Permission.DENY)
        assert codes_of(await fetched(alice, a_fetch())) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert await forget(admin, "alice") == 2
        assert codes_of(await fetched(alice, a_fetch())) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        await allow(admin, "*", Operation.READ, ResourceType.TOPIC, "t")
        assert codes_of(await fetched(broker.client("carol"), a_fetch())) == [0]

    with_secured(body)


def test_a_parked_fetch_asks_again_when_there_is_something_to_read() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        alice = broker.client("alice")
        await allow(admin, "alice", Operation.READ, ResourceType.TOPIC, "t")
        await alice.refresh()
        waiting = asyncio.create_task(fetched(alice, a_fetch(offset=1, wait_ms=5000)))
        assert broker.broker is not None
        await until(lambda: any(connection.parked for connection in broker.broker.router.connections))  # type: ignore[union-attr]
        await forget(admin, "alice")
        await fill_as_admin(admin, "t")
        assert codes_of(await waiting) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    with_secured(body)


def test_a_session_of_partitions_at_rest_loses_what_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is watched: what is at rest is not looked at, until rules change."""
    monkeypatch.setattr(FetchSession, "is_worth_watching", property(lambda session: True))

    async def body(broker: SimBroker, admin: Cluster) -> None:
        alice = broker.client("alice")
        await allow(admin, "alice", Operation.READ, ResourceType.TOPIC, "t")
        first = await fetched(alice, a_fetch(offset=1, session_epoch=0))
        assert (codes_of(first), first.session_id > 0) == ([0], True)
        for epoch in (1, 2):
            assert codes_of(await fetched(alice, a_fetch(session_id=first.session_id, session_epoch=epoch))) == []
        await forget(admin, "alice")
        after = await fetched(alice, a_fetch(session_id=first.session_id, session_epoch=3))
        assert codes_of(after) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        await allow(admin, "alice", Operation.READ, ResourceType.TOPIC, "t")
        await fill_as_admin(admin, "t")
        again = await fetched(alice, a_fetch(session_id=first.session_id, session_epoch=4))
        assert [len(partition.records or b"") > 0 for topic in again.responses for partition in topic.partitions] == [True]

    with_secured(body)


def test_a_fetch_as_a_follower_needs_cluster_action() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        mallory, request = broker.client("mallory"), a_fetch()
        await allow(admin, "mallory", Operation.READ, ResourceType.TOPIC, "t")
        request.replica_id = 7
        assert codes_of(await fetched(mallory, request)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        request = a_fetch()
        assert codes_of(await fetched(mallory, request)) == [0]

    with_secured(body)


def test_a_producer_that_repeats_itself_loses_the_right_to_write() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        alice = broker.client("alice")
        await allow(admin, "alice", Operation.WRITE, ResourceType.TOPIC, "t")
        producer = Producer(alice, ProducerSettings())
        for _ in range(5):
            await (await producer.send("t", b"same", partition=0))
        assert broker.broker is not None
        assert any(connection.repeated is not None for connection in broker.broker.router.connections), "the head is remembered"
        await forget(admin, "alice")
        with pytest.raises(KafkaError) as caught:
            await (await producer.send("t", b"same", partition=0))
        assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert broker.broker.partitions.find("t", 0).high_watermark == 6  # type: ignore[union-attr]

    with_secured(body)


def test_only_a_user_allowed_to_create_a_topic_creates_it() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        alice = Admin(broker.client("alice"))
        refused = await alice.create_topics([NewTopic("a-1", 1)])
        assert refused["a-1"] is not None
        assert refused["a-1"].code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await allow(admin, "alice", Operation.CREATE, ResourceType.TOPIC, "a-", is_prefix=True)
        made = await alice.create_topics([NewTopic("a-1", 1), NewTopic("b-1", 1)])
        assert made["a-1"] is None
        assert made["b-1"] is not None
        asked = await broker.client("alice").ask(None, MetadataRequest([]), MetadataResponse)
        assert [topic.name for topic in asked.topics] == []
        await allow(admin, "alice", Operation.CREATE, ResourceType.CLUSTER, CLUSTER)
        assert await alice.create_topics([NewTopic("b-1", 1)]) == {"b-1": None}

    with_secured(body)


def test_metadata_of_all_topics_leaves_out_what_may_not_be_seen() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        assert await Admin(admin).create_topics([NewTopic("u", 1)]) == {"u": None}
        await allow(admin, "alice", Operation.WRITE, ResourceType.TOPIC, "u")
        answer = await broker.client("alice").ask(None, MetadataRequest(None), MetadataResponse)
        assert [topic.name for topic in answer.topics] == ["u"], "writing implies describing"
        answer = await broker.client("bob").ask(None, MetadataRequest(None), MetadataResponse)
        assert answer.topics == []

    with_secured(body)


def test_everyone_may_do_what_no_acl_is_about_if_the_operator_says_so() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        assert codes_of(await fetched(broker.client("bob"), a_fetch())) == [0]
        await allow(admin, "alice", Operation.READ, ResourceType.TOPIC, "t")
        assert codes_of(await fetched(broker.client("bob"), a_fetch())) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    with_secured(body, allow_everyone_if_no_acl_found="true")


def test_a_user_that_may_write_to_any_topic_gets_a_producer_id() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        async def code_of(user: str) -> int:
            answer = await (await connected(broker.client(user))).ask(
                InitProducerIdRequest(None), InitProducerIdResponse, timeout_ms=ASK_MS
            )
            return answer.error_code

        assert await code_of("alice") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await allow(admin, "alice", Operation.WRITE, ResourceType.TOPIC, "x", is_prefix=True)
        await allow(admin, "bob", Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER)
        await allow(admin, "carol", Operation.WRITE, ResourceType.TOPIC, "x")
        await allow(admin, "carol", Operation.WRITE, ResourceType.TOPIC, "x", permission=Permission.DENY)
        assert [await code_of(user) for user in ("alice", "bob", "carol")] == [0, 0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]

    with_secured(body)


def test_a_producer_that_may_write_to_some_topic_is_no_line_of_the_audit_log() -> None:
    """Each idempotent producer left the line of a denial for a topic named hardcode, and was counted as denied."""
    lines: list[tuple[Any, ...]] = []

    def note(name: str, _: str, event: str, values: Any) -> None:
        if name == LOGGER:
            lines.append((event, values["principal"], values["operation"], values["resource"]))

    async def body(broker: SimBroker, admin: Cluster) -> None:
        assert broker.broker is not None
        status = broker.broker.status
        await allow(admin, "alice", Operation.WRITE, ResourceType.TOPIC, "x")
        send_to(note)
        for user, denied in (("alice", 0), ("mallory", 1)):
            connection, before = await connected(broker.client(user)), status.authorization_counts[1]
            answer = await connection.ask(InitProducerIdRequest(None), InitProducerIdResponse, timeout_ms=ASK_MS)
            assert (answer.error_code != 0, status.authorization_counts[1] - before) == (bool(denied), denied)
        assert lines == [("authorization_denied", "User:mallory", "IDEMPOTENT_WRITE", "CLUSTER:LITERAL:kafka-cluster")]

    try:
        with_secured(body)
    finally:
        send_to(None)


def test_denials_are_in_the_audit_log_and_what_is_left_out_is_not() -> None:
    lines: list[tuple[str, Any]] = []

    async def body(broker: SimBroker, admin: Cluster) -> None:
        send_to(lambda name, _, event, values: lines.append((event, values)) if name == LOGGER else None)
        mallory = broker.client("mallory")
        assert (await mallory.ask(None, MetadataRequest(None), MetadataResponse)).topics == []
        assert lines == []
        await mallory.ask(None, MetadataRequest([MetadataRequestTopic(name="t")]), MetadataResponse)
        [(event, values)] = lines
        assert (event, values["principal"], values["operation"], values["resource"], values["host"]) == (
            "authorization_denied", "User:mallory", "DESCRIBE", "TOPIC:LITERAL:t", "mallory",
        )  # fmt: skip
        for number in range(2 * LINES_MAX):
            await mallory.ask(None, MetadataRequest([MetadataRequestTopic(name=f"t{number}")]), MetadataResponse)
        assert len(lines) < 2 * LINES_MAX, "a flood of them is counted, and not written line by line"

    try:
        with_secured(body)
    finally:
        send_to(None)


def test_acls_outlive_a_restart() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        await allow(admin, "alice", Operation.READ, ResourceType.TOPIC, "t")
        await broker.stop()
        await broker.start()
        assert codes_of(await fetched(broker.client("alice"), a_fetch())) == [0]
        assert codes_of(await fetched(broker.client("bob"), a_fetch())) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    with_secured(body)


def test_a_transactional_id_is_asked_for_where_a_batch_is_transactional() -> None:
    """Clients send their id with plain batches, too: those need the topic alone."""

    async def body(broker: SimBroker, admin: Cluster) -> None:
        await allow(admin, "alice", Operation.WRITE, ResourceType.TOPIC, "t")
        connection = await connected(broker.client("alice"))

        async def code_of(batch: bytearray) -> int:
            topic = TopicProduceData("t", bytes(16), [PartitionProduceData(0, batch)])
            answer = await connection.ask(ProduceRequest("x", -1, 1000, [topic]), ProduceResponse, timeout_ms=ASK_MS, version_max=9)
            return answer.responses[0].partition_responses[0].error_code

        plain, transactional = BatchBuilder(), BatchBuilder()
        plain.append(None, b"v", timestamp_ms=1)
        transactional.append(None, b"v", timestamp_ms=1)
        assert await code_of(plain.build()) == 0
        built = transactional.build(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        assert await code_of(built) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    with_secured(body)


def test_rights_to_one_type_are_none_to_another_of_the_same_name() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        await allow(admin, "alice", Operation.READ, ResourceType.TOPIC, "t")
        connection = await connected(broker.client("alice"))
        assert codes_of(await connection.ask(a_fetch(), FetchResponse, timeout_ms=ASK_MS, version_max=12)) == [0]
        answer = await connection.ask(HeartbeatRequest("t", 1, "m"), HeartbeatResponse, timeout_ms=ASK_MS)
        assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED

    with_secured(body)


def test_a_super_user_is_one_with_its_type() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        assert broker.broker is not None
        rights = broker.broker.parts.authorizer.rights
        assert rights(Principal("User", "admin"), "h").may(Operation.READ, ResourceType.TOPIC, "t")
        assert not rights(Principal("Group", "admin"), "h").may(Operation.READ, ResourceType.TOPIC, "t")

    with_secured(body)


def test_an_id_is_answered_without_its_name() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        assert broker.broker is not None
        topic_id = broker.broker.image.topics["t"].topic_id
        mallory = broker.client("mallory")
        [topic] = (await mallory.ask(None, MetadataRequest([MetadataRequestTopic(topic_id, None)]), MetadataResponse)).topics
        assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)

    with_secured(body)


def test_only_who_may_describe_a_topic_learns_that_there_is_none_to_delete() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        async def deleted() -> dict[str, int]:
            alice = Admin(broker.client("alice"))
            return {name: error.code for name, error in (await alice.delete_topics(["t", "none"])).items() if error is not None}

        assert await deleted() == {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "none": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        for name in ("t", "none"):
            await allow(admin, "alice", Operation.DESCRIBE, ResourceType.TOPIC, name)
        assert await deleted() == {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    with_secured(body)


def test_who_has_all_rights_to_the_cluster_deletes_any_topic() -> None:
    """In Kafka that is DELETE on the cluster, which no ACL is of, but one of ALL; it is reported to nobody."""

    async def body(broker: SimBroker, admin: Cluster) -> None:
        alice = broker.client("alice")
        await allow(admin, "alice", Operation.ALL, ResourceType.CLUSTER, "kafka-cluster")
        answer = await alice.ask(None, DescribeClusterRequest(include_cluster_authorized_operations=True), DescribeClusterResponse)
        assert not answer.cluster_authorized_operations >> Operation.DELETE & 1
        deleted = await Admin(alice).delete_topics(["t", "none"])
        assert {name: error and error.code for name, error in deleted.items()} == {"t": None, "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    with_secured(body)


def test_groups_that_may_not_be_described_are_not_listed() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        for group in ("g1", "g2"):
            await Admin(admin).set_offsets(group, {TopicPartition("t", 0): 1})
        await allow(admin, "alice", Operation.READ, ResourceType.GROUP, "g2")
        await allow(admin, "bob", Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER)
        listed = [await Admin(broker.client(user)).list_groups() for user in ("alice", "bob", "mallory")]
        assert [sorted(group.group_id for group in found) for found in listed] == [["g2"], ["g1", "g2"], []]

    with_secured(body)


def test_acls_and_answers_are_counted() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        assert broker.broker is not None
        status = broker.broker.status
        allowed, denied = status.authorization_counts
        assert codes_of(await fetched(broker.client("mallory"), a_fetch())) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert status.authorization_counts == (allowed, denied + 1)
        await allow(admin, "alice", Operation.READ, ResourceType.TOPIC, "t")
        assert status.authorization_counts[0] > allowed
        shown = {family.name: family.samples[0].value for family in broker_families(status, idle_share=1.0) if "authorizer" in family.name}
        assert shown == {
            "kafka_server_authorizer_metrics_acls_total_count": 1,
            "kafka_server_authorizer_metrics_authorization_allowed_total": status.authorization_counts[0],
            "kafka_server_authorizer_metrics_authorization_denied_total": denied + 1,
        }

    with_secured(body)


def test_only_nodes_are_believed_to_be_nodes() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        assert broker.broker is not None
        callers = broker.broker.parts.home.callers
        for user in ("mallory", "node"):
            if user == "node":
                await allow(admin, user, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER)
            connection = await connected(broker.client(user))
            await connection.ask(ApiVersionsRequest("ottla", "1", node_id=7), ApiVersionsResponse, timeout_ms=ASK_MS)
            assert callers.hears(7) is (user == "node")

    with_secured(body)


def reading(principal: str, topic: str) -> AccessControlEntryRecord:
    acl_id = f"{principal} {topic}".encode().ljust(16)[:16]
    return AccessControlEntryRecord(
        acl_id, ResourceType.TOPIC, topic, PatternType.LITERAL, principal, "*", Operation.READ, Permission.ALLOW
    )  # fmt: skip


def test_all_acls_of_a_principal_are_looked_at_once_for_all_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand take as many microseconds: who may nothing must not make a loop busy by asking again."""
    looks: list[tuple[Any, ...]] = []

    def look(*given: Any) -> bool:
        looks.append(given)
        return False

    source = SimpleNamespace(committed=replay(EMPTY_IMAGE, [reading("User:alice", "t1"), reading("User:*", "t2")]))
    monkeypatch.setattr(authorization, "is_allowed_anywhere", look)
    given = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    authorizer = AclAuthorizer(BrokerConfig(given), real_world().clock, source)
    for rights in [authorizer.rights(Principal("User", "alice"), "127.0.0.1") for _ in range(3)]:
        assert not any(rights.may_anywhere(Operation.WRITE, ResourceType.TOPIC) for _ in range(3))
    assert len(looks) == 1
    rights = authorizer.rights(Principal("User", "alice"), "127.0.0.1")
    assert not rights.may_anywhere(Operation.READ, ResourceType.TOPIC), "of each operation for itself"
    assert not authorizer.rights(Principal("User", "bob"), "127.0.0.1").may_anywhere(Operation.WRITE, ResourceType.TOPIC)
    source.committed = replay(source.committed, [reading("User:alice", "t3")])
    assert not rights.may_anywhere(Operation.WRITE, ResourceType.TOPIC)
    assert len(looks) == 4


def test_a_connection_remembers_a_bounded_number_of_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answer = allowed_operations

    def ask(tables: Any, asker: Any, resource_type: Any, name: str, **more: Any) -> int:
        asked.append(name)
        return answer(tables, asker, resource_type, name, **more)

    monkeypatch.setattr(authorization, "allowed_operations", ask)
    monkeypatch.setattr(authorization, "REMEMBERED_MAX", 3)
    given = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    source = SimpleNamespace(committed=replay(EMPTY_IMAGE, [reading("User:alice", "t0")]))
    rights = AclAuthorizer(BrokerConfig(given), real_world().clock, source).rights(Principal("User", "alice"), "127.0.0.1")
    for name in ["t0", "t1", "t2", "t0", "t2", "t3", "t0"]:
        assert rights.may(Operation.READ, ResourceType.TOPIC, name) == (name == "t0")
    assert asked == ["t0", "t1", "t2", "t3", "t0"], "those that are remembered are not asked again, until there are too many"
