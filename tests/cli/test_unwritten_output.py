"""Standard output that cannot be written: a disk without room, a terminal that has closed, a reader that does not read."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.cli import main
from ottla.runtime.serve import BrokerThread
from ottla.sync import Producer


def at_a_closed_terminal(*arguments: str) -> subprocess.CompletedProcess[str]:
    master, slave = pty.openpty()
    os.close(master)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as a user has it: output is buffered
    command = [sys.executable, "-m", "ottla", *arguments]
    try:
        return subprocess.run(command, stdout=slave, stderr=subprocess.PIPE, env=environment, text=True, timeout=60, check=False)
    finally:
        os.close(slave)


@pytest.mark.parametrize("arguments", [("--version",), ("config", "keys")])
def test_a_terminal_that_has_closed_is_one_line_and_exit_code_1(arguments: tuple[str, ...]) -> None:
    """It was a traceback of some fifty lines, as what could not be written was tried again."""
    done = at_a_closed_terminal(*arguments)
    assert (done.returncode, done.stderr) == (1, "ottla: standard output could not be written: Input/output error\n")


def test_records_that_a_closed_terminal_does_not_show_stay_the_groups(tmp_path: Path) -> None:
    """They were committed: of the next member they were missing."""
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker:
        with Producer(broker.bootstrap) as producer:
            for value in (b"one", b"two"):
                producer.send("orders", value)
        consume = ("consume", "orders", "-g", "readers", "-n", "2", "-B", broker.bootstrap)
        done = at_a_closed_terminal(*consume)
        assert (done.returncode, done.stderr) == (1, "ottla: standard output could not be written: Input/output error\n")
        command = [sys.executable, "-m", "ottla", *consume]
        again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (again.returncode, again.stdout, again.stderr) == (0, "one\ntwo\n", "")


class Stopped(io.FileIO):
    """A reader that does not read: each write is broken off by a Ctrl-C."""

    def write(self, _data: Any) -> int:
        raise KeyboardInterrupt


def test_a_second_ctrl_c_ends_a_command_whose_reader_does_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a traceback: the last flush was not expected to be broken off."""
    output = io.TextIOWrapper(cast(Any, io.BufferedWriter(Stopped(tmp_path / "output", "w"))))
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "argv", ["ottla", "--version"])
    with pytest.raises((SystemExit, KeyboardInterrupt)) as end:
        main.main()
    assert repr(end.value) == "SystemExit(130)"
    assert os.fstat(output.fileno()).st_rdev == os.stat(os.devnull).st_rdev, "Python would wait for the reader again at its end"
    monkeypatch.setattr(Stopped, "write", io.FileIO.write)


def test_the_last_of_the_output_that_cannot_be_written_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(io.FileIO):
        def write(self, _data: Any) -> int:
            raise OSError(28, "No space left on device")

    output = io.TextIOWrapper(cast(Any, io.BufferedWriter(Full(tmp_path / "output", "w"))))
    output.write("what a command has left in the buffer")
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(main, "_run", lambda: sys.exit(0))
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 1
    assert capsys.readouterr().err == "ottla: standard output could not be written: No space left on device\n"
    monkeypatch.setattr(Full, "write", io.FileIO.write)
