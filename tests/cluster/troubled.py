"""Three nodes on hosts of their own, each with a small disk of its own, which can be full, and slow; they can be killed and paused, too.

A disk is a tmpfs of ``DISK_BYTES``. A preloaded library reads from a file how long syncs and appends are to take (``slow_disk.c``). Root,
a C compiler and what ``links`` needs are needed.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.cluster.links import LinkedCluster
from tests.cluster.power import call
from tests.foreign_clients.broker_process import BrokerProcess

DISK_BYTES: Final = 512 << 20
PIECE_BYTES: Final = 1 << 12


class SmallDisk:
    """``directory`` is where it is mounted."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self._ballast = directory / "ballast"
        call("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory))

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    def fill(self, *, but_bytes: int = 0) -> None:
        """Nothing more has room than what is ``but_bytes`` long."""
        with self._ballast.open("wb") as file:
            size = 0
            while (more := self.free_bytes - but_bytes) >= PIECE_BYTES:
                try:
                    os.posix_fallocate(file.fileno(), size, more)
                    size += more
                except OSError:  # the node has taken some of it meanwhile
                    os.posix_fallocate(file.fileno(), size, PIECE_BYTES)
                    size += PIECE_BYTES

    def empty(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        if os.path.ismount(self.directory):
            call("umount", "--lazy", str(self.directory))


class TroubledNode(BrokerProcess):
    """``disk`` is its own."""

    def __init__(self, directory: Path, **properties: Any) -> None:
        super().__init__(directory, **properties)
        self.disk = SmallDisk(directory / "disk")
        self.data = self.disk.directory / "data"
        self.data.mkdir()
        self.slow_file = directory / "slow"

    def take_long(self, *, sync_ms: int = 0, append_ms: int = 0) -> None:
        """From now on each sync, and each append to a log, takes so long; 0 for no longer than the disk needs."""
        written = self.slow_file.with_suffix(".new")
        written.write_text(f"{sync_ms} {append_ms}")
        written.rename(self.slow_file)


class TroubledCluster(LinkedCluster):
    """``troubled`` are its nodes."""

    node_type = TroubledNode

    def __init__(self, directory: Path, **properties: str) -> None:
        self._library = directory / "slow_disk.so"
        call("cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(Path(__file__).with_name("slow_disk.c")), "-ldl")
        self.troubled: dict[int, TroubledNode] = {}
        super().__init__(directory, 3, **properties)

    def _node(self, node: int, port: int, **properties: Any) -> BrokerProcess:
        made = super()._node(node, port, **properties)
        assert isinstance(made, TroubledNode)
        made.command = [*made.command, "env", f"LD_PRELOAD={self._library}", f"OTTLA_SLOW_FILE={made.slow_file}"]
        self.troubled[node] = made
        return made

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            for node in self.troubled.values():
                node.disk.unmount()


class TroubledZookeeperCluster(TroubledCluster):
    """The same in ZooKeeper mode."""

    is_in_zookeeper = True

    def restart_zookeeper(self) -> None:
        """Its server is killed, and comes back."""
        assert self._zookeeper is not None, "it is in ZooKeeper mode"
        self._zookeeper.kill()
        self._zookeeper.start()
