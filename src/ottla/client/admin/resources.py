"""What has a configuration, what is said of its values, and how they are changed.

A resource is an object (``Topic("orders")``, ``Broker(1)``); numbers of the wire are this module's alone.
Source: KIP-226, KIP-339, KIP-412, KIP-714, KIP-1043.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Never

from ottla.errors import ErrorCode, KafkaError
from ottla.messages.describe_configs import DescribeConfigsResourceResult
from ottla.messages.incremental_alter_configs import AlterableConfig
from ottla.types import NamedInt


class ConfigResource:
    """A thing with a configuration: a ``Topic``, ``Broker``, ``BrokerLoggers``, ``Group`` or ``ClientMetrics``."""

    __slots__ = ()

    def __init__(self, *given: Never, **named: Never) -> None:
        """Refuses the call: what is given by kind and name in other clients has a class of its own here."""
        raise TypeError('a ConfigResource is one of its kinds: write Topic("orders"), Broker(1), BrokerLoggers(1), Group("g")')


@dataclass(frozen=True, slots=True)
class Topic(ConfigResource):
    """A topic, as a thing with a configuration."""

    name: str
    """The topic's name."""


@dataclass(frozen=True, slots=True)
class Broker(ConfigResource):
    """A broker, as a thing with a configuration; without an id, what all brokers have that set none of their own."""

    node_id: int | None = None
    """The broker's id; None for all brokers."""


@dataclass(frozen=True, slots=True)
class BrokerLoggers(ConfigResource):
    """The levels of one broker's loggers, by their names."""

    node_id: int
    """The broker's id."""


@dataclass(frozen=True, slots=True)
class Group(ConfigResource):
    """A group, as a thing with a configuration."""

    group_id: str
    """The group."""


@dataclass(frozen=True, slots=True)
class ClientMetrics(ConfigResource):
    """A subscription to the metrics of clients."""

    name: str
    """The subscription's name."""


class ConfigKind(Enum):
    """The kinds of resources that have a configuration."""

    TOPIC = 2
    """A ``Topic``."""
    BROKER = 4
    """A ``Broker``."""
    BROKER_LOGGERS = 8
    """A ``BrokerLoggers``."""
    CLIENT_METRICS = 16
    """A ``ClientMetrics``."""
    GROUP = 32
    """A ``Group``."""


class ConfigSource(NamedInt):
    """The place where a value was set."""

    UNKNOWN = 0
    """A source that this client does not know."""
    TOPIC = 1
    """The topic itself."""
    BROKER = 2
    """One broker, while it ran."""
    ALL_BROKERS = 3
    """All brokers (``Broker()``), while they ran."""
    FILE = 4
    """The broker's ``server.properties``."""
    DEFAULT = 5
    """Kafka's default: it was set nowhere."""
    BROKER_LOGGER = 6
    """The level of a broker's logger."""
    CLIENT_METRICS = 7
    """A subscription to the metrics of clients."""
    GROUP = 8
    """The group itself."""


class ConfigType(NamedInt):
    """The type of a value, in Kafka's words. One that this client does not know is UNKNOWN."""

    UNKNOWN = 0
    """A type that this client does not know."""
    BOOLEAN = 1
    """``true`` or ``false``."""
    STRING = 2
    """A text."""
    INT = 3
    """A whole number of 32 bits."""
    SHORT = 4
    """A whole number of 16 bits."""
    LONG = 5
    """A whole number of 64 bits."""
    DOUBLE = 6
    """A number with a fraction."""
    LIST = 7
    """Items with commas between them; ``Append`` and ``Subtract`` change it."""
    CLASS = 8
    """The name of a class of Java."""
    PASSWORD = 9
    """A secret, which brokers do not return."""


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that is, or would be, in force under another key or from another source."""

    name: str
    """The key, as ``log.retention.ms`` for ``retention.ms`` of a topic."""
    value: str | None
    """Its value; None for a secret and where there is none."""
    source: ConfigSource
    """Where that was set."""


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A key and the value in force, which is None for a secret and where there is none. The first of ``synonyms`` is the one in force."""

    name: str
    """The key."""
    value: str | None
    """The value in force, as text; None for a secret and where there is none."""
    source: ConfigSource
    """Where that was set."""
    type: ConfigType
    """The type of the values."""
    is_read_only: bool
    """Whether it can only be set in a file, before the start."""
    is_sensitive: bool
    """Whether it is a secret, which brokers do not return."""
    synonyms: tuple[ConfigSynonym, ...]
    """All that is set for it, what is in force first."""
    documentation: str | None
    """What the key means, in the broker's words; None where the broker does not say it."""


@dataclass(frozen=True, slots=True)
class Append:
    """A change of a list, for ``alter_configs``: it has the item from now on."""

    item: str
    """One item, without commas."""


@dataclass(frozen=True, slots=True)
class Subtract:
    """A change of a list, for ``alter_configs``: it does not have the item from now on."""

    item: str
    """One item, without commas."""


ConfigValue = str | int | float | bool
"""A value of a key; it is sent as text."""
ConfigChange = str | int | float | Append | Subtract | None
"""A value, or a change of a list; None removes this resource's own value."""
ConfigChanges = Mapping[str, ConfigChange]
"""Changes of one resource, by key: ``{"retention.ms": 3_600_000, "cleanup.policy": Append("compact"), "flush.ms": None}``."""


def wire_of(resource: ConfigResource) -> tuple[int, str]:
    """Returns the resource as requests name it. TypeError for anything else."""
    match resource:
        case Topic(given) | Group(given) | ClientMetrics(given) if not isinstance(given, str):
            raise TypeError(f"{resource!r}: its name is expected as a string")
        case Broker(given) | BrokerLoggers(given) if not isinstance(given, int) and given is not None:
            raise TypeError(f"{resource!r}: the id of the broker is expected as a number")
        case Topic(name):
            return ConfigKind.TOPIC.value, name
        case Broker(node_id):
            return ConfigKind.BROKER.value, "" if node_id is None else str(node_id)
        case BrokerLoggers(node_id):
            return ConfigKind.BROKER_LOGGERS.value, str(node_id)
        case Group(group_id):
            return ConfigKind.GROUP.value, group_id
        case ClientMetrics(name):
            return ConfigKind.CLIENT_METRICS.value, name
    raise TypeError(f'{resource!r} has no configuration: give Topic("orders"), Broker(1), Group("g") or ClientMetrics("s")')


def resource_of(kind: int, name: str) -> ConfigResource:
    """Returns the resource that an answer names. UNSUPPORTED_VERSION for a kind that this client does not know."""
    match kind:
        case ConfigKind.TOPIC.value:
            return Topic(name)
        case ConfigKind.BROKER.value:
            return Broker(int(name) if name else None)
        case ConfigKind.BROKER_LOGGERS.value:
            return BrokerLoggers(int(name))
        case ConfigKind.GROUP.value:
            return Group(name)
        case ConfigKind.CLIENT_METRICS.value:
            return ClientMetrics(name)
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the broker listed a resource of kind {kind}, which this client does not know")


def alterable(key: str, change: ConfigChange) -> AlterableConfig:
    """Returns the change of one key in the form of requests."""
    match change:
        case None:
            return AlterableConfig(key, 1, None)
        case Append(item):
            return AlterableConfig(key, 2, item)
        case Subtract(item):
            return AlterableConfig(key, 3, item)
        case bool():
            return AlterableConfig(key, 0, "true" if change else "false")
        case str() | int() | float():
            return AlterableConfig(key, 0, str(change))
    raise TypeError(f"{key}={change!r}: give a string, a number, Append(item), Subtract(item), or None for no value")


def text_of(key: str, value: ConfigValue) -> str:
    """Returns the value as requests have it. TypeError for what is no value."""
    if not isinstance(value, str | int | float):
        raise TypeError(f"{key}={value!r}: give a string, a number, True or False")
    return alterable(key, value).value or ""


def entry_of(found: DescribeConfigsResourceResult) -> ConfigEntry:
    """Returns one key's entry, from an answer."""
    return ConfigEntry(
        found.name,
        found.value,
        source_of(found.config_source),
        ConfigType(found.config_type) if found.config_type in set(ConfigType) else ConfigType.UNKNOWN,
        found.read_only,
        found.is_sensitive,
        tuple(ConfigSynonym(synonym.name, synonym.value, source_of(synonym.source)) for synonym in found.synonyms),
        found.documentation,
    )


def source_of(number: int) -> ConfigSource:
    return ConfigSource(number) if number in set(ConfigSource) else ConfigSource.UNKNOWN
