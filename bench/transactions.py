"""Transactions of librdkafka (level 1) and of Kafka's Java producer (level 2) on one node and on three, ours and Apache Kafka's in turn.

``python -m bench.transactions [--seconds 15] [--rounds 3] [--nodes 1,3] [--peers ottla,kafka] [--clients librdkafka,java]``, each time
after a warm-up. Printed is of each figure the median over the rounds, and ours to theirs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

import confluent_kafka

from bench.clusters import kafka_cluster, ottla_cluster
from bench.peers import HERE, KAFKA_CLASSES, Kafka, Ottla, fetch_kafka
from ottla.sync import Admin, ErrorCode, KafkaError, NewTopic

PARTITIONS: Final = 3
WARM_SECONDS: Final = 4.0
WAIT_SECONDS: Final = 30.0
VALUE: Final = b"x" * 1024
LARGE: Final = 1_000
Figures = dict[str, float]
PACE_SECONDS: Final = 0.05
PACED_SECONDS: Final = 15.0
PACE: Final = f"{1 / PACE_SECONDS:.0f} a second"
BACK: Final = "last record at a read_committed consumer"


class Place(Protocol):
    """Brokers, of either kind."""

    @property
    def bootstrap(self) -> str: ...
    def cpu_seconds(self) -> float: ...


@contextmanager
def alone(name: str) -> Iterator[Place]:
    with Ottla() if name == "ottla" else Kafka() as peer:
        yield peer


@contextmanager
def three(name: str) -> Iterator[Place]:
    with ottla_cluster() if name == "ottla" else kafka_cluster() as cluster:
        yield cluster


PLACES: Final[dict[int, Callable[[str], AbstractContextManager[Place]]]] = {1: alone, 3: three}


def create(bootstrap: str, topic: str, replicas: int) -> None:
    until = time.monotonic() + WAIT_SECONDS
    with Admin(bootstrap) as admin:
        while True:
            try:
                problem = admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic]
            except KafkaError as error:
                problem = error
            if problem is None or problem.code == ErrorCode.TOPIC_ALREADY_EXISTS:  # of a try whose answer did not come in time
                return
            assert time.monotonic() < until, problem
            time.sleep(0.2)


def producer_of(bootstrap: str, name: str) -> confluent_kafka.Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(WAIT_SECONDS)
    return producer


def transact(producer: confluent_kafka.Producer, topic: str, records: int) -> float:
    """One transaction; how long its commit took, in seconds, once all its records were acknowledged."""
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)
    assert producer.flush(WAIT_SECONDS) == 0
    began = time.perf_counter()
    producer.commit_transaction(WAIT_SECONDS)
    return time.perf_counter() - began


def measure(place: Place, seconds: float, replicas: int) -> Figures:
    bootstrap = place.bootstrap
    create(bootstrap, "measured", replicas)
    producer = producer_of(bootstrap, "measuring")
    found: Figures = {}
    for records in (100, 1):
        warm = time.monotonic() + WARM_SECONDS
        while time.monotonic() < warm:
            transact(producer, "measured", records)
        began, commits, rounds, cpu = time.perf_counter(), list[float](), list[float](), place.cpu_seconds()
        while time.perf_counter() - began < seconds:
            at = time.perf_counter()
            commits.append(transact(producer, "measured", records))
            rounds.append(time.perf_counter() - at)
        found[f"transactions/s of {records} records"] = len(commits) / (time.perf_counter() - began)
        if records == 1:
            found["CPU ms of the brokers, one record"] = (place.cpu_seconds() - cpu) / len(commits) * 1000
            commits.sort()
            found["commit p50, ms"] = commits[len(commits) // 2] * 1000
            found["commit p99, ms"] = commits[len(commits) * 99 // 100] * 1000
            found["begin to begin, one record, p50, ms"] = statistics.median(rounds) * 1000
    found |= paced(producer)
    found |= way_back(bootstrap, producer, replicas)
    found |= rates(bootstrap, seconds, producer)
    return found


def paced(producer: confluent_kafka.Producer) -> Figures:
    """Commits at a pace that all keep up with: neither broker has more to do than the other."""
    commits, at = [], time.perf_counter()
    for _ in range(int(PACED_SECONDS / PACE_SECONDS)):
        commits.append(transact(producer, "measured", 1))
        at += PACE_SECONDS
        time.sleep(max(0.0, at - time.perf_counter()))
    commits.sort()
    return {
        f"commit p50, {PACE}, ms": commits[len(commits) // 2] * 1000,
        f"commit p99, {PACE}, ms": commits[len(commits) * 99 // 100] * 1000,
    }


def measure_java(place: Place, seconds: float, replicas: int) -> Figures:
    """The same of the Java producer, whose virtual machine is warm after ``WARM_SECONDS``."""
    fetch_kafka()
    create(place.bootstrap, "of-java", replicas)
    found: Figures = {}
    for records, pace in ((100, 0.0), (1, 0.0), (1, PACE_SECONDS)):
        program = ["java", "-cp", KAFKA_CLASSES, str(HERE / "java" / "Transact.java"), place.bootstrap]
        program += ["of-java", str(PARTITIONS), str(len(VALUE)), str(records), f"{WARM_SECONDS:.0f}"]
        program += [f"{PACED_SECONDS if pace else seconds:.0f}", f"{pace * 1000:.0f}"]
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as java:
            assert java.stdout is not None
            assert java.stdout.readline() == "begin\n"
            cpu = place.cpu_seconds()
            count, p50, p99, round_p50 = map(int, java.stdout.readline().removeprefix("end ").split())
            cpu = place.cpu_seconds() - cpu
        if pace:
            found |= {f"Java: commit p50, {PACE}, ms": p50 / 1000, f"Java: commit p99, {PACE}, ms": p99 / 1000}
            continue
        found[f"Java: transactions/s of {records} records"] = count / seconds
        if records == 1:
            found["Java: CPU ms of the brokers, one record"] = cpu / count * 1000
            found["Java: commit p50, ms"] = p50 / 1000
            found["Java: commit p99, ms"] = p99 / 1000
            found["Java: begin to begin, one record, p50, ms"] = round_p50 / 1000
    return found


def rates(bootstrap: str, seconds: float, producer: confluent_kafka.Producer) -> Figures:
    """Records a second in transactions of 1,000, and with acks=all and idempotence alone, in pieces that are as large, in turn."""
    plain = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})

    def piece() -> None:
        for number in range(LARGE):
            plain.produce("measured", VALUE, partition=number % PARTITIONS)
        assert plain.flush(WAIT_SECONDS) == 0

    spent = {True: 0.0, False: 0.0}
    counts = dict.fromkeys(spent, 0)
    until = time.monotonic() + WARM_SECONDS + 2 * seconds
    warm = until - 2 * seconds
    while time.monotonic() < until:
        for is_transacted in spent:
            began = time.perf_counter()
            if is_transacted:
                transact(producer, "measured", LARGE)
            else:
                piece()
            if time.monotonic() > warm:
                spent[is_transacted] += time.perf_counter() - began
                counts[is_transacted] += LARGE
    transacted, alone = (counts[is_transacted] / spent[is_transacted] for is_transacted in (True, False))
    return {f"records/s, {LARGE:,} a transaction": transacted, "the same, of the rate without transactions": transacted / alone}


def way_back(bootstrap: str, producer: confluent_kafka.Producer, replicas: int) -> Figures:
    """From the answer to a commit until its record is at a reader."""
    create(bootstrap, "read", replicas)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("read", 0, 0)])
    consumer.poll(1.0)
    found = []
    for number in range(300):
        transact(producer, "read", 1)
        began = time.perf_counter()
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None
        assert not message.error()
        found.append(time.perf_counter() - began)
        time.sleep(0.001 * (number % 5))
    consumer.close()
    found.sort()
    return {f"{BACK} p50, ms": found[150] * 1000, f"{BACK} p99, ms": found[297] * 1000}


CLIENTS: Final = {"librdkafka": measure, "java": measure_java}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", default="1,3")
    parser.add_argument("--peers", default="ottla,kafka")
    parser.add_argument("--clients", default="librdkafka,java")
    options = parser.parse_args()
    for nodes in map(int, options.nodes.split(",")):
        found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for _ in range(options.rounds):
            for name in options.peers.split(","):
                with PLACES[nodes](name) as place:
                    for client in options.clients.split(","):
                        for figure, value in CLIENTS[client](place, options.seconds, nodes).items():
                            found[figure][name].append(value)
        sys.stdout.write(f"{nodes} node(s), replication factor {nodes}\n")
        for figure, values in found.items():
            medians = {name: statistics.median(several) for name, several in values.items()}
            ratio = f"{medians['ottla'] / medians['kafka']:8.2f}" if len(medians) == 2 else ""
            sys.stdout.write(f"  {figure:52}" + "".join(f"{name} {value:10.2f}  " for name, value in medians.items()) + ratio + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
