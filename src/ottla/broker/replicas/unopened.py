"""Replicas of this broker that could not be opened: they are offline, and those that lacked room or descriptors are tried again.

So are those that were open, and were interrupted by such a lack in the middle of what opening them again finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.broker.replicas.departures import Changes
from ottla.broker.replicas.partition import Partition
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.storage.directory.directory import LogDirectory
from ottla.types import TopicPartition


class Unopened:
    """``offline`` has them, with the directory that they are in where that is known; ``on_offline`` is called when there is one more."""

    def __init__(self, on_offline: Callable[[], None]) -> None:
        self._on_offline = on_offline
        self.offline: dict[TopicPartition, LogDirectory | None] = {}
        self.reasons: dict[TopicPartition, str] = {}  # why each that is offline could not be opened, for people
        self._to_retry: set[TopicPartition] = set()  # of those offline, the ones for which there was no room
        self._retried: dict[TopicPartition, LogDirectory] = {}  # that are about to be opened again
        self._retried_topics: set[str] = set()
        self._interrupted: list[Partition] = []
        self._were_open: set[TopicPartition] = set()  # since the start: how that one found their logs says nothing of them now

    def add(self, key: TopicPartition, directory: LogDirectory | None, reason: str, *, may_pass: bool) -> None:
        self.offline[key] = directory
        self.reasons[key] = reason
        if may_pass:
            self._to_retry.add(key)
        self._on_offline()

    def retry(self) -> bool:
        """True when there are some that the next ``follow`` of the partitions may open; ``retried`` has them."""
        for key in self._to_retry:
            directory = self.offline.pop(key, None)
            if directory is not None:
                self._retried[key] = directory
            self._retried_topics.add(key.topic)
        found = bool(self._to_retry or self._interrupted)
        self._to_retry.clear()
        return found

    def log_failed(self, partition: Partition) -> None:
        """Notes that the log of an open replica is not served from now on, or not before it is opened again."""
        if partition.log.health.is_interrupted:
            self._interrupted.append(partition)
        self._on_offline()

    def take_interrupted(self) -> list[Partition]:
        """Returns open replicas whose logs are to be opened again, each once."""
        found, self._interrupted = self._interrupted, []
        return found

    def closed(self, key: TopicPartition, directory: LogDirectory) -> None:
        """Notes that an open replica was closed, to be opened again by the ``follow`` that runs, unless its directory has failed."""
        if directory.is_failed:
            self.offline[key] = directory
            return
        self._retried[key] = directory
        self._retried_topics.add(key.topic)
        self._were_open.add(key)

    def was_open(self, key: TopicPartition) -> bool:
        return key in self._were_open

    def look_again(self, topic: str) -> None:
        """Lets the next ``follow`` of the partitions look at all of that topic."""
        self._retried_topics.add(topic)

    def with_retried(self, changes: Changes, image: ClusterImage, broker_id: int) -> Changes:
        """Returns the changes, with all partitions that the broker has of topics with replicas that are tried again, once."""
        if not self._retried_topics:
            return changes
        hosted, looked_at = image.index.of_broker(broker_id), {topic.name: (topic, set(numbers)) for topic, numbers in changes}
        for name in self._retried_topics.intersection(hosted):
            looked_at.setdefault(name, (image.topics[name], set()))[1].update(hosted[name])
        self._retried_topics.clear()
        return [(topic, sorted(numbers)) for _, (topic, numbers) in sorted(looked_at.items())]

    def retried(self, key: TopicPartition) -> LogDirectory | None:
        """Returns the directory of the replica that is tried again."""
        return self._retried.get(key)

    def opened(self, key: TopicPartition) -> None:
        self.reasons.pop(key, None)
        self._retried.pop(key, None)
        self._were_open.discard(key)

    def departed(self, gone: Iterable[TopicImage], changes: Changes, broker_id: int) -> list[TopicPartition]:
        """Returns the replicas that are no longer this broker's: of topics that are gone, and of changed partitions."""
        known = {**self.offline, **self._retried}
        if not known:
            return []
        names = {topic.name for topic in gone}
        changed = [(topic, index) for topic, numbers in changes for index in numbers if broker_id not in topic.partitions[index].replicas]
        elsewhere = {TopicPartition(topic.name, index) for topic, index in changed}
        return [key for key in known if key.topic in names or key in elsewhere]

    def forget(self, key: TopicPartition) -> LogDirectory | None:
        """Forgets the replica, which is no longer this broker's; returns where a replica of it remains."""
        self.reasons.pop(key, None)
        self._to_retry.discard(key)
        self._were_open.discard(key)
        offline, retried = self.offline.pop(key, None), self._retried.pop(key, None)
        return offline or retried

    def lying_in(self, directory: LogDirectory) -> list[TopicPartition]:
        return [key for places in (self.offline, self._retried) for key, place in places.items() if place is directory]
