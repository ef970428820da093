"""What a request cannot hold is refused in words that name the argument: no EncodeError, and no error of a line within the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.simulated import KEY, consumer_of, create, with_broker

from ottla.client.admin import Acl, AclFilter, Admin, Broker, NewTopic, Topic
from ottla.client.failures import DeliveryError
from ottla.client.outgoing import prepare
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.sim.cluster import SimBroker
from ottla.types import TopicPartition

ACL = Acl(ResourceType.TOPIC, "t", "User:a", Operation.READ)
ALICE = (("user", "alice"),)
CALLS: dict[str, tuple[Callable[[Any], Awaitable[object]], type[Exception], str]] = {
    "level": (lambda admin: admin.update_features({"transaction.version": "2"}), TypeError, "the level of 'transaction.version'='2'"),
    "levels": (lambda admin: admin.update_features(["transaction.version"]), TypeError, "update_features takes a dict"),
    "large count": (
        lambda admin: admin.create_topics([NewTopic("z", partition_count=2**40)]),
        KafkaError,
        r"num_partitions is 1099511627776",
    ),
    "replicas": (lambda admin: admin.create_topics([NewTopic("z", assignments={0: ["1"]})]), TypeError, "a node id='1'"),  # type: ignore[list-item]
    "large offset": (lambda admin: admin.delete_records({KEY: 2**70}), KafkaError, r"offset is \d+: a whole number from -9"),
    "text of an offset": (lambda admin: admin.set_offsets("g", {KEY: 2}, metadata=5), TypeError, "metadata=5"),
    "large partition": (lambda admin: admin.set_offsets("g", {("t", 2**40): 2}), KafkaError, "partition 1099511627776 of topic 't'"),
    "no partition": (lambda admin: admin.delete_records({("t", -1): 0}), KafkaError, "partition -1 of topic 't'"),
    "no group": (lambda admin: admin.set_offsets("", {KEY: 2}), KafkaError, "INVALID_GROUP_ID: .*must not be empty"),
    "broker": (lambda admin: admin.unregister_broker("x"), TypeError, "node_id='x'"),
    "producers' broker": (lambda admin: admin.describe_producers([KEY], broker_id="1"), TypeError, "broker_id='1'"),
    "directory": (lambda admin: admin.alter_replica_log_dirs(1, {KEY: 5}), KafkaError, r"path is 5: a string is expected"),
    "directory's broker": (lambda admin: admin.alter_replica_log_dirs("1", {KEY: "/d"}), TypeError, "node_id='1'"),
    "quota": (
        lambda admin: admin.alter_client_quotas({ALICE: {"producer_byte_rate": "x"}}),
        TypeError,
        "the quota 'producer_byte_rate' is 'x'",
    ),
    "entity": (lambda admin: admin.alter_client_quotas({"a": {"producer_byte_rate": 1}}), TypeError, "'a' has no quotas: pairs"),
    "time limit": (lambda admin: admin.list_transactions(longer_than_ms="x"), KafkaError, "duration_filter is 'x'"),
    "producer id": (lambda admin: admin.list_transactions(producer_ids=["x"]), KafkaError, r"producer_id_filters\[0\] is 'x'"),
    "brokers of a move": (lambda admin: admin.alter_partition_reassignments({KEY: ["a"]}), TypeError, "a node id='a'"),
    "broker of a move": (
        lambda admin: admin.alter_partition_reassignments({KEY: 1}),
        TypeError,
        "the move of t-0 takes a list",
    ),
    "topic": (lambda admin: admin.alter_configs({Topic(5): {"flush.ms": 1}}), TypeError, "its name is expected as a string"),  # type: ignore[arg-type]
    "configuration": (lambda admin: admin.alter_configs({Topic("t"): "x=1"}), TypeError, "alter_configs of Topic.* takes a dict"),
    "broker as text": (lambda admin: admin.describe_configs(Broker("1")), TypeError, "the id of the broker is expected as a number"),  # type: ignore[arg-type]
    "large time": (lambda admin: admin.offsets_for_times({KEY: 2**70}), KafkaError, "the time of t-0 is"),
    "negative time": (lambda admin: admin.offsets_for_times({KEY: -5}), KafkaError, "the time of t-0 is -5"),
    "one ACL": (lambda admin: admin.create_acls(ACL), TypeError, "create_acls takes a list of Acl, and not Acl"),
    "filters as ACLs": (
        lambda admin: admin.create_acls([AclFilter()]),
        TypeError,
        "list of Acl of .*, and not of AclFilter",
    ),
    "user": (
        lambda admin: admin.alter_users([("u", "SCRAM-SHA-256")]),
        TypeError,
        "a list of UserChange .*, and not of tuple",
    ),
    "owner": (lambda admin: admin.create_token(owner=5), TypeError, "owner=5"),
    "hmac": (lambda admin: admin.renew_token(5), TypeError, "hmac is of type int"),
    "text of an hmac": (lambda admin: admin.renew_token("x"), KafkaError, "hmac is no base64"),
    "groups' broker": (lambda admin: admin.list_groups(1), TypeError, "list_groups takes a list of node ids, and not 1"),
    "directories' broker": (lambda admin: admin.describe_log_dirs(1), TypeError, "describe_log_dirs takes a list of node ids, and not 1"),
    "characters": (lambda admin: admin.delete_topics(["\ud800"]), KafkaError, "characters that UTF-8 does not have"),
    "length": (lambda admin: admin.delete_topics(["x" * 40_000]), KafkaError, "a string of 40000 bytes: at most 32767"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_value_that_cannot_be_sent_is_named(call: str) -> None:
    asked, kind, text = CALLS[call]

    async def body(broker: SimBroker) -> None:
        await create(broker)
        admin = Admin(broker.client("admin"))
        async with asyncio.timeout(30):
            with pytest.raises(kind, match=text) as refused:
                await asked(admin)
        if isinstance(refused.value, KafkaError) and call != "no group":
            assert refused.value.code == ErrorCode.INVALID_REQUEST
        assert KEY.topic in await admin.list_topics()  # the connection goes on
        await admin.close()

    with_broker(body)


def test_a_consumer_refuses_a_partition_that_cannot_be_where_it_is_assigned() -> None:
    async def body(broker: SimBroker) -> None:
        consumer = consumer_of(broker.client("c"))
        for number in (-1, 2**40):
            with pytest.raises(KafkaError, match=f"partition {number} of topic 't': partitions have numbers from 0 to"):
                consumer.assign([("t", number)])
        await consumer.close()

    with_broker(body)


@pytest.mark.parametrize(("given", "meant"), [("topic", "TOPIC"), ("delegation-token", "DELEGATION_TOKEN"), ("x", "USER")])
def test_a_word_in_the_place_of_a_member_has_the_member_that_is_meant(given: Any, meant: str) -> None:
    with pytest.raises(TypeError, match=f"give a member of ResourceType, such as ResourceType.{meant}"):
        Acl(given, "x", "User:a", Operation.READ)


@pytest.mark.parametrize("what", ["key", "value"])
def test_what_a_serializer_raises_has_a_note_with_the_setting(what: str) -> None:
    """``key_serializer=str.encode`` and a record without a key was a TypeError of a descriptor."""
    given: dict[str, Any] = {"key_serializer": None, "value_serializer": None} | {f"{what}_serializer": str.encode}
    for content, note in ((None, f"; a record without a {what} gives it None"), (b"hush", "")):
        with pytest.raises(TypeError, match="encode") as raised:
            prepare("t", content, key=content, partition=None, headers=(), timestamp_ms=0, size_bytes_max=1000, **given)
        assert raised.value.__notes__ == [f"{what}_serializer raised this for a {what} of type {type(content).__name__}{note}"]


def test_a_record_without_a_partition_is_not_said_to_have_one() -> None:
    problem = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "why")
    assert DeliveryError([(TopicPartition("new-4", -1), problem)], 1).message == "a record for topic 'new-4' was not delivered: why"
    assert DeliveryError([(TopicPartition("new-4", 1), problem)], 1).message == "a record for new-4-1 was not delivered: why"
