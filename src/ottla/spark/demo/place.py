"""Where the main job keeps its data, and the cluster that serves it.

A directory is ours when it has our mark; only then is it emptied. The mark is also a lock: of two jobs in one directory the second is
refused. The cluster is that of ``ottla cluster start``: three brokers, each a process, and their supervisor, in a process group of its own,
so that a Ctrl-C at the terminal reaches the job alone, which stops them in order. ``ottla cluster status --data`` shows them meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from ottla.runtime.supervision.control import NoSupervisor, Order, ask_supervisor

MARK: Final = ".ottla-demo"
BROKER_COUNT: Final = 3
START_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 60
_POLL_S: Final = 0.02
_BROKER: Final = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


class PlaceError(RuntimeError):
    """The directory cannot be used, or no broker starts in it."""


def default_directory() -> Path:
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "ottla" / "demo"


@contextlib.contextmanager
def held(directory: Path, *, keep: bool) -> Iterator[Path]:
    """Holds the directory, which no other run uses meanwhile; it is emptied but for the mark, unless its content is to be kept."""
    directory.mkdir(parents=True, exist_ok=True)
    mark = directory / MARK
    if not mark.exists() and any(directory.iterdir()):
        raise PlaceError(f"{directory} has files that are not of this job; name an empty or new directory with --data")
    with mark.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlaceError(f"another run is using {directory}; wait for its end, or name another directory with --data") from None
        if keep and (directory / "broker").exists():
            raise PlaceError(f"{directory} has the data of a single broker, of an earlier version; run without --keep to begin again")
        if not keep:
            stop_left_behind(directory / "cluster")
            for entry in directory.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
                elif entry != mark:
                    entry.unlink()
        yield directory


class Brokers:
    """Three brokers on the directory's data; a context manager that stops them in order. Port 0 chooses free ports."""

    def __init__(self, directory: Path, *, port: int = 0) -> None:
        self.place = directory / "cluster"
        self.log = directory / "cluster.log"
        self._port = port
        self._supervisor: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""

    def __enter__(self) -> Brokers:
        stop_left_behind(self.place)
        command = [sys.executable, "-m", "ottla", "cluster", "start", "--json", "--log-level", "warning", "--data", str(self.place)]
        command += ["--nodes", str(BROKER_COUNT), "--port", str(self._port)]
        for key, value in _BROKER.items():
            command += ["-X", f"{key}={value}"]
        with self.log.open("ab") as log:
            self._supervisor = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, process_group=0)
        try:
            self.bootstrap = msgspec.json.decode(self._first_line(self._supervisor), type=_Served).bootstrap
        except BaseException:
            self.stop()
            raise
        return self

    def _first_line(self, supervisor: subprocess.Popen[bytes]) -> bytes:
        """Returns what the supervisor says when clients are served. PlaceError when it ends before that, or takes too long."""
        assert supervisor.stdout is not None, "it is a pipe"
        line, deadline = b"", time.monotonic() + START_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(supervisor.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                chunk = os.read(supervisor.stdout.fileno(), 1 << 16) if selector.select(deadline - time.monotonic()) else b""
                if not chunk:
                    raise PlaceError(f"the brokers do not start; the end of {self.log}:\n{self.log.read_text(errors='replace')[-2000:]}")
                line += chunk
        return line

    def kill(self, broker: int) -> None:
        """Kills the broker's process, by SIGKILL."""
        self._order("kill", broker)

    def restart(self, broker: int) -> None:
        """Starts the broker again."""
        self._order("restart", broker)

    def _order(self, command: str, broker: int) -> None:
        answer = ask_supervisor(str(self.place), Order(command, broker))
        if answer.error is not None:
            raise PlaceError(f"{command} of broker {broker}: {answer.error}")

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops all brokers: nodes whose supervisor has ended end by themselves."""
        if self._supervisor is None or self._supervisor.returncode is not None:
            return
        self._supervisor.send_signal(signal.SIGTERM)
        try:
            self._supervisor.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        assert self._supervisor.stdout is not None, "it is a pipe"
        self._supervisor.stdout.close()


class _Served(msgspec.Struct):
    """The line that ``ottla cluster start --json`` prints."""

    bootstrap: str


def stop_left_behind(place: Path) -> None:
    """Stops the supervisor of a job that was killed here."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            ask_supervisor(str(place), Order("stop"))
        except NoSupervisor:
            return
        time.sleep(_POLL_S)
    raise PlaceError(
        f"the brokers of an earlier run still use {place}; stop them with: ottla cluster stop --data {shlex.quote(str(place))}"
    )
