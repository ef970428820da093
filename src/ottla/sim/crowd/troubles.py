"""Troubles of a run: a disk that is full for a while, descriptors that run out, a process that dies, a power cut, bits that rot."""

from __future__ import annotations

import asyncio
import errno

from ottla.sim.crowd.knowledge import ROTTEN, Knowledge
from ottla.sim.disk import Fault


async def make_trouble(known: Knowledge) -> None:
    """Until the run is over; then the disk is whole again, but for what has rotted."""
    disk, rng = known.broker.machine.disk, known.rng
    while not known.is_over:
        await asyncio.sleep(0.3 + 1.5 * rng.random())
        match rng.choice(["full", "descriptors", "kill", "power", "rot"]):
            case "full":
                await _for_a_while(known, ("append", "create", "make_dirs"), errno.ENOSPC)
            case "descriptors":
                await _for_a_while(known, ("create",), errno.EMFILE)
            case "kill":
                await _crash(known, power_cut=False)
            case "power" if known.is_flushed:
                await _crash(known, power_cut=True)
            case "rot":
                _let_rot(known)
    disk.faults.clear()


async def _for_a_while(known: Knowledge, operations: tuple[str, ...], code: int) -> None:
    """The metadata log does not come back from a full disk, as is promised, and is spared."""
    disk = known.broker.machine.disk
    faults = [Fault(operation, "", code, lasts=True, spares="__cluster_metadata") for operation in operations]
    disk.faults += faults
    known.meetings.note(errno.errorcode[code])
    await asyncio.sleep(2 * known.rng.random())
    disk.faults = [fault for fault in disk.faults if fault not in faults]


async def _crash(known: Knowledge, *, power_cut: bool) -> None:
    known.meetings.note("power cut" if power_cut else "kill")
    known.broker.kill(power_cut=power_cut)
    known.meetings.note_end()
    await asyncio.sleep(0.3)
    await known.start_broker()


def _let_rot(known: Knowledge) -> None:
    """A bit of a closed segment that the scrubber alone will meet."""
    broker = known.running
    partition = broker.partitions.by_name.get(ROTTEN, {}).get(0) if broker is not None else None
    if partition is None or len(partition.log.segments) < 3 or known.meetings.counts["rot"]:
        return
    inode = known.broker.machine.disk._files.get(partition.log.segments[1].path)
    if inode is not None and len(inode.written) > 200:
        inode.written[150] ^= 1
        known.meetings.note("rot")
