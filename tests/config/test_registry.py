"""The registry against the facts of Kafka 4.3, against the code, and against COMPATIBILITY.md."""

from __future__ import annotations

import ast
import fnmatch
import functools
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.broker.replicas.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS
from ottla.broker.replicas.topic_configs import INTERNAL_SEGMENT_BYTES
from ottla.config import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigKey, find_broker_key, nearest
from ottla.config.broker import VALUE_ELSEWHERE
from ottla.config.keys import reasons
from ottla.config.registry import OWN_KEYS
from ottla.storage.config import LogConfig

ROOT = Path(__file__).parent.parent.parent
RESOURCES = {"broker": BROKER_KEYS, "topic": TOPIC_KEYS, "group": GROUP_KEYS, "client-metrics": CLIENT_METRICS_KEYS}
ALL_KEYS = [key for keys in RESOURCES.values() for key in keys.values()]


def facts_of(name: str) -> list[list[str]]:
    """Resource, name, type, default, validator, update mode, internal."""
    lines = (Path(__file__).parent / name).read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


KAFKAS = [*facts_of("kafka_4_3.tsv"), *facts_of("kafka_3_9_zookeeper.tsv")]
OURS = facts_of("ottla.tsv")

OTHER_DEFAULTS = {
    *("node.id", "process.roles", "controller.listener.names"),  # Kafka demands them
    *("listeners", "log.dir"),  # the key's doc says how, and why
    *("group.share.persister.class.name",),  # a Java class, and internal
    *("interval.ms",),  # Kafka has it beside the definition
}
OTHER_BOUNDS = {
    *("log.segment.bytes", "segment.bytes"),  # smaller segments are legal here, as they were before Kafka 4.1
    *("retention.ms", "interval.ms"),  # Kafka checks these beside the definition
    *("authorizer.class.name", "replica.selector.class"),  # those that there are; Kafka loads any class
    *("share.delivery.count.limit", "share.partition.max.record.locks", "share.record.lock.duration.ms"),
    *("share.assignment.interval.ms", "consumer.assignment.interval.ms", "streams.assignment.interval.ms"),
}
# Broker keys that only exist as dynamic values.
DYNAMIC_ONLY = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}


def test_every_key_of_kafka_is_known_and_no_other() -> None:
    for resource, keys in RESOURCES.items():
        kafkas = {name for kind, name, *_ in KAFKAS if kind == resource}
        ours = {name for name in keys.keys() - OWN_KEYS.keys() - DYNAMIC_ONLY if not name.startswith("ottla.")}
        assert ours == kafkas, resource
        assert keys.keys() - kafkas == {name for kind, name, *_ in OURS if kind == resource}, resource


@pytest.mark.parametrize("fact", [*KAFKAS, *OURS], ids=lambda fact: f"{fact[0]}-{fact[1]}")
def test_type_default_bounds_and_scope_are_as_written(fact: list[str]) -> None:
    resource, name, kind, default, validator, mode, internal = fact
    key = RESOURCES[resource][name]
    assert key.type.name == kind
    assert key.is_internal == bool(internal)
    if resource == "broker":
        assert key.scope.value == mode
    if name not in OTHER_DEFAULTS:
        shown = key.format(key.default)
        default = default.removeprefix("class ")
        kafkas = None if default == "null" else ",".join(part.strip() for part in default.strip("[]").split(","))
        assert shown == kafkas
    if name not in OTHER_BOUNDS:
        assert bounds_of(key) == bounds_in(validator)


def bounds_of(key: ConfigKey) -> tuple[object, object, object]:
    return key.low, key.high, set(key.choices) if key.choices else None


def bounds_in(validator: str) -> tuple[object, object, object]:
    if validator == "[1,...,9] or -1":
        return -1, 9, None
    interval = re.fullmatch(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\]", validator)
    if interval is not None:
        return float(interval[1]), None if interval[2] is None else float(interval[2]), None
    choices = re.fullmatch(r"(?:\(case insensitive\) )?\[(.*)\]", validator)
    if choices is None or "partitionId" in validator or "by_duration" in validator:
        return None, None, None
    return None, None, {choice.strip() for choice in choices[1].split(",")}


@pytest.mark.parametrize("key", ALL_KEYS, ids=lambda key: key.name)
def test_every_default_is_a_legal_value_and_every_key_has_a_sentence(key: ConfigKey) -> None:
    if key.default is not None:
        assert key.parse(str(key.format(key.default))) == key.default
    assert re.fullmatch(r".{10,}\.", key.doc), key.doc


def test_a_key_has_an_effect_exactly_when_the_code_reads_it() -> None:
    read = {key.name for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()) if is_read(key)}
    effective = {key.name for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()) if key.without_effect is None}
    assert sorted(read - effective) == [], "these are read: take their without_effect away, and their names from COMPATIBILITY.md"
    assert sorted(effective - read) == [], "nothing reads these"


@functools.cache
def source_words() -> tuple[set[str], set[str]]:
    """All string constants, and all attribute names, of the code outside the registry's data."""
    texts: set[str] = set()
    attributes: set[str] = set()
    for path in (ROOT / "src" / "ottla").rglob("*.py"):
        if "config/keys" in path.as_posix() or path.parent.name in ("cli", "spark", "demo"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
            elif isinstance(node, ast.Attribute):
                attributes.add(node.attr)
    return texts, attributes


def is_read(key: ConfigKey) -> bool:
    topic_keys = [other for other in TOPIC_KEYS.values() if key in (other, BROKER_KEYS.get(other.broker_key or ""))]
    fields = {other.name.replace(".", "_") for other in topic_keys}
    texts, attributes = source_words()
    if fields & LogConfig.__dataclass_fields__.keys() & attributes:
        return True
    if key in TOPIC_KEYS.values():
        return key.name in (INTERNAL_SEGMENT_BYTES, LEADER_REPLICAS, FOLLOWER_REPLICAS)  # which are no fields of the log's
    falls_back_to = {name for name, others in VALUE_ELSEWHERE.items() if any(other == key.name for other, _ in others)}
    return key.name in texts - VALUE_ELSEWHERE_TEXTS or any(is_read(BROKER_KEYS[name]) for name in falls_back_to)


VALUE_ELSEWHERE_TEXTS = {name for pair in VALUE_ELSEWHERE.items() for name in (pair[0], *(other for other, _ in pair[1]))}


def test_compatibility_lists_the_keys_without_effect_under_their_reasons() -> None:
    text = (ROOT / "COMPATIBILITY.md").read_text()
    names_of: dict[str, set[str]] = {}
    for key in ALL_KEYS:
        names_of.setdefault(key.without_effect or "", set()).add(key.name)
    all_names = {key.name for key in ALL_KEYS}
    known_reasons = {value for name, value in vars(reasons).items() if name.isupper()}
    assert names_of.keys() - {""} == known_reasons, "every reason is used"
    for reason in known_reasons:
        row = re.search(rf"^\| {re.escape(reason)} \| (.*) \|$", text, re.MULTILINE)
        assert row is not None, f"COMPATIBILITY.md has no row: {reason}"
        listed = {name for pattern in re.findall(r"`([\w.*]+)`", row[1]) for name in fnmatch.filter(all_names, pattern)}
        assert listed == names_of[reason], f"the row of: {reason}"


def test_compatibility_lists_the_keys_that_are_refused_because_they_would_protect_nothing() -> None:
    text = (ROOT / "COMPATIBILITY.md").read_text()
    row = re.search(r"^Of these keys, (.*?) are refused with any value that would be believed to protect", text, re.MULTILINE | re.DOTALL)
    assert row is not None
    assert re.findall(r"`([\w.]+)`", row[1]) == sorted(key.name for key in ALL_KEYS if key.harmless is not None)


def test_keys_that_only_exist_as_dynamic_values_are_shown_when_they_are_set() -> None:
    assert {key.name for key in BROKER_KEYS.values() if key.is_shown_when_set} == DYNAMIC_ONLY


def test_a_key_narrowed_to_a_listener_is_that_key() -> None:
    assert find_broker_key("listener.name.internal.ssl.keystore.location") is BROKER_KEYS["ssl.keystore.location"]
    assert find_broker_key("listener.name.internal.scram-sha-256.sasl.jaas.config") is BROKER_KEYS["sasl.jaas.config"]
    assert find_broker_key("listener.name.internal.nothing") is None


def test_a_mistyped_name_is_led_to_the_nearest_key() -> None:
    keys: Mapping[str, ConfigKey] = BROKER_KEYS
    assert nearest("num.partition", keys) == "num.partitions"
    assert nearest("log.retention.hour", keys) == "log.retention.hours"
    assert nearest("completely.different", {}) is None
