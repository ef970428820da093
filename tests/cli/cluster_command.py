"""``ottla cluster start`` as a shell runs it, for tests that stop, kill and resume it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.foreign_clients.broker_process import lasting_ports
from tests.waiting import WAIT_SECONDS_MAX, eventually


class ClusterCommand:
    """``with ClusterCommand(directory).started() as cluster:``; what still runs at the end is ended by its process id."""

    def __init__(self, place: Path, *options: str, port: int | None = None) -> None:
        self.place = place
        self.port = consecutive_ports(10) if port is None else port
        self.options = options
        self.errors = place.parent / f"{place.name}.err"
        self._process: subprocess.Popen[str] | None = None
        self._seen: set[int] = set()

    def started(self, *options: str) -> Self:
        """All nodes serve."""
        command = [sys.executable, "-m", "ottla", "cluster", "start", "--json", "--data", str(self.place)]
        with self.errors.open("w") as errors:
            self._process = subprocess.Popen(
                [*command, *self.options, *options], stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.errors.read_text()
        self.line = json.loads(line)
        self.remember()
        return self

    @property
    def supervisor(self) -> subprocess.Popen[str]:
        assert self._process is not None, "it was started"
        return self._process

    @property
    def bootstrap(self) -> str:
        text: str = self.status()["bootstrap"]
        return text

    @property
    def pids(self) -> dict[int, int]:
        """Of the nodes that run."""
        return {node["node"]: node["pid"] for node in self.status()["nodes"] if node["pid"] is not None}

    def remember(self) -> None:
        """The nodes that run now must have ended at the end."""
        self._seen |= set(self.pids.values())

    def status(self) -> Any:
        result = ottla("cluster", "status", "--data", str(self.place), "--format", "json")
        [found] = json.loads(result.stdout)["items"]
        assert result.returncode == (found.get("problem") is not None), result.stderr
        return found

    def node(self, node_id: int) -> Any:
        [found] = [node for node in self.status()["nodes"] if node["node"] == node_id]
        return found

    def call(self, command: str, *arguments: str) -> str:
        """What the command says; it must succeed."""
        result = ottla("cluster", command, *arguments, "--data", str(self.place))
        assert result.returncode == 0, result.stderr
        if command != "stop":
            self.remember()
        return result.stderr

    def refused(self, command: str, *arguments: str) -> str:
        """What the command says; it must fail."""
        result = ottla("cluster", command, *arguments, "--data", str(self.place))
        assert result.returncode == 1, result.stdout + result.stderr
        return result.stderr

    def wait(self) -> int:
        """The exit code of the supervisor. None of its nodes runs any more."""
        code = self.supervisor.wait(WAIT_SECONDS_MAX)
        self.wait_for_nodes()
        return code

    def wait_for_nodes(self) -> None:
        """No node that was ever seen runs."""
        eventually(lambda: sorted(filter(is_running, self._seen)), lambda running: not running)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self.wait_for_nodes()


def ottla(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command, whole = [sys.executable, "-m", "ottla", *arguments], os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, check=False, env=whole)


def is_running(pid: int) -> bool:
    """Whether the process is there, and one of a node."""
    try:
        return b"ottla.cli.nodes.node" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        if sys.platform == "linux":
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def consecutive_ports(count: int) -> int:
    """The first of so many free ports on end, below those of outgoing connections."""
    free = set(lasting_ports(10 * count))
    return next(port for port in sorted(free) if all(port + step in free for step in range(count)))


def interrupt(process: subprocess.Popen[str]) -> None:
    """As Ctrl-C in a terminal: the whole foreground group gets it."""
    os.killpg(process.pid, signal.SIGINT)
