"""Troubles of a run: a disk that is full for a while, descriptors that run out, a process that dies or stands still, a power cut, a broker
that is cut off, or one client on one way, bits that rot.
"""

from __future__ import annotations

import asyncio
import errno
from typing import Final

from ottla.sim.crowd.knowledge import ROTTEN, Knowledge
from ottla.sim.crowd.meetings import nobody
from ottla.sim.faults import Fault

TROUBLES: Final = "troubles"
"""Whose random numbers they are."""
AMBUSH_SECONDS: Final = 2.0
ACTS: Final = ("install", "arrival of a move", "deletion of a topic", "retention", "roll")


async def make_trouble(known: Knowledge) -> None:
    """Until the run is over; then the disk works again, except for what has rotted."""
    disk, rng = known.broker.machine.disk, known.random(TROUBLES)
    while not known.is_over:
        await asyncio.sleep(0.3 + 1.5 * rng.random())
        match rng.choice(["full", "descriptors", "kill", "ambush", "ambush", "rot", "pause", "dark", "cut"]):
            case "full":
                await _for_a_while(known, ("append", "create", "make_dirs"), errno.ENOSPC)
            case "descriptors":
                await _for_a_while(known, ("create",), errno.EMFILE)
            case "kill":
                await _crash(known, power_cut=known.is_flushed and rng.random() < 0.5)
            case "ambush":
                await _ambush(known, power_cut=known.is_flushed and rng.random() < 0.5)
            case "rot":
                _let_rot(known)
            case "pause":
                await _pause(known)
            case "dark":
                await _darken(known)
            case "cut":
                await _cut(known)
    disk.faults.clear()


async def _for_a_while(known: Knowledge, operations: tuple[str, ...], code: int) -> None:
    """The metadata log does not come back from a full disk, as is promised, and is spared."""
    disk = known.broker.machine.disk
    faults = [Fault(operation, "", code, lasts=True, spares="__cluster_metadata") for operation in operations]
    disk.faults += faults
    known.meetings.note(errno.errorcode[code])
    await asyncio.sleep(2 * known.random(TROUBLES).random())
    disk.faults = [fault for fault in disk.faults if fault not in faults]


async def _ambush(known: Knowledge, *, power_cut: bool) -> None:
    """The process dies, or the power is cut, a few disk operations after an act of some kind."""
    disk, awaited, count = known.broker.machine.disk, known.random(TROUBLES).choice(ACTS), known.random(TROUBLES).randrange(1, 8)
    struck = asyncio.Event()

    def near(act: str) -> None:
        if act == awaited and disk.crash_at is None:
            disk.crash_at, disk.on_crash = disk.steps + count, strike

    def strike() -> None:
        _kill(known, power_cut=power_cut)
        known.meetings.counts[f"{'power cut' if power_cut else 'kill'} after {awaited}"] += 1
        struck.set()

    known.meetings.on_act = near
    try:
        await asyncio.wait_for(struck.wait(), AMBUSH_SECONDS)
    except TimeoutError:
        disk.crash_at = disk.on_crash = None
        return
    finally:
        known.meetings.on_act = nobody
    await _come_back(known)


async def _crash(known: Knowledge, *, power_cut: bool) -> None:
    _kill(known, power_cut=power_cut)
    await _come_back(known)


def _kill(known: Knowledge, *, power_cut: bool) -> None:
    known.meetings.note("power cut" if power_cut else "kill")
    known.broker.kill(power_cut=power_cut)
    known.meetings.note_end()


async def _come_back(known: Knowledge) -> None:
    await asyncio.sleep(0.3)
    await known.start_broker()


async def _pause(known: Knowledge) -> None:
    """The process stands still, and its kernel does not."""
    machine = known.broker.machine
    known.meetings.note("pause")
    machine.pause_process()
    await asyncio.sleep(2 * known.random(TROUBLES).random())
    machine.resume_process()


async def _darken(known: Knowledge) -> None:
    """Nothing reaches the broker, and nothing comes from it."""
    fabric, name = known.simulation.fabric, known.broker.machine.name
    known.meetings.note("dark")
    fabric.darken(name)
    await asyncio.sleep(2 * known.random(TROUBLES).random())
    fabric.lighten(name)


async def _cut(known: Knowledge) -> None:
    """One client's requests do not arrive, or the answers to them."""
    fabric, rng = known.simulation.fabric, known.random(TROUBLES)
    link = known.broker.machine.name, rng.choice(sorted(known.client_names))
    source, target = link if rng.random() < 0.5 else link[::-1]
    known.meetings.note("answers cut" if source == known.broker.machine.name else "requests cut")
    fabric.cut_link(source, target)
    await asyncio.sleep(2 * rng.random())
    fabric.join_link(source, target)


def _let_rot(known: Knowledge) -> None:
    """A bit of a closed segment that the scrubber alone will meet."""
    broker = known.running
    partition = broker.partitions.find(ROTTEN, 0) if broker is not None else None
    if partition is None or len(partition.log.segments) < 3 or known.meetings.counts["rot"]:
        return
    inode = known.broker.machine.disk.files.get(partition.log.segments[1].path)
    if inode is not None and len(inode.written) > 200:
        inode.written[150] ^= 1
        known.meetings.note("rot")
