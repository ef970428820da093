"""Configuration as DescribeConfigs and CreateTopics tell it: each value with where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

from ottla.config import BROKER_KEYS, TOPIC_KEYS, BrokerConfig, ConfigKey, ConfigType
from ottla.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym


class ConfigSource(IntEnum):
    """Kafka's numbers, the strongest first."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


def topic_config_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[DescribeConfigsResourceResult]:
    """Every topic key: the override, else the broker's value, else the default; all of them as synonyms."""
    for name, key in sorted(TOPIC_KEYS.items()):
        synonyms: list[DescribeConfigsSynonym] = []
        if name in overrides:
            synonyms.append(DescribeConfigsSynonym(name, overrides[name], ConfigSource.DYNAMIC_TOPIC))
        if key.broker_key is not None:
            synonyms += _broker_synonyms(config, BROKER_KEYS[key.broker_key])
        value = overrides.get(name) or key.format(config.topic_default(key))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        yield _entry(key, value, source, synonyms, read_only=False)


def broker_config_entries(config: BrokerConfig) -> Iterator[DescribeConfigsResourceResult]:
    for name, key in sorted(BROKER_KEYS.items()):
        synonyms = _broker_synonyms(config, key)
        source = ConfigSource.STATIC_BROKER if config.is_given(name) else ConfigSource.DEFAULT
        yield _entry(key, key.format(config[name]), source, synonyms, read_only=not key.is_dynamic)


def _broker_synonyms(config: BrokerConfig, key: ConfigKey) -> list[DescribeConfigsSynonym]:
    synonyms = []
    if config.is_given(key.name):
        synonyms.append(DescribeConfigsSynonym(key.name, _shown(key, key.format(config[key.name])), ConfigSource.STATIC_BROKER))
    if key.default is not None:
        synonyms.append(DescribeConfigsSynonym(key.name, _shown(key, key.format(key.default)), ConfigSource.DEFAULT))
    return synonyms


def _entry(
    key: ConfigKey, value: str | None, source: int, synonyms: list[DescribeConfigsSynonym], *, read_only: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=key.name,
        value=_shown(key, value),
        read_only=read_only,
        config_source=source,
        is_sensitive=key.type is ConfigType.PASSWORD,
        synonyms=synonyms,
        config_type=key.type.value,
        documentation=key.doc,
    )


def _shown(key: ConfigKey, value: str | None) -> str | None:
    """Secrets are never told."""
    return None if key.type is ConfigType.PASSWORD else value
