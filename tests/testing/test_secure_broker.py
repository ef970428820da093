"""A secured broker, with each client that it has settings for; and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from ottla import aio, sync
from ottla.errors import ErrorCode, KafkaError
from ottla.testing import History, SecureBroker, secure_broker


@pytest.fixture(scope="module")
def served() -> Iterator[SecureBroker]:
    with secure_broker() as made:
        yield made


@pytest.fixture
def topic(served: SecureBroker) -> str:
    return served.topic("t")


def test_each_client_comes_in_with_the_settings_for_it(served: SecureBroker, topic: str) -> None:
    with sync.Producer(**served.for_ottla()) as producer:
        producer.send_and_wait(topic, b"of ottla.sync")
    confluent = confluent_kafka.Producer(served.for_confluent_kafka())
    confluent.produce(topic, b"of confluent-kafka")
    assert confluent.flush(30) == 0
    python = kafka.KafkaProducer(**served.for_kafka_python())
    python.send(topic, b"of kafka-python").get(30)
    python.close()

    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(**served.for_aiokafka())
        await producer.start()
        await producer.send_and_wait(topic, b"of aiokafka")
        await producer.stop()
        async with aio.Producer(**served.for_ottla()) as own:
            await own.send_and_wait(topic, b"of ottla.aio")

    asyncio.run(main())
    with sync.Consumer(**served.for_ottla(), auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found: list[bytes | None] = []
        while len(found) < 5:
            found += [record.value for record in consumer.poll(1000)]
    assert found == [b"of ottla.sync", b"of confluent-kafka", b"of kafka-python", b"of aiokafka", b"of ottla.aio"]


def test_a_user_may_do_what_its_acls_allow(served: SecureBroker, topic: str) -> None:
    alice = served.user("alice")
    with sync.Producer(**served.for_ottla(alice), delivery_timeout_ms=5000, request_timeout_ms=5000) as producer:
        with pytest.raises(KafkaError) as refused:
            producer.send_and_wait(topic, b"x")
        assert refused.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with sync.Admin(**served.for_ottla()) as admin:
        allowed = sync.Acl(sync.ResourceType.TOPIC, topic, "User:alice", sync.Operation.WRITE)
        admin.create_acls([allowed])
    with sync.Producer(**served.for_ottla(alice)) as producer:
        assert producer.send_and_wait(topic, b"x").offset == 0
    with pytest.raises(ValueError, match="there is a user 'alice' already"):
        served.user("alice")
    with pytest.raises(ValueError, match="there is no user 'bob'; there are admin, alice"):
        served.for_ottla("bob")


def test_who_has_no_password_or_does_not_know_the_authority_is_refused(served: SecureBroker) -> None:
    wrong = served.for_ottla() | {"sasl_plain_password": "wrong"}
    stranger = {name: value for name, value in served.for_ottla().items() if not name.startswith("ssl_truststore")}
    for settings in (wrong, stranger):
        with sync.Admin(**settings) as admin, pytest.raises(KafkaError) as refused:
            admin.list_topics()
        assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_history_reads_a_secured_broker(served: SecureBroker, topic: str) -> None:
    history = History(served.bootstrap, **served.client_settings)
    with history.watch(sync.Producer(**served.for_ottla())) as producer:
        producer.send_and_wait(topic, b"kept")
    history.check()
    assert history.judge().record_count >= 1


def test_it_is_the_same_after_a_restart_and_leaves_no_files() -> None:
    with secure_broker(num_partitions=3) as made:
        user, authority = made.user("carol"), made.authority
        made.restart(1)
        with sync.Admin(**made.for_ottla()) as admin:
            assert list(admin.describe_users([user])[user]) == ["SCRAM-SHA-512"]  # type: ignore[arg-type]
    assert isinstance(authority, Path)
    assert not authority.exists()
