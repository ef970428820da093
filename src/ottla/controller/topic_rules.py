"""What holds for partitions of each topic: values that the active controller was started with, under those that the image has.

A replica may lead when its broker serves: it is registered, not fenced, not stopping, and has the log directory in which the replica is.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.controller.features import ELR_VERSION, MIN_ISR
from ottla.controller.partition_change import UNASSIGNED, IsUp, Rules
from ottla.metadata.image import LOST_DIRECTORY, ClusterImage, PartitionImage, partitions_at

UNCLEAN: Final = "unclean.leader.election.enable"
LOST: Final = LOST_DIRECTORY
RESERVED_DIRECTORIES: Final = 100
"""Directory ids below this number have meanings of their own (unassigned, lost, migrating)."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The rules for the topics of one image."""

    image: ClusterImage
    static_min_isr: int = 1
    is_static_unclean: bool = False
    young: Mapping[int, int] = field(default_factory=dict)
    """Brokers that came just now (``arrivals.py``)."""
    _found: dict[str, tuple[int, bool]] = field(default_factory=dict, init=False, compare=False, repr=False)
    """By topic, what its partitions share; many of them are asked for, one after the other."""

    def min_isr(self, topic: str) -> int:
        """Returns ``min.insync.replicas`` of the topic."""
        return int(self._value(topic, MIN_ISR) or self.static_min_isr)

    def may_be_unclean(self, topic: str) -> bool:
        """Returns ``unclean.leader.election.enable`` of the topic."""
        value = self._value(topic, UNCLEAN)
        return self.is_static_unclean if value is None else value.lower() == "true"

    def _value(self, topic: str, key: str) -> str | None:
        return self.image.topic_configs(topic).get(key) or self.image.broker_configs("").get(key)

    def of(self, topic: str, partition: PartitionImage, suspected: Container[int] = ()) -> Rules:
        """Returns the rules for one partition."""
        found = self._found.get(topic)
        if found is None:
            found = self._found[topic] = self.min_isr(topic), self.may_be_unclean(topic)
        return Rules(
            is_up=may_lead(self.image, partition),
            min_isr=found[0],
            has_elr=self.image.features.get(ELR_VERSION, 0) > 0,
            may_be_unclean=found[1],
            suspected=suspected,
            young=self.young,
        )


def is_serving(image: ClusterImage, node: int) -> bool:
    broker = image.brokers.get(node)
    return broker is not None and not broker.is_fenced and not broker.in_controlled_shutdown


def may_lead(image: ClusterImage, partition: PartitionImage) -> IsUp:
    """Returns a test whether the replica of a broker may lead."""
    if not partition.directories:
        return lambda node: is_serving(image, node)

    def is_up(node: int) -> bool:
        return is_serving(image, node) and has_directory(image, partition, node)

    return is_up


def has_directory(image: ClusterImage, partition: PartitionImage, node: int) -> bool:
    """True when the log directory of the broker's replica is up, as far as is known."""
    if not partition.directories or node not in partition.replicas:
        return True
    directory = partition.directories[partition.replicas.index(node)]
    if int.from_bytes(directory, "big") < RESERVED_DIRECTORIES:
        return directory != LOST
    broker = image.brokers.get(node)
    return broker is None or not broker.directories or directory in broker.directories


def directory_of(partition: PartitionImage, node: int) -> bytes:
    """Returns the log directory of the broker's replica."""
    return partition.directories[partition.replicas.index(node)] if partition.directories else UNASSIGNED


def is_lost(partition: PartitionImage, node: int) -> bool:
    """True when the broker's replica has lost its log directory."""
    return bool(partition.directories) and partition.directories[partition.replicas.index(node)] == LOST


def hosted_by(image: ClusterImage, node: int) -> Iterator[tuple[str, bytes, int, PartitionImage]]:
    """Yields the partitions of ``partitions_of`` that have a replica on the broker; no others are looked at."""
    return partitions_at(image.topics, image.index.of_broker(node))


def partitions_of(image: ClusterImage) -> Iterator[tuple[str, bytes, int, PartitionImage]]:
    """Yields topic, its id, index and partition."""
    for name, topic in image.topics.items():
        for index, partition in topic.partitions.items():
            yield name, topic.topic_id, index, partition
