"""Disks of nodes that have several: one fails, returns or is replaced, or is full for a while; and what must follow from it.

While a log directory fails, its broker leads nothing of what it had there, and is in sync with none of it but where nobody else is. A
full disk passes without a restart, unless it is a new one that could not be formatted. A replaced one is empty: it takes the place of one
whose replicas are recorded as out of sync, since the last replica in sync has what nobody else has.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tests.simulation.quorum_nodes import QuorumNode, Run
from tests.simulation.replicated_nodes import all_errors

from ottla.broker.node import Broker
from ottla.loggers import get_logger
from ottla.sim.cluster import DATA_FOLDER, Simulation
from ottla.sim.faults import ANY, Fault
from ottla.storage.directory.directory import META_NAME
from ottla.types import NO_LEADER, TopicPartition

DIRECTORIES = (DATA_FOLDER, "/more")
FOLLOW_SECONDS_MAX = 60
NOTICE_SECONDS_MAX = 5
"""So long a fault of one operation waits for that operation."""
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
    """Kinds of trouble, of one run."""

    def __init__(self, simulation: Simulation, nodes: list[QuorumNode], result: Run) -> None:
        self._rng = simulation.random("failing disks")
        self._nodes = nodes
        self._result = result

    @property
    def kinds(self) -> Mapping[str, Callable[[QuorumNode], Awaitable[None]]]:
        return {
            "disk fails": self.fail,
            "disk fails, and its process is killed": partial(self.fail, is_killed=True),
            "disk fails when it is read at the start": partial(self.fail, operations=["read_file"], files=FILES, is_killed=True),
            "disk fails once": partial(self.fail, operations=ONE_OF),
            "disk is full": self._fill,
            "disk is full, and its process is killed": partial(self._fill, is_killed=True),
        }

    async def fail(
        self, node: QuorumNode, *, operations: Sequence[str] = (ANY,), files: Sequence[str] = ("",), is_killed: bool = False
    ) -> None:
        """All that the disk is asked for fails, or one operation does. A process that is killed starts without the directory."""
        rng, disk, directory = self._rng, node.machine.disk, self._rng.choice(DIRECTORIES)
        operation, file, is_dead = rng.choice(operations), rng.choice(files), operations != ONE_OF
        log.info(FAILS, node=node.node, folder=directory, operation=operation, file=file)
        disk.faults.append(Fault(operation, file, errno.EIO, lasts=is_dead, within=directory))
        if is_killed:
            await asyncio.sleep(rng.uniform(0, 1))
            node.kill(power_cut=False)
            await asyncio.sleep(rng.uniform(0.02, 1))
            node.begin()
        lost = await self._await_failure(node, directory, seconds_max=FOLLOW_SECONDS_MAX if is_dead else NOTICE_SECONDS_MAX)
        if lost is not None:
            self._result.states["failed log directories"] += 1
            await self._await_successors(node, lost)
        elif is_dead and node.broker is None:
            self._result.findings.append(f"node {node.node} does not start while {directory} fails")
        await asyncio.sleep(rng.uniform(0, 2))
        if rng.random() < 0.5 and node.broker is not None:
            await node.stop()
        else:
            node.kill(power_cut=False)
        disk.faults.clear()
        if lost is not None and is_dead and rng.random() < 0.5 and self._are_led_by_others(node, lost):
            self._result.states["replaced disks"] += 1
            disk.replace(directory)
        await asyncio.sleep(LATE_SECONDS)
        log.info(WORKS, node=node.node)
        node.begin()

    async def _fill(self, node: QuorumNode, *, is_killed: bool = False) -> None:
        """With ``is_killed`` what the process knows, and had no room to keep, is lost with it."""
        disk, directory = node.machine.disk, self._rng.choice(["", *DIRECTORIES])
        log.info(FAILS, node=node.node, folder=directory, operation="write")
        disk.faults += [Fault(operation, "", errno.ENOSPC, lasts=True, within=directory) for operation in WRITES]
        await asyncio.sleep(self._rng.uniform(0.1, 6))
        if is_killed:
            node.kill(power_cut=False)
        disk.faults.clear()
        await asyncio.sleep(LATE_SECONDS)
        log.info(WORKS, node=node.node)
        if is_killed:
            node.begin()
        elif not all([await disk.exists(f"{path}/{META_NAME}") for path in DIRECTORIES]):  # replaced, and full when it was to be formatted
            node.kill(power_cut=False)
            await asyncio.sleep(LATE_SECONDS)
            node.begin()

    async def _await_failure(self, node: QuorumNode, directory: str, *, seconds_max: float) -> set[TopicPartition] | None:
        """What the broker has lost with the directory, once it knows; None when it meets no failure."""
        deadline = asyncio.get_running_loop().time() + seconds_max
        while asyncio.get_running_loop().time() < deadline:
            broker = node.broker
            if broker is not None and _has_failed(broker, directory):
                return _lost(broker)
            await asyncio.sleep(0.05)
        return None

    async def _await_successors(self, node: QuorumNode, lost: set[TopicPartition]) -> None:
        deadline = asyncio.get_running_loop().time() + FOLLOW_SECONDS_MAX
        while not self._are_led_by_others(node, lost, but_the_last=True):
            if asyncio.get_running_loop().time() > deadline:
                self._result.findings.append(f"node {node.node} is leader of, or in sync with, what it has lost: {sorted(lost)}")
                return
            await asyncio.sleep(0.05)

    def _are_led_by_others(self, node: QuorumNode, lost: set[TopicPartition], *, but_the_last: bool = False) -> bool:
        """Whether it is recorded that the node serves none of these; ``but_the_last``: it is in sync only where nobody else is."""
        active = next((other.broker for other in self._nodes if other.broker and other.broker.controller.is_active), None)
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
    directory = None
    for event in events:
        if event["event"] == FAILS:
            directory = event["folder"]
        elif event["event"] == WORKS:
            directory = None
        elif event["log_level"] in ("error", "critical"):
            is_explained = directory is not None and event["event"] in SAID and (event.get("folder") or directory).startswith(directory)
            if not is_explained:
                found.append(event)
    return all_errors(found)
