"""``ottla demo`` as a process: interrupted, resumed, ended. What is killed meanwhile: tests/torture/test_demo_kills.py."""

import re
import shutil
from pathlib import Path

import pytest
from tests.cli.cluster_command import consecutive_ports
from tests.spark.demo_process import PORTS, RECORDS, Demo, descendants, expected_table

from ottla.spark.demo.drill import KillDrill
from ottla.spark.demo.flights import Flights
from ottla.spark.demo.place import BROKER_COUNT, MARK, Brokers, PlaceError, held, stop_left_behind
from ottla.spark.demo.sending import FLIGHTS, MIN_IN_SYNC, TOPICS, TYPED_WRONG, FlightSender, create_topics, end_offsets
from ottla.sync import Admin, Topic


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_interrupted_run_ends_everything_and_a_kept_one_resumes_from_it(tmp_path: Path):
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
    demo = Demo(tmp_path, RECORDS, "--keep")
    assert demo.end() == 0, demo.output
    assert f"sent       {RECORDS:,} of {RECORDS:,} flights" in demo.output
    assert re.search(rf"read +{RECORDS:,} by Spark", demo.output)
    assert "every flight is accounted for" in demo.output
    assert f"unreadable {len(TYPED_WRONG)} records" in demo.output
    assert expected_table(RECORDS) in demo.output


@pytest.mark.slow
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
