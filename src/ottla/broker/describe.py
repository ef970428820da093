"""Configuration as DescribeConfigs and CreateTopics tell it: each value with where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.config import BROKER_KEYS, TOPIC_KEYS, BrokerConfig, ConfigKey, ConfigSource
from ottla.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym


def topic_config_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[DescribeConfigsResourceResult]:
    """Every topic key: the override, else the broker's value, else the default; all of them as synonyms."""
    for name, key in sorted(TOPIC_KEYS.items()):
        if key.is_internal:
            continue
        synonyms: list[DescribeConfigsSynonym] = []
        if name in overrides:
            synonyms.append(DescribeConfigsSynonym(name, overrides[name], ConfigSource.DYNAMIC_TOPIC))
        if key.broker_key is not None:
            synonyms += _broker_synonyms(config, key.broker_key)
        value = overrides[name] if name in overrides else key.format(config.topic_default(key))
        yield _entry(key, value, synonyms, read_only=False)


def broker_config_entries(config: BrokerConfig) -> Iterator[DescribeConfigsResourceResult]:
    """Every broker key, with its own value: a key that takes its value from another one has none, but has synonyms."""
    for name, key in sorted(BROKER_KEYS.items()):
        if key.is_internal:
            continue
        own = next((value for _, synonym, value in config.layers(name) if synonym == name), None)
        yield _entry(key, key.format(own), _broker_synonyms(config, name), read_only=not key.is_dynamic)


def _broker_synonyms(config: BrokerConfig, name: str) -> list[DescribeConfigsSynonym]:
    synonyms = []
    for source, synonym, value in config.layers(name):
        key = BROKER_KEYS[synonym]
        synonyms.append(DescribeConfigsSynonym(synonym, _shown(key, key.format(value)), source))
    return synonyms


def _entry(key: ConfigKey, value: str | None, synonyms: list[DescribeConfigsSynonym], *, read_only: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=key.name,
        value=_shown(key, value),
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        is_sensitive=key.is_sensitive,
        synonyms=synonyms,
        config_type=key.type.value,
        documentation=key.doc,
    )


def _shown(key: ConfigKey, value: str | None) -> str | None:
    """Secrets are never told."""
    return None if key.is_sensitive else value
