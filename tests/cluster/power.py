"""Nodes whose power can be cut: each has a disk of its own, an ext4 file system on a loop device, which forgets what was not synced.

A cut stops the process where it is (SIGSTOP), shuts its file system down without writing anything more, the journal included
(EXT4_IOC_SHUTDOWN, as xfstests does), and kills the process. The next mount finds the disk as it was at that instant, and
recovers its journal. It takes root and loop devices.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.cluster.processes import ClusterProcesses
from tests.foreign_clients.broker_process import BrokerProcess

DISK_BYTES = 512 << 20
_EXT4_IOC_SHUTDOWN = 0x8004587D
_WITHOUT_LOG_FLUSH = struct.pack("I", 2)


class Disk:
    """``directory`` is where it is mounted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._image = directory.with_suffix(".img")
        directory.mkdir()
        with self._image.open("wb") as file:
            file.truncate(DISK_BYTES)
        call("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self._image))
        self.mount()

    def mount(self) -> None:
        call("mount", "-o", "loop", str(self._image), str(self.directory))

    def cut(self) -> None:
        """Nothing more reaches the disk."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_IOC_SHUTDOWN, _WITHOUT_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        """No process has a file of it open any more; its loop device goes with it."""
        if os.path.ismount(self.directory):
            call("umount", str(self.directory))


class PoweredNode(BrokerProcess):
    """``kill`` is a power cut; ``start`` is the power's return."""

    def __init__(self, directory: Path, **properties: Any) -> None:
        super().__init__(directory, **properties)
        self.disk = Disk(directory / "disk")
        self.data = self.disk.directory / "data"
        self.data.mkdir()

    def kill(self) -> None:
        cut([self])

    def spawn(self) -> None:
        if not os.path.ismount(self.disk.directory):
            self.disk.mount()
        super().spawn()

    def end_by_sigkill(self) -> None:
        self._end(signal.SIGKILL)


def cut(nodes: Iterable[PoweredNode]) -> None:
    """These nodes lose their power, all at once: none does anything after another one has lost it."""
    victims = list(nodes)
    for node in victims:
        node.send_signal(signal.SIGSTOP)
    for node in victims:
        node.disk.cut()
    for node in victims:
        node.end_by_sigkill()
        node.disk.unmount()


class PoweredCluster(ClusterProcesses):
    """As ``ClusterProcesses``, of nodes whose power can be cut."""

    node_type = PoweredNode

    @property
    def powered(self) -> list[PoweredNode]:
        return [node for node in self.nodes.values() if isinstance(node, PoweredNode)]

    def cut_all(self) -> None:
        """All nodes at once."""
        cut(self.powered)

    def return_all(self) -> None:
        """All nodes serve again."""
        for node in self.powered:
            node.spawn()
        for node in self.powered:
            node.wait_until_ready()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            for node in self.powered:
                node.disk.unmount()


def call(*command: str) -> None:
    """It succeeds, or its words are the failure: a missing loop device is no reason to skip."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
