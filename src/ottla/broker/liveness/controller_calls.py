"""One idle connection from a broker that is no controller to each controller, active or not.

Controllers watch brokers by connections of their own (``sentinels.py``), which a firewall on their side ends. That the broker lives shows
by those that it has made (``callers.py``): a standby controller that is elected has one from the start, and need not wait until the
broker has heard of the election. Controllers watch each other's brokers, and need nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from ottla.broker.liveness.probe import Address, Probe, Proof
from ottla.broker.liveness.sentinels import RETRY_MS, RETRY_MS_MAX
from ottla.broker.part import Part
from ottla.broker.peers.caller_name import CallerName
from ottla.loggers import get_logger
from ottla.ports import World

log = get_logger(__name__)

PING_MS: Final = 5_000
"""How often a controller is asked: one whose machine has lost power, and is back, has not ended the connection, and does then."""


class ControllerCalls(Part):
    """None before the broker is registered."""

    def __init__(self, world: World, node_id: int, controllers: Iterable[Address]) -> None:
        self._world = world
        self._name = CallerName.of_node(node_id, "sentinel")
        self._controllers = list(controllers)
        self._tasks: list[asyncio.Task[None]] = []

    def registered(self) -> None:
        """Notes that the broker is registered, and may be called again."""
        if not self._tasks:
            self._tasks = [asyncio.get_running_loop().create_task(self._keep(address)) for address in self._controllers]
            for task in self._tasks:
                task.add_done_callback(_ended)

    async def _keep(self, address: Address) -> None:
        """Keeps the connection: makes it again whenever it has ended, at growing intervals while it does not last."""
        probe, clock = Probe(self._world, address, self._name), self._world.clock
        retry_ms = RETRY_MS
        try:
            while True:
                began_ms = clock.monotonic_ms()
                if await probe.run() is Proof.ALIVE:
                    await self._stay(probe)
                if clock.monotonic_ms() - began_ms > RETRY_MS_MAX:
                    retry_ms = RETRY_MS
                await asyncio.sleep(retry_ms / 1000)
                retry_ms = min(2 * retry_ms, RETRY_MS_MAX)
        finally:
            probe.close()

    async def _stay(self, probe: Probe) -> None:
        """Waits until the connection has ended, or is silent."""
        while (connection := probe.connection) is not None and connection.oldest_ms is None:
            probe.ping()
            try:
                async with asyncio.timeout(PING_MS / 1000):
                    await probe.ended.wait()
                    return
            except TimeoutError:
                continue
        probe.close()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()


def _ended(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("controller_not_called", exc_info=error)
