"""Throttles of replicas that are moved: set with a move, shown, and taken off (KIP-73).

As with kafka-reassign-partitions the brokers of a move get the rate, on both sides; of each partition the present replicas are listed for
the leader's side, and the new ones for the follower's. Lists that a topic has already are added to.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct

from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin.resources import ConfigChanges, ConfigEntry, ConfigResource
    from ottla.sync import Admin

SIDES: Final = ("leader", "follower")
RATES: Final = tuple(f"{side}.replication.throttled.rate" for side in SIDES)
LISTS: Final = tuple(f"{side}.replication.throttled.replicas" for side in SIDES)
UNLIMITED: Final = (1 << 63) - 1
"""Kafka's default of both rates."""
THROTTLE_HELP: Final = "Copy at most so many bytes a second to and from each broker, as 50MB; `ottla partition unthrottle` takes it off."
HOW_TO_UNTHROTTLE: Final = "throttled: `ottla partition unthrottle --wait --yes` takes that off once the moves are done"
_RATE: Final = re.compile(r"(\d+) ?([kKMG]?)B?")
_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def rate_of(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Returns the bytes a second of an option: a number, or one with KB, MB or GB, of 1,000 each."""
    if text is None:
        return None
    found = _RATE.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise click.BadParameter(f"{text!r}: expected bytes a second, as in 50MB or 50000000", context, parameter)
    return int(found[1]) * _UNITS[found[2].upper()]


class Throttles(Struct, frozen=True):
    """The lowest rate of each broker that has one, and the topics with replicas for which rates hold."""

    rates: Mapping[int, int]
    topics: Sequence[str]

    @property
    def text(self) -> str:
        """What is throttled, and how much."""
        brokers, rates = sorted(self.rates), sorted(set(self.rates.values()))
        topics = ", ".join(self.topics[:5]) + ", ..." * (len(self.topics) > 5)
        limit = f"{rates[0]:,} bytes/s" if len(rates) == 1 else f"{rates[0]:,} to {rates[-1]:,} bytes/s"
        return (
            f"{limit} on broker{'s'[: len(brokers) != 1]} {', '.join(map(str, brokers))}, for topic{'s'[: len(self.topics) != 1]} {topics}"
        )


def throttles_of(admin: Admin, values: Mapping[int, Mapping[str, str | None]], topics: Collection[str]) -> Throttles | None:
    """Returns what is throttled, by the ``values`` of brokers; None where no rate is set, or no replica listed."""
    rates = {node: min(int(found.get(key) or UNLIMITED) for key in RATES) for node, found in values.items()}
    rates = {node: rate for node, rate in rates.items() if rate < UNLIMITED}
    listed = sorted({topic for key in LISTS for topic in _listed(admin, topics, key)} if rates else ())
    return Throttles(rates, listed) if listed else None


def throttle(
    admin: Admin, rate: int, moves: Mapping[TopicPartition, Sequence[int]], current: Mapping[TopicPartition, Sequence[int]]
) -> None:
    """Sets the rate for these moves, which are still to be made. A move that copies nothing has none."""
    from ottla.client.admin import Broker, Topic

    copied = {key: ids for key, ids in moves.items() if key in current and set(ids) - set(current[key])}
    topics = sorted({key.topic for key in copied})
    wanted: dict[str, Mapping[TopicPartition, Sequence[int]]] = {
        LISTS[0]: {key: current[key] for key in copied},
        LISTS[1]: {key: [node for node in ids if node not in current[key]] for key, ids in copied.items()},
    }
    changes: dict[ConfigResource, ConfigChanges] = {}
    known = {name: _listed(admin, topics, name) for name in LISTS}
    for topic in topics:
        changes[Topic(topic)] = {name: _with(known[name].get(topic, ""), topic, wanted[name]) for name in LISTS}
    for node in sorted({node for key, ids in copied.items() for node in (*ids, *current[key])}):
        changes[Broker(node)] = dict.fromkeys(RATES, str(rate))
    if changes:
        admin.alter_configs(changes)


def _with(text: str, topic: str, replicas: Mapping[TopicPartition, Iterable[int]]) -> str:
    """Returns the list with these replicas of the topic, too."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    if "*" in items:
        return "*"
    items += [f"{key.partition}:{node}" for key, nodes in sorted(replicas.items()) if key.topic == topic for node in nodes]
    return ",".join(dict.fromkeys(items))


def _listed(admin: Admin, topics: Collection[str], key: str) -> dict[str, str]:
    return {topic: text for topic, text in admin.describe_config_of_topics(topics, key).items() if text} if topics else {}


def set_on_brokers(entries: Mapping[str, ConfigEntry], node: int) -> dict[ConfigResource, dict[str, str]]:
    """Returns the rates that were set for this broker, or for all of them, while brokers ran."""
    from ottla.client.admin import Broker
    from ottla.sync import ConfigSource

    own = {ConfigSource.BROKER: Broker(node), ConfigSource.ALL_BROKERS: Broker()}
    found: dict[ConfigResource, dict[str, str]] = {}
    for key in RATES:
        for synonym in entries[key].synonyms if key in entries else ():
            if synonym.source in own and synonym.value is not None:
                found.setdefault(own[synonym.source], {})[key] = synonym.value
    return found


def set_on_topics(admin: Admin, topics: Collection[str]) -> dict[ConfigResource, dict[str, str]]:
    """Returns the lists of throttled replicas that topics have."""
    from ottla.client.admin import Topic

    found: dict[ConfigResource, dict[str, str]] = {}
    for key in LISTS:
        for topic, text in _listed(admin, topics, key).items():
            found.setdefault(Topic(topic), {})[key] = text
    return found
