"""``ottla demo`` as a process: interrupted, resumed, ended; and with a broker that is killed meanwhile."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.cluster_command import consecutive_ports

from ottla.spark.demo.drill import KillDrill
from ottla.spark.demo.flights import Flights, airlines
from ottla.spark.demo.place import BROKER_COUNT, MARK, Brokers, PlaceError, held, stop_left_behind
from ottla.spark.demo.results import Result, Results, table
from ottla.spark.demo.sending import FLIGHTS, MIN_IN_SYNC, TOPICS, TYPED_WRONG, FlightSender, create_topics, end_offsets
from ottla.sync import Admin, Topic

RECORDS = 4_000
PORTS = 2 * BROKER_COUNT


class Demo:
    """The command, in a session of its own so that all its descendants are known."""

    def __init__(self, folder: Path, count: int, *arguments: str) -> None:
        command = [sys.executable, "-u", "-m", "ottla", "demo", "--data", str(folder), "--records", str(count)]
        command += ["--port", str(consecutive_ports(PORTS)), *arguments]
        self.folder = folder
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
        while descendants(self.process.pid, self.folder):
            os.sched_yield()  # the test's time limit is the end of this
        return code


def descendants(session: int, folder: Path) -> list[int]:
    """Processes of the session, and brokers of the directory, each of which has a session of its own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it has just ended
            if fields[0] != "Z" and (int(fields[3]) == session or os.fsencode(folder / "cluster") in words):
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


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_interrupted_run_ends_everything_and_a_kept_one_resumes_from_it_whatever_broker_is_killed(tmp_path: Path):
    demo = Demo(tmp_path, RECORDS)
    demo.read_until("brokers ")
    demo.interrupt()  # while the flights are read, or Spark starts
    assert demo.end() == 130, demo.output
    assert "--keep" in demo.output
    assert "Traceback" not in demo.output

    demo = Demo(tmp_path, RECORDS // 2)
    demo.read_until("flights    [")
    demo.interrupt()  # while flights are sent and the query starts
    assert demo.end() == 130, demo.output
    assert "Traceback" not in demo.output

    shutil.rmtree(tmp_path / "checkpoint", ignore_errors=True)  # it comes back from its topics
    demo = Demo(tmp_path, RECORDS, "--keep", "--kill")
    assert demo.end() == 0, demo.output
    assert f"sent       {RECORDS:,} of {RECORDS:,} flights" in demo.output
    assert re.search(rf"read +{RECORDS:,} by Spark", demo.output)
    assert "every flight is accounted for" in demo.output
    assert f"unreadable {len(TYPED_WRONG)} records" in demo.output
    assert expected_table(RECORDS) in demo.output
    said = re.search(r"kill +broker (\d) got SIGKILL after ([\d,]+) flights; it led (.*)\n +now led: (.*)\n +(.*)\n", demo.output)
    assert said is not None, demo.output
    victim, sent, led, now_led, pause = said.groups()
    assert 0 < int(sent.replace(",", "")) < RECORDS
    assert f"{FLIGHTS}-" in led
    assert f"broker {victim}" not in now_led
    assert sorted(re.findall(r"\w+-\d", now_led)) == sorted(re.findall(r"\w+-\d", led))
    assert re.fullmatch(r"[\d,]+ ms from the kill to the next acknowledged flight of these partitions", pause)
    assert re.search(rf"return +broker {victim} was started .* in the ISR of all 13 partitions [\d,]+ ms later", demo.output), demo.output
    assert "kill       a Python worker of Spark got SIGKILL" in demo.output
    gone = demo.output.index("kill       Spark's JVM got SIGKILL, and the directories of the checkpoints were removed")
    back = re.search(r"Spark and its queries run again [\d,]+ ms later, with (\d+) files of their checkpoints from the topics", demo.output)
    assert back is not None
    assert back.start() > gone
    assert int(back[1]) > 10, "state, offsets and commits of two queries"
    assert f"node {victim} was killed (SIGKILL)" in (tmp_path / "cluster.log").read_text()


def test_a_sender_that_was_stopped_leaves_the_rest_to_the_next_and_a_drill_takes_what_is_left(tmp_path: Path):
    with held(tmp_path, keep=False), Brokers(tmp_path, port=consecutive_ports(PORTS)) as brokers:
        create_topics(brokers.bootstrap)
        first = FlightSender(brokers.bootstrap, Flights(30_000), end_offsets(brokers.bootstrap, FLIGHTS))
        first.start()
        while first.sent_count < 1_000:
            first.join(0.01)
        first.stop()
        assert first.error is None
        stored = end_offsets(brokers.bootstrap, FLIGHTS)
        assert sum(stored) == first.sent_count < 30_000

        second = FlightSender(brokers.bootstrap, Flights(30_000), end_offsets(brokers.bootstrap, FLIGHTS))
        assert second.sent_before == first.sent_count
        second.start()
        second.join()
        assert second.error is None
        assert sum(end_offsets(brokers.bootstrap, FLIGHTS)) == second.sent_count == 30_000

        third = FlightSender(brokers.bootstrap, Flights(30_007), end_offsets(brokers.bootstrap, FLIGHTS))
        drill = KillDrill(brokers, third, 30_007)
        third.start()
        drill.start()
        drill.join()
        third.join()
        assert "and in the ISR of all 13 partitions" in list(drill.events())[-1]
        assert third.error is None
        assert sum(end_offsets(brokers.bootstrap, FLIGHTS)) == third.sent_count == 30_007
        with Admin(brokers.bootstrap) as admin:
            assert admin.describe_configs(Topic(FLIGHTS))["min.insync.replicas"].value == str(MIN_IN_SYNC)
            for topic in TOPICS:
                assert {len(found.replicas) for found in admin.describe_topic(topic).partitions.values()} == {BROKER_COUNT}

        stop_left_behind(brokers.place)  # as the next run does after this one was killed
        brokers.stop()  # the supervisor is waited for
        assert not descendants(-1, tmp_path)


def test_a_fresh_run_empties_its_own_directory_only(tmp_path: Path):
    ours, foreign = tmp_path / "ours", tmp_path / "foreign"
    with held(ours, keep=False):
        (ours / "cluster").mkdir()
        (ours / "cluster.log").write_text("old")
    with held(ours, keep=True):
        assert (ours / "cluster").exists()
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


def test_brokers_that_cannot_start_say_why(tmp_path: Path):
    (tmp_path / "cluster").write_text("a file where the directory should be")
    with pytest.raises(PlaceError, match=r"cluster\.log"), Brokers(tmp_path):
        pass


def test_data_of_a_single_broker_is_not_resumed(tmp_path: Path):
    with held(tmp_path, keep=False):
        (tmp_path / "broker").mkdir()
    with pytest.raises(PlaceError, match="without --keep"), held(tmp_path, keep=True):
        pass
