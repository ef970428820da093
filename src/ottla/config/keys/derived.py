"""Keys of single resources that are a broker key under another name."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ottla.config.definition import ConfigKey, Scope


def derived(broker_key: ConfigKey, name: str, **differing: Any) -> ConfigKey:
    """Returns the broker key under another name, but for what is ``differing``; where the resource has no value, the broker's counts.

    A broker key's check is of that key alone: a topic may have ``retention.ms=0``, which no broker may have for all of its topics.
    """
    other = {"name": name, "broker_key": broker_key.name, "scope": Scope.CLUSTER_WIDE, "check": None}
    return replace(broker_key, **(other | differing))
