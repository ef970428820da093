"""Topics that are written in the moment in which they are made: how many records of them were acknowledged and are not there, or twice.

Two librdkafka producers, idempotent, which have their ids already, write small batches, five in flight, to all partitions of each topic as
soon as CreateTopics is answered. Whoever is named as leader may not lead yet: where the first batch is refused and the second one is taken,
a producer that the log does not know has begun in the middle, and what is told of the first one is wrong. Every topic is read to its end.

``python -m bench.young_topics [--topics 500] [--peers ottla,zookeeper,kafka]``; topics are deleted again, ``TOGETHER`` at a time.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

import confluent_kafka

from bench.clusters import Cluster, kafka_cluster, ottla_cluster, zookeeper_cluster
from ottla.errors import ErrorCode
from ottla.sync import Admin, NewTopic

PARTITIONS: Final = 6
PRODUCERS: Final = 2
WRITING_SECONDS: Final = 0.1
FLUSH_SECONDS_MAX: Final = 60.0
READ_SECONDS_MAX: Final = 60.0
TOGETHER: Final = 50
CLUSTERS: Final[dict[str, Callable[[], AbstractContextManager[Cluster]]]] = {
    "ottla": ottla_cluster,
    "zookeeper": zookeeper_cluster,
    "kafka": kafka_cluster,
}
QUICK: Final = {"linger.ms": 0, "request.timeout.ms": 5000, "topic.metadata.refresh.fast.interval.ms": 5, "log_level": 0}


class Tally(NamedTuple):
    topics: int
    acknowledged: int
    refused: int
    without_offset: int
    """Acknowledged by a later one's acknowledgement: librdkafka was told DUPLICATE_SEQUENCE_NUMBER."""
    lost: int
    doubled: int

    def __str__(self) -> str:
        said = f"{self.topics} topics, {self.acknowledged} records acknowledged, {self.refused} refused"
        return f"{said}, {self.without_offset} without an offset, {self.lost} lost, {self.doubled} doubled"


def tally(cluster: Cluster, count: int) -> Tally:
    settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True} | QUICK
    producers = [confluent_kafka.Producer(settings) for _ in range(PRODUCERS)]
    acknowledged: dict[bytes, int | None] = {}
    refused = lost = doubled = 0

    def on_delivery(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        nonlocal refused
        value = message.value()
        assert value is not None
        if error is None:
            acknowledged[value] = message.offset()
        else:
            refused += 1

    with Admin(cluster.bootstrap) as admin:
        warm(admin, producers)
        for first in range(0, count, TOGETHER):
            topics = [f"young-{number}" for number in range(first, min(first + TOGETHER, count))]
            before = len(acknowledged)
            for topic in topics:
                made = admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic]
                assert made is None or made.code == ErrorCode.TOPIC_ALREADY_EXISTS, made  # it was asked for again on a busy machine
                write(producers, topic, on_delivery)
            found = Counter(read(cluster.bootstrap, admin, topics))
            told = list(itertools.islice(acknowledged, before, None))
            lost += sum(value not in found for value in told)
            doubled += sum(times > 1 for times in found.values())
            admin.delete_topics(topics)
            sys.stdout.write(f"{cluster.name}: {first + len(topics)} topics, {lost} lost, {doubled} doubled\n")
            sys.stdout.flush()
    without = sum(offset is None or offset < 0 for offset in acknowledged.values())
    return Tally(count, len(acknowledged), refused, without, lost, doubled)


def warm(admin: Admin, producers: list[confluent_kafka.Producer]) -> None:
    """Every producer has its id, and a connection to every broker."""
    assert admin.create_topics([NewTopic("warm", PARTITIONS, 3)]) == {"warm": None}
    for producer in producers:
        for partition in range(PARTITIONS):
            producer.produce("warm", b"", partition=partition)
        assert producer.flush(FLUSH_SECONDS_MAX) == 0


def write(producers: list[confluent_kafka.Producer], topic: str, on_delivery: Callable[..., None]) -> None:
    """To all partitions, in turn, from now on; all of it is acknowledged or refused when this returns."""
    numbers, end = itertools.count(), time.monotonic() + WRITING_SECONDS
    while time.monotonic() < end:
        for index, producer in enumerate(producers):
            for partition in range(PARTITIONS):
                value = b"%s %d %d" % (topic.encode(), index, next(numbers))
                producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
            producer.poll(0.002)
    for producer in producers:
        assert producer.flush(FLUSH_SECONDS_MAX) == 0


def read(bootstrap: str, admin: Admin, topics: list[str]) -> Iterator[bytes]:
    """Every value of these topics."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0})
    places = [confluent_kafka.TopicPartition(topic, index, 0) for topic in topics for index in range(PARTITIONS)]
    missing = sum(consumer.get_watermark_offsets(place, timeout=READ_SECONDS_MAX)[1] for place in places)  # type: ignore[index]
    consumer.assign(places)
    deadline = time.monotonic() + READ_SECONDS_MAX
    while missing:
        assert time.monotonic() < deadline, f"{missing} records do not come"
        for message in consumer.consume(1000, 1):
            if message.error() is None:
                missing -= 1
                yield message.value() or b""
    consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.young_topics")
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--peers", default="ottla,zookeeper,kafka")
    options = parser.parse_args()
    found: list[str] = []
    for name in options.peers.split(","):
        with CLUSTERS[name]() as cluster:
            found.append(f"{cluster.name}: {tally(cluster, options.topics)}")
    sys.stdout.write("\n".join(found) + "\n")


if __name__ == "__main__":
    main()
