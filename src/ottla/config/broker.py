"""The values of one broker: dynamic ones over the file's, the file's over defaults (KIP-226).

A dynamic value for this broker is stronger than one for all brokers, and both are stronger than what the broker was started
with. ``[]`` always gives the value in force, so code that reads it when it is needed sees every change.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final

from ottla.config.definition import ConfigKey
from ottla.config.keys import authorizer, groups, server
from ottla.config.registry import BROKER_KEYS, find_broker_key, nearest
from ottla.errors import ErrorCode, KafkaError

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

VALUE_ELSEWHERE: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "log.roll.ms": (("log.roll.hours", HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", HOUR_MS),),
    "log.retention.ms": (("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}
"""Keys that take their value from another one, times the factor, when they have none."""


class ConfigSource(IntEnum):
    """Kafka's numbers for where a value comes from."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class BrokerConfig:
    """Unknown keys are kept in ``unknown``, with the nearest known one, for the caller to warn about."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._dynamic_own: dict[str, Any] = {}
        self._dynamic_default: dict[str, Any] = {}
        self._given: dict[str, Any] = {}
        self.unknown: dict[str, str | None] = {}
        for name, raw in (given or {}).items():
            key = find_broker_key(name)
            if key is None:
                self.unknown[name] = nearest(name, BROKER_KEYS)
            else:
                self._given[name] = key.parse(raw)
        older_id = self._given.get("broker.id", -1)
        if older_id >= 0 and older_id != (node_id := self._given.setdefault("node.id", older_id)):
            text = f"broker.id={older_id} and node.id={node_id} differ: leave out broker.id, or write the same number"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        self._name_listener_between_brokers()
        self.has_node_id: Final = "node.id" in self._given
        """Whether the broker was started with its id. In ZooKeeper mode it need not be."""
        self._given["broker.id"] = self["node.id"]  # two names of one thing, as in Kafka
        authorizer.check(self)
        groups.check(self)
        server.check_per_ip(self[server.PER_IP], self[server.PER_IP_OVERRIDES])

    def _name_listener_between_brokers(self) -> None:
        """Turns a protocol into the listener of that name, which says the same (KIP-103)."""
        protocol = self._given.get("security.inter.broker.protocol", "PLAINTEXT")
        if protocol == "PLAINTEXT":
            return
        name = self._given.get("inter.broker.listener.name")
        if name is not None:
            text = f"security.inter.broker.protocol={protocol} and inter.broker.listener.name={name} exclude each other: give the listener"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        self._given["inter.broker.listener.name"] = protocol

    def __getitem__(self, name: str) -> Any:
        """Returns the value in force; KeyError for a name that the registry does not have."""
        value = next((value for _, value in self._set(name)), None)
        for other, factor in VALUE_ELSEWHERE.get(name, ()) if value is None else ():
            value = self[other]
            if value is not None:
                return value if value < 0 else min(value * factor, 2**63 - 1)
        return BROKER_KEYS[name].default if value is None else value

    def static(self, name: str) -> Any:
        """Returns the value that the broker was started with, or the default."""
        return self._given.get(name, BROKER_KEYS[name].default)

    def of_listener(self, listener: str, name: str) -> Any:
        """Returns the value that holds for one listener alone (``listener.name.<listener>.<name>``); None when it has none."""
        return next((value for _, value in self._set(f"listener.name.{listener.lower()}.{name}")), None)

    def is_given(self, name: str) -> bool:
        """True when the broker was started with a value for it."""
        return name in self._given

    @property
    def given(self) -> Mapping[str, Any]:
        """What the broker was started with."""
        return self._given

    @property
    def names(self) -> set[str]:
        """The keys that have a value of their own."""
        return {*self._dynamic_own, *self._dynamic_default, *self._given}

    def shown(self) -> dict[str, str]:
        """Returns what the broker was started with, key by key, as its log may have it: without secrets."""
        shown = {}
        for name, value in sorted(self._given.items()):
            key = find_broker_key(name)
            if key is not None and value != key.default and name != "broker.id":
                shown[name] = "[hidden]" if key.is_sensitive else key.format(value) or ""
        return shown

    def layers(self, name: str) -> Iterator[tuple[ConfigSource, str, Any]]:
        """Yields source, key and value of all that the key's value is chosen from, the strongest first.

        As in Kafka the key itself comes first: one without a value of its own has none, whatever key it takes its value from.
        """
        own = BROKER_KEYS.get(name)
        if own is not None and own.default is None and not any(self._set(name)):
            return
        for synonym in (name, *(other for other, _ in VALUE_ELSEWHERE.get(name, ()))):
            for source, value in self._set(synonym):
                yield source, synonym, value
            key = BROKER_KEYS.get(synonym)  # a key narrowed to a listener has no default: that of the whole broker counts
            if key is not None and key.default is not None:
                yield ConfigSource.DEFAULT, synonym, key.default

    def _set(self, name: str) -> Iterator[tuple[ConfigSource, Any]]:
        if name in self._dynamic_own:
            yield ConfigSource.DYNAMIC_BROKER, self._dynamic_own[name]
        if name in self._dynamic_default:
            yield ConfigSource.DYNAMIC_DEFAULT_BROKER, self._dynamic_default[name]
        if name in self._given:
            yield ConfigSource.STATIC_BROKER, self._given[name]

    def set_dynamic(self, *, own: Mapping[str, str], default: Mapping[str, str]) -> bool:
        """Sets the dynamic values, for this broker and for all brokers; returns whether any of them changed."""
        before = self._dynamic_own, self._dynamic_default
        self._dynamic_own, self._dynamic_default = _parsed(own), _parsed(default)
        return before != (self._dynamic_own, self._dynamic_default)

    def with_dynamic(self, *, own: Mapping[str, str], default: Mapping[str, str]) -> BrokerConfig:
        """Returns what the broker was started with, under these dynamic values."""
        other = copy.copy(self)
        other.set_dynamic(own=own, default=default)
        return other

    def overridden(self) -> Iterator[tuple[str, str, str, str]]:
        """Yields what the broker was started with and a dynamic value takes precedence of.

        That is the key, both values, secrets hidden, and how the first comes in force.
        """
        for name, given in self._given.items():
            key = find_broker_key(name)
            source, value = next(self._set(name))
            if key is None or source is ConfigSource.STATIC_BROKER or value == given:
                continue
            written, in_force = ("[hidden]" if key.is_sensitive else key.format(found) or "" for found in (given, value))
            where = f"--broker {self.node_id}" if source is ConfigSource.DYNAMIC_BROKER else "--brokers"
            yield name, written, in_force, f"`ottla config set {where} {name}={'VALUE' if key.is_sensitive else written}`"

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yields contradictory values that a broker of several starts with all the same, as Kafka's does: the key, and what to do."""
        interval_ms, session_ms = self["broker.heartbeat.interval.ms"], self["broker.session.timeout.ms"]
        if 2 * interval_ms > session_ms:
            values = f"broker.session.timeout.ms={session_ms} is below twice broker.heartbeat.interval.ms={interval_ms}"
            advice = "raise the first on the controllers, or lower the second on the brokers"
            yield "broker.session.timeout.ms", f"{values}: a broker is fenced as soon as one heartbeat is late, again and again; {advice}"

        yield from self._port_of_another_voter()
        factor = "default.replication.factor"
        if self["process.roles"] == ["broker"] and self.is_given(factor):
            advice = "set it in the files of the controllers, which give topics their replicas"
            yield factor, f"{factor}={self[factor]} has no effect in the file of a broker that is no controller: {advice}"

    def _port_of_another_voter(self) -> Iterator[tuple[str, str]]:
        """Yields a listener of controllers whose port is not that of this node's entry, as in another node's file with its id left in."""
        names = {name.upper() for name in self["controller.listener.names"] or ()}
        texts = [text.partition("://") for text in self["listeners"]]
        ports = {address.rpartition(":")[2] for name, _, address in texts if name.upper() in names}
        for voter in self["controller.quorum.voters"]:
            voter_id, _, address = voter.partition("@")
            is_own = self.has_node_id and voter_id == str(self.node_id)
            if is_own and ports and not ports & {address.rpartition(":")[2], "0"}:
                own = ", ".join(sorted(ports))
                text = f"{voter} is this node, whose node.id is {voter_id}, and its listener of controllers has port {own}"
                advice = "if this is another node, set its node.id: two controllers of one id would both vote"
                yield "controller.quorum.voters", f"{text}: the others do not reach it, unless that port is forwarded; {advice}"

    @property
    def node_id(self) -> int:
        value: int = self["node.id"]
        return value

    def set_node_id(self, node_id: int) -> None:
        """Gives the broker, which was started without an id, this one."""
        self._given["node.id"] = self._given["broker.id"] = node_id

    @property
    def replica_dirs(self) -> list[str]:
        """The entries of ``log.dirs``, which hold the partitions; KafkaError INVALID_CONFIG when none is given."""
        dirs: list[str] = self["log.dirs"] or (self["log.dir"] if self.is_given("log.dir") else [])
        if not dirs:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "no log directory: set log.dirs")
        return dirs

    @property
    def log_dirs(self) -> list[str]:
        """All directories of the node, that of the metadata log first: ``metadata.log.dir``, among the others or apart from them."""
        dirs, metadata_dir = self.replica_dirs, self["metadata.log.dir"]
        if not metadata_dir or self["zookeeper.connect"]:
            return dirs
        return [metadata_dir, *(path for path in dirs if path != metadata_dir)]

    def topic_default(self, key: ConfigKey) -> Any:
        """Returns the value of a topic without an override."""
        value = self[key.broker_key] if key.broker_key else None
        return key.default if value is None else value


def _parsed(raw: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values, which were checked before they were recorded, leaving out values that this broker does not take."""
    parsed = {}
    for name, text in raw.items():
        key = find_broker_key(name)
        if key is not None:
            with suppress(KafkaError):
                parsed[name] = key.parse(text)
    return parsed
