"""A broker in a process of its own, which a test can stop, kill and start again on the same port and directory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

MISTAKES = ("request_failed", "Exception in callback", "Task exception was never retrieved", "was never awaited", "Traceback", "[critical")
"""What a broker's log has when it met something that it did not expect."""
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0

# Below the range that the kernel hands out for outgoing connections: a client that knocks while the broker is down could
# otherwise be given the broker's port as its own, be connected to itself, and keep the broker from coming back.
FIRST_PORT, LAST_PORT = 15_000, 30_000


def lasting_port() -> int:
    """A free port that no outgoing connection will take while its broker restarts."""
    [port] = lasting_ports(1)
    return port


def lasting_ports(count: int) -> list[int]:
    """So many of them."""
    span = LAST_PORT - FIRST_PORT
    ports: list[int] = []
    for step in range(span):
        port = FIRST_PORT + (os.getpid() * 37 + step) % span
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise RuntimeError("no free port")


class BrokerProcess:
    """``with BrokerProcess(directory) as broker:``; ended by its own process id."""

    host = "127.0.0.1"

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        command: Sequence[str] = (),
        module: str = "ottla",
        options: Sequence[str] = (),
        **properties: str,
    ) -> None:
        """Dots of a property are underscores here. ``command`` is a program that runs the interpreter, ``module`` what it runs.

        ``options`` are those of ``broker start``.
        """
        self.directory = directory
        self.data = directory / "data"
        self.log_file = directory / "broker.log"
        self.port = port
        self.command = command
        self.module = module
        self.options = options
        given = {key.replace("_", "."): value for key, value in properties.items()}
        self.properties = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"} | given
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        assert self.port, "the broker was started"
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Clients are served when this returns."""
        self.spawn()
        return self.wait_until_ready()

    def spawn(self) -> None:
        """The process is on its way: one of several that wait for each other."""
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        values = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}", "log.dirs": str(self.data)} | self.properties
        arguments = [*self.command, sys.executable, "-m", self.module, "broker", "start", "--ready-file", str(ready), *self.options]
        for key, value in values.items():
            arguments += ["-X", f"{key}={value}"]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(arguments, stdout=log, stderr=log)

    def wait_until_ready(self) -> Self:
        """Clients are served when this returns."""
        assert self._process is not None, "the process is on its way"
        ready = self.directory / "ready"
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready.exists():  # the file appears whole, by a rename
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the broker did not start:\n{self.log()}")
            time.sleep(0.002)
        self.port = int(ready.read_text().rsplit(":", 1)[1])
        return self

    def stop(self) -> None:
        """In order; the broker must end by itself, and without a failure."""
        self._end(signal.SIGTERM)
        assert self._process is not None, "the broker was started"
        assert self._process.returncode == 0, f"the broker ended with {self._process.returncode}:\n{self.log()}"

    def kill(self) -> None:
        """As by kill -9."""
        self._end(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the broker was started"
        self._process.send_signal(number)

    def restart(self) -> None:
        self.stop()
        self.start()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None, "the broker was started"
        self._process.send_signal(number)
        self._process.wait(STOP_SECONDS_MAX)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:  # nobody calls __exit__ after it
            if self.is_running:
                self.kill()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.is_running:
            self.kill() if error else self.stop()
        # Whatever the clients saw: the broker itself must have met nothing that it did not expect.
        assert error is not None or not any(sign in self.log() for sign in MISTAKES), self.log()
