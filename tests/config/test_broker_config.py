"""Which of a broker's values is in force."""

from __future__ import annotations

import re

import pytest

from ottla.config import BROKER_KEYS, BrokerConfig, ConfigSource
from ottla.errors import ErrorCode, KafkaError

HOUR_MS = 3_600_000


def test_this_brokers_dynamic_value_beats_the_clusters_and_that_the_files_and_that_the_default() -> None:
    config = BrokerConfig({"message.max.bytes": "2000"})
    assert config["message.max.bytes"] == 2000
    assert config.set_dynamic(own={}, default={"message.max.bytes": "3000"})
    assert config["message.max.bytes"] == 3000
    assert config.set_dynamic(own={"message.max.bytes": "4000"}, default={"message.max.bytes": "3000"})
    assert config["message.max.bytes"] == 4000
    assert list(config.layers("message.max.bytes")) == [
        (ConfigSource.DYNAMIC_BROKER, "message.max.bytes", 4000),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, "message.max.bytes", 3000),
        (ConfigSource.STATIC_BROKER, "message.max.bytes", 2000),
        (ConfigSource.DEFAULT, "message.max.bytes", 1048588),
    ]
    assert not config.set_dynamic(own={"message.max.bytes": "4000"}, default={"message.max.bytes": "3000"}), "nothing changed"
    assert config.set_dynamic(own={}, default={})
    assert config["message.max.bytes"] == 2000


def test_a_value_of_the_file_that_has_no_effect_is_known_with_the_way_out() -> None:
    """Such as min.insync.replicas, which a cluster has from its first start: another file and a restart change nothing."""
    hidden = "listener.name.internal.ssl.key.password"
    config = BrokerConfig(
        {"min.insync.replicas": "2", "message.max.bytes": "2000", "num.io.threads": "4", hidden: "secret", "node.id": "7"}
    )
    assert list(config.overridden()) == []
    config.set_dynamic(own={"message.max.bytes": "4000", hidden: "other"}, default={"min.insync.replicas": "1", "num.io.threads": "4"})
    assert list(config.overridden()) == [
        ("min.insync.replicas", "2", "1", "`ottla config set --brokers min.insync.replicas=2`"),
        ("message.max.bytes", "2000", "4000", "`ottla config set --broker 7 message.max.bytes=2000`"),
        (hidden, "[hidden]", "[hidden]", f"`ottla config set --broker 7 {hidden}=VALUE`"),
    ]


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "5"}, 5 * 60_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "5", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_is_taken_from_milliseconds_else_minutes_else_hours(given: dict[str, str], milliseconds: int) -> None:
    assert BrokerConfig(given)["log.retention.ms"] == milliseconds


def test_a_value_that_stands_in_is_a_synonym_after_the_keys_own_alone() -> None:
    """Kafka drops the synonyms before the key's own name: without a value of its own it has none."""
    config = BrokerConfig({"log.roll.hours": "3"})
    assert config["log.roll.ms"] == 3 * HOUR_MS
    assert list(config.layers("log.roll.ms")) == []
    assert list(BrokerConfig({"log.roll.hours": "3", "log.roll.ms": "5"}).layers("log.roll.ms")) == [
        (ConfigSource.STATIC_BROKER, "log.roll.ms", 5),
        (ConfigSource.STATIC_BROKER, "log.roll.hours", 3), (ConfigSource.DEFAULT, "log.roll.hours", 168),
    ]  # fmt: skip


def test_broker_id_and_node_id_are_one() -> None:
    """Kafka gives each the value of the other."""
    assert [BrokerConfig(given)["broker.id"] for given in ({"node.id": "7"}, {"broker.id": "7"}, {})] == [7, 7, 1]
    assert BrokerConfig({"broker.id": "7"})["node.id"] == 7


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((1.7976931348623157e308, "1.7976931348623157E308"), (0.5, "0.5"), (0.0001, "1.0E-4"), (12345678.9, "1.23456789E7")),
        *((1e7, "1.0E7"), (9999999.0, "9999999.0"), (100.0, "100.0"), (0.001, "0.001"), (-0.00025, "-2.5E-4"), (float("inf"), "Infinity")),
    ],
)
def test_floats_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert BROKER_KEYS["log.cleaner.io.max.bytes.per.second"].format(value) == text


def test_a_dynamic_value_that_a_later_version_knew_is_passed_over() -> None:
    config = BrokerConfig()
    assert config.set_dynamic(own={"from.the.future": "1", "num.io.threads": "4"}, default={})
    assert config["num.io.threads"] == 4


def test_unknown_keys_are_remembered_with_the_nearest_known_one_and_illegal_values_refused() -> None:
    assert BrokerConfig({"num.partition": "1"}).unknown == {"num.partition": "num.partitions"}
    with pytest.raises(KafkaError, match=r"num\.partitions=0 is below 1") as refused:
        BrokerConfig({"num.partitions": "0"})
    assert refused.value.code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"listener.security.protocol.map": "PLAINTEXT:SASL_TLS"}, "PLAINTEXT:SASL_TLS is not of the form NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,:SSL"}, ":SSL is not of the form NAME:PROTOCOL"),
        ({"max.connections.per.ip.overrides": "127.0.0.1:x"}, "'127.0.0.1:x' is not of the form address:count"),
        ({"max.connections.per.ip.overrides": "127.0.0.1"}, "'127.0.0.1' is not of the form address:count"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip=0 would refuse every connection"),
        ({"log.dirs": "/a,/b,/a/"}, "log.dirs=/a,/b,/a/ lists /a/ twice"),
        ({"log.roll.ms": "0"}, "log.roll.ms=0 is below 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms=-1 is below 0"),
        *(({f"log.retention.{unit}": "0"}, f"log.retention.{unit}=0 would delete records") for unit in ("ms", "minutes", "hours")),
        ({"ottla.admin.listener": "http://127.0.0.1:9644"}, "is not of the form host:port or https://host:port"),
    ],
)
def test_what_no_broker_starts_with_is_refused_where_it_is_read(given: dict[str, str], text: str) -> None:
    """A start, `ottla config lint` and a change of a running broker read it there."""
    with pytest.raises(KafkaError, match=re.escape(text)) as refused:
        BrokerConfig(given)
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_a_dynamic_value_that_no_broker_starts_with_is_passed_over() -> None:
    """Earlier versions recorded such values."""
    config = BrokerConfig({"log.retention.hours": "-1"})
    config.set_dynamic(
        own={"listener.security.protocol.map": "X"}, default={"max.connections.per.ip.overrides": "a:b", "log.retention.ms": "0"}
    )
    assert config["listener.security.protocol.map"].startswith("SASL_SSL:SASL_SSL")
    assert config["max.connections.per.ip.overrides"] == ""
    assert config["log.retention.ms"] == -1


def test_directories_come_from_log_dirs_else_from_log_dir() -> None:
    assert BrokerConfig({"log.dir": "/a"}).log_dirs == ["/a"]
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ["/b", "/c"]
    with pytest.raises(KafkaError, match=r"log\.dirs"):
        _ = BrokerConfig().log_dirs


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"group.consumer.session.timeout.ms": "44999"}, "group.consumer.min.session.timeout.ms=45000"),
        ({"group.consumer.heartbeat.interval.ms": "15001"}, "group.consumer.max.heartbeat.interval.ms=15000"),
        ({"group.consumer.min.assignment.interval.ms": "2000"}, "group.consumer.assignment.interval.ms=1000"),
        (
            {"group.consumer.min.session.timeout.ms": "1", "group.consumer.session.timeout.ms": "5000"},
            "it must be above group.consumer.heartbeat.interval.ms=5000",
        ),
        ({"group.consumer.assignors": "uniform,org.example.Own"}, "group.consumer.assignors=uniform,org.example.Own"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "group.coordinator.rebalance.protocols=consumer"),
    ],
)
def test_values_of_consumer_groups_that_do_not_go_together_are_refused(given: dict[str, str], names: str) -> None:
    with pytest.raises(KafkaError, match=re.escape(names)):
        BrokerConfig(given)
