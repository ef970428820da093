"""Every configuration key: Kafka's name, type, default, scope and meaning; and the values of one broker.

``BROKER_KEYS`` and ``TOPIC_KEYS`` are the registry: parsing, DescribeConfigs, ``ottla config`` and the reference page all
read it. A topic's value is its own override, else the broker key named by ``broker_key``, else the default.

Source: Kafka 4.3's configuration reference (names, types, defaults). Our defaults differ where the doc says so.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
HOUR_MS: Final = 3_600_000


class ConfigType(Enum):
    """Kafka's ConfigDef types, with the numbers that DescribeConfigs v3+ sends."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_INTEGER_BOUNDS: Final = {
    ConfigType.INT: (-(2**31), INT_MAX),
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.LONG: (-(2**63), LONG_MAX),
}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. ``low``, ``high`` and ``choices`` bound what is accepted; ``is_dynamic`` keys may change while the broker runs."""

    name: str
    type: ConfigType
    default: Any
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] | None = None
    is_dynamic: bool = False
    broker_key: str | None = None  # of a topic key: where its default comes from

    def parse(self, raw: str) -> Any:
        """The value; KafkaError INVALID_CONFIG that names key, value and what would be legal."""
        text = raw.strip()
        try:
            value = _PARSERS[self.type](text)
        except ValueError:
            raise self.refuse(raw, f"is not of type {self.type.name.lower()}") from None
        if self.type in _INTEGER_BOUNDS:
            low, high = _INTEGER_BOUNDS[self.type]
            if not low <= value <= high:
                raise self.refuse(raw, f"does not fit a {self.type.name.lower()}")
        if self.low is not None and value < self.low:
            raise self.refuse(raw, f"is below {self.low}")
        if self.high is not None and value > self.high:
            raise self.refuse(raw, f"is above {self.high}")
        if self.choices is not None:
            for item in value if isinstance(value, list) else [value]:
                if item not in self.choices:
                    raise self.refuse(raw, f"is not one of {', '.join(self.choices)}")
        return value

    def refuse(self, raw: str, why: str) -> KafkaError:
        shown = "[hidden]" if self.type is ConfigType.PASSWORD else raw
        return KafkaError(ErrorCode.INVALID_CONFIG, f"{self.name}={shown} {why}")

    def format(self, value: Any) -> str | None:
        """The text form that Kafka's tools show; None for a key without a value."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return ",".join(value)
        return str(value)


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError
    return lowered == "true"


def _parse_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


_PARSERS: Final[dict[ConfigType, Callable[[str], Any]]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: str,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


def _index(*keys: ConfigKey) -> Mapping[str, ConfigKey]:
    return {key.name: key for key in keys}


_B, _S, _I, _L, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
_D = ConfigType.DOUBLE
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMPS = ("CreateTime", "LogAppendTime")

BROKER_KEYS: Final = _index(
    ConfigKey("node.id", _I, 1, "The broker's id in the cluster.", low=0),
    ConfigKey("broker.id", _I, -1, "Older name of node.id; used when node.id is not given."),
    ConfigKey("broker.rack", _S, None, "The rack (or host) of this broker; replicas of a partition are spread over racks."),
    ConfigKey("cluster.id", _S, None, "The cluster's id; made at the first start when absent. A key of ottla's own."),
    ConfigKey(
        "listeners", _LIST, ["PLAINTEXT://127.0.0.1:9092"], "Where the broker listens: NAME://host:port. Kafka's default is all interfaces."
    ),
    ConfigKey("advertised.listeners", _LIST, None, "What clients are told to connect to; the listeners when absent."),
    ConfigKey("log.dir", _S, None, "The data folder, when log.dirs is not given."),
    ConfigKey(
        "log.dirs",
        _LIST,
        None,
        "The data folders. Kafka's default is a folder that the system may empty; ottla's is in the user's data folder.",
    ),
    ConfigKey("num.partitions", _I, 1, "Partitions of a topic created without a count.", low=1),
    ConfigKey("default.replication.factor", _I, 1, "Replicas of a topic created without a factor.", low=1),
    ConfigKey("min.insync.replicas", _I, 1, "Replicas that must be in sync for acks=all to be accepted.", low=1, is_dynamic=True),
    ConfigKey("auto.create.topics.enable", _B, True, "Whether asking for an unknown topic creates it."),
    ConfigKey("delete.topic.enable", _B, True, "Whether topics may be deleted."),
    ConfigKey("message.max.bytes", _I, 1048588, "The largest record batch accepted.", low=0, is_dynamic=True),
    ConfigKey("compression.type", _S, "producer", "How batches are stored; 'producer' keeps what came.", choices=_CODECS, is_dynamic=True),
    ConfigKey("log.segment.bytes", _I, 1073741824, "Size at which a segment is closed and a new one begun.", low=1024, is_dynamic=True),
    ConfigKey("log.roll.ms", _L, None, "Age at which a segment is closed; log.roll.hours when absent.", low=1, is_dynamic=True),
    ConfigKey("log.roll.hours", _I, 168, "Age at which a segment is closed, in hours.", low=1),
    ConfigKey("log.index.size.max.bytes", _I, 10485760, "Size at which an offset index is full.", low=4, is_dynamic=True),
    ConfigKey("log.index.interval.bytes", _I, 4096, "Bytes of log between two index entries.", low=0, is_dynamic=True),
    ConfigKey(
        "log.cleanup.policy",
        _LIST,
        ["delete"],
        "What happens to old data: delete, compact or both.",
        choices=("delete", "compact"),
        is_dynamic=True,
    ),
    ConfigKey(
        "log.retention.ms", _L, None, "Age after which closed segments may be deleted; log.retention.hours when absent.", is_dynamic=True
    ),
    ConfigKey("log.retention.hours", _I, 168, "Age after which closed segments may be deleted, in hours."),
    ConfigKey("log.retention.bytes", _L, -1, "Size of a partition above which closed segments may be deleted.", is_dynamic=True),
    ConfigKey("log.message.timestamp.type", _S, "CreateTime", "Whose clock stamps records.", choices=_TIMESTAMPS, is_dynamic=True),
    ConfigKey("log.message.timestamp.before.max.ms", _L, LONG_MAX, "How far a record's time may lie in the past.", low=0, is_dynamic=True),
    ConfigKey("log.message.timestamp.after.max.ms", _L, HOUR_MS, "How far a record's time may lie in the future.", low=0, is_dynamic=True),
    ConfigKey(
        "log.flush.interval.messages",
        _L,
        LONG_MAX,
        "Messages of a partition after which it is fsynced before they are acknowledged.",
        low=1,
    ),
    ConfigKey("log.flush.interval.ms", _L, None, "Milliseconds that a message may wait for its fsync.", low=0, is_dynamic=True),
    ConfigKey(
        "producer.id.expiration.ms", _I, 86400000, "How long an idle producer's sequence numbers are remembered.", low=1, is_dynamic=True
    ),
    ConfigKey("socket.request.max.bytes", _I, 104857600, "The largest request read.", low=1),
    ConfigKey("connections.max.idle.ms", _L, 600000, "Idle connections are closed after this time."),
    ConfigKey("fetch.max.bytes", _I, 57671680, "The most that one fetch answers with.", low=1024),
    ConfigKey("max.incremental.fetch.session.cache.slots", _I, 1000, "Fetch sessions kept.", low=0),
    ConfigKey("offset.metadata.max.bytes", _I, 4096, "The longest text beside a committed offset."),
    ConfigKey("offsets.topic.num.partitions", _I, 50, "Partitions of __consumer_offsets.", low=1),
    ConfigKey(
        "offsets.topic.replication.factor",
        _I,
        None,
        "Replicas of __consumer_offsets. Default: 3, or what the cluster of the configuration can hold.",
        low=1,
    ),
    ConfigKey("offsets.topic.segment.bytes", _I, 104857600, "Segment size of __consumer_offsets.", low=1),
    ConfigKey("offsets.retention.minutes", _I, 10080, "How long offsets of an empty group are kept.", low=1, is_dynamic=True),
    ConfigKey("offsets.retention.check.interval.ms", _L, 600000, "How often expired offsets are looked for.", low=1),
    ConfigKey(
        "group.initial.rebalance.delay.ms", _I, 3000, "How long the first rebalance of an empty group waits for more members.", low=0
    ),
    ConfigKey("group.min.session.timeout.ms", _I, 6000, "The shortest session timeout a member may ask for.", low=1),
    ConfigKey("group.max.session.timeout.ms", _I, 1800000, "The longest session timeout a member may ask for.", low=1),
    ConfigKey("group.max.size", _I, INT_MAX, "The most members of a group.", low=1),
    ConfigKey("metadata.log.max.record.bytes.between.snapshots", _L, 20971520, "Bytes of metadata log between two snapshots.", low=1),
)


def _topic_key(name: str, broker_key: str, **differing: Any) -> ConfigKey:
    """A topic's key is its broker key under another name, as far as nothing else is said."""
    return replace(BROKER_KEYS[broker_key], name=name, broker_key=broker_key, is_dynamic=True, **differing)


TOPIC_KEYS: Final = _index(
    _topic_key("cleanup.policy", "log.cleanup.policy"),
    _topic_key("compression.type", "compression.type"),
    _topic_key("flush.messages", "log.flush.interval.messages"),
    _topic_key("flush.ms", "log.flush.interval.ms", default=LONG_MAX),
    _topic_key("index.interval.bytes", "log.index.interval.bytes"),
    _topic_key("max.message.bytes", "message.max.bytes"),
    _topic_key("message.timestamp.type", "log.message.timestamp.type"),
    _topic_key("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _topic_key("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _topic_key("min.insync.replicas", "min.insync.replicas"),
    _topic_key("retention.bytes", "log.retention.bytes"),
    _topic_key("retention.ms", "log.retention.ms", default=168 * HOUR_MS),
    _topic_key("segment.bytes", "log.segment.bytes"),
    _topic_key("segment.index.bytes", "log.index.size.max.bytes"),
    _topic_key("segment.ms", "log.roll.ms", default=168 * HOUR_MS),
)

_HOURS_OF: Final = {"log.roll.ms": "log.roll.hours", "log.retention.ms": "log.retention.hours"}


def nearest(name: str, keys: Mapping[str, ConfigKey]) -> str | None:
    """The known key that a mistyped name most resembles."""
    found = difflib.get_close_matches(name, list(keys), n=1, cutoff=0.6)
    return found[0] if found else None


class BrokerConfig:
    """The values of one broker: given ones over defaults. Unknown keys are kept in ``unknown`` for the caller to warn about."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._values: dict[str, Any] = {}
        self.unknown: dict[str, str | None] = {}
        for name, raw in (given or {}).items():
            key = BROKER_KEYS.get(name)
            if key is None:
                self.unknown[name] = nearest(name, BROKER_KEYS)
            else:
                self._values[name] = key.parse(raw)

    def __getitem__(self, name: str) -> Any:
        """The value in force; KeyError for a name that the registry does not have."""
        if name in self._values:
            return self._values[name]
        hours = _HOURS_OF.get(name)
        if hours is not None:
            value = self[hours]
            return value if value < 0 else value * HOUR_MS
        return BROKER_KEYS[name].default

    def is_given(self, name: str) -> bool:
        return name in self._values

    @property
    def node_id(self) -> int:
        value: int = self["broker.id"] if not self.is_given("node.id") and self["broker.id"] >= 0 else self["node.id"]
        return value

    @property
    def log_dirs(self) -> list[str]:
        """The data folders; KafkaError INVALID_CONFIG when none is given."""
        dirs: list[str] | None = self["log.dirs"] or ([self["log.dir"]] if self["log.dir"] else None)
        if not dirs:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "no data folder: set log.dirs")
        return dirs

    def topic_default(self, key: ConfigKey) -> Any:
        """What a topic without an override has."""
        value = self[key.broker_key] if key.broker_key else None
        return key.default if value is None else value


def parse_topic_configs(given: Mapping[str, str | None]) -> dict[str, str]:
    """The overrides, checked; KafkaError INVALID_CONFIG for an unknown key, a null or an illegal value."""
    checked: dict[str, str] = {}
    for name, raw in given.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            hint = nearest(name, TOPIC_KEYS)
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown topic config {name!r}" + (f"; did you mean {hint!r}?" if hint else ""))
        if raw is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"topic config {name!r} has no value")
        key.parse(raw)
        checked[name] = raw
    return checked


def parse_properties(text: str) -> dict[str, str]:
    """A Java properties file: ``key=value`` or ``key: value``, ``#`` and ``!`` comments, continued lines."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        for index, character in enumerate(line):
            if character in "=:" or character.isspace():
                key, rest = line[:index], line[index:].lstrip()
                values[key] = rest[1:].strip() if rest[:1] in ("=", ":") else rest.strip()
                break
        else:
            values[line] = ""
    return values


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip() if pending else raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        yield line.rstrip()
    if pending:
        yield pending
