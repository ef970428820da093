"""What an application has given to be called when a group assigns partitions to its consumer and takes them away.

Partitions are *revoked* while the consumer is a member: no other member has them before the callback has returned, and it may commit.
They are *lost* where the membership has ended otherwise (the session expired, the application did not poll in time, another process has
its group.instance.id): another member may own them already, and a commit is refused.

Source: KIP-415 and KIP-429 (onPartitionsLost, which defaults to onPartitionsRevoked).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from ottla.client.wrong_calls import check_takes
from ottla.types import TopicPartition

Rebalanced = Callable[[list[TopicPartition]], object]
"""Called with the partitions that were assigned, are being given up or were lost; in ``ottla.aio`` it may be a coroutine function."""


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """The callbacks of one ``subscribe``."""

    on_assigned: Rebalanced | None = None
    on_revoked: Rebalanced | None = None
    on_lost: Rebalanced | None = None  # on_revoked where it is None

    def check(self, *, is_awaited: bool = True) -> None:
        """Raises TypeError for a callback that cannot be called with a list of partitions, or is one to await where nothing is awaited."""
        for name, callback in (("on_assigned", self.on_assigned), ("on_revoked", self.on_revoked), ("on_lost", self.on_lost)):
            if callback is None:
                continue
            if not callable(callback):
                raise TypeError(f"{name}={callback!r} is no function: it is called with a list of partitions")
            check_takes(callback, name, "a list of partitions")
            if not is_awaited and inspect.iscoroutinefunction(callback):
                raise TypeError(f"{name} is a coroutine function, which ottla.sync would not await: give a plain one, or use ottla.aio")

    async def assigned(self, partitions: list[TopicPartition]) -> None:
        """Reports the partitions that were added, also when there are none: the round is over."""
        await _call(self.on_assigned, partitions)

    async def given_up(self, partitions: list[TopicPartition], *, is_lost: bool) -> None:
        """Reports partitions before they are given up, or that they were lost."""
        await _call(self.on_lost if is_lost and self.on_lost is not None else self.on_revoked, partitions)


async def _call(callback: Rebalanced | None, partitions: list[TopicPartition]) -> None:
    """Calls the callback, and awaits what it returns."""
    if callback is not None:
        result = callback(partitions)
        if inspect.isawaitable(result):
            await result
