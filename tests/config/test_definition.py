"""From a key's text to its value."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigKey, parse_topic_configs
from ottla.config.definition import boolean, double, int32, int64, password, strings
from ottla.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        (boolean("k", False, ""), " TRUE ", True),
        (int32("k", 0, ""), "-5", -5),
        (int64("k", 0, ""), str(2**63 - 1), 2**63 - 1),
        (double("k", 0.0, ""), "1e3", 1000.0),
        (strings("k", [], ""), " a, b ,,c", ["a", "b", "c"]),
        (strings("k", [], ""), "", []),
        (BROKER_KEYS["group.consumer.migration.policy"], "UpGrade", "UpGrade"),
        (GROUP_KEYS["share.auto.offset.reset"], "by_duration:P1DT2H3.5S", "by_duration:P1DT2H3.5S"),
    ],
)
def test_legal_texts_have_values(key: ConfigKey, text: str, value: Any) -> None:
    assert key.parse(text) == value


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        (boolean("k", False, ""), "yes", "not of type boolean"),
        (int32("k", 0, ""), "1.5", "not of type int: expected a whole number, as in 0"),
        (int64("k.ms", 5, ""), "1h", "not of type long: expected a whole number of milliseconds, as in 5"),
        (int32("k", 0, ""), "1_000", "not of type int"),
        (int32("k", 0, ""), "9" * 5000, "not of type int"),
        (int32("k", 0, ""), str(2**31), "does not fit"),
        (double("k", 0.0, ""), "nan", "not of type double"),
        (int32("k", 1, "", low=1), "0", "below 1"),
        (int32("k", 1, "", high=9), "10", "above 9"),
        (BROKER_KEYS["compression.gzip.level"], "0", "no meaning"),
        (TOPIC_KEYS["cleanup.policy"], "delete,shred", "not one of"),
        (TOPIC_KEYS["leader.replication.throttled.replicas"], "0:1,x", "not of the form"),
        (GROUP_KEYS["share.auto.offset.reset"], "by_duration:P", "not of the form"),
    ],
)
def test_illegal_texts_are_refused_with_key_value_and_reason(key: ConfigKey, text: str, why: str) -> None:
    with pytest.raises(KafkaError, match=why) as refused:
        key.parse(text)
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert refused.value.message.startswith(f"{key.name}=")
    assert len(refused.value.message) < 400


def test_a_secret_is_not_shown_when_it_is_refused() -> None:
    assert "s3cret" not in password("k", None, "", choices=("a",)).refuse("s3cret", "is wrong").message


def test_a_topics_overrides_are_checked_together() -> None:
    assert parse_topic_configs({"retention.ms": "-1", "cleanup.policy": "compact,delete"}) == {
        "retention.ms": "-1", "cleanup.policy": "compact,delete",
    }  # fmt: skip
    wrongs: tuple[tuple[dict[str, str | None], str], ...] = (
        ({"retention.msx": "1"}, "did you mean 'retention.ms'"),
        ({"retention.ms": None}, "has no value"),
        ({"retention.ms": "-2"}, "below -1"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "above max.compaction.lag.ms"),
    )
    for wrong, why in wrongs:
        with pytest.raises(KafkaError, match=why) as refused:
            parse_topic_configs(wrong)
        assert refused.value.code == ErrorCode.INVALID_CONFIG
