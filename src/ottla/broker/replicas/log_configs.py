"""A topic's settings as its logs take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.config import TOPIC_KEYS, BrokerConfig
from ottla.storage.config import LogConfig

INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"


def log_config(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """A topic's settings: its overrides over the broker's values."""
    values: dict[str, Any] = {
        "producer_id_expiration_ms": config["producer.id.expiration.ms"],
        "opens_batches": config["ottla.produce.validation"] == "records",
    }
    for name, key in TOPIC_KEYS.items():
        field = name.replace(".", "_")
        if field in LogConfig.__dataclass_fields__:
            value = key.parse(overrides[name]) if name in overrides else config.topic_default(key)
            values[field] = ",".join(value) if isinstance(value, list) else value
    if INTERNAL_SEGMENT_BYTES in overrides:
        values["segment_bytes"] = TOPIC_KEYS[INTERNAL_SEGMENT_BYTES].parse(overrides[INTERNAL_SEGMENT_BYTES])
    return LogConfig(**values)
