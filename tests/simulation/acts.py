"""Faults of the cluster simulator that need to know more than a machine and its links: of disks, replicas, and the service of ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from tests.simulation.draws import ZOOKEEPER
from tests.simulation.explorer import Trial
from tests.simulation.quorum_nodes import QuorumNode
from tests.simulation.zookeeper_nodes import ZookeeperNode

from ottla.broker.replicas.full_directories import has_full
from ottla.broker.replicas.partition import Partition
from ottla.sim.disk import VOLUME_BYTES
from ottla.sim.disk_faults import Slow
from ottla.sim.schedule.fault import Kind, ScheduledFault
from ottla.sim.schedule.injector import Act

REPLACED_SECONDS_MAX: Final = 10
Carried = Coroutine[Any, Any, None] | None


def first_of(*acts: Act) -> Act:
    """Each fault is carried out by the first that does."""

    def act(fault: ScheduledFault) -> Carried:
        return next((found for one in acts if (found := one(fault)) is not None), None)

    return act


class Disks:
    """Slow in all, slow in one operation, or without room."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def act(self, fault: ScheduledFault) -> Carried:
        carry_out = {Kind.DISK_SLOW: self._slow, Kind.DISK_ROOM: self._fill}.get(fault.kind)
        return None if carry_out is None else carry_out(self._trial.node(fault.host), fault)

    async def _slow(self, node: QuorumNode, fault: ScheduledFault) -> None:
        disk = node.machine.disk
        if fault.of.endswith("%"):
            disk.slow_share, disk.slow_ms_max = int(fault.of[:-1]) / 100, fault.by
            await asyncio.sleep(fault.for_ms / 1000)
            disk.slow_share = disk.slow_ms_max = 0.0
            return
        operation, _, suffix = fault.of.partition(":")
        disk.slow.append(slow := Slow(operation, suffix, fault.by))
        await asyncio.sleep(fault.for_ms / 1000)
        if slow in disk.slow:
            disk.slow.remove(slow)

    async def _fill(self, node: QuorumNode, fault: ScheduledFault) -> None:
        loop, disk, broker = asyncio.get_running_loop(), node.machine.disk, node.broker
        if broker is None or has_full(broker.partitions):
            return
        disk.capacity_bytes = disk.used_bytes + int(fault.by)
        until = loop.time() + fault.for_ms / 1000
        while loop.time() < until and node.broker is broker:  # a start needs room, and a directory that is full again its reserve
            await asyncio.sleep(0.02)
        disk.capacity_bytes = VOLUME_BYTES


class Service:
    """ZooKeeper is away, out of reach of a host, ends sessions, or loses answers."""

    def __init__(self, trial: Trial) -> None:
        first = trial.nodes[0]
        assert isinstance(first, ZookeeperNode)
        self._service = first.service

    def act(self, fault: ScheduledFault) -> Carried:
        if fault.host == ZOOKEEPER:
            return {Kind.KILL: self._away, Kind.LOSE: self._lose}[fault.kind](fault)
        if fault.kind is Kind.EXPIRE:
            return self._expire(fault)
        return self._cut(fault) if fault.peer == ZOOKEEPER and fault.kind is Kind.CUT else None

    async def _away(self, fault: ScheduledFault) -> None:
        self._service.stop()
        await asyncio.sleep(fault.for_ms / 1000)
        self._service.start()

    async def _lose(self, fault: ScheduledFault) -> None:
        self._service.loses_answers = True
        await asyncio.sleep(fault.for_ms / 1000)
        self._service.loses_answers = False
        self._service.stop()
        self._service.start()

    async def _cut(self, fault: ScheduledFault) -> None:
        self._service.cut(fault.host)
        await asyncio.sleep(fault.for_ms / 1000)
        self._service.heal(fault.host)

    async def _expire(self, fault: ScheduledFault) -> None:
        for session_id in self._service.sessions_of(fault.host):
            self._service.expire(session_id)


class Damage:
    """What the scrubber does when it finds damage, to any replica of a node, and to several at once.

    Each is fetched again, or kept where nobody else has it.
    """

    def __init__(self, trial: Trial) -> None:
        self._rng = trial.simulation.random("damaged replicas")
        self._trial = trial

    def act(self, fault: ScheduledFault) -> Carried:
        return self._damage(self._trial.node(fault.host), fault) if fault.kind is Kind.DAMAGE else None

    async def _damage(self, node: QuorumNode, fault: ScheduledFault) -> None:
        if node.broker is None:
            return
        store, states = node.broker.partitions, self._trial.states
        whole = [partition for partition in store.all() if not partition.log.is_failed]
        victims = self._rng.sample(whole, min(len(whole), int(fault.by)))
        for victim in victims:
            victim.fail()
        node.broker.made.list.on_offline()
        states["damaged replicas"] += len(victims)
        if await _are_replaced(node, victims):
            states["damaged replicas replaced"] += len(victims)
        else:  # one had what nobody else has: it is what it was, after all
            node.kill(power_cut=False)
            await asyncio.sleep(fault.for_ms / 1000)
            self._trial.injector.begin(node.machine.name)


async def _are_replaced(node: QuorumNode, victims: Sequence[Partition]) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + REPLACED_SECONDS_MAX
    while loop.time() < deadline:
        store = None if node.broker is None else node.broker.partitions
        if store is None:  # it died meanwhile: the next process finds nothing wrong
            return False
        found = [store.find(victim.topic, victim.index) for victim in victims]
        if all(new is not None and new is not old and not new.log.is_failed for new, old in zip(found, victims, strict=True)):
            return True
        await asyncio.sleep(0.05)
    return False
