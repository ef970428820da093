"""Values of topics' and brokers' configurations that tools write into ZooKeeper, where nothing has checked them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.config import TOPIC_KEYS, find_broker_key, parse_topic_configs
from ottla.errors import KafkaError
from ottla.metadata.image import RESOURCE_TOPIC


class Understood(NamedTuple):
    """``values`` are in force; ``kept`` are those that no broker can use, as they are in the znode, for these ``problems``."""

    values: Mapping[str, str]
    kept: dict[str, str]
    problems: list[str]


def understood(path: str, resource_type: int, written: Mapping[str, str], before: Mapping[str, str]) -> Understood:
    """Sorts out the values that cannot be used: the value ``before`` stays in force, if there was one. Values of unknown keys stay."""
    values, kept, problems = dict(written), dict[str, str](), list[str]()
    for name, value in written.items():
        try:
            _check(resource_type, name, value)
        except KafkaError as error:
            kept[name] = value
            problems.append(f"{path}: {error.message}")
            if name in before:
                values[name] = before[name]
            else:
                del values[name]
    return Understood(values, kept, problems)


def _check(resource_type: int, name: str, value: str) -> None:
    if resource_type == RESOURCE_TOPIC:
        if name in TOPIC_KEYS:
            parse_topic_configs({name: value})
        return
    key = find_broker_key(name)
    if key is not None:
        key.parse(value)
