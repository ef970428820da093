"""Unmodified clients whose question for committed offsets is refused, since the coordinator has moved or loads: they begin at the offset.

``auto.offset.reset`` is "latest" everywhere: a client that takes the refusal for "nothing is committed" reads none of what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from msgspec.structs import replace
from tests.foreign_clients.group_members import BY_HEARTBEATS, CLIENTS, Member, Readings
from tests.foreign_clients.refusing_broker import (
    COMMITTED,
    GROUP,
    PASSING,
    QUESTIONS,
    QUESTIONS_BY_HEARTBEATS,
    RECORDS,
    TOPIC,
    UNSTABLE,
    Refusing,
    refusing_broker,
)
from tests.foreign_clients.wire import RawClient
from tests.waiting import eventually

from ottla.errors import ErrorCode
from ottla.groups.commands import FetchOffsets
from ottla.messages.heartbeat import HeartbeatRequest
from ottla.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.messages.sync_group import SyncGroupRequest
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, Producer, TopicPartition

WAIT_SECONDS_MAX = 60
Broker = tuple[BrokerThread, Refusing]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with refusing_broker(tmp_path) as made:
        yield made


def settings(thread: BrokerThread) -> dict[str, Any]:
    return {"bootstrap.servers": thread.bootstrap, "group.id": GROUP, "auto.offset.reset": "latest", "retry.backoff.ms": 10}


def first_offset(consumer: confluent_kafka.Consumer) -> int | None:
    message = consumer.poll(WAIT_SECONDS_MAX)
    assert message is not None, "it reads nothing"
    if message.error() is not None:
        return first_offset(consumer)  # librdkafka tells the application of the refusal, too
    return message.offset()


@pytest.mark.parametrize("code", [*PASSING, UNSTABLE])
def test_a_member_of_librdkafka_asks_again(broker: Broker, code: ErrorCode) -> None:
    """Its issue 5586: where the answer names no partitions, it waits for an answer to come for ever."""
    thread, refusing = broker
    refusing.refuse(code)
    consumer = confluent_kafka.Consumer(settings(thread))
    consumer.subscribe([TOPIC])
    assert first_offset(consumer) == COMMITTED
    consumer.close()


@pytest.mark.parametrize("code", [*PASSING, UNSTABLE])
def test_librdkafka_asks_again_for_a_partition_that_was_assigned_once_more_meanwhile(broker: Broker, code: ErrorCode) -> None:
    """It takes the refusal of its first question for the answer to its second one."""
    thread, refusing = broker
    refusing.refuse(code, at_once=False)
    consumer = confluent_kafka.Consumer(settings(thread))
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0)])
    eventually(lambda: (consumer.poll(0), refusing.asked)[1], bool)
    consumer.unassign()
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0)])
    refusing.go_on()
    assert first_offset(consumer) == COMMITTED
    consumer.close()


@pytest.mark.parametrize("code", [*PASSING, UNSTABLE])
def test_kafka_python_asks_again(broker: Broker, code: ErrorCode) -> None:
    thread, refusing = broker
    refusing.refuse(code)
    consumer = kafka.KafkaConsumer(
        TOPIC,
        bootstrap_servers=thread.bootstrap,
        group_id=GROUP,
        auto_offset_reset="latest",
        retry_backoff_ms=10,
        consumer_timeout_ms=WAIT_SECONDS_MAX * 1000,
    )
    assert next(consumer).offset == COMMITTED
    consumer.close()


@pytest.mark.parametrize("code", PASSING)
def test_aiokafka_asks_again(broker: Broker, code: ErrorCode) -> None:
    """It reads the codes of partitions alone: where the answer names none, nothing is committed to it."""
    thread, refusing = broker
    refusing.refuse(code)

    async def main() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            TOPIC, bootstrap_servers=thread.bootstrap, group_id=GROUP, auto_offset_reset="latest", retry_backoff_ms=10
        )
        await consumer.start()
        found = await asyncio.wait_for(consumer.getone(), WAIT_SECONDS_MAX)
        assert found.offset == COMMITTED
        await consumer.stop()

    asyncio.run(main())


@pytest.mark.parametrize("client", [*CLIENTS, *BY_HEARTBEATS])
@pytest.mark.parametrize("code", PASSING)
def test_a_member_reads_and_commits_on_when_each_of_its_questions_is_refused_once(
    broker: Broker, code: ErrorCode, client: type[Member]
) -> None:
    thread, refusing = broker
    questions = QUESTIONS_BY_HEARTBEATS if client in BY_HEARTBEATS else QUESTIONS
    readings = Readings()
    member = client(thread.bootstrap, TOPIC, readings)
    with Admin(thread.bootstrap) as admin, Producer(thread.bootstrap) as producer:
        admin.set_offsets(member.group, {TopicPartition(TOPIC, 0): COMMITTED})
        refusing.refuse(code, *questions)
        member.start()
        eventually(lambda: (set(refusing.asked), readings.problems), lambda found: found[0] == set(questions) or bool(found[1]))
        last = producer.send_and_wait(TOPIC, b"last").offset
        wanted = {(0, offset) for offset in range(COMMITTED, last + 1)}
        eventually(lambda: (readings.places, readings.problems), lambda found: found[0] >= wanted or bool(found[1]))
        assert not readings.problems
        assert readings.places == wanted
        member.join()
        assert admin.committed_offsets(member.group)[TopicPartition(TOPIC, 0)].offset == last + 1


@pytest.mark.parametrize("client", BY_HEARTBEATS)
def test_a_member_whose_epoch_is_behind_asks_for_offsets_again(broker: Broker, client: type[Member]) -> None:
    """As it is when its coordinator has moved it on, and the answer to its heartbeat is on its way yet (KIP-848)."""
    thread, refusing = broker
    readings = Readings()
    member = client(thread.bootstrap, TOPIC, readings)
    with Admin(thread.bootstrap) as admin:
        admin.set_offsets(member.group, {TopicPartition(TOPIC, 0): COMMITTED})
    refusing.refuse(ErrorCode.STALE_MEMBER_EPOCH, FetchOffsets)
    member.start()
    wanted = {(0, offset) for offset in range(COMMITTED, RECORDS)}
    eventually(lambda: (readings.places, readings.problems), lambda found: found[0] >= wanted or bool(found[1]))
    assert readings.places == wanted
    assert refusing.asked[FetchOffsets] > 1
    member.join()


@pytest.mark.parametrize("code", [*PASSING, ErrorCode.GROUP_ID_NOT_FOUND])
def test_each_partition_has_the_code_on_which_clients_of_that_version_ask_again(broker: Broker, code: ErrorCode) -> None:
    thread, refusing = broker
    with Admin(thread.bootstrap) as admin:
        topic_id = admin.describe_topic(TOPIC).topic_id
    old = OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic(TOPIC, [0])])
    new = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestTopics(TOPIC, topic_id, [0])])])
    with RawClient(thread.addresses["PLAINTEXT"][1]) as client:
        for version in range(1, 11):
            refusing.refuse(code)
            answer = client.ask(new if version >= 8 else old, version)
            group = answer.groups[0] if version >= 8 else answer
            listed = [(partition.error_code, partition.committed_offset) for topic in group.topics for partition in topic.partitions]
            assert group.error_code == (code if version > 1 else 0)
            has_moved = code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if version < 7:
                assert listed == [(ErrorCode.NOT_COORDINATOR if has_moved else code, -1)]
            else:
                assert listed == ([(UNSTABLE, -1000)] if has_moved else [])


def test_while_a_group_is_loaded_a_heartbeat_is_taken_and_an_assignment_has_to_be_made_again(broker: Broker) -> None:
    thread, refusing = broker
    refusing.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *QUESTIONS)
    with RawClient(thread.addresses["PLAINTEXT"][1]) as client:
        assert client.ask(HeartbeatRequest(GROUP, 1, "member"), 4).error_code == ErrorCode.NONE
        said = SyncGroupRequest(GROUP, 1, "member", protocol_type="consumer", protocol_name="range")
        assert client.ask(said, 5).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_says_what_its_group_speaks_when_it_asks_for_its_assignment(broker: Broker) -> None:
    thread, _ = broker
    said = SyncGroupRequest(GROUP, 1, "member", protocol_type="consumer", protocol_name="range")
    with RawClient(thread.addresses["PLAINTEXT"][1]) as client:
        for lacking in (replace(said, protocol_type=None), replace(said, protocol_name=None)):
            assert client.ask(lacking, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert client.ask(lacking, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
