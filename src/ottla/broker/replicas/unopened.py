"""Replicas of this broker that could not be opened: they are offline, and those that lacked room or descriptors are tried again."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ottla.storage.directory.directory import LogDirectory
from ottla.types import TopicPartition


class Unopened:
    """``offline`` has them, with the directory that they lie in where that is known."""

    def __init__(self) -> None:
        self.offline: dict[TopicPartition, LogDirectory | None] = {}
        self._to_retry: set[TopicPartition] = set()  # of those offline, the ones for which there was no room
        self._retried: dict[TopicPartition, LogDirectory] = {}  # that are about to be opened again
        self._retried_topics: set[str] = set()

    def add(self, key: TopicPartition, folder: LogDirectory | None, *, may_pass: bool) -> None:
        self.offline[key] = folder
        if may_pass:
            self._to_retry.add(key)

    def retry(self) -> bool:
        """Whether there are some that the next ``follow`` of the partitions may open; ``retried`` has them."""
        for key in self._to_retry:
            folder = self.offline.pop(key, None)
            if folder is not None:
                self._retried[key] = folder
            self._retried_topics.add(key.topic)
        found = bool(self._to_retry)
        self._to_retry.clear()
        return found

    def take_topics(self, but: Collection[str]) -> list[str]:
        """Those with replicas that are tried again, once; sorted."""
        topics = sorted(self._retried_topics.difference(but))
        self._retried_topics.clear()
        return topics

    def retried(self, key: TopicPartition) -> LogDirectory | None:
        """Where the replica lies that is tried again."""
        return self._retried.get(key)

    def opened(self, key: TopicPartition) -> None:
        self._retried.pop(key, None)

    def forget(self, topic: str) -> Iterator[tuple[TopicPartition, LogDirectory]]:
        """The topic was deleted; where replicas of it lie all the same."""
        self._to_retry = {key for key in self._to_retry if key.topic != topic}
        for places in (self.offline, self._retried):
            for key in [key for key in places if key.topic == topic]:
                if (folder := places.pop(key)) is not None:
                    yield key, folder

    def lying_in(self, folder: LogDirectory) -> list[TopicPartition]:
        return [key for places in (self.offline, self._retried) for key, place in places.items() if place is folder]
