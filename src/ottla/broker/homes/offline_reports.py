"""What a lone broker leads follows what it can serve: its controller decides for what has failed.

A partition whose log has failed gets no leader, so that Metadata reports it and clients do not ask in vain; one that can be
opened again, after a start, gets its leader back. The metadata log keeps both, each with a leader epoch of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from ottla.broker.part import Part
from ottla.broker.tasks import eager
from ottla.broker.tasks.single_flight import SingleFlight
from ottla.controller.decided import Recorded
from ottla.controller.elections import follow_replicas
from ottla.errors import StorageError
from ottla.loggers import get_logger
from ottla.metadata.image import ClusterImage
from ottla.ports import Timers

log = get_logger(__name__)


Decide = Callable[[Sequence[Callable[[ClusterImage], Recorded]]], Awaitable[Any]]
"""Runs decisions of the controller."""


class OfflineReports(Part):
    """Idle until ``begin``: what fails while the broker opens its partitions is settled by that."""

    def __init__(self, timers: Timers, node_id: int, is_offline: Callable[[str, int], bool], decide: Decide) -> None:
        self._timers = timers
        self._node_id = node_id
        self._is_offline = is_offline
        self._decide = decide
        self._settle = SingleFlight(self._settle_once)
        self._is_on = False
        self._is_due = False

    async def begin(self) -> None:
        """Starts to settle: the image says what this broker leads now, and every later failure will be settled, too."""
        self._is_on = True
        await self._settle()

    async def stop(self) -> None:
        self._is_on = False

    def on_offline(self) -> None:
        """Notes that a partition of this broker went offline; many at once are one decision."""
        if self._is_on and not self._is_due:
            self._is_due = True
            self._timers.call_later_ms(0, self._settle_now)

    def _settle_now(self) -> None:
        self._is_due = False
        if self._is_on:
            eager.run(self._settle(), _finished)

    async def _settle_once(self) -> None:
        await self._decide([partial(follow_replicas, node=self._node_id, is_offline=self._is_offline)])


def _finished(_: None, error: BaseException | None) -> None:
    if isinstance(error, StorageError):  # the metadata log has failed, and the broker with it
        log.error("leadership_not_settled", reason=error.message)
    elif error is not None:
        log.error("leadership_not_settled", exc_info=error)
