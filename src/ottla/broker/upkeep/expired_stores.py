"""Certificates that have expired, or are not valid yet, and whose listener lets no client in that could say that there is a new one.

Each minute the store of such a listener is read again, as when its key is set: a usable certificate is taken, and what is wrong with the
one that is there is logged (``stores.py``).
"""

from __future__ import annotations

from typing import Final

from ottla.broker.part import Part
from ottla.broker.requests.expired_certificates import not_valid
from ottla.broker.requests.gatekeeper import Gatekeeper
from ottla.broker.requests.stores import TlsStores
from ottla.broker.upkeep.rounds import Rounds
from ottla.ports import World

LOOK_MS: Final = 60_000


class ExpiredStores(Part):
    """The stores of one node that are looked at again until their certificates are valid."""

    def __init__(self, world: World, gate: Gatekeeper, stores: TlsStores) -> None:
        self._world = world
        self._gate = gate
        self._stores = stores
        self._rounds = Rounds(world, "expired_stores", self._look, lambda: LOOK_MS)

    async def start(self) -> None:
        if self._gate.servers:
            self._rounds.start(LOOK_MS)

    async def stop(self) -> None:
        await self._rounds.stop()

    async def _look(self) -> None:
        now_ms = self._world.clock.now_ms()
        for listener, _ in list(not_valid(self._gate.servers, now_ms)):
            if self._gate.is_serving(listener):
                await self._stores.load(listener)
