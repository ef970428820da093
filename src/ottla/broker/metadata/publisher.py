"""The parts of this node that follow the metadata get each newer image, one after the other, with its changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla.broker.tasks.single_flight import SingleFlight
from ottla.broker.tasks.waiters import OffsetWaiters
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage

Publish = Callable[[ImageDelta], Awaitable[None]]


class Publisher:
    """``newest`` gives the newest committed image. Images that come while one is followed are one step together."""

    def __init__(self, newest: Callable[[], ClusterImage], publish: Publish) -> None:
        self._newest = newest
        self._publish = publish
        self._turn = SingleFlight(self._publish_newest)
        self.published = EMPTY_IMAGE
        """What was followed last."""
        self._waiters = OffsetWaiters()
        self._has_ended = False

    async def catch_up(self) -> None:
        """Waits until everything that was committed before the call is followed."""
        await self._turn()

    async def reached(self, end_offset: int) -> None:
        """Waits until what ends there is followed: this node shows it, and has opened what it names."""
        if self.published.end_offset < end_offset:
            await self._waiters.wait(end_offset)

    async def repeat(self) -> None:
        """Follows the newest image, once more if it was followed before."""
        await self._turn(self._publish_once)

    async def end(self) -> None:
        """Catches up as ``catch_up`` does, and follows no later image, because the followers are about to close."""
        await self._turn(self._publish_last)

    async def _publish_last(self) -> None:
        if self._newest() is not self.published:
            await self._publish_once()
        self._has_ended = True

    async def _publish_newest(self) -> None:
        while self._newest() is not self.published and not self._has_ended:
            await self._publish_once()

    async def _publish_once(self) -> None:
        if self._has_ended:
            return
        image = self._newest()
        await self._publish(ImageDelta(self.published, image))
        self.published = image
        self._waiters.advance(image.end_offset)
