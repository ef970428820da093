"""Foreign clients against three replicated nodes: each through any of the brokers, while one active controller after the other is killed.

The clients and what they are made to do are those of tests/foreign_clients and of this directory; where those stop a broker, the
active controller is killed here, which leads partitions and coordinates groups as well, and where they start it, it comes back.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from typing import Self

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AiokafkaTopic
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ConfluentTopic  # type: ignore[attr-defined]
from kafka import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic
from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicas import assert_replicas_are_equal, partitions
from tests.foreign_clients import test_aiokafka as of_aiokafka
from tests.foreign_clients import test_confluent_kafka as of_confluent
from tests.foreign_clients import test_kafka_python as of_kafka_python
from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.workload import PARTITION_COUNT, RECORD_COUNT, Record, assert_received, assert_sent
from tests.interop import test_java as of_java
from tests.interop import test_kcat as of_kcat
from tests.interop.tools import program, run
from tests.waiting import eventually

from ottla.sync import Admin, Consumer, TopicPartition

BROKERS = (1, 2, 3)
WAIT_SECONDS_MAX = 30
Enough = Callable[[list[Record]], bool]
Consumed = tuple[list[Record], dict[int, int]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """All topics are on three brokers, those that brokers make as well."""
    replicated = ClusterProcesses(
        tmp_path_factory.mktemp("cluster"),
        default_replication_factor="3",
        num_partitions=str(PARTITION_COUNT),
        min_insync_replicas="2",
        offsets_topic_replication_factor="3",
    )
    with replicated:
        yield replicated


class ThroughOne(BrokerProcess):
    """What a client is given as its broker. ``kills`` counts the controllers that were killed under it."""

    def __init__(self, cluster: ClusterProcesses, node: int) -> None:
        self.cluster, self.node, self.kills = cluster, node, 0
        self._killed: int | None = None

    @property
    def bootstrap(self) -> str:
        return self.cluster.nodes[self.node].bootstrap

    def stop(self) -> None:
        """The active controller has died, and another one is active."""
        active = eventually(lambda: self.cluster.quorum(self.node).leader_id, lambda found: found in BROKERS)
        self.cluster.nodes[active].kill()
        other = next(node for node in BROKERS if node != active)
        eventually(lambda: self.cluster.quorum(other).leader_id, lambda found: found in set(BROKERS) - {active})
        self._killed, self.kills = active, self.kills + 1

    def start(self) -> Self:
        """It is back, and in sync with all."""
        assert self._killed is not None, "a controller was killed"
        self.cluster.nodes[self._killed].start()
        with Admin(self.cluster.bootstrap) as admin:
            for topic in admin.list_topics():
                eventually(
                    partial(partitions, admin, topic), lambda found: all(len(one.in_sync) == len(one.replicas) for one in found.values())
                )
        return self


class KillsOnce:
    """A question that a client asks after each poll; a controller dies, and is back, after the first one that got something."""

    def __init__(self, through: ThroughOne, is_enough: Enough) -> None:
        self._through = through
        self._is_enough = is_enough
        self._has_killed = False

    def __call__(self, got: list[Record]) -> bool:
        if got and not self._has_killed:
            self._has_killed = True
            self._through.restart()
        return self._is_enough(got)


def judge(through: ThroughOne, topic: str, sent: list[Record], first: list[Record], rest: list[Record], committed: dict[int, int]) -> None:
    assert_sent(sent)
    assert_received(sent, first, rest, committed)
    assert through.kills >= 2
    with Admin(through.cluster.bootstrap) as admin:
        assert all(sorted(one.replicas) == [1, 2, 3] for one in partitions(admin, topic).values())
        assert_replicas_are_equal(through.cluster, admin, topic)


def produce_and_consume(
    through: ThroughOne, topic: str, produce: Callable[[], list[Record]], consume: Callable[[Enough], Consumed]
) -> None:
    """Two consumers of one group, one after the other; a controller dies under the producer, and under each of the consumers."""
    sent = produce()
    first, committed = consume(KillsOnce(through, lambda got: len(got) >= RECORD_COUNT // 3))
    rest, _ = consume(KillsOnce(through, lambda got: len(first) + len(got) >= RECORD_COUNT))
    assert through.kills >= 3
    judge(through, topic, sent, first, rest, committed)


@pytest.mark.parametrize("node", BROKERS)
def test_confluent_kafka_goes_on_through_any_broker(cluster: ClusterProcesses, node: int) -> None:
    through, topic = ThroughOne(cluster, node), f"confluent-{node}"
    admin = AdminClient({"bootstrap.servers": through.bootstrap})
    for name in (topic, f"{topic}-deleted"):
        admin.create_topics([ConfluentTopic(name, PARTITION_COUNT, 3)])[name].result(WAIT_SECONDS_MAX)
    produce = partial(of_confluent.produce, through, topic, "lz4")
    produce_and_consume(through, topic, produce, partial(of_confluent.consume, through, topic, f"{topic}-group"))
    admin.delete_topics([f"{topic}-deleted"])[f"{topic}-deleted"].result(WAIT_SECONDS_MAX)
    assert f"{topic}-group" in {group.group_id for group in admin.list_consumer_groups().result(WAIT_SECONDS_MAX).valid}


@pytest.mark.parametrize("node", BROKERS)
def test_kafka_python_goes_on_through_any_broker(cluster: ClusterProcesses, node: int) -> None:
    through, topic = ThroughOne(cluster, node), f"kafka-python-{node}"
    admin = KafkaAdminClient(bootstrap_servers=through.bootstrap)
    admin.create_topics([KafkaPythonTopic(name, PARTITION_COUNT, 3) for name in (topic, f"{topic}-deleted")])
    produce = partial(of_kafka_python.produce, through, topic, "gzip")
    produce_and_consume(through, topic, produce, partial(of_kafka_python.consume, through, topic, f"{topic}-group"))
    admin.delete_topics([f"{topic}-deleted"])
    admin.close()


@pytest.mark.parametrize("node", BROKERS)
def test_aiokafka_goes_on_through_any_broker(cluster: ClusterProcesses, node: int) -> None:
    through, topic = ThroughOne(cluster, node), f"aiokafka-{node}"

    async def administer() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=through.bootstrap)
        await admin.start()
        await admin.create_topics([AiokafkaTopic(name, PARTITION_COUNT, 3) for name in (topic, f"{topic}-deleted")])
        await admin.delete_topics([f"{topic}-deleted"])
        await admin.close()

    def consume(is_enough: Enough) -> Consumed:
        return asyncio.run(of_aiokafka.consume(through, topic, f"{topic}-group", is_enough))

    asyncio.run(administer())
    produce_and_consume(through, topic, lambda: asyncio.run(of_aiokafka.produce(through, topic, "zstd")), consume)


@pytest.mark.parametrize("node", BROKERS)
def test_the_java_client_goes_on_through_any_broker(cluster: ClusterProcesses, java_client: list[str], node: int) -> None:
    through, topic = ThroughOne(cluster, node), f"java-{node}"
    assert run(*java_client, "create", through.bootstrap, topic, str(PARTITION_COUNT)) == f"{topic}\t{PARTITION_COUNT}\n"
    sent = of_java.produce(java_client, through, topic, "snappy")
    first, committed = of_java.consume(java_client, through, topic, f"{topic}-group", RECORD_COUNT // 3)
    through.restart()
    rest, _ = of_java.consume(java_client, through, topic, f"{topic}-group", RECORD_COUNT - len(first))
    judge(through, topic, sent, first, rest, committed)


@pytest.mark.parametrize("node", BROKERS)
def test_kcat_goes_on_through_any_broker(cluster: ClusterProcesses, node: int) -> None:
    """It cannot create topics: brokers do when they are asked for."""
    through, topic = ThroughOne(cluster, node), f"kcat-{node}"
    kcat = [program("kcat", way_to_get_it="apt install kcat"), "-q", "-b", through.bootstrap]
    run(*kcat, "-L", "-t", topic)
    eventually(lambda: run(*kcat, "-L"), lambda text: f'topic "{topic}" with {PARTITION_COUNT} partitions' in text)
    options = ["-P", "-E", "-t", topic, "-K:", "-X", "partitioner=murmur2_random", "-X", "enable.idempotence=true"]
    with subprocess.Popen([*kcat, *options], stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(of_kcat.lines(0, RECORD_COUNT // 2))
        process.stdin.flush()
        eventually(lambda: visible_count(cluster, topic), lambda count: count >= RECORD_COUNT // 4)
        through.stop()
        process.stdin.write(of_kcat.lines(RECORD_COUNT // 2, RECORD_COUNT))
        process.stdin.flush()
        through.start()
        process.stdin.close()
    assert process.returncode == 0
    sent = of_kcat.records(run(*kcat, "-C", "-t", topic, "-o", "beginning", "-e", "-f", "%p\t%o\t%k\t%s\n"))
    first = of_kcat.consume(kcat, topic, f"{topic}-group", RECORD_COUNT // 3)
    committed = of_kcat.committed(through, topic, f"{topic}-group")
    through.restart()
    rest = of_kcat.consume(kcat, topic, f"{topic}-group", RECORD_COUNT - len(first))
    judge(through, topic, sent, first, rest, committed)


def visible_count(cluster: ClusterProcesses, topic: str) -> int:
    with Consumer(cluster.bootstrap) as consumer:
        return sum(consumer.end_offsets([TopicPartition(topic, index) for index in range(PARTITION_COUNT)]).values())
