"""Every configuration key, and the values of one broker.

The registry (``registry.py``, its data in ``keys/``) is the one place that knows names, types, defaults, scopes and meanings:
parsing, DescribeConfigs, AlterConfigs and ``ottla config`` all read it. A topic's value is its own override, else that of the
broker key named by ``broker_key``, else the default. A key either has its effect, or says in ``without_effect`` why not.
"""

from __future__ import annotations

from ottla.config.broker import BrokerConfig, ConfigSource
from ottla.config.definition import ConfigKey, ConfigType, Scope
from ottla.config.properties import parse_properties, read_properties
from ottla.config.registry import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, find_broker_key, nearest, parse_topic_configs
from ottla.config.sources import from_environment

__all__ = [
    "BROKER_KEYS",
    "CLIENT_METRICS_KEYS",
    "GROUP_KEYS",
    "TOPIC_KEYS",
    "BrokerConfig",
    "ConfigKey",
    "ConfigSource",
    "ConfigType",
    "Scope",
    "find_broker_key",
    "from_environment",
    "nearest",
    "parse_properties",
    "parse_topic_configs",
    "read_properties",
]
