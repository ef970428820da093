"""Mechanism 37 with five kinds of foreign clients: three brokers, three partitions, two replicas; Broker 1 dies, and comes back.

The clients and what they are made to do are those of tests/foreign_clients and of this directory. Where those stop their broker, Broker 1
is killed here: partition 0 moves to Broker 2, partition 2 keeps Broker 3 with a smaller ISR, partition 1 is untouched. Where they start it,
it comes back, catches up, is in sync, and leads partition 0 again. It dies under the producer, and under each of two consumers. All of it
is done with a quorum, and again in ZooKeeper mode.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from typing import Self

import pytest
from tests.cluster.processes import ClusterProcesses, ZookeeperProcesses
from tests.cluster.replicas import assert_replicas_are_equal, create, partitions
from tests.foreign_clients import test_aiokafka as of_aiokafka
from tests.foreign_clients import test_confluent_kafka as of_confluent
from tests.foreign_clients import test_kafka_python as of_kafka_python
from tests.foreign_clients.workload import RECORD_COUNT, Record, assert_received, assert_sent
from tests.interop import test_java as of_java
from tests.interop import test_kcat as of_kcat
from tests.interop.test_cluster_clients import Consumed, Enough, KillsOnce, ThroughOne, visible_count
from tests.interop.tools import program, run
from tests.waiting import eventually

from ottla.sync import Admin

REPLICAS = [[1, 2], [2, 3], [3, 1]]
State = dict[int, tuple[int, list[int]]]
BEFORE: State = {0: (1, [1, 2]), 1: (2, [2, 3]), 2: (3, [1, 3])}  # leader, in-sync replicas
WITHOUT_BROKER_1: State = {0: (2, [2]), 1: (2, [2, 3]), 2: (3, [3])}


@pytest.fixture(scope="module", params=[ClusterProcesses, ZookeeperProcesses], ids=["quorum", "zookeeper"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """In each of the two homes of the controller."""
    cluster_type: type[ClusterProcesses] = request.param
    with cluster_type(tmp_path_factory.mktemp("cluster"), offsets_topic_replication_factor="3") as replicated:
        yield replicated


class Drill(ThroughOne):
    """What a client is given as its broker: Broker 3, which lives, of the topic that the drill is about."""

    def __init__(self, cluster: ClusterProcesses, topic: str) -> None:
        super().__init__(cluster, 3)
        self.topic = topic
        with Admin(cluster.bootstrap) as admin:
            create(cluster, admin, topic, REPLICAS, min_insync_replicas="1")

    def stop(self) -> None:
        self.cluster.nodes[1].kill()
        with Admin(self.bootstrap) as admin:
            eventually(lambda: self._state(admin), lambda found: found == WITHOUT_BROKER_1)
            epochs = {index: one.leader_epoch for index, one in partitions(admin, self.topic).items()}
        assert epochs == {0: 1 + 2 * self.kills, 1: 0, 2: 0}, "the leaders of partitions 1 and 2 were never elected again"
        self.kills += 1

    def start(self) -> Self:
        self.cluster.nodes[1].start()
        with Admin(self.bootstrap) as admin:
            eventually(lambda: self._state(admin), lambda found: {index: isr for index, (_, isr) in found.items()} == IN_SYNC)
            admin.elect_leaders()
            eventually(lambda: self._state(admin), lambda found: found == BEFORE)
        return self

    def _state(self, admin: Admin) -> State:
        return {index: (one.leader, sorted(one.in_sync)) for index, one in partitions(admin, self.topic).items()}


IN_SYNC = {index: isr for index, (_, isr) in BEFORE.items()}


def judge(drill: Drill, sent: list[Record], first: list[Record], rest: list[Record], committed: dict[int, int]) -> None:
    assert_sent(sent)
    assert_received(sent, first, rest, committed)
    with Admin(drill.cluster.bootstrap) as admin:
        assert_replicas_are_equal(drill.cluster, admin, drill.topic)


def produce_and_consume(drill: Drill, produce: Callable[[], list[Record]], consume: Callable[[Enough], Consumed]) -> None:
    sent = produce()
    first, committed = consume(KillsOnce(drill, lambda got: len(got) >= RECORD_COUNT // 3))
    rest, _ = consume(KillsOnce(drill, lambda got: len(first) + len(got) >= RECORD_COUNT))
    assert drill.kills >= 3
    judge(drill, sent, first, rest, committed)


def test_mechanism_37_librdkafka_goes_on_without_a_word(cluster: ClusterProcesses) -> None:
    drill = Drill(cluster, "of-librdkafka")
    consume = partial(of_confluent.consume, drill, drill.topic, "librdkafka")
    produce_and_consume(drill, partial(of_confluent.produce, drill, drill.topic, "lz4"), consume)


def test_mechanism_37_kafka_python_goes_on_without_a_word(cluster: ClusterProcesses) -> None:
    drill = Drill(cluster, "of-kafka-python")
    consume = partial(of_kafka_python.consume, drill, drill.topic, "kafka-python")
    produce_and_consume(drill, partial(of_kafka_python.produce, drill, drill.topic, "gzip"), consume)


def test_mechanism_37_aiokafka_goes_on_without_a_word(cluster: ClusterProcesses) -> None:
    drill = Drill(cluster, "of-aiokafka")

    def consume(is_enough: Enough) -> Consumed:
        return asyncio.run(of_aiokafka.consume(drill, drill.topic, "aiokafka", is_enough))

    produce_and_consume(drill, lambda: asyncio.run(of_aiokafka.produce(drill, drill.topic, "zstd")), consume)


def test_mechanism_37_the_java_client_goes_on_without_a_word(cluster: ClusterProcesses, java_client: list[str]) -> None:
    drill = Drill(cluster, "of-java")
    sent = of_java.produce(java_client, drill, drill.topic, "snappy")
    first, committed = of_java.consume(java_client, drill, drill.topic, "java", RECORD_COUNT // 3)
    drill.restart()
    rest, _ = of_java.consume(java_client, drill, drill.topic, "java", RECORD_COUNT - len(first))
    assert drill.kills >= 2
    judge(drill, sent, first, rest, committed)


def test_mechanism_37_kcat_goes_on_without_a_word(cluster: ClusterProcesses) -> None:
    drill = Drill(cluster, "of-kcat")
    kcat = [program("kcat", way_to_get_it="apt install kcat"), "-q", "-b", drill.bootstrap]
    options = ["-P", "-E", "-t", drill.topic, "-K:", "-X", "partitioner=murmur2_random", "-X", "enable.idempotence=true"]
    with subprocess.Popen([*kcat, *options], stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(of_kcat.lines(0, RECORD_COUNT // 2))
        process.stdin.flush()
        eventually(lambda: visible_count(cluster, drill.topic), lambda count: count >= RECORD_COUNT // 4)
        drill.stop()
        process.stdin.write(of_kcat.lines(RECORD_COUNT // 2, RECORD_COUNT))
        process.stdin.flush()
        drill.start()
        process.stdin.close()
    assert process.returncode == 0
    sent = of_kcat.records(run(*kcat, "-C", "-t", drill.topic, "-o", "beginning", "-e", "-f", "%p\t%o\t%k\t%s\n"))
    first = of_kcat.consume(kcat, drill.topic, "kcat", RECORD_COUNT // 3)
    committed = of_kcat.committed(drill, drill.topic, "kcat")
    drill.restart()
    rest = of_kcat.consume(kcat, drill.topic, "kcat", RECORD_COUNT - len(first))
    judge(drill, sent, first, rest, committed)
