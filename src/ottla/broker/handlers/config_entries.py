"""Configuration as DescribeConfigs and CreateTopics show it: each value with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ottla import loggers
from ottla.config import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, BrokerConfig, ConfigKey, ConfigSource, find_broker_key
from ottla.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym

TYPE_UNKNOWN: Final = 0
Entries = Iterator[DescribeConfigsResourceResult]


def topic_config_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Entries:
    """Yields every topic key: the override, else the broker's value, else the default; the key's own are its synonyms."""
    return _overridden(TOPIC_KEYS, config, overrides, ConfigSource.DYNAMIC_TOPIC)


def group_config_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Entries:
    """Yields every group key: the override, else the broker's value, else the default."""
    return _overridden(GROUP_KEYS, config, overrides, ConfigSource.DYNAMIC_GROUP)


def client_metrics_config_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Entries:
    """Yields every key of a client-metrics subscription."""
    return _overridden(CLIENT_METRICS_KEYS, config, overrides, ConfigSource.DYNAMIC_CLIENT_METRICS)


def _overridden(keys: Mapping[str, ConfigKey], config: BrokerConfig, overrides: Mapping[str, str], source: ConfigSource) -> Entries:
    for name, key in sorted(keys.items()):
        if key.is_internal and name not in overrides:
            continue
        synonyms: list[DescribeConfigsSynonym] = []
        value = key.format(key.parse(overrides[name]) if name in overrides else config.topic_default(key))
        if name in overrides:
            synonyms.append(DescribeConfigsSynonym(name, _shown(key, value), source))
        if key.broker_key is not None:
            synonyms += _broker_synonyms(config, key.broker_key)
        elif source is ConfigSource.DYNAMIC_GROUP:
            synonyms.append(DescribeConfigsSynonym(name, _shown(key, key.format(key.default)), ConfigSource.DEFAULT))
        yield _entry(key, value, synonyms, read_only=False)


def default_config_entries(values: Mapping[str, str]) -> Entries:
    """Yields what is set for all brokers, and nothing else."""
    for name, value in sorted(values.items()):
        key = find_broker_key(name)
        if key is None:
            yield _unknown_entry(name, [ConfigSource.DYNAMIC_DEFAULT_BROKER])
        else:
            own = DescribeConfigsSynonym(name, _shown(key, value), ConfigSource.DYNAMIC_DEFAULT_BROKER)
            yield _entry(key, value, [own], read_only=False, name=name)


def broker_config_entries(config: BrokerConfig, dynamic: Mapping[ConfigSource, Mapping[str, str]]) -> Entries:
    """Yields every broker key, with its own value: a key that takes its value from another one has none. Throttles are listed when set.

    Keys that are narrowed to a listener come along where they are set, and so do unknown ones of ``dynamic``.
    """
    for name in sorted({name for values in dynamic.values() for name in values if find_broker_key(name) is None}):
        yield _unknown_entry(name, [source for source, values in dynamic.items() if name in values])
    for name in sorted({*BROKER_KEYS, *config.names}):
        key = find_broker_key(name)
        if key is None or key.is_internal or (key.is_shown_when_set and name not in config.names):
            continue
        own = next((value for _, synonym, value in config.layers(name) if synonym == name), None)
        yield _entry(key, key.format(own), _broker_synonyms(config, name), read_only=not key.is_dynamic, name=name)


def logger_config_entries() -> Entries:
    """Yields every logger's level in force."""
    for name in loggers.names():
        yield DescribeConfigsResourceResult(
            name=name,
            value=loggers.level_of(name),
            read_only=False,
            config_source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            config_type=TYPE_UNKNOWN,
            documentation="",
        )


def _unknown_entry(name: str, sources: Sequence[ConfigSource]) -> DescribeConfigsResourceResult:
    """Returns an unknown key without its value, which may be a secret: Kafka does the same."""
    return DescribeConfigsResourceResult(
        name=name,
        value=None,
        read_only=True,
        config_source=sources[0],
        is_sensitive=True,
        synonyms=[DescribeConfigsSynonym(name, None, source) for source in sources],
        config_type=TYPE_UNKNOWN,
        documentation=None,
    )


def _broker_synonyms(config: BrokerConfig, name: str) -> list[DescribeConfigsSynonym]:
    synonyms = []
    for source, synonym, value in config.layers(name):
        key = find_broker_key(synonym)
        assert key is not None, "layers are those of known keys"
        if key.is_shown_when_set and source is ConfigSource.DEFAULT:
            continue
        synonyms.append(DescribeConfigsSynonym(synonym, _shown(key, key.format(value)), source))
    return synonyms


def _entry(
    key: ConfigKey, value: str | None, synonyms: list[DescribeConfigsSynonym], *, read_only: bool, name: str | None = None
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name or key.name,
        value=_shown(key, value),
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        is_sensitive=key.is_sensitive,
        synonyms=synonyms,
        config_type=key.type.value,
        documentation=key.doc,
    )


def _shown(key: ConfigKey, value: str | None) -> str | None:
    """Returns the value; secrets are never returned."""
    return None if key.is_sensitive else value
