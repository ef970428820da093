"""One simulated machine: its clock, its disk, its place on the network, and the process that runs on it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from ottla.ports import Network, World
from ottla.sim.clock import SimClock, world_seconds
from ottla.sim.disk import SimDisk
from ottla.sim.exchanges import Watched
from ottla.sim.loop import SimLoop
from ottla.sim.network import Fabric, SimNetwork
from ottla.sim.process import PowerCut, Process
from ottla.sim.trace import Trace

T = TypeVar("T")

RandomOf = Callable[[str], random.Random]
"""The random numbers of one component of the simulation, by its name."""


class SimTimers:
    """Timers of one process: they die with it, and run by its clock."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def call_later_ms(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        when = world_seconds() + max(0, delay_ms) / 1000 / self._process.clock.rate
        return cast(SimLoop, asyncio.get_running_loop()).at(when, callback, context=self._process.context)


class Machine:
    """A host. The disk stays when a process dies; ``boot`` makes the world of the next one."""

    def __init__(
        self, random_of: RandomOf, trace: Trace, fabric: Fabric, name: str, *, disk_delay_ms_max: float = 2.0, component: str = ""
    ) -> None:
        """Makes a machine. ``component`` names its random numbers, where another machine had this one's name."""
        self._random_of = random_of
        self._component = component or name
        self._trace = trace
        self._fabric = fabric
        self.name = name
        self.clock = SimClock()
        self.disk = SimDisk(random_of(f"{self._component}/disk"), trace, name, delay_ms_max=disk_delay_ms_max)
        self.process: Process | None = None
        self._boots = 0
        fabric.add_host(name)

    def boot(self) -> World:
        """Starts a new process, which ``run`` runs things in, and returns its ports."""
        self._trace.add(f"{self.name} boots")
        self._boots += 1
        self.disk.restart()
        self._fabric.switch_on(self.name)
        process = self.process = Process(self.name, self.clock)
        random = self._random_of(f"{self._component}/process-{self._boots}")
        network: Network = SimNetwork(self._fabric, process)
        if self._fabric.on_exchange is not None:
            network = Watched(network, self.name, self._fabric.on_exchange)
        return World(self.clock, random, SimTimers(process), self.disk, network, lambda count: _drawn(random, count))

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns the result of the coroutine in the process. PowerCut when the process dies meanwhile, or is dead."""
        if self.process is None:
            coroutine.close()
            raise PowerCut
        return await self.process.run(coroutine)

    # What may happen to it

    def end_process(self) -> None:
        """Ends a process that has done its work."""
        if self.process is not None:
            self._trace.add(f"{self.name} process exits")
            self._fabric.leave(self.process, in_order=True)
            self.process.kill()
            self.process = None

    def kill_process(self) -> None:
        """Kills the process as kill -9 does: what it had written stays written."""
        self._trace.add(f"{self.name} process killed")
        if self.process is not None:
            self._fabric.leave(self.process)
        self._stop()

    def cut_power(self) -> None:
        """Cuts the power until the machine boots. What was not synced is lost, as far as the seed says."""
        self._fabric.switch_off(self.name)
        self._stop()
        self.disk.cut_power()

    def pause_process(self) -> None:
        """Pauses the process as SIGSTOP does: its kernel still takes connections and data."""
        self._trace.add(f"{self.name} process paused")
        if self.process is not None:
            self.process.pause()

    def resume_process(self) -> None:
        self._trace.add(f"{self.name} process resumed")
        if self.process is not None:
            self.process.resume()

    def _stop(self) -> None:
        self.disk.kill()
        if self.process is not None:
            self.process.kill()
            self.process = None


def _drawn(source: random.Random, count: int) -> bytes:
    """Draws a secret from the seed, where the real world draws one."""
    return source.getrandbits(8 * count).to_bytes(count, "big")
