"""A broker in a process of its own, on loopback, in a temporary folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

START_SECONDS_MAX = 30.0


class BrokerProcess:
    """Started by ``with``; ended by its own process id."""

    def __init__(self, **properties: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ottla-bench-")
        self.ready_file = Path(self._folder.name, "ready")
        overrides = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": f"{self._folder.name}/data"} | properties
        self._arguments = [sys.executable, "-m", "ottla", "broker", "start", "--log-level", "warning", "--ready-file", str(self.ready_file)]
        for key, value in overrides.items():
            self._arguments += ["-X", f"{key}={value}"]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._arguments)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.ready_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the broker did not start")
            time.sleep(0.0005)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process is not None, "the process was started"
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)
        self._folder.cleanup()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.ready_file.read_text().strip().rsplit(":", 1)
        return host, int(port)

    @property
    def pid(self) -> int:
        assert self._process is not None, "the process was started"
        return self._process.pid

    def rss_bytes(self) -> int:
        """Resident memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak_rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the kernel tells no VmHWM")

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
