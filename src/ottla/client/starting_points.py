"""Where a consumer starts in each partition that has no position yet: at the group's commit, else where the reset policy says.

A partition whose offsets are part of an open transaction has no position until that transaction has ended.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.client.background import background, end
from ottla.client.cluster import Cluster
from ottla.client.coordinator import LookUp
from ottla.client.fetch_settings import RESET_TIMESTAMPS
from ottla.client.positions import Positions
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

_OUT_OF_REACH: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE})
"""What is searched again after: a poll waits for brokers, as it does for records, and the client says by itself that it reaches none."""


class StartingPoints:
    """The positions that a consumer's partitions get; without a group nothing is committed."""

    def __init__(self, cluster: Cluster, positions: Positions, look_up: LookUp | None, auto_offset_reset: str) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._positions = positions
        self._look_up = look_up
        self._auto_offset_reset = auto_offset_reset
        self._search: asyncio.Task[None] | None = None

    async def find(self, deadline_ms: float) -> None:
        """Sets missing positions, as far as that is possible until then. OFFSET_OUT_OF_RANGE with auto.offset.reset=none.

        A search that takes longer goes on, and the next call waits for it: a poll ends in its time while no coordinator answers. What was
        assigned during a search gets one of its own.
        """
        while self._search is not None or self._positions.unknown(self._clock.monotonic_ms()):
            if self._search is None:
                self._search = background(self._find())
            search, left_ms = self._search, max(0, deadline_ms - self._clock.monotonic_ms())
            await asyncio.wait({search}, timeout=left_ms / 1000)
            if not search.done():
                return
            if self._search is search:
                self._search = None
            if search.cancelled():  # the consumer was closed meanwhile
                return
            error = search.exception()
            if error is not None and not (isinstance(error, KafkaError) and error.code in _OUT_OF_REACH):
                raise error

    async def close(self) -> None:
        """Ends a search that is under way."""
        await end(self._search)

    async def _find(self) -> None:
        unknown = self._positions.unknown(self._clock.monotonic_ms())
        asked = {partition: self._positions.of(partition) for partition in unknown}
        committed: dict[TopicPartition, tuple[int, int]] = {}
        pending: set[TopicPartition] = set()
        if self._look_up is not None:
            committed, pending = await self._look_up(unknown)
        for partition, found in asked.items():
            if self._positions.get(partition) is not found:  # given up, and maybe assigned again: another member may have committed
                continue
            if found.position is not None or found.seek_timestamp is not None:
                continue
            if partition in pending:
                found.ask_later(self._clock.monotonic_ms(), self._cluster.backoff.delay_ms(found.failures, self._cluster.world))
            elif partition in committed:
                found.seek(committed[partition][0])
            elif self._auto_offset_reset == "none":
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no committed offset and auto_offset_reset=none")
            else:
                found.seek_to(RESET_TIMESTAMPS[self._auto_offset_reset])
