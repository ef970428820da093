"""Consumer groups and their offsets; the protocols of KIP-848 and KIP-1071."""

from __future__ import annotations

from typing import Any, Final, NoReturn, Protocol

from ottla.config.definition import INT_MAX, ConfigKey, Scope, int16, int32, int64, string, strings
from ottla.config.keys import without_effect
from ottla.config.keys.derived import derived
from ottla.config.keys.reasons import NEW_GROUPS
from ottla.errors import ErrorCode, KafkaError

ASSIGNORS: Final = ("uniform", "range")
"""Those that the coordinator has."""

KEYS: Final[tuple[ConfigKey, ...]] = (
    int32("offset.metadata.max.bytes", 4096, "The longest metadata of a committed offset, in bytes."),
    int32("offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets.", low=1),
    int16(
        "offsets.topic.replication.factor",
        3,
        "Replicas of __consumer_offsets. Without a value it is the number of brokers, 3 at most.",
        low=1,
    ),
    int32("offsets.topic.segment.bytes", 104857600, "Segment size of __consumer_offsets.", low=1),
    int32("offsets.commit.timeout.ms", 5000, "How long a commit may wait for its replicas.", low=1),
    int32("offsets.retention.minutes", 10080, "How long offsets of an empty group are kept.", low=1),
    int64("offsets.retention.check.interval.ms", 600000, "How often expired offsets are removed.", low=1),
    int32("group.initial.rebalance.delay.ms", 3000, "How long the first rebalance of an empty group waits for more members."),
    int32("group.min.session.timeout.ms", 6000, "The shortest session timeout a member may ask for."),
    int32("group.max.session.timeout.ms", 1800000, "The longest session timeout a member may ask for."),
    int32("group.max.size", INT_MAX, "The most members of a group.", low=1),
    strings(
        "group.coordinator.rebalance.protocols",
        ["classic", "consumer", "streams"],
        "The group protocols that are served.",
        choices=("consumer", "classic", "share", "streams"),
    ),
    strings("group.consumer.assignors", ["uniform", "range"], "Assignors on the broker's side, the default first."),
    string(
        "group.consumer.migration.policy",
        "bidirectional",
        "Whether groups may change between the classic and the consumer protocol.",
        choices=("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        ignores_case=True,
    ),
    int32("group.consumer.session.timeout.ms", 45000, "Session timeout of members of consumer groups.", low=1),
    int32(
        "group.consumer.min.session.timeout.ms",
        45000,
        "The lowest consumer.session.timeout.ms of a group.",
        low=1,
    ),
    int32(
        "group.consumer.max.session.timeout.ms",
        60000,
        "The highest consumer.session.timeout.ms of a group.",
        low=1,
    ),
    int32("group.consumer.heartbeat.interval.ms", 5000, "Heartbeat interval of members of consumer groups.", low=1),
    int32(
        "group.consumer.min.heartbeat.interval.ms",
        5000,
        "The lowest consumer.heartbeat.interval.ms of a group.",
        low=1,
    ),
    int32(
        "group.consumer.max.heartbeat.interval.ms",
        15000,
        "The highest consumer.heartbeat.interval.ms of a group.",
        low=1,
    ),
    int32(
        "group.consumer.assignment.interval.ms",
        1000,
        "The shortest time between two assignments of a consumer group.",
        low=0,
        scope=Scope.CLUSTER_WIDE,
    ),
    int32(
        "group.consumer.min.assignment.interval.ms",
        0,
        "The lowest consumer.assignment.interval.ms of a group.",
        low=0,
    ),
    int32(
        "group.consumer.max.assignment.interval.ms",
        15000,
        "The highest consumer.assignment.interval.ms of a group.",
        low=0,
    ),
    int32("group.consumer.max.size", INT_MAX, "The most members of a consumer group.", low=1),
    int32(
        "group.consumer.regex.refresh.interval.ms",
        600000,
        "How often regular expressions are matched against topics.",
        low=10000,
        is_internal=True,
    ),
)

_BROKER_KEYS: Final = {key.name: key for key in (*KEYS, *without_effect.BROKER_KEYS)}


def _of_group(name: str, **differing: Any) -> ConfigKey:
    return derived(_BROKER_KEYS[f"group.{name}"], name, **differing)


RESOURCE_KEYS: Final[tuple[ConfigKey, ...]] = (
    _of_group("consumer.assignment.interval.ms"),
    _of_group("consumer.heartbeat.interval.ms"),
    _of_group("consumer.session.timeout.ms"),
    _of_group("share.assignment.interval.ms"),
    _of_group("share.delivery.count.limit", high=None),
    _of_group("share.heartbeat.interval.ms"),
    _of_group("share.partition.max.record.locks", high=None),
    _of_group("share.record.lock.duration.ms", high=None),
    _of_group("share.session.timeout.ms"),
    _of_group("streams.assignment.interval.ms"),
    _of_group("streams.heartbeat.interval.ms"),
    _of_group("streams.initial.rebalance.delay.ms"),
    _of_group("streams.num.standby.replicas"),
    _of_group("streams.session.timeout.ms"),
    string(
        "share.auto.offset.reset",
        "latest",
        "Where this share group begins: latest, earliest or by_duration:PnDTnHnMn.nS.",
        pattern=r"latest|earliest|by_duration:P(?=[\dT])(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?",
        without_effect=NEW_GROUPS,
    ),
    string(
        "share.isolation.level",
        "read_uncommitted",
        "Whether this share group sees records of open transactions.",
        choices=("read_committed", "read_uncommitted"),
        without_effect=NEW_GROUPS,
    ),
)
"""Keys of single groups."""


class Values(Protocol):
    """The part of the broker's configuration that is checked."""

    def __getitem__(self, name: str) -> Any: ...


def check(config: Values) -> None:
    """Raises INVALID_CONFIG for values of the consumer protocol that contradict each other, or name what this broker lacks."""
    protocols = [name.lower() for name in config["group.coordinator.rebalance.protocols"]]
    if "classic" not in protocols:
        _refuse("group.coordinator.rebalance.protocols", ",".join(protocols), "the classic protocol is always served: list it")
    assignors = config["group.consumer.assignors"]
    unknown = [name for name in assignors if name not in ASSIGNORS]
    if unknown or not assignors:
        served = ", ".join(ASSIGNORS)
        _refuse("group.consumer.assignors", ",".join(assignors), f"the assignors are {served}; classes of Java are not loaded")
    for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
        key, low, high = (f"group.consumer.{bound}{name}" for bound in ("", "min.", "max."))
        if not config[low] <= config[key] <= config[high]:
            _refuse(key, config[key], f"it must be between {low}={config[low]} and {high}={config[high]}")
    session, heartbeat = "group.consumer.session.timeout.ms", "group.consumer.heartbeat.interval.ms"
    if config[session] <= config[heartbeat]:
        _refuse(session, config[session], f"it must be above {heartbeat}={config[heartbeat]}")


def _refuse(key: str, value: Any, why: str) -> NoReturn:
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key}={value}: {why}")
