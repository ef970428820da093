"""A consumer's place in its group, whichever protocol the group speaks: what the consumer asks of it.

A *round* is what a poll has to run: the application gives up partitions, the member joins or takes a step, and the application gets others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ottla.client.coordinator import Found
from ottla.client.group_metadata import GroupMetadata, Place
from ottla.types import TopicPartition


class Membership(Protocol):
    """The membership of one consumer. It sends heartbeats beside the application's polls, and leaves the group when those stay out."""

    @property
    def member_id(self) -> str: ...

    @property
    def generation_id(self) -> int:
        """The generation, or the member's epoch; -1 while this is no member."""
        ...

    @property
    def needs_rejoin(self) -> bool:
        """Whether a round is due."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the membership has ended that came with the present partitions: others may own them."""
        ...

    @property
    def why_out(self) -> str:
        """Why this has left its group, where the application did not poll; else empty."""
        ...

    @property
    def topics(self) -> list[str]:
        """What is subscribed to."""
        ...

    @property
    def lacks_topics(self) -> bool:
        """Whether a topic that is subscribed to does not exist, as far as metadata says."""
        ...

    def subscribe(self, topics: list[str], *, may_create: bool) -> None:
        """Asks for these topics from the next round on; with ``may_create`` brokers may create the missing ones."""
        ...

    def subscribe_matching(self, pattern: str) -> None:
        """Asks for the topics that the brokers find to match. INVALID_REQUEST where they cannot."""
        ...

    def on_metadata(self) -> None:
        """Takes newer metadata."""
        ...

    def on_poll(self) -> None:
        """Notes that the application lives."""
        ...

    def due_ms(self) -> float:
        """Returns how long a poll may sleep before it looks here again."""
        ...

    def revoked_before_join(self, owned: list[TopicPartition]) -> list[TopicPartition]:
        """Returns what to give up before a round."""
        ...

    async def join(self, wake: Callable[[], None]) -> list[TopicPartition]:
        """Runs the member's part of a round: returns what the application is to have after it. KafkaError when that is not to be had."""
        ...

    def on_failed_join(self) -> None:
        """Has the next poll run the round again."""
        ...

    def assigned(self, *, had_to_revoke: bool) -> None:
        """Notes that the application has what ``join`` returned."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, Place]) -> None:
        """Stores the place in each partition in the member's name. KafkaError with the first failure."""
        ...

    async def look_up(self, partitions: list[TopicPartition]) -> Found:
        """Returns what the group has committed."""
        ...

    def metadata(self, *, is_subscribed: bool) -> GroupMetadata:
        """Returns what a transaction says of this member. ILLEGAL_GENERATION when it subscribes and is no member."""
        ...

    async def leave(self, limit_ms: int) -> None:
        """Leaves the group, and forgets the subscription. After so long without an answer the member's session ends by itself."""
        ...

    async def close(self) -> None:
        """Stops the heartbeats."""
        ...
