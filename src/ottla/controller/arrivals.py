"""Which brokers have come only just now: their clients may still back off from them, and they should lead only what others cannot.

A client that found a broker dead tries it again after pauses that grow, to 10 s in librdkafka (``reconnect.backoff.max.ms``). Every node
sees in the images that it follows when each broker starts to serve, whether or not its controller is active: the next controller knows it,
too. Brokers that come together, as when a cluster starts, are equals. A node that finds brokers at work when it starts does not know since
when; the broker epochs, which are in the image, say which of them came first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.metadata.image import BrokerImage

YOUNG_MS: Final = 10_000
TOGETHER_MS: Final = 2_000


class Arrivals:
    """The times at which brokers appeared in one node's images."""

    def __init__(self) -> None:
        self._serving: list[int] = []
        self._since_ms: dict[int, tuple[int, int]] = {}  # the epoch that each broker served with last, and since when
        self._has_seen = False
        self._unsure_until_ms = 0  # what was found at work is of unknown age until then

    def note(self, brokers: Mapping[int, BrokerImage], now_ms: int) -> None:
        """Notes the image's brokers. None is forgotten: the first image of another controller in ZooKeeper mode has none."""
        self._serving = [node for node, broker in brokers.items() if not broker.is_fenced]
        for node in self._serving:
            epoch = brokers[node].broker_epoch
            known = self._since_ms.get(node)
            if known is None or known[0] != epoch:
                self._since_ms[node] = epoch, now_ms
        if not self._has_seen and self._serving:
            self._has_seen = True
            if len(self._serving) > 1:
                self._unsure_until_ms = now_ms + YOUNG_MS

    def young(self, now_ms: int) -> dict[int, int]:
        """Returns the brokers that serve for less than ``YOUNG_MS``, and came after others, with their epochs: the lowest came first."""
        since_ms = {node: self._since_ms[node][1] for node in self._serving}
        first_ms = min(since_ms.values(), default=0)
        latest_ms = first_ms if now_ms < self._unsure_until_ms else first_ms + TOGETHER_MS
        found = [node for node, came_ms in since_ms.items() if came_ms >= latest_ms and now_ms - came_ms < YOUNG_MS]
        return {node: self._since_ms[node][0] for node in found}
