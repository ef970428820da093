"""librdkafka, aiokafka and kafka-python, unmodified, over SSL with client certificates and over SASL_SSL, against a broker process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from tests.broker.certificates import Authority, Certificate
from tests.broker.sasl import JAAS, with_users
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.foreign_clients.wire import RawClient

LISTENERS: Final = ("MUTUAL", "BOTH")
WAIT_SECONDS_MAX: Final = 30
VALUE: Final = bytes(range(256)) * 2000
"""Of several TLS records."""


class Secured:
    def __init__(self, authority: Authority, client: Certificate, ports: list[int]) -> None:
        self.authority = authority
        self.client = client
        self.address = {name: f"127.0.0.1:{port}" for name, port in zip(LISTENERS, ports)}

    def librdkafka(self, listener: str) -> dict[str, Any]:
        found = {"bootstrap.servers": self.address[listener], "ssl.ca.location": str(self.authority.trust)}
        if listener == "MUTUAL":
            own = {"ssl.certificate.location": str(self.client.store), "ssl.key.location": str(self.client.store)}
            return {**found, "security.protocol": "SSL", **own}
        login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "bob", "sasl.password": "builder"}
        return {**found, "security.protocol": "SASL_SSL", **login}

    def python(self, listener: str) -> dict[str, Any]:
        found: dict[str, Any] = {"bootstrap_servers": self.address[listener]}
        if listener == "MUTUAL":
            return {**found, "security_protocol": "SSL"}
        login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "bob", "sasl_plain_password": "builder"}
        return {**found, "security_protocol": "SASL_SSL", **login}

    def files(self, listener: str) -> dict[str, str]:
        own = {"certfile": str(self.client.store), "keyfile": str(self.client.store)} if listener == "MUTUAL" else {}
        return {"cafile": str(self.authority.trust), **own}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory / "certificates")
    port, *ports = lasting_ports(3)
    properties = {
        "listeners": ",".join([f"PLAINTEXT://127.0.0.1:{port}", *(f"{n}://127.0.0.1:{p}" for n, p in zip(LISTENERS, ports))]),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MUTUAL:SSL,BOTH:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.both.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.location": str(authority.issue("broker").store),
        "ssl.truststore.location": str(authority.trust),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    with BrokerProcess(directory, port=port, **properties):
        with RawClient(port) as client:
            with_users(client, {"bob": "builder"})
        yield Secured(authority, authority.issue("client"), ports)


@pytest.mark.parametrize("listener", LISTENERS)
def test_librdkafka_writes_and_reads(broker: Secured, listener: str) -> None:
    topic = f"librdkafka-{listener}"
    producer = Producer(broker.librdkafka(listener))
    producer.produce(topic, VALUE)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    consumer = Consumer({**broker.librdkafka(listener), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    record = consumer.poll(WAIT_SECONDS_MAX)
    assert record is not None
    assert record.value() == VALUE
    consumer.unsubscribe()
    consumer.close()


@pytest.mark.parametrize("listener", LISTENERS)
def test_aiokafka_writes_and_reads(broker: Secured, listener: str) -> None:
    async def run() -> bytes | None:
        topic, settings = f"aiokafka-{listener}", broker.python(listener) | {"ssl_context": create_ssl_context(**broker.files(listener))}
        producer = AIOKafkaProducer(**settings)
        await producer.start()
        await producer.send_and_wait(topic, VALUE)
        await producer.stop()
        consumer = AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest")
        await consumer.start()
        try:
            record = await asyncio.wait_for(consumer.getone(), WAIT_SECONDS_MAX)
            value: bytes | None = record.value
            return value
        finally:
            await consumer.stop()

    assert asyncio.run(run()) == VALUE


@pytest.mark.parametrize("listener", LISTENERS)
def test_kafka_python_writes_and_reads(broker: Secured, listener: str) -> None:
    topic = f"kafka-python-{listener}"
    settings = broker.python(listener) | {f"ssl_{name}": value for name, value in broker.files(listener).items()}
    producer = KafkaProducer(**settings)
    producer.send(topic, VALUE).get(WAIT_SECONDS_MAX)
    producer.close()
    consumer = KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_SECONDS_MAX * 1000)
    assert next(consumer).value == VALUE
    consumer.close()


@pytest.mark.slow
def test_without_its_certificate_a_client_is_refused(broker: Secured) -> None:
    settings = broker.python("MUTUAL") | {"ssl_cafile": str(broker.authority.trust), "bootstrap_timeout_ms": 3000}
    with pytest.raises(KafkaError):
        KafkaProducer(**settings)
