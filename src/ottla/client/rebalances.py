"""The rebalances of a consumer that subscribes: what is given up, the join, what is assigned, and the callbacks and commits in between.

A round goes on beside the polls: one that ends before the group has answered leaves the join to the next.
Source: KIP-429 (cooperative rebalancing).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ottla.client.background import background
from ottla.client.commits import Commits
from ottla.client.fetcher import Fetcher
from ottla.client.membership import Membership
from ottla.client.positions import Positions
from ottla.client.rebalance_listener import RebalanceListener
from ottla.client.subscription import Subscription
from ottla.ports import Clock
from ottla.types import TopicPartition


class Rebalances:
    """The rounds of a membership, in turn. ``assign`` makes partitions the ones that are read."""

    def __init__(
        self,
        clock: Clock,
        membership: Membership,
        positions: Positions,
        commits: Commits,
        fetcher: Fetcher,
        assign: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        self._clock = clock
        self.membership = membership
        self._positions = positions
        self._commits = commits
        self._fetcher = fetcher
        self._assign = assign
        self._joining: asyncio.Task[list[TopicPartition]] | None = None
        self.listener = RebalanceListener()

    async def run(self, subscription: Subscription, deadline_ms: int) -> bool:
        """Runs rounds until the member has all that it is to read. False when a join, or the commit before it, outlasts the poll."""
        while self.membership.needs_rejoin or self._joining is not None:
            if not await self._round(subscription, deadline_ms):
                return False
        self._let_go()  # the rebalance may have been called off during the commit before it
        return True

    def _let_go(self) -> None:
        """Waits for no commit before a rebalance any longer."""
        self._fetcher.is_held = False

    def abandon(self) -> None:
        """Ends the round that is under way, if there is one."""
        self._let_go()
        if self._joining is not None:
            self._joining.cancel()
            self._joining = None

    async def give_up(self, partitions: list[TopicPartition]) -> None:
        """Reports the partitions as given up, or as lost, and reads them no longer."""
        if not partitions:
            return
        try:
            await self.listener.given_up(partitions, is_lost=self.membership.is_lost)
        finally:
            gone = set(partitions)
            self._assign(partition for partition in self._positions if partition not in gone)

    async def _round(self, subscription: Subscription, deadline_ms: int) -> bool:
        """Gives up what must be given up, joins, takes what was assigned. False when that outlasts the poll."""
        membership = self.membership
        if self._joining is None:
            if not await self._committed(subscription, deadline_ms):
                return False
            given_up = membership.revoked_before_join(list(self._positions))
            if given_up:
                await self.give_up(given_up)
            self._joining = background(membership.join(self._fetcher.wake))
        joining, left_ms = self._joining, max(0, deadline_ms - self._clock.monotonic_ms())
        done, _ = await asyncio.wait({joining}, timeout=left_ms / 1000)
        if not done:
            if membership.is_lost:  # since the last rebalance: no record of its partitions is handed out from here on
                await self.give_up(list(self._positions))
            return False
        if self._joining is not joining:  # another task has unsubscribed meanwhile, or closes
            return False
        try:
            joined = joining.result()
        except Exception:
            self._joining = None
            membership.on_failed_join()  # the error is raised to the application, and the next poll tries again
            raise
        must_commit = not membership.is_lost and any(partition not in joined for partition in self._positions)
        if must_commit and not await self._committed(subscription, deadline_ms):  # of what came during the round
            return False
        if membership.generation_id < 0:  # it has ended since the join was answered, as the commit may have said
            joined = []
        owned, is_lost = list(self._positions), membership.is_lost
        given_up = owned if is_lost else [partition for partition in owned if partition not in joined]
        gained = [partition for partition in joined if is_lost or partition not in owned]
        self._joining, self._fetcher.is_held = None, False
        self._fetcher.meters.rebalances += 1
        try:
            await self.give_up(given_up)
        finally:  # the application may have been interrupted, or its callback failed: the assignment is kept
            self._assign(joined)
            self._commits.on_join()
            membership.assigned(had_to_revoke=bool(given_up) and not is_lost)
        await self.listener.assigned(gained)
        if not subscription.is_ended:
            subscription.on_joined()
        return True

    async def _committed(self, subscription: Subscription, deadline_ms: int) -> bool:
        """Does the automatic commit before partitions are given up. False when it outlasts the poll: no record is handed out meanwhile."""
        commits = self._commits
        has_ended = await (commits.ended_by(deadline_ms) if self._fetcher.is_held else commits.commit_by(deadline_ms))
        if commits.was_cut_off and not subscription.is_ended:  # by a commit of the application, which may be of other partitions
            has_ended = await commits.commit_by(deadline_ms)
        is_over = subscription.is_ended  # another task has unsubscribed meanwhile: what is assigned next may be by hand, without rounds
        self._fetcher.is_held = not has_ended and not is_over
        return has_ended and not is_over
