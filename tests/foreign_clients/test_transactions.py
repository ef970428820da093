"""Transactional producers of several makers on a broker process: atomic over topics and a group's offsets, exactly once over kills."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka
import pytest
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port

from ottla.sync import Admin, GroupMetadata, KafkaError, NewTopic, Producer, TopicPartition

TOPICS = ("one", "two", "three")
INPUT, OUTPUT = "input", "output"
PARTITIONS = 2
WAIT_SECONDS = 30.0
Records = Sequence[tuple[str, bytes]]
Offsets = Mapping[tuple[str, int], int]


class Served(Protocol):
    """A broker, or a cluster."""

    @property
    def bootstrap(self) -> str: ...


class Transactional(Protocol):
    """A producer with a transactional id that has begun: one transaction after the other, and no more."""

    def transact(self, records: Records, offsets: Offsets, *, commits: bool) -> None:
        """The records, and the offsets of group "g", in one transaction."""
        ...

    def close(self) -> None: ...


class Librdkafka:
    def __init__(self, bootstrap: str, name: str, **more: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0} | {
            key.replace("_", "."): more[key] for key in more
        }
        self._producer = confluent_kafka.Producer(settings)
        self._producer.init_transactions(WAIT_SECONDS)

    def transact(self, records: Records, offsets: Offsets, *, commits: bool) -> None:
        self._producer.begin_transaction()
        for topic, value in records:
            self._producer.produce(topic, value)
        if offsets:
            places = [confluent_kafka.TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
            self._producer.send_offsets_to_transaction(places, self._group(), WAIT_SECONDS)
        self._producer.flush(WAIT_SECONDS)
        (self._producer.commit_transaction if commits else self._producer.abort_transaction)(WAIT_SECONDS)

    def _group(self) -> Any:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
        return consumer.consumer_group_metadata()

    def close(self) -> None:
        del self._producer


class Aiokafka:
    def __init__(self, bootstrap: str, name: str) -> None:
        self._loop = asyncio.new_event_loop()

        async def begin() -> Any:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
            await producer.start()
            return producer

        self._producer = self._loop.run_until_complete(begin())

    def transact(self, records: Records, offsets: Offsets, *, commits: bool) -> None:
        async def run() -> None:
            await self._producer.begin_transaction()
            for topic, value in records:
                await self._producer.send_and_wait(topic, value)
            if offsets:
                places = {aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
                await self._producer.send_offsets_to_transaction(places, "g")
            await (self._producer.commit_transaction() if commits else self._producer.abort_transaction())

        self._loop.run_until_complete(asyncio.wait_for(run(), WAIT_SECONDS))

    def close(self) -> None:
        with contextlib.suppress(aiokafka.errors.KafkaError):  # one that is fenced says so once more
            self._loop.run_until_complete(self._producer.stop())
        self._loop.close()


class KafkaPython:
    def __init__(self, bootstrap: str, name: str) -> None:
        self._producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        self._producer.init_transactions()

    def transact(self, records: Records, offsets: Offsets, *, commits: bool) -> None:
        self._producer.begin_transaction()
        for topic, value in records:
            self._producer.send(topic, value).get(WAIT_SECONDS)
        if offsets:
            places = {kafka.TopicPartition(*place): kafka.OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
            self._producer.send_offsets_to_transaction(places, "g")
        (self._producer.commit_transaction if commits else self._producer.abort_transaction)()

    def close(self) -> None:
        self._producer.close(timeout=1)


class Ours:
    """At level 2."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._producer = Producer(bootstrap, transactional_id=name)
        self._producer.init_transactions()

    def transact(self, records: Records, offsets: Offsets, *, commits: bool) -> None:
        self._producer.begin_transaction()
        for topic, value in records:
            self._producer.send(topic, value)
        if offsets:
            self._producer.send_offsets_to_transaction(
                {TopicPartition(*place): offset for place, offset in offsets.items()}, GroupMetadata("g")
            )
        (self._producer.commit_transaction if commits else self._producer.abort_transaction)()

    def close(self) -> None:
        with contextlib.suppress(KafkaError):  # one that is fenced says so once more
            self._producer.close()


CLIENTS: dict[str, Callable[[str, str], Transactional]] = {
    "librdkafka": Librdkafka,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
    "ours": Ours,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("transactions")) as process:
        yield process


def create(broker: BrokerProcess, *names: str) -> None:
    with Admin(broker.bootstrap) as admin:
        assert admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]) == dict.fromkeys(names)


def read_committed(broker: Served, topic: str) -> list[bytes]:
    """Everything up to the ends of the topic's partitions, none of which a transaction holds back."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[bytes] = []
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None, "the ends are not reached"
        if message.error() is None:
            values.append(message.value() or b"")
        else:
            ended += 1
    consumer.close()
    return values


def committed(broker: Served, topic: str) -> dict[int, int]:
    with Admin(broker.bootstrap) as admin:
        return {key.partition: found.offset for key, found in admin.committed_offsets("g").items() if key.topic == topic}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.slow
def test_mechanism_77_a_transaction_is_atomic_over_topics_and_offsets_and_a_zombie_is_fenced(broker: BrokerProcess, client: str) -> None:
    topics = [f"{client}-{topic}" for topic in TOPICS]
    create(broker, *topics)
    producer = CLIENTS[client](broker.bootstrap, client)
    for number in range(6):
        records = [(topic, b"%d" % number) for topic in topics]
        producer.transact(records, {(topics[0], 0): number + 1}, commits=number % 3 != 2)
    successor = CLIENTS[client](broker.bootstrap, client)
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        producer.transact([(topics[0], b"zombie")], {}, commits=True)
    successor.transact([(topic, b"6") for topic in topics], {}, commits=True)
    for topic in topics:
        assert sorted(read_committed(broker, topic)) == [b"0", b"1", b"3", b"4", b"6"]
    assert committed(broker, topics[0]) == {0: 5}
    producer.close()
    successor.close()


@pytest.mark.parametrize("client", ["librdkafka", "ours"])
@pytest.mark.slow
def test_mechanism_78_read_process_write_is_exactly_once_over_kills_of_the_broker_and_of_the_program(tmp_path: Path, client: str) -> None:
    """The program dies by being forgotten in the middle of a transaction; the next one has its transactional id, and its group."""
    rng, count = random.Random(78), 400
    with BrokerProcess(tmp_path, port=lasting_port()) as broker:
        create(broker, INPUT, OUTPUT)
        with Producer(broker.bootstrap) as producer:
            for number in range(count):
                producer.send(INPUT, b"%d" % number, partition=number % PARTITIONS)
        ends = dict.fromkeys(range(PARTITIONS), count // PARTITIONS)
        kills, forgotten = 0, []
        while committed(broker, INPUT) != ends:
            program = CLIENTS[client](broker.bootstrap, "program")
            forgotten.append(program)
            with contextlib.suppress(confluent_kafka.KafkaException, KafkaError):  # whatever it meets, the next one goes on
                while committed(broker, INPUT) != ends:
                    copy_some(broker, program, rng)
                    if rng.random() < 0.1:
                        break
            if kills < 3:
                broker.kill()
                broker.start()
                kills += 1
        assert Counter(read_committed(broker, OUTPUT)) == Counter(b"%d" % (2 * number) for number in range(count))
        for program in forgotten:
            program.close()


def copy_some(broker: BrokerProcess, program: Transactional, rng: random.Random) -> None:
    """A transaction of what comes after the committed offsets: twice each number."""
    at = {index: committed(broker, INPUT).get(index, 0) for index in range(PARTITIONS)}
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(INPUT, index, offset) for index, offset in at.items()])
    found = consumer.consume(rng.randint(5, 40), 2.0)
    consumer.close()
    for message in found:
        at[message.partition() or 0] = (message.offset() or 0) + 1
    records = [(OUTPUT, b"%d" % (2 * int(message.value() or b"0"))) for message in found]
    program.transact(records, {(INPUT, index): offset for index, offset in at.items()}, commits=rng.random() < 0.9)
