"""Every key by name, and the nearest name to a misspelt one.

Source: Kafka 4.3's configuration reference (names, types, defaults). Where a default of ours differs, the key's doc says so.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.config.definition import ConfigKey, string
from ottla.config.keys import (
    authorizer,
    cluster,
    groups,
    logs,
    oauth,
    security,
    server,
    tls,
    topics,
    transactions,
    without_effect,
    zookeeper,
)
from ottla.errors import ErrorCode, KafkaError


def _index(keys: Iterable[ConfigKey]) -> Mapping[str, ConfigKey]:
    return {key.name: key for key in keys}


OWN_KEYS: Final = _index(
    (
        string("cluster.id", None, "The cluster's id; made at the first start when absent. A key of ottla's own."),
        *authorizer.OWN_KEYS,
    )
)
"""Those that Kafka's reference does not have."""
BROKER_KEYS: Final = {
    **_index(key for area in (server, logs, groups, cluster, transactions) for key in area.KEYS),
    **_index(key for area in (authorizer, security, oauth, tls, zookeeper) for key in area.KEYS),
    **_index(without_effect.BROKER_KEYS),
    **OWN_KEYS,
}
TOPIC_KEYS: Final = _index((*topics.KEYS, *without_effect.TOPIC_KEYS))
GROUP_KEYS: Final = _index((*groups.RESOURCE_KEYS, *without_effect.GROUP_KEYS))
CLIENT_METRICS_KEYS: Final = _index(without_effect.CLIENT_METRICS_KEYS)

SEGMENT_BYTES_MIN: Final = 1 << 20
"""Of topics. Logs that were given smaller segments before keep them, and so do brokers whose file asks for them."""
_LISTENER_PREFIX: Final = "listener.name."


def find_broker_key(name: str) -> ConfigKey | None:
    """Returns the key of that name; also under ``listener.name.<listener>.`` and a SASL mechanism, which narrow it to one listener."""
    key = BROKER_KEYS.get(name)
    if key is None and name.startswith(_LISTENER_PREFIX):
        _, _, rest = name[len(_LISTENER_PREFIX) :].partition(".")
        key = BROKER_KEYS.get(rest) or BROKER_KEYS.get(rest.partition(".")[2])
    return key


def nearest(name: str, keys: Mapping[str, ConfigKey]) -> str | None:
    """Returns the known key that a mistyped name most resembles; of a topic, its key whose default a broker has by this name."""
    in_ms = re.sub(r"\.(hours|minutes)$", ".ms", name)
    for key in keys.values():
        if key.broker_key == in_ms:
            return key.name
    found = difflib.get_close_matches(name[:200], list(keys), n=1, cutoff=0.6)
    return found[0] if found else None


def unknown(what: str, name: str, keys: Mapping[str, ConfigKey]) -> KafkaError:
    """Returns INVALID_CONFIG with the nearest known key."""
    hint = nearest(name, keys)
    return KafkaError(ErrorCode.INVALID_CONFIG, f"unknown {what} config {name[:200]!r}" + (f"; did you mean {hint!r}?" if hint else ""))


def parse_topic_configs(given: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the overrides, checked; KafkaError INVALID_CONFIG for an unknown key, a null, an illegal value or a contradiction."""
    checked: dict[str, str] = {}
    values = {}
    for name, raw in given.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise unknown("topic", name, TOPIC_KEYS)
        if raw is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"topic config {name!r} has no value")
        values[name] = key.parse(raw)
        checked[name] = raw
    if values.get("segment.bytes", SEGMENT_BYTES_MIN) < SEGMENT_BYTES_MIN:
        raise TOPIC_KEYS["segment.bytes"].refuse(checked["segment.bytes"], f"is below {SEGMENT_BYTES_MIN}")
    if values.get("remote.storage.enable"):
        raise TOPIC_KEYS["remote.storage.enable"].refuse(
            checked["remote.storage.enable"], "needs tiered storage, which this broker does not support"
        )
    low, high = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if low is not None and high is not None and low > high:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"min.compaction.lag.ms={low} is above max.compaction.lag.ms={high}")
    return checked
