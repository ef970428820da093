"""Which of a broker's values is in force."""

from __future__ import annotations

import pytest

from ottla.config import BrokerConfig, ConfigSource
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


def test_a_value_that_stands_in_is_a_synonym_and_not_the_keys_own() -> None:
    config = BrokerConfig({"log.roll.hours": "3"})
    assert config["log.roll.ms"] == 3 * HOUR_MS
    assert list(config.layers("log.roll.ms")) == [
        (ConfigSource.STATIC_BROKER, "log.roll.hours", 3), (ConfigSource.DEFAULT, "log.roll.hours", 168),
    ]  # fmt: skip


def test_a_dynamic_value_that_a_later_version_knew_is_passed_over() -> None:
    config = BrokerConfig()
    assert config.set_dynamic(own={"from.the.future": "1", "num.io.threads": "4"}, default={})
    assert config["num.io.threads"] == 4


def test_unknown_keys_are_remembered_with_the_nearest_known_one_and_illegal_values_refused() -> None:
    assert BrokerConfig({"num.partition": "1"}).unknown == {"num.partition": "num.partitions"}
    with pytest.raises(KafkaError, match=r"num\.partitions=0 is below 1") as refused:
        BrokerConfig({"num.partitions": "0"})
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_folders_come_from_log_dirs_else_from_log_dir() -> None:
    assert BrokerConfig({"log.dir": "/a"}).log_dirs == ["/a"]
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ["/b", "/c"]
    with pytest.raises(KafkaError, match=r"log\.dirs"):
        _ = BrokerConfig().log_dirs
