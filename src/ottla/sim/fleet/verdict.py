"""What was promised of each node, and whether it holds."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.client.admin import Admin
from ottla.sim import checkers
from ottla.sim.fleet.parts import PARTITIONS, Unit

CONVERGES_SECONDS: Final = 60.0
"""Within this time after the last fault the group has read everything."""


async def judge(unit: Unit, *, is_flushed: bool) -> list[str]:
    """What is wrong with the node and with the answers to its clients."""
    assert unit.broker is not None, "every node is up"
    found = list(unit.findings)
    if unit.broker.failure is not None:
        found.append(f"the broker has ended: {unit.broker.failure}")
    keeps_all = is_flushed or not unit.history.crashes
    since = 0 if keeps_all else unit.history.crashes
    if keeps_all:
        found += await _unread(unit)
        found += [f"{value!r} was refused" for value in unit.history.refused]
    logs = await unit.logs()
    found += checkers.acknowledged_are_kept(unit.history, logs, since_crash=since)
    found += checkers.logs_are_dense(logs)
    found += checkers.nothing_is_invented(unit.history, logs)
    found += checkers.idempotent_producers_store_once_and_in_order(unit.history, logs)
    admin = Admin(unit.client(f"auditor-{unit.machine.name}"))
    committed = {key: position.offset for key, position in (await admin.committed_offsets("alone")).items()}
    await admin.close()
    found += checkers.commits_are_kept(unit.history, committed, since_crash=since)
    return [f"{unit.machine.name}: {finding}" for finding in found]


async def _unread(unit: Unit) -> list[str]:
    """The group has read every record within its time: an acknowledged one at its offset."""
    loop = asyncio.get_running_loop()
    logs, until = await unit.logs(), loop.time() + CONVERGES_SECONDS
    stored = {(partition, offset): value for partition in PARTITIONS for offset, value in logs[partition]}
    while loop.time() < until and not unit.read.keys() >= stored.keys():
        await asyncio.sleep(0.1)
    missing = [f"{partition} offset {offset}: no member read it" for partition, offset in sorted(stored.keys() - unit.read.keys())]
    return missing + [
        f"{partition} offset {offset}: {unit.read[partition, offset]!r} was read, {value!r} is there"
        for (partition, offset), value in stored.items()
        if unit.read.get((partition, offset), value) != value
    ]
