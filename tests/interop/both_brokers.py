"""Apache Kafka and ottla side by side, which serve and coordinate, and their topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from bench.peers import Kafka, Ottla
from tests.interop.both_asked import Both, Id
from tests.waiting import eventually

from ottla.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.messages.offset_fetch import OffsetFetchRequest

GIVEN: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


@contextmanager
def both_brokers(given: Mapping[str, str] = {}, user: str | None = None) -> Iterator[tuple[int, int]]:
    """Their ports."""
    assert Kafka.why_not() is None, Kafka.why_not()
    properties = GIVEN | dict(given)
    with Kafka(properties) as kafka, Ottla(**properties) as ours:
        ports = kafka.address[1], ours.address[1]
        eventually(lambda: [serves(port, user) for port in ports], all)
        yield ports


def serves(port: int, user: str | None = None) -> bool:
    """True of a broker that coordinates groups and transactions. The producer id 0, which says nothing in answers, is given."""
    try:
        both = Both(port, port, (), user=user)
    except (OSError, AttributeError, AssertionError):  # closed, or answered before it serves
        return False
    try:
        found = [both.answers(FindCoordinatorRequest(key="g", key_type=kind), 1)[0] for kind in (0, 1)]
        fetched = both.answers(OffsetFetchRequest("g", []), 7)[0]
        producer = both.answers(InitProducerIdRequest("first", 60_000), 1)[0]
    except (OSError, AttributeError, AssertionError):
        return False
    finally:
        both.close()
    return not any([fetched.error_code, producer.error_code, *(one.error_code for one in found)])


def make_topics(both: Both, topics: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
    """Topics of so many partitions, with these configurations, are there and are led."""
    wanted = [
        CreatableTopic(name, count, 1, configs=[CreatableTopicConfig(key, value) for key, value in configs.items()])
        for name, (count, configs) in topics.items()
    ]

    for side, answer in zip(both.sides, both.answers(CreateTopicsRequest(wanted, 10_000), 7)):
        for topic in answer.topics:
            assert topic.error_code == 0, topic
            side.learn(Id("topic", topic.name), topic.topic_id)
    listed = [
        ListOffsetsTopic(name, [ListOffsetsPartition(index, timestamp=-1) for index in range(count)]) for name, (count, _) in topics.items()
    ]

    def codes() -> list[int]:
        shown = both.answers(MetadataRequest([MetadataRequestTopic(name=name) for name in topics]), 9)
        led = both.answers(ListOffsetsRequest(-1, topics=listed), 1)
        return [partition.error_code for answer in (*shown, *led) for topic in answer.topics for partition in topic.partitions] + [
            topic.error_code for answer in shown for topic in answer.topics
        ]

    eventually(codes, lambda found: not any(found))
