"""What a member of a group subscribes to: topics by name or by pattern, looked at again as metadata ages.

A missing topic is looked for every second, topics that match a pattern every 30 s, new partitions after metadata.max.age.ms. A
``SubscriptionPattern`` is for the brokers to match; they find what is new by themselves, too.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.absent_topics import AbsentTopics
from ottla.client.background import background
from ottla.client.cluster import Cluster
from ottla.client.membership import Membership
from ottla.errors import ErrorCode, KafkaError

PATTERN_REFRESH_MS: Final = 30_000
MISSING_REFRESH_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression that the brokers match with the whole names of topics, by RE2 (KIP-848): for group_protocol="consumer"."""

    pattern: str
    """The expression, in the syntax of RE2; brokers refuse another one with INVALID_REGULAR_EXPRESSION."""


class Subscription:
    """A subscription, made on a running loop, for one ``subscribe``."""

    def __init__(
        self,
        cluster: Cluster,
        membership: Membership,
        wake: Callable[[], None],
        topics: Sequence[str],
        pattern: str | SubscriptionPattern | None,
        *,
        may_create: bool,
        absent: AbsentTopics,
    ) -> None:
        """Makes the membership ask for the topics from its next round on.

        INVALID_REQUEST unless exactly one of both is given; TypeError for a string.
        """
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._membership = membership
        self._wake = wake
        self._may_create = may_create
        self._absent = absent
        self._pattern: re.Pattern[str] | None = None
        self._is_matched = True  # the pattern, with the topics that there were
        self._has_looked = False
        self._problem: KafkaError | None = None  # why it could not be, or a topic is refused, for the next poll to raise
        self._looked_ms = self._clock.monotonic_ms()
        self._looking: asyncio.Task[None] | None = None
        self.is_ended = False  # another task leaves the group: a poll that goes on meanwhile must not join it again
        if isinstance(topics, str):
            raise TypeError(f"subscribe takes a list of topics, such as [{topics!r}], and not {topics!r}")
        if not isinstance(topics, Iterable):
            raise TypeError(f"subscribe takes a list of topics, such as ['orders'], and not {topics!r}")
        for topic in topics:
            if not isinstance(topic, str):
                raise TypeError(f"subscribe takes a list of topics, and {topic!r} is no string")
            if topic.startswith("^"):
                text = f"{topic!r} is no name of a topic: a regular expression is pattern={topic[1:]!r}, which is to match the whole name"
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if bool(topics) == (pattern is not None):
            given = "both are given" if topics else "the list is empty: unsubscribe() ends a subscription"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"subscribe takes a list of topics, or a pattern; {given}")
        if pattern is None:
            membership.subscribe(list(topics), may_create=may_create)
            return
        if isinstance(pattern, SubscriptionPattern):
            membership.subscribe_matching(pattern.pattern)
            return
        try:
            self._pattern, self._is_matched = re.compile(pattern), False
        except re.error as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"pattern={pattern!r} is not a valid regular expression: {error}") from None

    def topics(self) -> list[str]:
        """Returns the topics that the group is asked for."""
        return self._membership.topics if self._is_matched else []

    def look(self) -> None:
        """Asks for metadata that has reached its age; called with each poll. Raises what the last look found wrong."""
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        since_ms = self._clock.monotonic_ms() - self._looked_ms
        is_due = (
            self._cluster.age_left_ms() == 0
            or (self._membership.lacks_topics and since_ms >= MISSING_REFRESH_MS)
            or (self._pattern is not None and since_ms >= (PATTERN_REFRESH_MS if self._is_matched else MISSING_REFRESH_MS))
        )
        is_first = not self._is_matched and not self._has_looked
        if self._looking is None and (is_first or (is_due and since_ms >= self._cluster.backoff.last_ms)):
            self._looked_ms, self._has_looked = self._clock.monotonic_ms(), True
            self._looking = background(self._look())

    def on_joined(self) -> None:
        """Warns of topics that the metadata of this join lacks, but where the brokers may be creating them: the next look warns then.

        INVALID_TOPIC_EXCEPTION or TOPIC_AUTHORIZATION_FAILED for a topic that it refuses.
        """
        if not self._may_create:
            self._absent.look(self._membership.topics)
        refusal = self._absent.refusal(self._membership.topics)
        if refusal is not None:
            raise refusal

    async def _look(self) -> None:
        try:
            if self._pattern is not None:
                await self._match()
            await self._cluster.refresh()
            self._membership.on_metadata()
            self._absent.look(self._membership.topics)
            self._problem = self._absent.refusal(self._membership.topics)
        except KafkaError as error:
            if not self._is_matched and not error.is_transient:
                self._problem = error
            # else the next look asks again
        finally:
            self._looking = None
        if self._membership.needs_rejoin or self._problem is not None:
            self._wake()

    async def _match(self) -> None:
        assert self._pattern is not None, "only called with a pattern"
        found = await self._cluster.all_topics()
        matching = sorted(name for name, topic in found.items() if not topic.is_internal and self._pattern.fullmatch(name))
        self._membership.subscribe(matching, may_create=False)
        self._is_matched = True

    def end(self) -> None:
        """Ends all looking for topics."""
        self.is_ended = True
        if self._looking is not None:
            self._looking.cancel()
