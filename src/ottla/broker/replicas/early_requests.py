"""A request may come before the partition that it is for: its client has heard who leads from a broker that has read further than this one.

Such a request is held for some milliseconds. Refused, it would be overtaken by those sent after it, and its client would look elsewhere for
a leader that is here. Until when it is held:

===================================================  ==============================================================
what this broker's image says                        how long
===================================================  ==============================================================
it leads: the log is being opened, written or cut    ``OPENING_MS`` at most
there is no such topic, or another one leads         ``UNHEARD_MS`` at most: the image may be behind that of others
the same, and it led itself until just now           not at all: the client is behind, and learns it
===================================================  ==============================================================

A lone broker has the newest image: what it has not heard of is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.part import Part
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replication import CEASED_MS
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.tasks.waiters import Waiters
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import ClusterImage
from ottla.ports import World
from ottla.types import TopicPartition

OPENING_MS: Final = 1000
UNHEARD_MS: Final = 50
WANTED_MAX: Final = 100

Wanted = tuple[str | bytes, int]
"""A topic's name or id, and a partition's index."""


class EarlyRequests(Part):
    """Requests of one broker that wait for it to lead. ``image`` gives the newest image; ``unheard_ms`` is for what that does not say."""

    def __init__(self, world: World, store: PartitionStore, image: Callable[[], ClusterImage], *, unheard_ms: int) -> None:
        self._world = world
        self._store = store
        self._image = image
        self._unheard_ms = unheard_ms
        self._waiters = Waiters()

    def hold_ms(self, topic: str | bytes, index: int) -> int:
        """Returns how long a request for the partition may wait for this broker to lead it; 0 where nothing speaks for that."""
        store, image = self._store, self._image()
        name = topic if isinstance(topic, str) else image.topic_names.get(topic, "")
        found = image.topics.get(name)
        known = None if found is None else found.partitions.get(index)
        opened = store.find(name, index)
        if store.is_offline(name, index) or (opened is not None and opened.led_epoch >= 0):
            return 0
        if known is not None and known.leader == store.replication.node_id:
            return OPENING_MS
        ceased_ms = store.replication.ceased.get(TopicPartition(name, index), -CEASED_MS)
        return 0 if self._now_ms() - ceased_ms < CEASED_MS else self._unheard_ms

    async def wait(self, wanted: Sequence[Wanted]) -> None:
        """Waits until this broker leads these partitions, or they have waited long enough; of very many the first are waited for."""
        began_ms = self._now_ms()
        wanted = wanted[:WANTED_MAX]
        while (left_ms := max((self.hold_ms(*one) for one in wanted), default=0) - (self._now_ms() - began_ms)) > 0:
            await self._waiters.wait_at_most(self._world.timers, left_ms)

    async def on_image(self, delta: ImageDelta) -> None:
        """Looks again after a newer image, whose partitions on this broker are open."""
        self._waiters.wake()

    def on_role(self, partition: Partition) -> None:
        if partition.led_epoch >= 0:
            self._waiters.wake()

    def _now_ms(self) -> int:
        return self._world.clock.monotonic_ms()
