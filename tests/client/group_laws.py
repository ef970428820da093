"""The laws of a group of consumers, and what they are judged by: who owns a partition, what is committed, how far the group has read."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ottla.messages.offset_commit import OffsetCommitRequest
from ottla.types import TopicPartition

LATE_TRY: Final = 90.0
"""Seconds after which no commit arrives any more that had no answer: longer than any fault, and than a request waits."""


def now() -> float:
    return asyncio.get_running_loop().time()


class Tried:
    """A commit that was sent and is not known to have been stored."""

    def __init__(self, member: str, request: OffsetCommitRequest) -> None:
        self.member = member
        self.request = request
        self.at = now()
        self.offsets = {
            TopicPartition(topic.name, found.partition_index): found.committed_offset
            for topic in request.topics
            for found in topic.partitions
        }


class Group:
    """What the members of one group have seen."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owners: dict[TopicPartition, tuple[str, float]] = {}  # who, since when
        self.reached: dict[tuple[TopicPartition, int], int] = {}  # of the topic as it was made that time: what follows all that was read
        self.called_at = 0.0  # when a member was last told of partitions that it gets or gives up
        self._committed: dict[TopicPartition, int] = {}
        self._tried: list[Tried] = []
        self._made_again: set[str] = set()  # topics: their commits and positions may be of the earlier topic, as they go by name

    # Commits, as they go over the network

    def on_commit(self, member: str, request: OffsetCommitRequest) -> None:
        self._tried.append(Tried(member, request))

    def on_committed(self, member: str, request: OffsetCommitRequest, response: Any) -> None:
        tried = next(tried for tried in self._tried if tried.request is request)
        stored = {
            TopicPartition(topic.name, found.partition_index)
            for topic in response.topics
            for found in topic.partitions
            if not found.error_code
        }
        for key in stored:
            owner, since = self.owners.get(key, (member, 0.0))
            assert owner == member or since >= tried.at or key.topic in self._made_again, (
                f"{member} has committed {key}, which {owner} owns since {since}, at {now()}"
            )
            self._committed[key] = tried.offsets[key]
            for other in self._tried:
                if other.member != member:
                    other.offsets.pop(key, None)  # in an earlier generation
        for key in stored:
            tried.offsets.pop(key)
        self._tried = [tried for tried in self._tried if tried.offsets and now() - tried.at < LATE_TRY]

    def floor(self, key: TopicPartition) -> int:
        """Below it nothing is read by a member that gets the partition now."""
        late = [tried.offsets[key] for tried in self._tried if key in tried.offsets and now() - tried.at < LATE_TRY]
        return min([self._committed.get(key, 0), *late]) if key.topic not in self._made_again else 0

    # What is read

    def read(self, key: TopicPartition, incarnation: int, offset: int) -> None:
        reached = self.reached.get((key, incarnation), 0)
        assert offset <= reached or key.topic in self._made_again, f"offset {offset} of {key} was read, and nobody has read {reached}"
        self.reached[key, incarnation] = max(reached, offset + 1)

    def forget(self, topic: str) -> None:
        """The topic is deleted, and made again."""
        self._made_again.add(topic)
        for key in [key for key in self.owners if key.topic == topic]:
            del self.owners[key]
        self._committed = {key: offset for key, offset in self._committed.items() if key.topic != topic}
