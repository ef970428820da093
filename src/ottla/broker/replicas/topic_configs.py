"""The settings of topics as their logs take them: each topic's overrides over the broker's values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ottla.broker.replicas.throttles import Throttles
from ottla.config import TOPIC_KEYS, BrokerConfig
from ottla.metadata.image import ClusterImage
from ottla.storage.config import LogConfig

INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"


def log_config(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Returns a topic's settings: its overrides over the broker's values."""
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


class TopicConfigs:
    """The settings that the open logs of each topic have now, to be compared with a newer image's."""

    def __init__(self, config: BrokerConfig, throttles: Throttles) -> None:
        self._config = config
        self._throttles = throttles
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._has_broker_changed = False

    def broker_changed(self) -> None:
        """Notes that the broker's own values may differ: ``changed`` has all topics the next time."""
        self._has_broker_changed = True

    def for_log(self, topic: str, image: ClusterImage) -> LogConfig:
        """Returns the settings for a log of the topic that is opened now."""
        overrides = self._overrides[topic] = image.topic_configs(topic)
        self._throttles.configure(topic, overrides)
        return log_config(self._config, overrides)

    def changed(self, image: ClusterImage) -> Iterator[tuple[str, LogConfig]]:
        """Yields what the open logs of each topic are to have from now on, where that is not what they have."""
        has_broker_changed, self._has_broker_changed = self._has_broker_changed, False
        for topic, known in self._overrides.items():
            if has_broker_changed or image.topic_configs(topic) != known:
                yield topic, self.for_log(topic, image)

    def forget(self, topic: str) -> None:
        """Forgets the topic, which was deleted."""
        self._overrides.pop(topic, None)
        self._throttles.forget(topic)
