"""What is worth saying about a broker's file before a broker is started with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from ottla.config.broker import BrokerConfig
from ottla.config.registry import BROKER_KEYS, find_broker_key, nearest
from ottla.errors import KafkaError


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
    """Unknown keys, illegal values and keys without effect, in the order of the file; then values that contradict each other."""
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
