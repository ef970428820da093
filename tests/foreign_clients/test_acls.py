"""librdkafka, aiokafka and kafka-python as alice, who has authenticated, against ACLs that librdkafka's admin client has made."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError as KafkaPythonRefused
from tests.broker.principals import STANDARD
from tests.broker.sasl import GUARDED
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.foreign_clients.test_sasl import WAIT_SECONDS_MAX, Guarded, librdkafka, python

MECHANISM: Final = "PLAIN"


def acl(resource: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType = AclPermissionType.ALLOW) -> AclBinding:
    return AclBinding(resource, name, ResourcePatternType.PREFIXED, "User:alice", "*", operation, permission)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Who comes by the open listener is a super user; alice may write to and read ``mine-...``, in groups ``mine-...``."""
    port, other = lasting_ports(2)
    given = {
        **GUARDED, "listeners": f"PLAINTEXT://127.0.0.1:{port},GUARDED://127.0.0.1:{other}",
        "authorizer_class_name": STANDARD, "super_users": "User:ANONYMOUS", "auto_create_topics_enable": "false",
    }  # fmt: skip
    with BrokerProcess(tmp_path_factory.mktemp("acls"), port=port, **given) as process:
        guarded = Guarded(process, f"127.0.0.1:{other}")
        admin = AdminClient({"bootstrap.servers": guarded.open_bootstrap})
        names = [f"mine-{client}" for client in ("librdkafka", "aiokafka", "kafka-python")]
        for future in admin.create_topics([NewTopic(name, 1) for name in (*names, "theirs")]).values():
            future.result(WAIT_SECONDS_MAX)
        wanted = [
            acl(ResourceType.TOPIC, "mine-", AclOperation.WRITE),
            acl(ResourceType.TOPIC, "mine-", AclOperation.READ),
            acl(ResourceType.GROUP, "mine-", AclOperation.READ),
        ]
        for created in admin.create_acls(wanted).values():
            created.result(WAIT_SECONDS_MAX)
        yield guarded


def written(broker: Guarded, topic: str) -> str:
    """What became of a record that librdkafka has sent as alice."""
    outcomes: list[str] = []
    producer = Producer({**librdkafka(broker, MECHANISM), "message.timeout.ms": 10_000})
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcomes.append("written" if error is None else error.name()))
    producer.flush(WAIT_SECONDS_MAX)
    return outcomes[0]


def test_librdkafka_writes_to_its_own_and_reads_it(broker: Guarded) -> None:
    assert written(broker, "mine-librdkafka") == "written"
    consumer = Consumer({**librdkafka(broker, MECHANISM), "group.id": "mine-group", "auto.offset.reset": "earliest"})
    consumer.subscribe(["mine-librdkafka"])
    record: Any = consumer.poll(WAIT_SECONDS_MAX)
    assert record is not None
    assert (record.error(), record.value()) == (None, b"value")
    consumer.commit(message=record, asynchronous=False)
    consumer.close()


def test_librdkafka_is_refused_what_is_not_its_own_and_does_not_see_it(broker: Guarded) -> None:
    assert written(broker, "theirs") == "TOPIC_AUTHORIZATION_FAILED"
    alice = AdminClient(librdkafka(broker, MECHANISM))
    assert set(alice.list_topics(timeout=WAIT_SECONDS_MAX).topics) == {"mine-librdkafka", "mine-aiokafka", "mine-kafka-python"}
    consumer = Consumer({**librdkafka(broker, MECHANISM), "group.id": "theirs", "auto.offset.reset": "earliest"})
    consumer.subscribe(["mine-librdkafka"])
    found = consumer.poll(WAIT_SECONDS_MAX)
    assert found is not None
    error = found.error()
    assert error is not None
    assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()
    [future] = alice.create_topics([NewTopic("mine-new", 1)]).values()
    refusal = future.exception(WAIT_SECONDS_MAX)  # raised, it would keep the client, which then knocks at a port that is closed
    assert isinstance(refusal, KafkaException)
    assert refusal.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


async def _aiokafka(broker: Guarded) -> None:
    async with AIOKafkaProducer(**python(broker, MECHANISM)) as producer:
        await producer.send_and_wait("mine-aiokafka", b"value")
        with pytest.raises(TopicAuthorizationFailedError):
            await asyncio.wait_for(producer.send_and_wait("theirs", b"value"), WAIT_SECONDS_MAX)


def test_aiokafka(broker: Guarded) -> None:
    asyncio.run(_aiokafka(broker))


def test_kafka_python(broker: Guarded) -> None:
    producer = KafkaProducer(**python(broker, MECHANISM))
    producer.send("mine-kafka-python", b"value").get(WAIT_SECONDS_MAX)
    with pytest.raises(KafkaPythonRefused):
        producer.send("theirs", b"value").get(WAIT_SECONDS_MAX)
    producer.close()


def test_what_is_taken_away_is_gone_at_once(broker: Guarded) -> None:
    admin = AdminClient({"bootstrap.servers": broker.open_bootstrap})
    producer, outcomes = Producer({**librdkafka(broker, MECHANISM), "message.timeout.ms": 10_000}), list[str]()

    def note(error: Any, _: Any) -> None:
        outcomes.append("written" if error is None else error.name())

    def send() -> str:
        producer.produce("mine-librdkafka", b"value", on_delivery=note)
        producer.flush(WAIT_SECONDS_MAX)
        return outcomes[-1]

    assert send() == "written"
    denial = acl(ResourceType.TOPIC, "mine-librdkafka", AclOperation.WRITE, AclPermissionType.DENY)
    [created] = admin.create_acls([denial]).values()
    created.result(WAIT_SECONDS_MAX)
    assert send() == "TOPIC_AUTHORIZATION_FAILED"
    any_host: Any = None
    wanted = AclBindingFilter(
        ResourceType.TOPIC, "mine-librdkafka", ResourcePatternType.ANY, "User:alice", any_host, AclOperation.ANY, AclPermissionType.DENY
    )
    [deleted] = admin.delete_acls([wanted]).values()
    assert deleted.result(WAIT_SECONDS_MAX) == [denial]
    assert written(broker, "mine-librdkafka") == "written", "a new producer: the other one remembers that it was refused"
