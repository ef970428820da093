"""A Java program that a test starts, reads and kills."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

STEP_SECONDS_MAX = 120.0


class JavaProcess:
    """A program, with what it says in a file. ``with JavaProcess(...) as it:`` kills it at the end."""

    def __init__(self, command: list[str], said: Path) -> None:
        self._file = said
        with said.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=said.parent)

    def __enter__(self) -> JavaProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def kill(self) -> None:
        """As by kill -9."""
        self._process.kill()
        self._process.wait()

    @property
    def said(self) -> str:
        return self._file.read_text(errors="replace")

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait_until_said(self, words: str) -> None:
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while words not in self.said:
            assert not self.has_ended, self.said[-4000:]
            assert time.monotonic() < deadline, (words, self.said[-4000:])
            time.sleep(0.1)

    def wait_until_ended(self, seconds_max: float) -> str:
        self._process.wait(seconds_max)
        return self.said
