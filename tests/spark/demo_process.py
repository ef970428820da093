"""``ottla demo`` as a process, and the table that it should print."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.cluster_command import consecutive_ports

from ottla.spark.demo.flights import Flights, airlines
from ottla.spark.demo.place import BROKER_COUNT
from ottla.spark.demo.results import Result, Results, table

RECORDS = 4_000
PORTS = 2 * BROKER_COUNT


class Demo:
    """The command, in a session of its own so that all its descendants are known."""

    def __init__(self, directory: Path, count: int, *arguments: str) -> None:
        command = [sys.executable, "-u", "-m", "ottla", "demo", "--data", str(directory), "--records", str(count)]
        command += ["--port", str(consecutive_ports(PORTS)), *arguments]
        self.directory = directory
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.output = ""

    def read_until(self, word: str) -> None:
        """The output has the word."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            if word in line:
                return
        raise AssertionError(f"the command ended without saying {word!r}:\n{self.output}")

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)  # as a terminal does: to the whole group

    def end(self) -> int:
        """The exit code, once the command and all that it started have ended."""
        assert self.process.stdout is not None
        self.output += self.process.stdout.read()  # ends when no descendant has the pipe any more
        code = self.process.wait()
        while descendants(self.process.pid, self.directory):
            os.sched_yield()  # the test's time limit is the end of this
        return code


def descendants(session: int, directory: Path) -> list[int]:
    """Processes of the session, and brokers of the directory, each of which has a session of its own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it has just ended
            if fields[0] != "Z" and (int(fields[3]) == session or os.fsencode(directory / "cluster") in words):
                found.append(int(entry.name))
    return found


def expected_table(count: int) -> str:
    """Of so many flights, by another way than the pipeline's."""
    names = {key: json.loads(value)["name"] for key, value in airlines()}
    flights = Flights(count)
    delays: dict[tuple[str, str, str], list[int]] = {}
    for index in range(count):
        carrier, value = flights.record(index)
        flight = json.loads(value)
        if flight["dep_time"] is not None and flight["dep_delay"] is not None:
            delays.setdefault((flight["origin"], names[carrier], flight["time_hour"][:10]), []).append(flight["dep_delay"])
    results = Results()
    for key, found in delays.items():
        results.latest[repr(key).encode()] = Result(*key, sum(found) / len(found), len(found), 0)
    return "\n".join(table(results))
