"""A schedule carried out on the hosts of a simulation."""

from __future__ import annotations

import asyncio
import errno
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from ottla.errors import KafkaError
from ottla.loggers import get_logger
from ottla.messages.api_keys import ApiKey
from ottla.sim.disk_faults import Fault
from ottla.sim.exchanges import Moment
from ottla.sim.network import Fabric
from ottla.sim.process import PowerCut
from ottla.sim.schedule.fault import AFTER, ANY_HOST, LINK_KINDS, STEP, Kind, ScheduledFault, Trigger
from ottla.sim.world import Machine

SUPERVISOR_SECONDS: Final = 0.5
"""After that a node that did not start is started again."""
TRIGGER_SECONDS_MAX: Final = 60.0
"""So long a fault waits for what triggers it."""
BEGINS, ENDS = "fault_begins", "fault_ends"
FULL: Final = [
    Fault(operation, "", errno.ENOSPC, lasts=True, spares="__cluster_metadata") for operation in ("append", "create", "make_dirs")
]
"""A disk without room. The metadata log does not come back from that, as is documented, and is spared."""
NO_FILES: Final = [Fault("create", "", errno.EMFILE, lasts=True, spares="__cluster_metadata")]
REFUSED: Final = {Kind.DISK_FULL: FULL, Kind.NO_FILES: NO_FILES}
ADDITIVE: Final = frozenset({Kind.CLOCK, *REFUSED})
"""Each of those that overlap ends by itself; of the others the last one's end is the end."""
log = get_logger(__name__)


class Node(Protocol):
    """A process on a machine of its own, which can be started again."""

    machine: Machine

    @property
    def is_up(self) -> bool: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def kill(self, *, power_cut: bool) -> None: ...


Begun = tuple[ScheduledFault, Coroutine[Any, Any, None] | None]
Act = Callable[[ScheduledFault], Coroutine[Any, Any, None] | None]
"""Carries a fault out, from its start to its end; None where it is carried out as any other."""


def _nothing(fault: ScheduledFault) -> None:
    return None


class _Trap:
    """A fault that waits for its trigger."""

    def __init__(self, fault: ScheduledFault, trigger: Trigger) -> None:
        self.fault = fault
        self.trigger = trigger
        self.left = trigger.nth
        self.awaited = trigger.suffix.removeprefix(AFTER) if trigger.suffix.startswith(AFTER) else ""
        self.suffix = "" if self.awaited else trigger.suffix
        self.sprung: asyncio.Future[Begun] = asyncio.get_running_loop().create_future()


class Injector:
    """``counts``: what happened, by kind, and what it met. ``begun``: the faults that were carried out, each with its end."""

    def __init__(self, fabric: Fabric, faults: Iterable[ScheduledFault]) -> None:
        """Prepares the faults before any machine boots: exchanges are watched from then on, if a trigger asks for them."""
        self._fabric = fabric
        self._faults = sorted(faults, key=lambda fault: fault.at_ms)
        self._nodes: Mapping[str, Node] = {}
        self._machines: dict[str, Machine] = {}
        self._active: Counter[tuple[Kind, str, str]] = Counter()
        self._traps: list[_Trap] = []
        self._starting: list[asyncio.Task[None]] = []
        self._began_at = 0.0
        self.counts: Counter[str] = Counter()
        self.begun: list[ScheduledFault] = []
        self.over = asyncio.Event()  # clients stop
        self.role_of: Callable[[str], str] = lambda role: role
        """The name of the host that has the role; the name itself where it is a host's."""
        self.may_cut_power: Callable[[], bool] = lambda: True
        self.act: Act = _nothing
        if any(fault.when is not None and fault.when.moment is not None for fault in self._faults):
            fabric.on_exchange = self._on_exchange

    async def run(
        self,
        nodes: Mapping[str, Node],
        others: Mapping[str, Machine] = {},
        *,
        goes_on: Callable[[ScheduledFault], bool] = lambda fault: True,
        ends_ms: int = 0,
        after_ms: int = 0,
    ) -> None:
        """Injects every fault, waits until all have ended, and has all nodes up.

        A schedule may say when clients stop. Otherwise they stop ``after_ms`` after the end of the last fault, and not before ``ends_ms``.
        A fault for which ``goes_on`` is False is left out, with all later ones.
        """
        self._nodes = nodes
        self._machines = {name: node.machine for name, node in nodes.items()} | dict(others)
        self._watch_disks()
        self._began_at = asyncio.get_running_loop().time()
        ends: list[asyncio.Task[None]] = []
        waiting: dict[_Trap, asyncio.Task[None]] = {}
        is_cut_short = False
        for fault in self._faults:
            await self._until(fault.at_ms)
            if is_cut_short := not goes_on(fault):
                break
            self.begun.append(fault)
            if fault.kind is Kind.END:
                self._end()
            elif fault.when is not None:
                self._traps.append(trap := _Trap(fault, fault.when))
                waiting[trap] = asyncio.ensure_future(self._wait(trap))
            else:
                ends.append(asyncio.ensure_future(self._finish(*self._begin(fault))))

        def unfinished() -> list[asyncio.Task[None]]:
            """Returns the faults to wait for; once the run is cut short, not those that still wait for their triggers."""
            sprung = [task for trap, task in waiting.items() if not (is_cut_short and trap in self._traps)]
            return [task for task in (*ends, *sprung) if not task.done()]

        while tasks := unfinished():
            await asyncio.wait(tasks)
        if not self.over.is_set():
            now_ms = math.ceil((asyncio.get_running_loop().time() - self._began_at) * 1000)
            end = ScheduledFault(max(ends_ms, now_ms + after_ms), Kind.END, "clients")
            await self._until(end.at_ms)
            self.begun.append(end)
            self._end()
        await asyncio.gather(*ends, *waiting.values())
        await asyncio.gather(*self._starting)
        for name in nodes:
            await self.start(name)

    def _end(self) -> None:
        self.over.set()
        self.disarm()

    async def _until(self, at_ms: int) -> None:
        delay = self._began_at + at_ms / 1000 - asyncio.get_running_loop().time()
        if delay > 0:
            await asyncio.sleep(delay)

    # Triggers

    async def _wait(self, trap: _Trap) -> None:
        try:
            async with asyncio.timeout(TRIGGER_SECONDS_MAX):
                found = await trap.sprung
        except TimeoutError:
            self._traps = [other for other in self._traps if other is not trap]
            self.counts["never triggered"] += 1
            return
        self.counts["triggered"] += 1
        await self._finish(*found)

    def disarm(self) -> None:
        """Drops the faults that still wait for their triggers."""
        traps, self._traps = self._traps, []
        for trap in traps:
            trap.sprung.set_exception(TimeoutError())

    def _watch_disks(self) -> None:
        if any(fault.when is not None and fault.when.moment is None for fault in self._faults):
            for name, machine in self._machines.items():
                machine.disk.on_step = self._on_step(name, machine.disk.on_step)

    def _on_step(self, host: str, then: Callable[[str, str, str], None]) -> Callable[[str, str, str], None]:
        def on_step(operation: str, path: str, what: str) -> None:
            then(operation, path, what)
            for trap in [trap for trap in self._traps if trap.trigger.moment is None]:
                trigger = trap.trigger
                is_it = trigger.what in (STEP, operation) and path.endswith(trap.suffix) and self._is_meant(trigger.host, host)
                if is_it and not trap.awaited:
                    self._come_closer(trap)

        return on_step

    def _on_exchange(self, key: int, moment: Moment, client: str, server: str) -> None:
        for trap in [trap for trap in self._traps if trap.trigger.moment is moment and key == ApiKey[trap.trigger.what]]:
            if self._is_meant(trap.trigger.host, client) and self._is_meant(trap.trigger.peer, server):
                self._come_closer(trap)

    def note(self, act: str) -> None:
        """Notes that this was done, which triggers may wait for."""
        for trap in self._traps:
            if trap.awaited == act.replace(" ", "-"):
                trap.awaited = ""

    def _is_meant(self, name: str, host: str) -> bool:
        return name == ANY_HOST or self.role_of(name) == host

    def _come_closer(self, trap: _Trap) -> None:
        trap.left -= 1
        if not trap.left:
            self._traps.remove(trap)
            trap.sprung.set_result(self._begin(trap.fault))

    # Faults

    def _begin(self, fault: ScheduledFault) -> Begun:
        """Starts the fault, with hosts in place of roles, or leaves it to what carries it out."""
        fault = replace(fault, host=self.role_of(fault.host), peer=self.role_of(fault.peer))
        if fault.kind is Kind.POWER and not self.may_cut_power():
            fault = replace(fault, kind=Kind.KILL)
        log.info(BEGINS, fault=str(fault))
        self._note(fault)
        self._active[fault.kind, fault.host, fault.peer] += 1
        act = self.act(fault)
        if act is None:
            self._strike(fault)
        return fault, act

    def _strike(self, fault: ScheduledFault) -> None:
        if fault.kind in LINK_KINDS:
            self._strike_link(fault, fault.host, fault.peer)
            return
        machine = self._machines[fault.host]
        match fault.kind:
            case Kind.KILL | Kind.POWER:
                self._nodes[fault.host].kill(power_cut=fault.kind is Kind.POWER)
            case Kind.RESTART:
                pass  # which takes its time
            case Kind.PAUSE:
                machine.pause_process()
            case Kind.DARK:
                self._fabric.darken(fault.host)
            case Kind.BREAK:
                self._fabric.break_connections(fault.host, opened_to=fault.peer or None)
            case Kind.DISK_FULL | Kind.NO_FILES:
                machine.disk.faults += REFUSED[fault.kind]
            case Kind.DRIFT:
                machine.clock.drift(fault.by)
            case Kind.CLOCK:
                machine.clock.step_ms += int(fault.by)
            case _:
                raise ValueError(f"nothing here carries out: {fault}")

    def _strike_link(self, fault: ScheduledFault, source: str, target: str) -> None:
        match fault.kind:
            case Kind.CUT:
                self._fabric.cut_link(source, target)
            case Kind.REFUSE:
                self._fabric.refuse(source, target)
            case Kind.SLOW:
                self._fabric.slow_link(source, target, float(fault.by))
            case _:
                self._fabric.clog_link(source, target, fault.for_ms)

    async def _finish(self, fault: ScheduledFault, act: Coroutine[Any, Any, None] | None) -> None:
        """Ends the fault, which has lasted for its time."""
        if act is not None:
            await act
        else:
            if fault.kind is Kind.RESTART:
                await self.stop(fault.host)
            await asyncio.sleep(fault.for_ms / 1000)
        self._active[fault.kind, fault.host, fault.peer] -= 1
        log.info(ENDS, fault=str(fault))
        if act is None and (fault.kind in ADDITIVE or not self._active[fault.kind, fault.host, fault.peer]):
            self._mend(fault)

    def _mend(self, fault: ScheduledFault) -> None:
        match fault.kind:
            case Kind.KILL | Kind.POWER | Kind.RESTART:
                self.begin(fault.host)
            case Kind.PAUSE:
                self._machines[fault.host].resume_process()
            case Kind.DARK:
                self._fabric.lighten(fault.host)
            case Kind.DISK_FULL | Kind.NO_FILES:
                for refused in REFUSED[fault.kind]:
                    self._machines[fault.host].disk.faults.remove(refused)
            case Kind.DRIFT:
                self._machines[fault.host].clock.drift(1.0)
            case Kind.CLOCK:
                self._machines[fault.host].clock.step_ms -= int(fault.by)
            case Kind.CUT:
                self._fabric.join_link(fault.host, fault.peer)
            case Kind.REFUSE:
                self._fabric.refuse(fault.host, fault.peer, refuses=False)
            case Kind.SLOW:
                self._fabric.slow_link(fault.host, fault.peer, 0)
            case _:
                pass

    def _note(self, fault: ScheduledFault) -> None:
        self.counts[fault.kind.value] += 1
        self.counts["troubles"] += not any(self._active.values())
        active = sorted((key for key, count in self._active.items() if count), key=str)
        if fault.kind is Kind.POWER and any(kind in (Kind.KILL, Kind.POWER) and host != fault.host for kind, host, _ in active):
            self.counts["power lost while others are dead"] += 1
        for kind, host, peer in active:
            if (kind, host, peer) != (fault.kind, fault.host, fault.peer) and fault.host in (host, peer):
                self.counts[f"{fault.kind.value} during {kind.value}"] += 1

    def begin(self, name: str) -> None:
        """Starts the node in a task, if it does not run; the run does not end before the task has."""
        self._starting.append(asyncio.ensure_future(self.start(name)))

    async def start(self, name: str) -> None:
        """Starts the node, unless it is killed on the way, or another call is starting it."""
        node = self._nodes[name]
        while node.machine.process is None:
            try:
                await node.start()
            except PowerCut:
                self.counts["death during start"] += 1
                return
            except (OSError, KafkaError) as error:
                self.counts["start failed"] += 1
                log.error("node_not_started", node=name, reason=repr(error))
                node.kill(power_cut=False)
                await asyncio.sleep(SUPERVISOR_SECONDS)

    async def stop(self, name: str) -> None:
        """Stops the node in order, if it runs and is not killed on the way."""
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
