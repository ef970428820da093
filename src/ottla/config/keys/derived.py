"""Keys of single resources that are a broker key under another name."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ottla.config.definition import ConfigKey, Scope


def derived(broker_key: ConfigKey, name: str, **differing: Any) -> ConfigKey:
    """Returns the broker key under another name, but for what is ``differing``; where the resource has no value, the broker's counts."""
    return replace(broker_key, name=name, broker_key=broker_key.name, scope=Scope.CLUSTER_WIDE, **differing)
