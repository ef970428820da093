"""What is worth saying about a broker's file before a broker is started with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.definition import parse_list
from ottla.config.registry import BROKER_KEYS, find_broker_key, nearest
from ottla.errors import KafkaError

_UNLASTING: Final = (
    (("tmp", "var/tmp"), "the system empties this directory, and the unit of `ottla generate systemd` has one of its own (PrivateTmp)"),
    (("home", "root", "run/user"), "the unit of `ottla generate systemd` hides this directory from the broker (ProtectHome)"),
    (("usr", "boot", "efi", "etc"), "the unit of `ottla generate systemd` lets the broker only read here (ProtectSystem)"),
)

VOTERS_OF_SEVERAL: Final = 3
"""So many controllers say that the loss of one node is meant to be survived."""


class Severity(Enum):
    ERROR = "error"  # a broker would refuse to start, or ignore the key
    WARNING = "warning"  # a broker starts, and will not do well
    NOTE = "note"  # the key is taken, and changes nothing


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    severity: Severity
    text: str


def lint(given: Mapping[str, str]) -> Iterator[Finding]:
    """Yields unknown keys, illegal values and keys without effect, in the order of the file; then contradictions."""
    for name, raw in given.items():
        key = find_broker_key(name)
        if key is None:
            hint = nearest(name, BROKER_KEYS)
            form = "" if raw else ", and without a value: a line has the form KEY=VALUE"
            yield Finding(name, Severity.ERROR, f"unknown{form}" + (f"; did you mean {hint}?" if hint else ""))
            continue
        try:
            key.parse(raw)
        except KafkaError as error:
            yield Finding(name, Severity.ERROR, error.message)
            continue
        if key.without_effect is not None:
            yield Finding(name, Severity.NOTE, f"has no effect: it {key.without_effect}")
    legal, _, faults = readable(given)
    for fault in faults:
        yield Finding(re.split(r"[=: ]", fault.message)[0], Severity.ERROR, fault.message)
    config = BrokerConfig(legal)
    for name, text in config.contradictions():
        yield Finding(name, Severity.WARNING, text)
    yield from _replication(config)
    yield from _places(given)


def repeated(pairs: Iterable[tuple[int, str, str]]) -> Iterator[Finding]:
    """Yields the keys that a file has more than once: ``pairs`` are the line, the key and the value of each."""
    lines: dict[str, list[int]] = {}
    for line, name, _ in pairs:
        lines.setdefault(name, []).append(line)
    for name, found in lines.items():
        if len(found) > 1:
            text = f"set on lines {', '.join(map(str, found[:-1]))} and {found[-1]}: the last value counts; remove the others"
            yield Finding(name, Severity.WARNING, text)


def readable(given: Mapping[str, str]) -> tuple[dict[str, str], set[str], list[KafkaError]]:
    """Returns what all else that is wrong is found with: keys that have a legal value, and do not contradict each other.

    Then come the keys that were left out for this, and the contradictions.
    """
    legal, unread = {}, set()
    for name, raw in given.items():
        key = find_broker_key(name)
        try:
            if key is not None:
                key.parse(raw)
                legal[name] = raw
        except KafkaError:
            unread.add(name)
    faults: list[KafkaError] = []
    while (fault := _contradiction(legal)) is not None:
        words = re.split(r"[=:, ]", fault.message)
        if not unread.intersection(words):  # else it may be the default of a key that was left out
            faults.append(fault)
        named = next((word for word in words if word in legal), None)
        if named is None:
            legal.clear()
        else:
            unread.add(named)
            del legal[named]
    return legal, unread, faults


def _contradiction(given: Mapping[str, str]) -> KafkaError | None:
    try:
        BrokerConfig(given)
    except KafkaError as error:
        return error
    return None


def _replication(config: BrokerConfig) -> Iterator[Finding]:
    """Yields settings of replicas with which records are refused, or lost, sooner than the number of nodes suggests."""
    min_isr, factor = config["min.insync.replicas"], config["default.replication.factor"]
    if min_isr > factor and config["process.roles"] != ["broker"]:  # there the factor has no effect: the controllers' counts
        text = f"{min_isr} is above default.replication.factor={factor}: topics that are created without a factor need all replicas"
        yield Finding("min.insync.replicas", Severity.WARNING, f"{text} for acks=all; raise the factor, or lower it")
    voters = len(config["controller.quorum.voters"])
    for name, lost in (
        ("offsets.topic.replication.factor", "no group commits or reads its offsets"),
        ("transaction.state.log.replication.factor", "no transaction begins or ends"),
    ):
        if voters >= VOTERS_OF_SEVERAL and config[name] == 1:
            text = f"1 with {voters} controllers: while one broker is down, {lost} whose coordinator it is"
            yield Finding(name, Severity.WARNING, f"{text}; set it to 3")
    if config["unclean.leader.election.enable"]:
        text = "true: a replica that is not in sync may lead, and records that were acknowledged are lost then"
        yield Finding("unclean.leader.election.enable", Severity.WARNING, f"{text}; set it for single topics, if at all")


def _places(given: Mapping[str, str]) -> Iterator[Finding]:
    """Yields log directories where data does not last, or which the unit of ``ottla generate systemd`` hides from a broker."""
    for name in ("log.dirs", "log.dir", "metadata.log.dir"):
        if name == "log.dirs" and not parse_list(given.get(name, "-")) and not given.get("log.dir"):
            yield Finding(name, Severity.WARNING, "empty: the logs go to the data directory of the user, and Kafka would not start")
        for path in parse_list(given.get(name, "")):
            for places, text in _UNLASTING:
                if any(f"{path}/".startswith(f"/{place}/") for place in places):
                    yield Finding(name, Severity.WARNING, f"{path}: {text}; /var/lib/ottla is what the unit has for it")
