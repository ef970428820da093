"""Keys of single client-metrics subscriptions (KIP-714)."""

from __future__ import annotations

from typing import Final

from ottla.config.definition import ConfigKey, int32, strings
from ottla.config.keys.reasons import JAVA

HOUR_MS: Final = 3_600_000

KEYS: Final[tuple[ConfigKey, ...]] = (
    int32("interval.ms", 300_000, "How often clients push their metrics.", low=100, high=HOUR_MS, without_effect=JAVA),
    strings("match", [], "Which clients push: name=regular expression, comma-separated.", without_effect=JAVA),
    strings("metrics", [], "Prefixes of the names of metrics that are pushed.", without_effect=JAVA),
)
