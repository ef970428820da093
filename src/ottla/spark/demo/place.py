"""Where the main job keeps its data, and the broker that serves it.

A directory is ours when it has our mark; only then is it emptied. The mark is also a lock: of two jobs in one directory the second is
refused. The broker is a process of its own, so that it shares no interpreter with the sender, and in a process group of its own,
so that a Ctrl-C at the terminal reaches the job alone, which stops the broker in order.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MARK: Final = ".ottla-demo"
START_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 30
_BROKER: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


class PlaceError(RuntimeError):
    """The directory cannot be used, or no broker starts in it."""


def default_folder() -> Path:
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "ottla" / "demo"


@contextlib.contextmanager
def held(folder: Path, *, keep: bool) -> Iterator[Path]:
    """The directory exists and no other run uses it meanwhile; empty but for the mark, unless its content is to be kept."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / MARK
    if not mark.exists() and any(folder.iterdir()):
        raise PlaceError(f"{folder} has files that are not of this job; name an empty or new directory with --data")
    with mark.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlaceError(f"another run is using {folder}; wait for its end, or name another directory with --data") from None
        if not keep:
            for entry in folder.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
                elif entry != mark:
                    entry.unlink()
        yield folder


class BrokerProcess:
    """A broker on the directory's data; a context manager that stops it in order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""

    def __enter__(self) -> BrokerProcess:
        ready, log = self._folder / "broker.ready", self._folder / "broker.log"
        ready.unlink(missing_ok=True)
        settings = _BROKER | {"log.dirs": str(self._folder / "broker")}
        command = [sys.executable, "-m", "ottla", "broker", "start", "--ready-file", str(ready), "--log-level", "warning"]
        for key, value in settings.items():
            command += ["-X", f"{key}={value}"]
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0)
        try:
            self._wait_until(ready, log)
        except BaseException:
            self.stop()
            raise
        self.bootstrap = ready.read_text().strip()
        return self

    def _wait_until(self, ready: Path, log: Path) -> None:
        assert self._process is not None, "the broker was started"
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise PlaceError(f"the broker does not start; the end of {log}:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
