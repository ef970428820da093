"""How long three nodes are without a controller, and partitions without acknowledgements, after kill -9, on default timeouts.

``python -m bench.failover [KILLS [OTHER_KILLS]]``. First the active controller is killed under a stream of changes; what is acknowledged is
checked as in tests/cluster/test_killing.py. Then leaders of partitions are killed, every third time the active controller: librdkafka
with its defaults sends with acks=all to six partitions of three replicas, min.insync.replicas=2. The gap of a partition is the time from
the kill to the acknowledgement of a record that was sent after it. Between two kills librdkafka's reconnect backoff passes (10 s at most),
or the client would shun the new leader for having died a moment ago. OTHER_KILLS are those of three nodes of Apache Kafka 4.3, beside it
where Java and Maven are there, and of nodes in ZooKeeper mode, with sessions of 18 s.

``python -m bench.failover quick [KILLS [SECONDS]]``: the leader of one partition is killed, and the next one so many seconds (0)
after the killed one is in sync again, in both homes. librdkafka backs off from a broker for up to 10 s after a connection that was refused,
and doubles that each time unless more than 10 s have passed: whoever leads next should be the one that was killed the longest ago.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Final

import confluent_kafka
from tests.cluster.killing import run
from tests.waiting import eventually

from bench.clusters import NODES, Cluster, kafka_cluster, ottla_cluster, zookeeper_cluster
from bench.goals import FAILOVER_GOALS
from bench.measures import Figures
from bench.peers import Kafka
from bench.report import note, report
from ottla.errors import KafkaError
from ottla.sync import Admin, NewTopic

KILLS: Final = 20
QUICK_KILLS: Final = 30
TOPIC: Final = "failover"
PARTITIONS: Final = 6
PERIOD_SECONDS: Final = 0.005
GAP_SECONDS_MAX: Final = 60
BACKOFF_SECONDS: Final = 11


class Stream(threading.Thread):
    """A record to each of so many partitions every 5 ms. ``gaps`` are those since ``watch`` was called, by partition, in seconds."""

    def __init__(self, bootstrap: str, partitions: int = PARTITIONS) -> None:
        super().__init__(daemon=True)
        self._partitions = range(partitions)
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
        self._stopping = threading.Event()
        self._since = float("inf")
        self.gaps: dict[int, float] = {}
        self.failures: list[str] = []

    def watch(self, since: float) -> None:
        self.gaps = {}
        self._since = since

    def run(self) -> None:
        while not self._stopping.is_set():
            sent_at = time.monotonic()
            for partition in self._partitions:
                self._producer.produce(TOPIC, b"x" * 100, partition=partition, on_delivery=partial(self._note, partition, sent_at))
            while (left := sent_at + PERIOD_SECONDS - time.monotonic()) > 0:
                self._producer.poll(left)

    def _note(self, partition: int, sent_at: float, error: object, _: object) -> None:
        if error is not None:
            self.failures.append(str(error))
        elif sent_at >= self._since and partition not in self.gaps:
            self.gaps[partition] = time.monotonic() - self._since

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._producer.flush(GAP_SECONDS_MAX)


def leader_of_each(admin: Admin) -> dict[int, int]:
    return {index: found.leader for index, found in admin.describe_topic(TOPIC).partitions.items()}


def is_settled(admin: Admin) -> bool:
    """All replicas are in sync, and every node leads its share."""
    try:
        found = admin.describe_topic(TOPIC).partitions
        if len(found) < PARTITIONS or any(len(one.in_sync) < len(NODES) for one in found.values()):
            return False
        if sorted(one.leader for one in found.values()) == sorted(2 * NODES):
            return True
        admin.elect_leaders()
    except KafkaError:
        pass
    return False


def wait_for_gaps(stream: Stream, partitions: int = PARTITIONS) -> dict[int, float]:
    return eventually(lambda: dict(stream.gaps), lambda found: len(found) == partitions)


def measure(cluster: Cluster, kill_count: int) -> Figures:
    """The gaps of the partitions that the killed nodes led, in ms, by what was killed."""
    led: dict[bool, list[float]] = {True: [], False: []}  # by whether the active controller was killed
    until_all: list[float] = []
    with Admin(cluster.bootstrap) as admin:
        topic = NewTopic(TOPIC, PARTITIONS, len(NODES), configs={"min.insync.replicas": "2"})
        eventually(lambda: admin.create_topics([topic])[TOPIC], lambda error: error is None)
        eventually(partial(is_settled, admin), bool)
        stream = Stream(cluster.bootstrap)
        stream.watch(time.monotonic())
        stream.start()
        wait_for_gaps(stream)
        for number in range(kill_count):
            active = cluster.active(admin)
            is_active = number % 3 == 2
            victim = active if is_active else [node for node in NODES if node != active][number % 2]
            leaders = leader_of_each(admin)
            killed_at = time.monotonic()
            stream.watch(killed_at)
            cluster.kill(victim)
            gaps = wait_for_gaps(stream)
            led[is_active] += [1000 * gap for index, gap in gaps.items() if leaders[index] == victim]
            until_all.append(1000 * max(gaps.values()))
            note(f"{cluster.name}: kill {number + 1}, {'the controller' if is_active else 'a broker'}, {until_all[-1]:.0f} ms")
            cluster.start(victim)
            time.sleep(BACKOFF_SECONDS)
            eventually(partial(is_settled, admin), bool)
        stream.stop()
    sys.stdout.write(f"{cluster.name}: {kill_count} kills, {len(stream.failures)} records failed\n")
    both = led[True] + led[False]
    figures = {
        "failover p50, ms": statistics.median(both),
        "failover p99, ms": percentile_99(both),
        "failover, longest, ms": max(both),
        "until all six partitions, p50, ms": statistics.median(until_all),
    }
    return figures | ({"failover of a controller p50, ms": statistics.median(led[True])} if led[True] else {})


def measure_quick(cluster: Cluster, kill_count: int, pause_seconds: float = 0.0) -> list[float]:
    """The gaps of one partition, in ms, whose leader is killed whenever all three replicas are in sync."""
    gaps: list[float] = []
    with Admin(cluster.bootstrap) as admin:

        def leader() -> int:
            """-1 while a replica is missing."""
            try:
                partition = admin.describe_topic(TOPIC).partitions[0]
            except (KafkaError, KeyError):
                return -1
            return partition.leader if len(partition.in_sync) == len(NODES) else -1

        topic = NewTopic(TOPIC, 1, len(NODES), configs={"min.insync.replicas": "2"})
        eventually(lambda: admin.create_topics([topic])[TOPIC], lambda error: error is None)
        eventually(leader, lambda found: found > 0)
        stream = Stream(cluster.bootstrap, 1)
        stream.watch(time.monotonic())
        stream.start()
        wait_for_gaps(stream, 1)
        for number in range(kill_count):
            eventually(leader, lambda found: found > 0)
            time.sleep(pause_seconds)
            victim = eventually(leader, lambda found: found > 0)
            stream.watch(time.monotonic())
            cluster.kill(victim)
            gaps.append(1000 * wait_for_gaps(stream, 1)[0])
            note(f"{cluster.name}: kill {number + 1} of node {victim}, {gaps[-1]:.0f} ms")
            cluster.start(victim)
        stream.stop()
    above = [round(gap) for gap in gaps if gap > 1000]
    p90 = sorted(gaps)[-(kill_count // 10) - 1]
    figures = f"p50 {statistics.median(gaps):.0f} ms, p90 {p90:.0f} ms, longest {max(gaps):.0f} ms, above 1 s: {above}"
    sys.stdout.write(f"{cluster.name}: {kill_count} kills in quick succession: {figures}, {len(stream.failures)} records failed\n")
    return gaps


def percentile_99(values: list[float]) -> float:
    """The smallest value that 99 of 100 do not exceed."""
    return sorted(values)[-(-99 * len(values) // 100) - 1]


def main() -> None:
    if sys.argv[1:2] == ["quick"]:
        for made in (ottla_cluster, zookeeper_cluster):
            with made() as cluster:
                measure_quick(
                    cluster,
                    int(sys.argv[2]) if len(sys.argv) > 2 else QUICK_KILLS,
                    float(sys.argv[3]) if len(sys.argv) > 3 else 0.0,
                )
        return
    kill_count = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    other_count = int(sys.argv[2]) if len(sys.argv) > 2 else kill_count
    with tempfile.TemporaryDirectory() as directory:
        sys.stdout.write(f"{run(Path(directory), kill_count=kill_count)}\n")
    why_not = Kafka.why_not()
    with ottla_cluster() as cluster:
        figures = {cluster.name: [measure(cluster, kill_count)]}
    if why_not is None:
        with kafka_cluster() as cluster:
            figures[cluster.name] = [measure(cluster, other_count)]
    report("failover", figures, beside=why_not or "three nodes of Apache Kafka 4.3.0", goals=FAILOVER_GOALS)
    with zookeeper_cluster() as cluster:
        figures = {cluster.name: [measure(cluster, other_count)]}
    report("failover-zookeeper", figures, beside="none", goals=FAILOVER_GOALS)


if __name__ == "__main__":
    main()
