"""librdkafka, aiokafka and kafka-python, unmodified, over SASL_PLAINTEXT against a broker process; users by librdkafka's admin client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from tests.broker.sasl import GUARDED
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.waiting import eventually

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD: Final = "alice-secret"
WAIT_SECONDS_MAX: Final = 30


class Guarded:
    """A broker process whose second listener asks who connects; alice may, by each mechanism."""

    def __init__(self, process: BrokerProcess, address: str) -> None:
        self.open_bootstrap = process.bootstrap
        self.bootstrap = address


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    port, other = lasting_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{port},GUARDED://127.0.0.1:{other}"
    with BrokerProcess(tmp_path_factory.mktemp("sasl"), port=port, **{**GUARDED, "listeners": listeners}) as process:
        guarded = Guarded(process, f"127.0.0.1:{other}")
        admin = AdminClient({"bootstrap.servers": guarded.open_bootstrap})
        infos = [ScramCredentialInfo(mechanism, 4096) for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)]
        alter(admin, [UserScramCredentialUpsertion("alice", info, PASSWORD.encode()) for info in infos])
        yield guarded


def alter(admin: AdminClient, changes: list[UserScramCredentialAlteration]) -> None:
    for future in admin.alter_user_scram_credentials(changes).values():
        future.result(WAIT_SECONDS_MAX)


def librdkafka(broker: Guarded, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
        "sasl.username": "alice", "sasl.password": password,
    }  # fmt: skip


def python(broker: Guarded, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice", "sasl_plain_password": password,
    }  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_writes_and_reads(broker: Guarded, mechanism: str) -> None:
    topic = f"librdkafka-{mechanism}"
    producer = Producer(librdkafka(broker, mechanism))
    producer.produce(topic, b"value")
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    consumer = Consumer({**librdkafka(broker, mechanism), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    record = consumer.poll(WAIT_SECONDS_MAX)
    assert record is not None
    assert record.value() == b"value"
    consumer.unsubscribe()
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.slow
def test_librdkafka_with_a_wrong_password_is_refused(broker: Guarded, mechanism: str) -> None:
    errors: list[Any] = []
    settings: dict[str, Any] = {**librdkafka(broker, mechanism, "wrong"), "error_cb": errors.append, "log_level": 0}
    admin = AdminClient(settings)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    eventually(lambda: admin.poll(0.1), lambda _: bool(errors))
    assert "the credentials are wrong" in str(errors[0])


async def _aiokafka(broker: Guarded, mechanism: str) -> bytes | None:
    topic = f"aiokafka-{mechanism}"
    producer = AIOKafkaProducer(**python(broker, mechanism))
    await producer.start()
    await producer.send_and_wait(topic, b"value")
    await producer.stop()
    consumer = AIOKafkaConsumer(topic, **python(broker, mechanism), auto_offset_reset="earliest")
    await consumer.start()
    try:
        record = await asyncio.wait_for(consumer.getone(), WAIT_SECONDS_MAX)
        return record.value
    finally:
        await consumer.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_writes_and_reads(broker: Guarded, mechanism: str) -> None:
    assert asyncio.run(_aiokafka(broker, mechanism)) == b"value"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_writes_and_reads(broker: Guarded, mechanism: str) -> None:
    topic = f"kafka-python-{mechanism}"
    producer = KafkaProducer(**python(broker, mechanism))
    producer.send(topic, b"value").get(WAIT_SECONDS_MAX)
    producer.close()
    consumer = KafkaConsumer(topic, **python(broker, mechanism), auto_offset_reset="earliest", consumer_timeout_ms=WAIT_SECONDS_MAX * 1000)
    assert next(consumer).value == b"value"
    consumer.close()


@pytest.mark.slow
def test_kafka_python_with_a_wrong_password_is_refused(broker: Guarded) -> None:
    with pytest.raises(KafkaError):
        KafkaAdminClient(**python(broker, "SCRAM-SHA-256", "wrong"), bootstrap_timeout_ms=3000)


def test_users_are_described_and_deleted(broker: Guarded) -> None:
    admin = AdminClient({"bootstrap.servers": broker.open_bootstrap})
    infos = [ScramCredentialInfo(mechanism, 8192) for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)]
    alter(admin, [UserScramCredentialUpsertion("carol", info, b"c") for info in infos])
    described: Any = admin.describe_user_scram_credentials()
    found = described.result(WAIT_SECONDS_MAX)
    assert sorted(found) == ["alice", "carol"]
    assert [(info.mechanism, info.iterations) for info in found["carol"].scram_credential_infos] == [
        (info.mechanism, 8192) for info in infos
    ]
    for future in admin.alter_user_scram_credentials([UserScramCredentialDeletion("carol", info.mechanism) for info in infos]).values():
        future.result(WAIT_SECONDS_MAX)
    missing: Any = admin.describe_user_scram_credentials(["carol"])
    with pytest.raises(KafkaException):
        missing["carol"].result(WAIT_SECONDS_MAX)
