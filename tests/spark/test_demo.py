"""``ottla demo`` as a process: interrupted, resumed, ended."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark.demo.flights import Flights
from ottla.spark.demo.place import MARK, BrokerProcess, PlaceError, held
from ottla.spark.demo.results import read_results
from ottla.spark.demo.sending import FLIGHTS, FlightSender, create_topics, end_offsets

RECORDS = 4_000


class Demo:
    """The command, in a session of its own so that all its descendants are known."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-u", "-m", "ottla", "demo", "--data", str(folder), "--records", str(RECORDS), *arguments]
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
        while descendants(self.process.pid):
            os.sched_yield()  # the test's time limit is the end of this
        return code


def descendants(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it has just ended
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_interrupted_run_ends_everything_and_a_kept_one_resumes_from_it(tmp_path: Path):
    demo = Demo(tmp_path)
    demo.read_until("broker ")
    demo.interrupt()  # while the flights are read, or Spark starts
    assert demo.end() == 130, demo.output
    assert "--keep" in demo.output
    assert "Traceback" not in demo.output

    demo = Demo(tmp_path)
    demo.read_until("flights    [")
    demo.interrupt()  # while flights are sent and the query starts
    assert demo.end() == 130, demo.output
    assert "Traceback" not in demo.output

    demo = Demo(tmp_path, "--keep")
    assert demo.end() == 0, demo.output
    assert f"sent       {RECORDS:,} of {RECORDS:,} flights" in demo.output
    assert re.search(rf"read +{RECORDS:,} by Spark", demo.output)
    assert "every flight is accounted for" in demo.output
    with BrokerProcess(tmp_path) as broker:
        assert sum(end_offsets(broker.bootstrap, FLIGHTS)) == RECORDS
        results = read_results(broker.bootstrap, since_ms=0)
    assert results.flight_count == RECORDS - Flights(RECORDS).cancelled_count()


def test_a_sender_that_was_stopped_leaves_the_rest_to_the_next(tmp_path: Path):
    flights = Flights(30_000)
    with BrokerProcess(tmp_path) as broker:
        create_topics(broker.bootstrap)
        first = FlightSender(broker.bootstrap, flights, end_offsets(broker.bootstrap, FLIGHTS))
        first.start()
        while first.sent_count < 1_000:
            first.join(0.01)
        first.stop()
        assert first.error is None
        stored = end_offsets(broker.bootstrap, FLIGHTS)
        assert sum(stored) == first.sent_count < 30_000
    with BrokerProcess(tmp_path) as broker:  # all of it survives the broker
        create_topics(broker.bootstrap)
        second = FlightSender(broker.bootstrap, flights, end_offsets(broker.bootstrap, FLIGHTS))
        assert second.sent_before == first.sent_count
        second.start()
        second.join()
        assert second.error is None
        assert sum(end_offsets(broker.bootstrap, FLIGHTS)) == second.sent_count == 30_000


def test_a_fresh_run_empties_its_own_directory_only(tmp_path: Path):
    ours, foreign = tmp_path / "ours", tmp_path / "foreign"
    with held(ours, keep=False):
        (ours / "broker").mkdir()
        (ours / "broker.log").write_text("old")
    with held(ours, keep=True):
        assert (ours / "broker").exists()
    with held(ours, keep=False):
        assert [entry.name for entry in ours.iterdir()] == [MARK]
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("precious")
    with pytest.raises(PlaceError, match="--data"), held(foreign, keep=False):
        pass
    assert (foreign / "thesis.txt").read_text() == "precious"


def test_a_second_run_in_the_same_directory_is_refused(tmp_path: Path):
    with held(tmp_path, keep=False), pytest.raises(PlaceError, match="another run"), held(tmp_path, keep=False):
        pass


def test_a_broker_that_cannot_start_says_why(tmp_path: Path):
    (tmp_path / "broker").write_text("a file where the folder should be")
    with pytest.raises(PlaceError, match=r"broker\.log"), BrokerProcess(tmp_path):
        pass
