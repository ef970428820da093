"""Brokers that are failing: the answers to clients until the cluster has decided, and for a moment after.

A client whose leader dies asks another broker at once, and that broker knows of the death as early as the client: its own connections have
ended, too. An answer of that moment would name the dead leader, and the client not ask again for a second (librdkafka's timer) or
for its backoff. So the answer waits until the broker is fenced, or has answered: some tens of milliseconds, and never more than
``HOLD_MS``.

A broker that was fenced without having asked for it is listed for ``LINGER_MS`` more. librdkafka (2.16) gives up a broker that is not
listed before it moves that broker's partitions to the leaders that the same answer names, which costs them a second, too.
No client is misled: a fenced broker leads nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.broker.part import Part
from ottla.broker.requests.large import Workload
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import BrokerImage
from ottla.ports import TimerHandle, World

HOLD_MS: Final = 1_000
"""On a busy machine a new controller and its first decision take half of it. A client that is answered too early asks again no sooner."""
HELD_MAX: Final = 5_000
"""Answers that wait at a time, some KB each; more leave as they are."""
TOGETHER_MAX: Final = 50
"""So many of them go on in one turn of the loop: others have their turns in between."""
LINGER_MS: Final = 1_500
"""A client that was answered too early asks again after a second."""


class FailingBrokers(Part):
    """The failing brokers, as one node sees them."""

    def __init__(self, world: World) -> None:
        self._clock = world.clock
        self._timers = world.timers
        self._serving: frozenset[int] = frozenset()
        self._doubted: dict[int, int] = {}  # since when, by broker
        self._held: list[tuple[Workload, asyncio.Future[None]]] = []
        self._timer: TimerHandle | None = None  # lets go of them
        self._fenced: dict[int, tuple[int, BrokerImage]] = {}  # until when it is listed, and where it was

    def doubt(self, broker_id: int) -> None:
        """Doubts the broker: a connection to it has ended by itself, or none could be made."""
        if broker_id in self._serving:
            self._doubted.setdefault(broker_id, self._clock.monotonic_ms())

    def trust(self, broker_id: int) -> None:
        """Trusts the broker: it has answered, or it is known that it does not serve."""
        if self._doubted.pop(broker_id, None) is not None and not self._doubted:
            self._let_go()

    async def on_image(self, delta: ImageDelta) -> None:
        """Takes the cluster's decision, which clients are shown from now on."""
        if delta.old.brokers is delta.new.brokers:
            return
        now_ms = self._clock.monotonic_ms()
        self._serving = frozenset(broker.broker_id for broker in delta.new.live_brokers)
        for broker in delta.old.live_brokers:
            found = delta.new.brokers.get(broker.broker_id)
            has_died = broker.broker_id in self._doubted  # in ZooKeeper mode it is no longer registered then
            if has_died if found is None else not found.in_controlled_shutdown:
                self._fenced[broker.broker_id] = now_ms + LINGER_MS, broker
        self._fenced = {
            broker_id: (until_ms, broker)
            for broker_id, (until_ms, broker) in self._fenced.items()
            if until_ms > now_ms and broker_id not in self._serving
        }
        for broker_id in self._doubted.keys() - self._serving:
            self.trust(broker_id)

    @property
    def just_fenced(self) -> list[BrokerImage]:
        """Those that are still listed, as they were."""
        if not self._fenced:
            return []
        now_ms = self._clock.monotonic_ms()
        return [broker for until_ms, broker in self._fenced.values() if until_ms > now_ms]

    async def settled(self, workload: Workload) -> None:
        """Waits until no broker has just come into doubt, as far as this node can know.

        An answer that waits so is none of the work that ``queued.max.requests`` bounds.
        """
        if len(self._serving) > 1:
            await asyncio.sleep(0)  # connections that have ended by now are found to have
        if not self._doubted:
            return
        left_ms = max(self._doubted.values()) + HOLD_MS - self._clock.monotonic_ms()
        if left_ms <= 0 or len(self._held) >= HELD_MAX:
            return
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append((workload, held))
        workload.end_work(1)
        if self._timer is None:
            self._timer = self._timers.call_later_ms(left_ms, self._let_go)
        await held

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held[:TOGETHER_MAX], self._held[TOGETHER_MAX:]
        for workload, future in held:
            workload.begin_work(1)
            if not future.done():
                future.set_result(None)
        if self._held:
            self._timer = self._timers.call_later_ms(0, self._let_go)
