"""A schedule carried out on the hosts of a simulation."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from ottla.errors import KafkaError
from ottla.sim.faults import Fault
from ottla.sim.network import Fabric
from ottla.sim.process import PowerCut
from ottla.sim.schedule.timed import Kind, TimedFault
from ottla.sim.world import Machine

SUPERVISOR_SECONDS: Final = 0.5
"""After that a node that did not start is started again."""
FULL: Final = [
    Fault(operation, "", errno.ENOSPC, lasts=True, spares="__cluster_metadata") for operation in ("append", "create", "make_dirs")
]
"""A disk without room. The metadata log does not come back from that, as is documented, and is spared."""


ADDITIVE: Final = frozenset({Kind.CLOCK, Kind.DISK_FULL})
"""Each of those that overlap ends by itself; of the others the last one's end is the end."""


class Node(Protocol):
    """A process on a machine of its own, which can be started again."""

    machine: Machine

    @property
    def is_up(self) -> bool: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def kill(self, *, power_cut: bool) -> None: ...


class Injector:
    """``counts``: what happened, by kind, and what it met."""

    def __init__(self, fabric: Fabric, nodes: Mapping[str, Node], others: Mapping[str, Machine] = {}) -> None:
        self._fabric = fabric
        self._nodes = nodes
        self._machines = {name: node.machine for name, node in nodes.items()} | dict(others)
        self._active: Counter[tuple[Kind, str, str]] = Counter()
        self.counts: Counter[str] = Counter()

    async def run(self, faults: Iterable[TimedFault]) -> None:
        """Every fault has come, and ended."""
        loop = asyncio.get_running_loop()
        begun = loop.time()

        async def carry_out(fault: TimedFault) -> None:
            await asyncio.sleep(max(0.0, begun + fault.at_ms / 1000 - loop.time()))
            await self._begin(fault)
            await asyncio.sleep(fault.for_ms / 1000)
            await self._end(fault)

        await asyncio.gather(*(carry_out(fault) for fault in faults))

    async def _begin(self, fault: TimedFault) -> None:
        machine = self._machines[fault.host]
        self._active[fault.kind, fault.host, fault.peer] += 1
        self._note(fault)
        match fault.kind:
            case Kind.KILL | Kind.POWER:
                self._nodes[fault.host].kill(power_cut=fault.kind is Kind.POWER)
            case Kind.RESTART:
                await self._stop(fault.host)
            case Kind.PAUSE:
                machine.pause_process()
            case Kind.DARK:
                self._fabric.darken(fault.host)
            case Kind.BREAK:
                self._fabric.break_connections(fault.host)
            case Kind.DISK_FULL:
                machine.disk.faults += FULL
            case Kind.DRIFT:
                machine.clock.drift(fault.by)
            case Kind.CLOCK:
                machine.clock.step_ms += int(fault.by)
            case Kind.CUT:
                self._fabric.cut_link(fault.host, fault.peer)
            case Kind.REFUSE:
                self._fabric.refuse(fault.host, fault.peer)
            case Kind.SLOW:
                self._fabric.slow_link(fault.host, fault.peer, fault.by)
            case Kind.CLOG:
                self._fabric.clog_link(fault.host, fault.peer, fault.for_ms)

    async def _end(self, fault: TimedFault) -> None:
        machine, key = self._machines[fault.host], (fault.kind, fault.host, fault.peer)
        self._active[key] -= 1
        if self._active[key] and fault.kind not in ADDITIVE:
            return
        match fault.kind:
            case Kind.KILL | Kind.POWER | Kind.RESTART:
                await self.start(fault.host)
            case Kind.PAUSE:
                machine.resume_process()
            case Kind.DARK:
                self._fabric.lighten(fault.host)
            case Kind.DISK_FULL:
                for full in FULL:
                    machine.disk.faults.remove(full)
            case Kind.DRIFT:
                machine.clock.drift(1.0)
            case Kind.CLOCK:
                machine.clock.step_ms -= int(fault.by)
            case Kind.CUT:
                self._fabric.join_link(fault.host, fault.peer)
            case Kind.REFUSE:
                self._fabric.refuse(fault.host, fault.peer, refuses=False)
            case Kind.SLOW:
                self._fabric.slow_link(fault.host, fault.peer, 0)
            case Kind.BREAK | Kind.CLOG:
                pass

    def _note(self, fault: TimedFault) -> None:
        self.counts[fault.kind.value] += 1
        for kind, host, peer in sorted((key for key, count in self._active.items() if count), key=str):
            if (kind, host, peer) != (fault.kind, fault.host, fault.peer) and fault.host in (host, peer):
                self.counts[f"{fault.kind.value} during {kind.value}"] += 1

    async def start(self, name: str) -> None:
        """The node runs, or is killed on the way, or is being started already."""
        node = self._nodes[name]
        while node.machine.process is None:
            try:
                await node.start()
            except PowerCut:
                self.counts["death during start"] += 1
                return
            except (OSError, KafkaError):
                self.counts["start failed"] += 1
                node.kill(power_cut=False)
                await asyncio.sleep(SUPERVISOR_SECONDS)

    async def _stop(self, name: str) -> None:
        node = self._nodes[name]
        if not node.is_up:
            return
        try:
            await node.stop()
        except PowerCut:
            self.counts["death during stop"] += 1
        except (OSError, KafkaError):  # a stop on a full disk cannot write what it knows
            self.counts["stop failed"] += 1
            node.kill(power_cut=False)
