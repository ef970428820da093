"""The judge of transactions over histories of Apache Kafka 4.3.0, and of ottla beside it: what it finds in neither is its measure.

The broker is killed before a commit and before an abort; a reader of committed records looks on. The same history without one record of a
committed transaction shows that the judge looks.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from bench.peers import Kafka, Ottla, Peer
from tests.beside import beside
from tests.interop.conftest import until_served

from ottla import sync
from ottla.history.judge import judge
from ottla.sync import Admin, NewTopic
from ottla.testing.history import History
from ottla.testing.layout import free_ports

PARTITION_COUNT = 3
TRANSACTIONS = 60
KILLED_AT = (20, 30)
WAIT_SECONDS_MAX = 120.0


@pytest.fixture(params=["kafka", "ottla"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    [port] = free_ports(1)
    with Kafka() if request.param == "kafka" else Ottla(listeners=f"PLAINTEXT://127.0.0.1:{port}") as started:
        yield started


def create(peer: Peer, topic: str) -> None:
    asyncio.run(until_served(peer.bootstrap))
    with Admin(peer.bootstrap) as admin:
        assert admin.create_topics([NewTopic(topic, PARTITION_COUNT)]) == {topic: None}


def kill_and_start(peer: Peer) -> None:
    assert peer._process is not None
    peer._process.send_signal(signal.SIGKILL)
    peer._process.wait(WAIT_SECONDS_MAX)
    peer.start()


def read_until(is_over: threading.Event, history: History, peer: Peer, topic: str) -> None:
    """Reads committed records until it is told to end."""
    settings = {"group.id": "reader", "isolation.level": "read_committed", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = history.watch(confluent_kafka.Consumer({"bootstrap.servers": peer.bootstrap} | settings))
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITION_COUNT)])
    while not is_over.is_set():
        consumer.poll(0.1)
    consumer.close()


def transact_by_librdkafka(history: History, peer: Peer, topic: str, then: Callable[[int], None]) -> None:
    settings = {"bootstrap.servers": peer.bootstrap, "transactional.id": topic, "linger.ms": 0, "log_level": 0}
    producer = history.watch(confluent_kafka.Producer(settings))
    producer.init_transactions(WAIT_SECONDS_MAX)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for index in range(PARTITION_COUNT):
            producer.produce(topic, f"{number}-{index}".encode(), partition=index)
        assert producer.flush(WAIT_SECONDS_MAX) == 0
        then(number)
        if number % 3 == 2:
            producer.abort_transaction(WAIT_SECONDS_MAX)
        else:
            producer.commit_transaction(WAIT_SECONDS_MAX)


def transact_by_ottla(history: History, peer: Peer, topic: str, then: Callable[[int], None]) -> None:
    with history.watch(sync.Producer(peer.bootstrap, transactional_id=topic)) as producer:
        producer.init_transactions()
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            sent: list[Any] = [producer.send(topic, f"{number}-{index}".encode(), partition=index) for index in range(PARTITION_COUNT)]
            for one in sent:
                one.result(WAIT_SECONDS_MAX)
            then(number)
            if number % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("transact", [transact_by_librdkafka, transact_by_ottla])
def test_no_transaction_is_torn_over_kills_of_the_broker(peer: Peer, transact: Any) -> None:
    topic = transact.__name__
    create(peer, topic)
    history = History(peer.bootstrap)

    def then(number: int) -> None:
        if number in KILLED_AT:
            kill_and_start(peer)

    with beside(lambda is_over: read_until(is_over, history, peer, topic)):
        transact(history, peer, topic, then)
    history.check()
    operations = history.operations
    ends = Counter(operation.f for operation in operations if operation.f.endswith("_transaction") and operation.type == "ok")
    assert ends == {"commit_transaction": TRANSACTIONS * 2 // 3, "abort_transaction": TRANSACTIONS // 3}
    read = [operation for operation in operations if operation.f == "poll" and operation.process != "the log"]
    without = [operation for operation in operations if operation is not read[len(read) // 2]]
    assert judge(without).anomalies, "a reader that passes over a record of a committed transaction is found"
