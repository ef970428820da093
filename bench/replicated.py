"""Three nodes beside three nodes of Apache Kafka: replication factor 3, min.insync.replicas=2, acks=all.

Three librdkafka producers with their defaults (unkeyed records go to one partition for 10 ms, then to another) send records of 1 KiB.
Processor time is that of all three nodes. ``python -m bench.replicated`` runs it; the cluster that is not measured is idle, and rounds are
interleaved. All six nodes and the producers share the machine: what binds is its cores, as it is for three nodes in a test. So the
producers' own time is told, too, and what they could send at most if the nodes cost nothing: no ratio can be larger.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka
from tests.waiting import eventually

from bench.clusters import NODES, Cluster, kafka_cluster, ottla_cluster
from bench.generator import produce_frame, round_trips
from bench.goals import REPLICATED_GOALS
from bench.measures import RECORD_BYTES, Figures
from bench.page_cache import fill
from bench.peers import Kafka
from bench.report import Rounds, note, report
from ottla.errors import KafkaError
from ottla.sync import Admin, NewTopic

ROUNDS: Final = 3
WARMING_ROUNDS: Final = 1
"""The compiler of a JVM goes on to improve its code for some more, by some percent a round."""
SECONDS: Final = 6.0
TRIPS: Final = 3000
FEW, MANY = 6, 600
JOIN_SECONDS_MAX: Final = 60
PRODUCERS: Final = 3
VALUE: Final = (b"a field and another field, " * 40)[:1024]
QUEUED_MAX: Final = 100_000


def topic_of(partitions: int, number: int) -> str:
    return f"replicated-{partitions}-{number}"


def remove(cluster: Cluster, number: int) -> None:
    """The next round has the disk space of this one."""
    with Admin(cluster.bootstrap, request_timeout_ms=30_000) as admin:
        admin.delete_topics([topic_of(count, number) for count in (FEW, MANY)])


def prepare(cluster: Cluster, number: int) -> None:
    """The topics of the round are there, every partition with a leader and three replicas in sync."""
    configs = {"min.insync.replicas": "2", "file.delete.delay.ms": "1000"}
    topics = [NewTopic(topic_of(count, number), count, len(NODES), configs=configs) for count in (FEW, MANY)]
    with Admin(cluster.bootstrap, request_timeout_ms=30_000) as admin:
        results = admin.create_topics(topics)
        assert not any(results.values()), results

        def is_in_sync() -> bool:
            try:
                found = [admin.describe_topic(topic_of(count, number)).partitions for count in (FEW, MANY)]
            except KafkaError:  # the broker that is asked does not know of it yet
                return False
            return all(len(one.in_sync) == len(NODES) for partitions in found for one in partitions.values())

        eventually(is_in_sync, bool)


class Produced(NamedTuple):
    """Records a second that were acknowledged, and the processor time for a GB of values: of the nodes, and of the producers."""

    rate: float
    nodes: float
    producers: float

    @property
    def rate_max(self) -> float:
        """Records a second that these producers could send with all cores to themselves."""
        return (os.cpu_count() or 1) / self.producers * 1e9 / len(VALUE)


def produced(cluster: Cluster, topic: str, codec: str) -> Produced:
    """What three producers send in some seconds."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(PRODUCERS + 1), context.Queue()
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "acks": "all",
        "compression.type": codec,
        "queue.buffering.max.messages": QUEUED_MAX,
        "delivery.report.only.error": True,
    }
    producers = [context.Process(target=_produce, args=(settings, topic, barrier, results)) for _ in range(PRODUCERS)]
    for process in producers:
        process.start()
    barrier.wait(JOIN_SECONDS_MAX)
    cpu = cluster.cpu_seconds()
    found = [results.get(timeout=SECONDS + JOIN_SECONDS_MAX) for _ in producers]
    used = cluster.cpu_seconds() - cpu
    for process in producers:
        process.join()
    count = sum(count for count, _, _ in found)
    gigabytes = count * len(VALUE) / 1e9
    return Produced(count / max(seconds for _, seconds, _ in found), used / gigabytes, sum(own for _, _, own in found) / gigabytes)


def _produce(settings: dict[str, Any], topic: str, barrier: Barrier, results: multiprocessing.Queue[tuple[int, float, float]]) -> None:
    failures: list[object] = []
    producer = confluent_kafka.Producer(settings | {"on_delivery": lambda error, _: failures.append(error)})
    producer.list_topics(topic, JOIN_SECONDS_MAX)
    count = 0
    barrier.wait(JOIN_SECONDS_MAX)
    begin, used = time.perf_counter(), time.process_time()
    while time.perf_counter() < begin + SECONDS:
        try:
            for _ in range(100):
                producer.produce(topic, VALUE)
                count += 1
        except BufferError:
            producer.poll(0.005)
    assert producer.flush(JOIN_SECONDS_MAX) == 0, "every record was acknowledged"
    assert not failures, failures[0]
    results.put((count, time.perf_counter() - begin, time.process_time() - used))


def one_round(cluster: Cluster, number: int) -> Figures:
    few, many = topic_of(FEW, number), topic_of(MANY, number)
    figures: Figures = {}
    rates: dict[str, float] = {}
    for codec in ("none", "lz4"):
        found = produced(cluster, few, codec)
        rates[codec] = found.rate
        figures[f"RF 3, acks=all, librdkafka 1 KiB records/s, {codec}"] = found.rate
        figures[f"CPU s/GB, RF 3, {codec}"] = found.nodes
        figures[f"CPU s/GB of the producers, {codec}"] = found.producers
        figures[f"records/s, {codec}, if nodes cost nothing"] = found.rate_max
    figures["round trip p50 at RF 3, ms"], figures["round trip p99 at RF 3, ms"] = _round_trips(cluster, few)
    crowded = produced(cluster, many, "none").rate
    figures["600 partitions: records/s, none"] = crowded
    figures["600 partitions: rate, of that with 6"] = crowded / rates["none"]
    return figures


def _round_trips(cluster: Cluster, topic: str) -> tuple[float, float]:
    """Of one record at a time to the first partition's leader, until all three replicas have it."""
    with Admin(cluster.bootstrap) as admin:
        leader = admin.describe_topic(topic).partitions[0].leader
        address = next((node.host, node.port) for node in admin.describe_cluster().nodes if node.node_id == leader)
    return round_trips(address, produce_frame(topic, 0, batch_bytes=0, record_bytes=RECORD_BYTES, acks=-1), count=TRIPS)


def main() -> None:
    openings: list[AbstractContextManager[Cluster]] = [ottla_cluster()]
    why_not = Kafka.why_not()
    if why_not is None:
        openings.append(kafka_cluster())
    with ExitStack() as stack:
        clusters = [stack.enter_context(opening) for opening in openings]
        ballast = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "ballast"
        found: Rounds = {cluster.name: [] for cluster in clusters}
        for number in range(WARMING_ROUNDS + ROUNDS):
            for cluster in clusters:
                prepare(cluster, number)
                fill(ballast)
                figures = one_round(cluster, number)
                remove(cluster, number)
                if number >= WARMING_ROUNDS:
                    found[cluster.name].append(figures)
                note(f"replicated: {cluster.name}: {figures}")
            done, load = f"{number + 1} of {WARMING_ROUNDS + ROUNDS}", os.getloadavg()[0]
            note(f"replicated: round {done}, load average {load:.1f} of {os.cpu_count()} cores")
    beside = "three nodes of Apache Kafka 4.3.0, 1 GiB heap each, G1" if why_not is None else f"none: {why_not}"
    report("replicated", found, beside=beside, goals=REPLICATED_GOALS)


if __name__ == "__main__":
    main()
