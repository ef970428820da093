"""The fetches of one broker from one leader: a session that carries only what changed since the last request (KIP-227).

A partition is *due* when what is asked for it is other than what the leader remembers. One that waits, or that another leader has by now,
is taken out of the session. The cost of a request is that of what is due, not of all that are followed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState

PartitionKey = tuple[bytes, int]
EPOCH_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for one partition: the end of the follower's log, and what the follower knows."""

    offset: int
    leader_epoch: int
    last_epoch: int
    start_offset: int


class ReplicaSession:
    """``said`` is what the leader remembers once it has answered the request on its way."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._session_id = 0
        self._epoch = 0
        self.said: dict[PartitionKey, Asked] = {}
        self._due: dict[PartitionKey, Asked] = {}
        self._forgotten: dict[PartitionKey, None] = {}

    def want(self, key: PartitionKey, asked: Asked) -> None:
        """Asks for this with the next request."""
        self._forgotten.pop(key, None)
        if self.said.get(key) != asked:
            self._due[key] = asked
        else:
            self._due.pop(key, None)

    def forget(self, key: PartitionKey) -> None:
        """Leaves the partition out of further requests, for now or for ever."""
        self._due.pop(key, None)
        if key in self.said:
            self._forgotten[key] = None

    def reset(self) -> None:
        """Starts over, for the leader has no session of this broker: the next request starts one, with all that was wanted."""
        for key, asked in self.said.items():
            if key not in self._forgotten:
                self._due.setdefault(key, asked)
        self._session_id = self._epoch = 0
        self.said = {}  # who took in what was said before goes on with that
        self._forgotten.clear()

    @property
    def has_partitions(self) -> bool:
        return bool(self._due) or len(self.said) > len(self._forgotten)

    def request(self, *, broker_epoch: int, max_wait_ms: int, min_bytes: int, max_bytes: int, partition_max_bytes: int) -> FetchRequest:
        """Returns the next request. What was due counts as said from now on."""
        topics: dict[bytes, FetchTopic] = {}
        for (topic_id, index), asked in self._due.items():
            wanted = FetchPartition(
                index, asked.leader_epoch, asked.offset, asked.last_epoch, asked.start_offset, partition_max_bytes=partition_max_bytes
            )
            topics.setdefault(topic_id, FetchTopic("", topic_id, [])).partitions.append(wanted)
        self.said |= self._due
        self._due = {}
        for key in self._forgotten:
            self.said.pop(key, None)
        forgotten, self._forgotten = _by_topic(self._forgotten), {}
        return FetchRequest(
            replica_id=self._node_id,
            replica_state=ReplicaState(self._node_id, broker_epoch),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=forgotten,
        )

    def on_answer(self, session_id: int) -> None:
        """Takes the leader's session id; 0 when it keeps no session, and everything is asked for again."""
        if session_id == 0:
            self.reset()
        else:
            self._session_id = session_id
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1


def _by_topic(keys: Iterable[PartitionKey]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, ForgottenTopic("", topic_id, [])).partitions.append(index)
    return list(topics.values())
