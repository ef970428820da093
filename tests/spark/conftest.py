"""One Spark session for all tests that need one, and brokers of their own for tests that need only topics."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.runtime.serve import BrokerThread
from ottla.spark.defaults import session, stop_session
from ottla.sync import Admin, NewTopic, Producer

PROPERTIES = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
}

Record = tuple[bytes | None, bytes | None]  # key and value


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    yield session("tests", master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
    stop_session()


class Topics:
    """A broker, and topics with names of their own for each test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._count = 0

    def create(self, partition_count: int = 1, name: str | None = None, **configs: str) -> str:
        self._count += 1
        topic = name or f"topic-{self._count}"
        with Admin(self.bootstrap) as admin:
            assert admin.create_topics([NewTopic(topic, partition_count, 1, configs)]) == {topic: None}
        return topic

    def delete(self, topic: str) -> None:
        with Admin(self.bootstrap) as admin:
            assert admin.delete_topics([topic]) == {topic: None}

    def produce(self, topic: str, records: Sequence[Record], *, partition: int | None = None, **settings: Any) -> None:
        with Producer(self.bootstrap, linger_ms=0, **settings) as producer:
            futures = [producer.send(topic, value, key=key, partition=partition) for key, value in records]
            for future in futures:
                future.result()

    def sink_options(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "topic": topic}

    def options(self, topic: str, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic} | more


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    with BrokerThread(PROPERTIES | {"log.dirs": str(tmp_path_factory.mktemp("broker"))}) as broker:
        yield Topics(broker.bootstrap)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., Topics]]:
    """Starts a broker with further properties, for one test."""
    started: list[BrokerThread] = []

    def start(**properties: str) -> Topics:
        broker = BrokerThread(PROPERTIES | {"log.dirs": str(tmp_path / f"broker-{len(started)}")} | properties).start()
        started.append(broker)
        return Topics(broker.bootstrap)

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture
def one_partition(spark: Any) -> Iterator[None]:
    """Of state, since each costs a batch some time, and queries of few keys need one."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, "1")
    yield
    spark.conf.set(name, before)
