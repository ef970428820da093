"""OAUTHBEARER with librdkafka, aiokafka and kafka-python, unmodified: signed tokens get in, librdkafka's unsecured ones do not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import KafkaError, Producer
from kafka import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider
from tests.broker.sasl import LISTENER
from tests.broker.test_oauth import given
from tests.security.issuer import claims, ec_key, signed
from tests.waiting import eventually

from ottla.runtime.serve import BrokerThread

WAIT_SECONDS_MAX: Final = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(given(tmp_path_factory.mktemp("oauth"))) as thread:
        yield thread


def address(broker: BrokerThread) -> str:
    return f"127.0.0.1:{broker.addresses[LISTENER][1]}"


def librdkafka(broker: BrokerThread, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address(broker), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **more,
    }  # fmt: skip


def test_librdkafka_gets_in_by_a_signed_token(broker: BrokerThread) -> None:
    asked: list[str] = []

    def token(config: str) -> tuple[str, float]:
        asked.append(config)
        return signed(claims(sub="rd"), {"alg": "ES256", "kid": "ec"}, ec_key()), time.time() + 3600

    producer = Producer(librdkafka(broker, oauth_cb=token))
    producer.produce("librdkafka", b"value")
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    assert asked
    assert broker._broker is not None
    names = {str(one.principal) for one in list(broker._broker.router.connections) if one.listener == LISTENER}
    assert names == {"User:rd"}


def test_librdkafkas_unsecured_token_is_refused(broker: BrokerThread) -> None:
    errors: list[KafkaError] = []
    unsecured = {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": "principal=alice", "error_cb": errors.append}
    producer = Producer(librdkafka(broker, **unsecured))
    eventually(lambda: (producer.poll(0.05), [one.code() for one in errors])[1], lambda codes: KafkaError._AUTHENTICATION in codes)
    assert broker._broker is not None
    assert broker._broker.gate.threshold.tally.failed > 0


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return signed(claims(sub="aio"))


class Python(PythonTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return signed(claims(sub="python"))


def test_aiokafka_and_kafka_python_get_in(broker: BrokerThread) -> None:
    given: dict[str, Any] = {"bootstrap_servers": address(broker), "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}

    async def produce() -> None:
        async with AIOKafkaProducer(**given, sasl_oauth_token_provider=Provider()) as producer:
            await asyncio.wait_for(producer.send_and_wait("aiokafka", b"value"), WAIT_SECONDS_MAX)

    asyncio.run(produce())
    admin = KafkaAdminClient(**given, sasl_oauth_token_provider=Python())
    assert "aiokafka" in admin.list_topics()
    admin.close()
