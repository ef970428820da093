"""One node as a child process, and where it is between being started and having ended.

STARTING -> SERVING -> STOPPING -> STOPPED      by ``stop``
any of them -> KILLED                           by SIGKILL
any of them -> FAILED                           by itself
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from ottla.errors import OttlaError
from ottla.runtime.supervision.supervised import CLOSE, LEFT, NodeOrder

ERROR_PREFIX: Final = "ottla: "
LOG_TAIL_BYTES: Final = 8192


class NodeState(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"
    STOPPED = "stopped"
    KILLED = "killed"
    FAILED = "failed"


RUNNING: Final = frozenset({NodeState.STARTING, NodeState.SERVING, NodeState.STOPPING})


class NodeFailed(OttlaError):
    """The node ended before it served clients; the text has its own words."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """The description of a node.

    ``command`` is the program, which takes its order from standard input; without a log file it writes to this one's.
    """

    order: NodeOrder
    command: Sequence[str]
    log_file: str | None = None

    @property
    def node_id(self) -> int:
        return self.order.node_id


class NodeProcess:
    """``on_changed`` is called at each change of state, and with what is to be said of it when that was not asked for."""

    def __init__(self, spec: NodeSpec, on_changed: Callable[[NodeProcess, str | None], None]) -> None:
        self.spec = spec
        self.state = NodeState.STOPPED
        self.address: str | None = None  # the first listener's, as it was bound last
        self.exit_text = ""
        self.has_left = False  # its cluster: it waits for ``release``
        self._on_changed = on_changed
        self._process: asyncio.subprocess.Process | None = None
        self._life: asyncio.Task[None] | None = None
        self._served = asyncio.Event()  # or ended
        self._log_begin = 0

    @property
    def node_id(self) -> int:
        return self.spec.node_id

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        return self.state in RUNNING

    async def start(self) -> None:
        """Starts the process, until it serves clients. NodeFailed when it ended before that."""
        assert not self.is_running, "a node is one process"
        self._served.clear()
        self.has_left = False
        self._become(NodeState.STARTING)
        try:
            self._process = await self._spawn()
        except OSError as error:
            self._become(NodeState.FAILED)
            raise NodeFailed(f"node {self.node_id} cannot be started: {error}") from error
        self._life = asyncio.create_task(self._live(self._process))
        await self._served.wait()
        if self.state is not NodeState.SERVING:
            raise NodeFailed(f"node {self.node_id} {self.exit_text}{self.last_words()}")

    async def stop(self, *, seconds_max: float) -> bool:
        """Stops the process; returns whether it ended in order, in time."""
        if not self.is_running or self._life is None:
            return True
        self._become(NodeState.STOPPING)
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # one that SIGSTOP has stopped would never get it
        try:
            async with asyncio.timeout(seconds_max):
                await asyncio.shield(self._life)
        except TimeoutError:
            await self.kill()
            return False
        return True

    async def kill(self) -> None:
        """Kills the process by SIGKILL, and waits for its end."""
        if self.is_running and self._life is not None:
            self._signal(signal.SIGKILL)
            await asyncio.shield(self._life)

    def release(self) -> None:
        """Lets a node end that has left its cluster."""
        if self.is_running and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(CLOSE)

    def last_words(self) -> str:
        """Returns the error that an ended process wrote last into its log file, as ``: text``."""
        if self.spec.log_file is None:
            return ""
        try:
            with open(self.spec.log_file, "rb") as log:
                log.seek(max(self._log_begin, os.fstat(log.fileno()).st_size - LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        errors = [line.removeprefix(ERROR_PREFIX) for line in lines if line.startswith(ERROR_PREFIX)]
        text = errors or [line for line in lines if line.strip()]
        return f": {text[-1]}" if text else ""

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "it was started"
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            self._process.send_signal(number)

    async def _spawn(self) -> asyncio.subprocess.Process:
        # A session of its own: Ctrl-C in a terminal is the supervisor's, which stops its nodes in order.
        environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        if self.spec.log_file is None:
            process = await asyncio.create_subprocess_exec(
                *self.spec.command, stdin=PIPE, stdout=PIPE, stderr=None, env=environment, start_new_session=True
            )
        else:
            with open(self.spec.log_file, "ab") as log:
                self._log_begin = os.fstat(log.fileno()).st_size
                process = await asyncio.create_subprocess_exec(
                    *self.spec.command, stdin=PIPE, stdout=PIPE, stderr=log, env=environment, start_new_session=True
                )
        assert process.stdin is not None, "it is a pipe"
        process.stdin.write(msgspec.json.encode(self.spec.order) + b"\n")
        return process

    async def _live(self, process: asyncio.subprocess.Process) -> None:
        """Follows the process from its start to its end."""
        assert process.stdout is not None, "it is a pipe"
        line = await process.stdout.readline()
        if line:
            self.address = line.decode().strip()
            if self.state is NodeState.STARTING:
                self._become(NodeState.SERVING)
            self._served.set()
        if line and await process.stdout.readline() == f"{LEFT}\n".encode():
            self.has_left = True
            self._on_changed(self, None)
        code = await process.wait()
        was = self.state
        ended = NodeState.KILLED if code == -signal.SIGKILL else NodeState.STOPPED if code == 0 else NodeState.FAILED
        self.exit_text = "was killed (SIGKILL)" if code == -signal.SIGKILL else _ended_by(code)
        served = self._served.is_set()
        self._become(ended, f"node {self.node_id} {self.exit_text}" if served and was is not NodeState.STOPPING else None)
        self._served.set()

    def _become(self, state: NodeState, said: str | None = None) -> None:
        self.state = state
        self._on_changed(self, said)


def _ended_by(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def node_command(module: str, *words: str) -> list[str]:
    """Returns this interpreter with that module, whatever is in the working directory. The words are for the list of processes."""
    return [sys.executable, "-P", "-m", module, *words]
