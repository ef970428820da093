"""The prompt of ``ottla sql``, at a terminal. Without Spark: the names of topics take none."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from ottla.runtime.serve import BrokerThread

UP = b"\x1b[A"
SECONDS_MAX = 60


def test_an_earlier_statement_comes_back_with_the_arrow_key(tmp_path: Path) -> None:
    """The prompt had no lines to edit: an arrow key was four letters in the next statement."""
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "broker")}) as broker:
        terminal, end = pty.openpty()
        command = [sys.executable, "-m", "ottla", "sql", "-B", broker.bootstrap]
        process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=os.environ | {"TERM": "xterm"}, start_new_session=True)
        os.close(end)
        try:
            said = read_until(terminal, b"ottla> ", 1)
            for typed in (b"show tables;\n", UP + b"\n"):
                os.write(terminal, typed)
                said += read_until(terminal, b"ottla> ", 1)
            assert said.count(b"TABLE\r\n") == 2, said
        finally:
            process.kill()
            process.wait()
            os.close(terminal)


def read_until(terminal: int, text: bytes, count: int) -> bytes:
    """Returns what the terminal shows until it has the text so many times."""
    found, end_s = b"", time.monotonic() + SECONDS_MAX
    while found.count(text) < count:
        assert select.select([terminal], [], [], end_s - time.monotonic())[0], found
        found += os.read(terminal, 4096)
    return found
