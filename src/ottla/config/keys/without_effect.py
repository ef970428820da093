"""Keys that are accepted and change nothing: a table, ``without_effect.tsv``, with a row for each.

A key that some code reads is Python. So is one without effect whose values are checked by more than type and bounds, because the check
is an effect, and a topic's or group's key that is a broker key under another name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ottla.config.definition import ConfigKey, ConfigType, Scope
from ottla.config.keys import reasons

_TABLE: Final = Path(__file__).with_suffix(".tsv")
_REASONS: Final[dict[str, str]] = {name: value for name, value in vars(reasons).items() if name.isupper()}


def _key(row: list[str]) -> ConfigKey:
    why, _, name, kind, default, bounds, scope, internal, doc = row
    low, _, high = bounds.partition("..")
    bare = ConfigKey(name, ConfigType[kind], None, doc)
    return ConfigKey(
        name,
        bare.type,
        None if default == "null" else bare.parse(default),
        doc,
        low=_number(low),
        high=_number(high),
        scope=Scope(scope) if scope else Scope.READ_ONLY,
        is_internal=bool(internal),
        without_effect=_REASONS[why],
    )


def _number(text: str) -> float | None:
    return None if not text else float(text) if "." in text else int(text)


_ROWS: Final = [line.split("\t") for line in _TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def _of(resource: str) -> tuple[ConfigKey, ...]:
    return tuple(_key(row) for row in _ROWS if row[1] == resource)


BROKER_KEYS: Final = _of("broker")
TOPIC_KEYS: Final = _of("topic")
GROUP_KEYS: Final = _of("group")
CLIENT_METRICS_KEYS: Final = _of("client-metrics")
