"""One simulated machine: its clock, its timers, its disk, its place on the network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from ottla.ports import World
from ottla.sim.disk import EPOCH_MS, PowerCut, SimDisk
from ottla.sim.network import Fabric
from ottla.sim.trace import Trace


class SimClock:
    """Follows the loop; ``step_ms`` moves the wall clock, as administrators and time servers do."""

    def __init__(self) -> None:
        self.step_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + self.step_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def monotonic_us(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000_000)


class SimTimers:
    """Timers of one process: they die with it."""

    def __init__(self) -> None:
        self.is_alive = True

    def call_later_ms(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(0, delay_ms) / 1000, self._fire, callback)

    def _fire(self, callback: Callable[[], None]) -> None:
        if not self.is_alive:
            return
        try:
            callback()
        except PowerCut:
            self.is_alive = False


class Machine:
    """A host. The disk stays when a process dies; ``boot`` makes the world of the next one."""

    def __init__(self, rng: random.Random, trace: Trace, fabric: Fabric, name: str, *, disk_delay_ms_max: float = 2.0) -> None:
        self._rng = rng
        self._trace = trace
        self._fabric = fabric
        self.name = name
        self.clock = SimClock()
        self.disk = SimDisk(rng, trace, name, delay_ms_max=disk_delay_ms_max)
        self._timers = SimTimers()

    def boot(self) -> World:
        """Ports for a new process."""
        self._trace.add(f"{self.name} boots")
        self.disk.restart()
        self._timers = SimTimers()
        return World(self.clock, self._rng, self._timers, self.disk, self._fabric.network(self.name))

    def kill_process(self) -> None:
        """kill -9: what the process had written stays written."""
        self._trace.add(f"{self.name} process killed")
        self._stop()

    def cut_power(self) -> None:
        """What was not synced is lost, as far as the seed says."""
        self._stop()
        self.disk.cut_power()

    def _stop(self) -> None:
        self._timers.is_alive = False
        self.disk.kill()
        self._fabric.crash(self.name)
