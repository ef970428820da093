"""What is worth saying about a broker's file before a broker is started with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
    is_legal = True
    for name, raw in given.items():
        key = find_broker_key(name)
        if key is None:
            hint = nearest(name, BROKER_KEYS)
            yield Finding(name, Severity.ERROR, "unknown" + (f"; did you mean {hint}?" if hint else ""))
            continue
        try:
            key.parse(raw)
        except KafkaError as error:
            yield Finding(name, Severity.ERROR, error.message)
            is_legal = False
            continue
        if key.without_effect is not None:
            yield Finding(name, Severity.NOTE, f"has no effect: it {key.without_effect}")
    if not is_legal:
        return
    try:
        config = BrokerConfig(given)
    except KafkaError as error:
        yield Finding(re.split(r"[=: ]", error.message)[0], Severity.ERROR, error.message)
        return
    for name, text in config.contradictions():
        yield Finding(name, Severity.WARNING, text)
    yield from _places(given)


def _places(given: Mapping[str, str]) -> Iterator[Finding]:
    """Yields log directories where data does not last, or which the unit of ``ottla generate systemd`` hides from a broker."""
    for name in ("log.dirs", "log.dir", "metadata.log.dir"):
        for path in parse_list(given.get(name, "")):
            for places, text in _UNLASTING:
                if any(f"{path}/".startswith(f"/{place}/") for place in places):
                    yield Finding(name, Severity.WARNING, f"{path}: {text}; /var/lib/ottla is what the unit has for it")
