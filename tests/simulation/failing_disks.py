"""Disks of nodes that have several: one fails, returns or is replaced, or is full for a while; and what must follow from it.

While a log directory fails, its broker leads nothing of what it had there, and is in sync with none of it but where nobody else is. A
full disk passes without a restart, unless it is a new one that could not be formatted. A replaced one is empty: it takes the place of one
whose replicas are recorded as out of sync, since the last replica in sync has what nobody else has.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from tests.simulation.explorer import Trial
from tests.simulation.quorum_nodes import QuorumNode, all_errors

from ottla.broker.node import Broker
from ottla.broker.replicas.full_directories import has_full
from ottla.loggers import get_logger
from ottla.sim.cluster import DATA_DIRECTORY
from ottla.sim.disk_faults import ANY, Fault
from ottla.sim.schedule.fault import Kind, ScheduledFault
from ottla.storage.directory.directory import META_NAME
from ottla.types import NO_LEADER, TopicPartition

DIRECTORIES = (DATA_DIRECTORY, "/more")
KILLED, STOPPED, REPLACED, ONCE = "killed", "stopped", "replaced", "once"
"""Ways of a fault of a disk: its process is killed soon; in the end it is stopped in order; the disk is replaced; one operation fails."""
FOLLOW_SECONDS_MAX = 60
NOTICE_SECONDS_MAX = 5
"""So long a fault of one operation waits for that operation."""
ROOM_SECONDS_MAX = 10
LATE_SECONDS = 0.1
"""So much later what has failed may be reported."""
FAILS, WORKS = "disk_fails", "disk_works"
FILES = ("meta.properties", "-checkpoint", "partition.metadata")
ONE_OF = ("append", "sync", "truncate", "rename", "pread")
WRITES = ("append", "create", "make_dirs")
SAID = frozenset(
    {
        *("log_dir_failed", "partition_offline", "checkpoints_not_written", "log_append_failed", "log_start_not_written"),
        *("log_dir_not_read", "log_not_closed", "shard_not_loaded", "replica_not_deleted", "deleted_replica_not_removed"),
    }
)
"""Errors that a broker logs of a disk that fails, or is full."""
log = get_logger(__name__)


class FailingDisks:
    """The act of one run that carries such faults out."""

    def __init__(self, trial: Trial) -> None:
        self._rng = trial.simulation.random("failing disks")
        self._trial = trial

    def act(self, fault: ScheduledFault) -> Coroutine[Any, Any, None] | None:
        carry_out = {Kind.DISK_FAILS: self._fail, Kind.DISK_FULL: self._fill}.get(fault.kind)
        return None if carry_out is None else carry_out(self._trial.node(fault.host), fault)

    async def _fail(self, node: QuorumNode, fault: ScheduledFault) -> None:
        """All that the disk is asked for fails, or one operation does. A process that is killed starts without the directory."""
        rng, disk, directory, is_dead = self._rng, node.machine.disk, fault.where, ONCE not in fault.ways
        operation, _, file = fault.of.partition(":")
        log.info(FAILS, node=node.node, directory=directory, operation=operation, file=file)
        disk.faults.append(failing := Fault(operation or ANY, file, errno.EIO, lasts=is_dead, within=directory))
        if KILLED in fault.ways:
            await asyncio.sleep(rng.uniform(0, 1))
            node.kill(power_cut=False)
            await asyncio.sleep(rng.uniform(0.02, 1))
            self._trial.injector.begin(node.machine.name)
        until = asyncio.get_running_loop().time() + fault.for_ms / 1000
        lost = await self._await_failure(node, directory, seconds_max=FOLLOW_SECONDS_MAX if is_dead else NOTICE_SECONDS_MAX)
        if lost is not None:
            self._trial.states["failed log directories"] += 1
            await self._await_successors(node, lost)
        await asyncio.sleep(max(0.0, until - asyncio.get_running_loop().time()))
        if STOPPED in fault.ways and node.is_up:
            await self._trial.injector.stop(node.machine.name)
        elif node.machine.process is not None:  # also one that starts: it has found the disk failing, and would go on without it
            node.kill(power_cut=False)
        if failing in disk.faults:
            disk.faults.remove(failing)
        if lost is not None and is_dead and REPLACED in fault.ways and self._are_led_by_others(node, lost):
            self._trial.states["replaced disks"] += 1
            disk.replace(directory)
        await asyncio.sleep(LATE_SECONDS)
        log.info(WORKS, node=node.node, directory=directory)
        self._trial.injector.begin(node.machine.name)

    async def _fill(self, node: QuorumNode, fault: ScheduledFault) -> None:
        """Where its process is killed, what that knows, and had no room to keep, is lost with it."""
        disk = node.machine.disk
        log.info(FAILS, node=node.node, directory=fault.where, operation="write")
        refused = [Fault(operation, "", errno.ENOSPC, lasts=True, within=fault.where) for operation in WRITES]
        disk.faults += refused
        await asyncio.sleep(fault.for_ms / 1000)
        if KILLED in fault.ways:
            node.kill(power_cut=False)
        for one in refused:
            disk.faults.remove(one)
        await asyncio.sleep(LATE_SECONDS)
        await self._await_room(node)
        log.info(WORKS, node=node.node, directory=fault.where)
        if KILLED not in fault.ways and not all(f"{path}/{META_NAME}" in disk.files for path in DIRECTORIES):  # also of a dead machine
            node.kill(power_cut=False)  # replaced, and full when it was to be formatted
            await asyncio.sleep(LATE_SECONDS)
        self._trial.injector.begin(node.machine.name)

    async def _await_room(self, node: QuorumNode) -> None:
        """Until the broker has noticed that there is room again, it refuses what it is to write."""
        broker, deadline = node.broker, asyncio.get_running_loop().time() + ROOM_SECONDS_MAX
        while broker is not None and node.broker is broker and has_full(broker.partitions):
            if asyncio.get_running_loop().time() > deadline:
                self._trial.result.findings.append(f"node {node.node} does not notice that its disk has room")
                return
            await asyncio.sleep(0.05)

    async def _await_failure(self, node: QuorumNode, directory: str, *, seconds_max: float) -> set[TopicPartition] | None:
        """What the broker has lost with the directory, once it knows; None when it meets no failure."""
        deadline, was_up = asyncio.get_running_loop().time() + seconds_max, False
        while asyncio.get_running_loop().time() < deadline:
            broker = node.broker
            was_up |= broker is not None
            if broker is not None and _has_failed(broker, directory):
                return _lost(broker)
            await asyncio.sleep(0.05)
        if not was_up and seconds_max == FOLLOW_SECONDS_MAX:
            self._trial.result.findings.append(f"node {node.node} does not start while {directory} fails")
        return None

    async def _await_successors(self, node: QuorumNode, lost: set[TopicPartition]) -> None:
        deadline = asyncio.get_running_loop().time() + FOLLOW_SECONDS_MAX
        while not self._are_led_by_others(node, lost, but_the_last=True):
            if asyncio.get_running_loop().time() > deadline:
                self._trial.result.findings.append(f"node {node.node} is leader of, or in sync with, what it has lost: {sorted(lost)}")
                return
            await asyncio.sleep(0.05)

    def _are_led_by_others(self, node: QuorumNode, lost: set[TopicPartition], *, but_the_last: bool = False) -> bool:
        """Whether it is recorded that the node serves none of these; ``but_the_last``: it is in sync only where nobody else is."""
        active = next((other.broker for other in self._trial.nodes if other.broker and other.broker.controller.is_active), None)
        if active is None:
            return False
        for key in lost:
            partition = active.image.topics[key.topic].partitions[key.partition]
            is_last = but_the_last and partition.leader == NO_LEADER and list(partition.isr) == [node.node]
            if node.node in (partition.leader, *partition.isr) and not is_last:
                return False
        return True


def _has_failed(broker: Broker, directory: str) -> bool:
    """Found so while it ran, or when it started."""
    return all(opened.is_failed for opened in broker.directories.opened if opened.path == directory)


def _lost(broker: Broker) -> set[TopicPartition]:
    return {partition.key for partition in broker.partitions.all() if partition.log.is_failed} | set(broker.partitions.offline)


def unexpected_errors(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """What brokers logged as errors, beyond what a failing or full disk explains while there is one."""
    found: list[Mapping[str, Any]] = []
    failing: list[tuple[int, str]] = []  # nodes, and directories
    for event in events:
        if event["event"] == FAILS:
            failing.append((event["node"], event["directory"]))
        elif event["event"] == WORKS:
            failing.remove((event["node"], event["directory"]))
        elif event["log_level"] in ("error", "critical"):
            is_explained = event["event"] in SAID and any(
                (event.get("directory") or directory).startswith(directory) for _, directory in failing
            )
            all_of = {node for node, _ in failing if {(node, directory) for directory in DIRECTORIES} <= set(failing)}
            are_all_lost = event["event"] == "broker_failed" and bool(all_of)
            if not (is_explained or are_all_lost):
                found.append(event)
    return all_errors(found)
