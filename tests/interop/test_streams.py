"""Kafka Streams and MirrorMaker 2 of Apache Kafka 4.3, exactly once, on ottla's brokers: each is killed, and so are brokers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from tests.cluster.processes import ClusterProcesses
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.interop.java_process import STEP_SECONDS_MAX, JavaProcess
from tests.interop.tools import HERE, TARGET, maven, program

from ottla.sync import Admin, NewTopic, Producer

SMOKE_TEST = "org.apache.kafka.streams.tests.StreamsSmokeTest"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
SMOKE_TOPICS = (
    *("data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "sws-raw", "sws-suppressed", "cnt", "avg", "tagg", "wcnt"),
    "fk",
)
PARTITION_COUNT = 5
SMOKE_SECONDS_MAX = 480.0
"""The smoke test produces for 90 s, and reads what came of it after that."""
MIRRORED_COUNT = 20_000
POLL_SECONDS = 20.0


@pytest.fixture(scope="module")
def java_streams() -> list[str]:
    """The command that runs a class of Kafka Streams or of MirrorMaker."""
    maven("package", cwd=HERE / "java_streams")
    return [program("java", way_to_get_it="apt install openjdk-17-jdk-headless"), "-Xmx400m", "-cp", f"{TARGET}/java_streams/lib/*"]


@pytest.mark.timeout(900)
def test_the_smoke_test_of_kafka_streams_is_exact_over_kills(java_streams: list[str], tmp_path: Path) -> None:
    """Three of its clients are killed while they work, and two brokers of three, one after the other."""
    with ClusterProcesses(tmp_path) as cluster:
        with Admin(cluster.bootstrap) as admin:
            new = [NewTopic(name, PARTITION_COUNT, 3, configs={"min.insync.replicas": "2"}) for name in SMOKE_TOPICS]
            assert admin.create_topics(new) == dict.fromkeys(SMOKE_TOPICS)
        properties = {
            "bootstrap.servers": cluster.bootstrap,
            "processing.guarantee": "exactly_once_v2",
            "replication.factor": "3",
            "producer.acks": "all",
        }

        @contextmanager
        def client(number: int) -> Iterator[JavaProcess]:
            """It works."""
            state = {"state.dir": str(tmp_path / f"state-{number}")}
            with JavaProcess(
                [*java_streams, SMOKE_TEST, _written(tmp_path / f"{number}.conf", properties | state), "process"],
                tmp_path / f"{number}.out",
            ) as it:
                it.wait_until_said("REBALANCING -> RUNNING")
                yield it

        with client(1) as first:
            driver_command = [*java_streams, SMOKE_TEST, _written(tmp_path / "driver.conf", properties), "run"]
            with JavaProcess(driver_command, tmp_path / "driver.out") as driver:
                first.wait_until_said("processed")
                first.kill()
                with client(2) as second:
                    second.wait_until_said("processed")
                    cluster.nodes[2].kill()
                    cluster.nodes[2].start()
                    assert "Result Verification" not in driver.said, "there was still work to do"
                with client(3) as third:
                    third.wait_until_said("processed")
                    cluster.nodes[3].kill()
                    assert "Result Verification" not in driver.said, "there was still work to do"
                with client(4) as fourth:
                    cluster.nodes[3].start()
                    fourth.wait_until_said("processed")
                    said = driver.wait_until_ended(SMOKE_SECONDS_MAX)
                    assert "EXCEPTION" not in fourth.said
        assert "ALL-RECORDS-DELIVERED" in said, said[-6000:]
        assert said.rstrip().endswith("SUCCESS"), said[-6000:]


@pytest.mark.timeout(600)
def test_mirror_maker_copies_everything_once_over_kills(java_streams: list[str], tmp_path: Path) -> None:
    """From one broker to another with ``exactly.once.source.support``: MirrorMaker is killed twice, the broker that it writes to once."""
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    with BrokerProcess(tmp_path / "from", port=lasting_port()) as source, BrokerProcess(tmp_path / "to", port=lasting_port()) as target:
        with Admin(source.bootstrap) as admin:
            assert admin.create_topics([NewTopic("orders", 3, 1)]) == {"orders": None}
        fill(source, 0)
        properties = {
            "clusters": "a, b",
            "a.bootstrap.servers": source.bootstrap,
            "b.bootstrap.servers": target.bootstrap,
            "a->b.enabled": "true",
            "b->a.enabled": "false",
            "a->b.topics": "orders",
            "replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "config.storage.replication.factor": "1",
            "emit.checkpoints.enabled": "false",
            "emit.heartbeats.enabled": "false",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
            "b.exactly.once.source.support": "enabled",
            "a.consumer.auto.offset.reset": "earliest",
        }
        command = [*java_streams, MIRROR_MAKER, _written(tmp_path / "mirror.conf", properties)]
        with JavaProcess(command, tmp_path / "first.out"):
            assert len(copied(target, at_least=1)) >= 1
        fill(source, 1)
        with JavaProcess(command, tmp_path / "second.out"):
            copied(target, at_least=MIRRORED_COUNT + 1)
            target.kill()
            target.start()
            fill(source, 2)
            copied(target, at_least=2 * MIRRORED_COUNT + 1)
        with JavaProcess(command, tmp_path / "third.out"):
            found = copied(target, at_least=3 * MIRRORED_COUNT)
        assert found == Counter(range(3 * MIRRORED_COUNT))


def fill(broker: BrokerProcess, part: int) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(part * MIRRORED_COUNT, (part + 1) * MIRRORED_COUNT):
            producer.send("orders", b"%d" % number)


def copied(broker: BrokerProcess, *, at_least: int) -> Counter[int]:
    """What a read_committed reader gets from the beginning: so many records, and whatever there is with them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            "allow.auto.create.topics": False,
        }
    )
    found: Counter[int] = Counter()
    deadline = time.monotonic() + STEP_SECONDS_MAX
    try:
        consumer.subscribe(["a.orders"])
        while found.total() < at_least:
            assert time.monotonic() < deadline, f"{found.total()} of {at_least} records"
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    found[int(message.value() or b"")] += 1
    finally:
        consumer.close()
    return found


def _written(file: Path, properties: dict[str, str]) -> str:
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(file)
