"""What would be believed to protect the cluster, and protects nothing, is refused: in files, in variables, while the broker runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest
from tests.broker.test_node import properties

from ottla.broker.node import Broker
from ottla.config import BrokerConfig
from ottla.config.definition import UNPROTECTED
from ottla.config.lint import Severity, lint
from ottla.controller.configs import ConfigChange, Operation, change_configs
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import BrokerEndpoint, RegisterBrokerRecord
from ottla.metadata.image import EMPTY_IMAGE, RESOURCE_BROKER
from ottla.metadata.replay import replay
from ottla.runtime.world import real_world

LOGIN: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="n" password="p";'
BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
REFUSED: Final = {
    "principal.builder.class": "com.example.Builder",
    "listener.name.plaintext.plain.sasl.server.callback.handler.class": "com.example.Callbacks",
}
TAKEN: Final = {
    "ssl.client.auth": "none",
    "security.inter.broker.protocol": "PLAINTEXT",
    "connections.max.reauth.ms": "0",
    "principal.builder.class": BUILDER,
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_the_reason_and_the_way_out(name: str) -> None:
    with pytest.raises(KafkaError) as caught:
        BrokerConfig({name: REFUSED[name]})
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert REFUSED[name] in caught.value.message
    assert UNPROTECTED in caught.value.message
    [finding] = lint({name: REFUSED[name]})
    assert finding.severity is Severity.ERROR


def test_what_means_nothing_is_taken() -> None:
    config = BrokerConfig(TAKEN)
    assert not config.unknown
    assert {name: config[name] for name in TAKEN} == {
        **TAKEN, "connections.max.reauth.ms": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.client.auth", "required"),
        ("listener.name.plaintext.ssl.client.auth", "required"),
        ("principal.builder.class", "com.example.Builder"),
        ("super.users", "User:admin"),
        ("listener.security.protocol.map", "PLAINTEXT:SASL_PLAINTEXT,OTHER:SSL"),
    ],
)
def test_it_is_refused_while_the_broker_runs(key: str, value: str) -> None:
    ends = [BrokerEndpoint("PLAINTEXT", "localhost", 9092, 0)]
    image = replay(EMPTY_IMAGE, [RegisterBrokerRecord(1, end_points=ends, fenced=False)])
    with pytest.raises(KafkaError) as caught:
        change_configs(
            image, resource_type=RESOURCE_BROKER, name="1", changes=[ConfigChange(key, Operation.SET, value)], config=BrokerConfig({})
        )
    assert caught.value.code == ErrorCode.INVALID_REQUEST


STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
IN_ZOOKEEPER: Final = "kafka.security.authorizer.AclAuthorizer"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"super.users": "User:admin"}, f"set authorizer.class.name={STANDARD}"),
        ({"allow.everyone.if.no.acl.found": "true"}, f"set authorizer.class.name={STANDARD}"),
        ({"authorizer.class.name": "com.example.Authorizer"}, "is not one of (empty), org.apache"),
        ({"authorizer.class.name": STANDARD, "zookeeper.connect": "127.0.0.1:2181"}, f"ACLs are znodes; set it to {IN_ZOOKEEPER}"),
        ({"authorizer.class.name": IN_ZOOKEEPER}, f"with a quorum, ACLs are in its metadata log; set it to {STANDARD}"),
        ({"super.users": "User:admin", "zookeeper.connect": "127.0.0.1:2181"}, f"set authorizer.class.name={IN_ZOOKEEPER}"),
        ({"authorizer.class.name": STANDARD, "super.users": "User:a;admin"}, "'admin' is no principal"),
        ({"authorizer.class.name": STANDARD, "super.users": "User:a,User:b"}, "semicolons between several"),
        ({"authorizer.class.name": STANDARD, "super.users": "User:"}, "is no principal"),
        ({"authorizer.class.name": STANDARD, "ottla.admin.listener": "0.0.0.0:8080"}, "a loopback address, or none"),
        ({"authorizer.class.name": STANDARD, "ottla.admin.listener": "broker-1:8080"}, "a loopback address, or none"),
    ],
)
def test_an_authorizer_that_would_not_do_what_is_asked_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(KafkaError) as caught:
        BrokerConfig(given)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert why in caught.value.message
    [finding] = lint(given)
    assert (finding.severity, finding.name in given) == (Severity.ERROR, True)


def test_an_authorizer_without_super_users_is_taken() -> None:
    assert BrokerConfig({"authorizer.class.name": STANDARD, "ottla.admin.listener": "https://0.0.0.0:8080"})
    given = {"authorizer.class.name": STANDARD, "allow.everyone.if.no.acl.found": "true", "ottla.admin.listener": "[::1]:8080"}
    config = BrokerConfig(given)
    assert (config["super.users"], config["allow.everyone.if.no.acl.found"]) == ("", True)


def test_a_map_of_protocols_may_have_listeners_that_are_not_used() -> None:
    image = replay(EMPTY_IMAGE, [RegisterBrokerRecord(1, fenced=False)])
    change = ConfigChange("listener.security.protocol.map", Operation.SET, "PLAINTEXT:PLAINTEXT,OTHER:SSL")
    assert change_configs(image, resource_type=RESOURCE_BROKER, name="1", changes=[change], config=BrokerConfig({})).records


def test_settings_that_another_broker_accepted_are_passed_over() -> None:
    """As an Apache Kafka broker of the same cluster may: a value in the metadata log ends no node."""
    config = BrokerConfig({})
    assert config.set_dynamic(own={"sasl.login.class": "com.example.Login", "log.retention.ms": "7"}, default={})
    assert (config["sasl.login.class"], config["log.retention.ms"]) == (None, 7)


@pytest.mark.parametrize(
    "given",
    [
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
        },
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": LOGIN,
        },
        {
            "process.roles": "broker",
            "node.id": "2",
            "controller.listener.names": "SASL_SSL",
            "controller.quorum.voters": "1@127.0.0.1:9093",
        },
    ],
    ids=["own controller", "own controller without mechanisms", "controllers elsewhere"],
)
def test_a_listener_that_should_be_guarded_is_refused_and_nothing_is_touched(tmp_path: Path, given: dict[str, str]) -> None:
    async def start() -> None:
        broker = Broker(real_world(), BrokerConfig(properties(tmp_path) | given))
        with pytest.raises(KafkaError) as caught:
            await broker.start()
        assert caught.value.code == ErrorCode.INVALID_CONFIG
        assert "is not supported" in caught.value.message or "is not set" in caught.value.message

    before = sorted(tmp_path.rglob("*"))
    asyncio.run(start())
    assert sorted(tmp_path.rglob("*")) == before


SASL: Final = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required;"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"connections.max.reauth.ms": "3600000"}, "connections.max.reauth.ms=3600000 would protect nothing"),
        ({"listener.name.plaintext.scram-sha-256.connections.max.reauth.ms": "1000"}, "would protect nothing"),
        ({**SASL, "listener.name.other.connections.max.reauth.ms": "1000"}, "listener.name.other.connections.max.reauth.ms=1000"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}, "sasl.enabled.mechanisms=GSSAPI is not supported"),
        ({**SASL, "sasl.enabled.mechanisms": "SCRAM-SHA-256,GSSAPI"}, "sasl.enabled.mechanisms=SCRAM-SHA-256,GSSAPI is not supported"),
        ({**SASL, "sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms= is not supported"),
        ({**SASL, "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "plain"}, "sasl.enabled.mechanisms=plain is not supported"),
        ({**SASL, "sasl.enabled.mechanisms": "PLAIN"}, "listener.name.sasl_plaintext.plain.sasl.jaas.config is not set"),
        ({**SASL, "sasl.jaas.config": PLAIN}, "as listener.name.NAME.plain.sasl.jaas.config"),
        ({**SASL, "listener.name.sasl_plaintext.sasl.jaas.config": PLAIN}, "as listener.name.NAME.plain.sasl.jaas.config"),
        ({**SASL, "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": PLAIN}, "ScramLoginModule is the module of SCRAM-SHA-256"),
        (
            {**SASL, "sasl.enabled.mechanisms": "PLAIN", "listener.name.sasl_plaintext.plain.sasl.jaas.config": SCRAM},
            "PlainLoginModule is the",
        ),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "inter.broker.listener.name=SASL_SSL is not one of the listeners PLAINTEXT"),
        ({"inter.broker.listener.name": "INTERN"}, "inter.broker.listener.name=INTERN is not one of the listeners PLAINTEXT"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "PLAINTEXT://0.0.0.0:9092 is no address that a client can connect to"),
        ({"listeners": "X://127.0.0.1:0"}, "has no protocol for the listener X"),
        ({"listeners": ""}, "listeners= has none for clients of a broker"),
    ],
)
def test_what_a_listener_cannot_ask_for_is_refused(tmp_path: Path, given: dict[str, str], says: str) -> None:
    async def start() -> None:
        broker = Broker(real_world(), BrokerConfig(properties(tmp_path) | given))
        with pytest.raises(KafkaError) as caught:
            await broker.start()
        assert caught.value.code == ErrorCode.INVALID_CONFIG
        assert says in caught.value.message

    asyncio.run(start())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("sasl.enabled.mechanisms", "GSSAPI", ErrorCode.INVALID_REQUEST),
        ("listener.name.x.sasl.enabled.mechanisms", "", ErrorCode.INVALID_REQUEST),
        ("listener.name.x.plain.sasl.jaas.config", "com.sun.security.auth.module.JndiLoginModule required;", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_not_supported_is_refused_while_the_broker_runs(key: str, value: str, code: ErrorCode) -> None:
    image = replay(EMPTY_IMAGE, [RegisterBrokerRecord(1, fenced=False)])
    change = ConfigChange(key, Operation.SET, value)
    with pytest.raises(KafkaError) as caught:
        change_configs(image, resource_type=RESOURCE_BROKER, name="1", changes=[change], config=BrokerConfig({}))
    assert caught.value.code == code
