"""Administration of transactions against Apache Kafka 4.3.0 at levels 2 and 1 of transaction.version, also from the command line."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from bench.peers import Kafka, Peer
from tests.interop.conftest import until_served
from tests.interop.tools import run as run_command

from ottla.aio import Consumer, Producer, TopicPartition
from ottla.client.admin import FencedProducer, HangingTransaction, Outcome
from ottla.client.cluster import MAIN_LANE
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.records.builder import BatchBuilder
from ottla.sync import Admin, NewTopic, ProducerFencedError
from ottla.sync import Producer as BlockingProducer

_numbers = itertools.count()


@pytest.fixture(scope="module", params=[2, 1])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    properties = {"transaction.partition.verification.enable": "false"}  # else no transaction can be made to hang
    with Kafka(properties, transaction_version=request.param) as started:
        asyncio.run(until_served(started.bootstrap))
        yield started


@pytest.fixture
def admin(peer: Peer) -> Iterator[Admin]:
    with Admin(peer.bootstrap) as client:
        yield client


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"administered-{next(_numbers)}"
    assert admin.create_topics([NewTopic(name, 2, 1)]) == {name: None}
    return name


def ottla(peer: Peer, *arguments: str, ends_with: int = 0) -> Any:
    """Returns what the command prints, as JSON. A plan that was not applied ends with 1."""
    command = [sys.executable, "-m", "ottla", "txn", *arguments, "--json", "-B", peer.bootstrap]
    return json.loads(run_command(*command, ends_with=ends_with))["items"]


def test_transactions_are_listed_and_described(peer: Peer, admin: Admin, topic: str) -> None:
    with (
        BlockingProducer(peer.bootstrap, transactional_id=f"{topic}-open") as open_one,
        BlockingProducer(peer.bootstrap, transactional_id=f"{topic}-ended") as ended,
    ):
        for producer in (open_one, ended):
            producer.init_transactions()
        open_one.begin_transaction()
        open_one.send_and_wait(topic, b"x", partition=1)
        with ended.transaction():
            ended.send(topic, b"y", partition=0)
        pattern = f"{topic}-.*"
        while "PrepareCommit" in (states := [each.state for each in admin.list_transactions(pattern=pattern)]):
            pass
        assert states == ["CompleteCommit", "Ongoing"]
        [listed] = admin.list_transactions(states=["Ongoing"], pattern=pattern)
        assert listed.transactional_id == f"{topic}-open"
        assert admin.list_transactions(producer_ids=[listed.producer_id]) == [listed]
        assert admin.list_transactions(pattern=pattern, longer_than_ms=3_600_000) == []
        with pytest.raises(KafkaError, match="unknown states of transactions: Merry"):
            admin.list_transactions(states=["Merry"])

        found = admin.describe_transactions([f"{topic}-open", f"{topic}-none"])
        missing, known = found[f"{topic}-none"], found[f"{topic}-open"]
        assert isinstance(missing, KafkaError)
        assert missing.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert not isinstance(known, KafkaError)
        assert (known.state, known.producer_id, known.partitions) == ("Ongoing", listed.producer_id, frozenset({TopicPartition(topic, 1)}))
        assert known.timeout_ms == 60_000
        states_there = admin.describe_producers([TopicPartition(topic, 1)])[TopicPartition(topic, 1)]
        assert not isinstance(states_there, KafkaError)
        assert [state.transaction_start_offset for state in states_there] == [0]
        assert admin.find_hanging_transactions(longer_than_ms=0) == []

        assert [row["state"] for row in ottla(peer, "list", "--pattern", pattern)] == states
        [row] = ottla(peer, "describe", f"{topic}-open")
        assert (row["state"], row["producer_id"], row["partitions"]) == ("Ongoing", listed.producer_id, [f"{topic}-1"])
        open_one.abort_transaction()


def test_a_fenced_producer_cannot_commit(peer: Peer, admin: Admin, topic: str) -> None:
    with BlockingProducer(peer.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_and_wait(topic, b"x", partition=0)
        fenced = admin.fence_producers([topic])[topic]
        assert isinstance(fenced, FencedProducer)
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()
    [row] = ottla(peer, "fence", topic, "--yes")
    assert (row["producer_id"], row["producer_epoch"]) == (fenced.producer_id, fenced.producer_epoch + 1)


def hang(peer: Peer, topic: str, *, is_commit: bool, index: int = 0) -> None:
    """A transaction has ended, and after its end a record of the same producer and epoch comes, as if a marker had been lost."""

    async def body() -> None:
        async with Producer(peer.bootstrap, transactional_id=topic) as producer:
            await producer.init_transactions()
            assert producer._transactions is not None
            enlistment = producer._transactions._enlistment
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"other", partition=1)
            epoch = enlistment.producer_epoch
            await (producer.commit_transaction() if is_commit else producer.abort_transaction())
            builder = BatchBuilder()
            builder.append(None, b"late", timestamp_ms=producer._world.clock.now_ms())
            batch = builder.build(producer_id=enlistment.producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
            cluster = producer._cluster
            request = ProduceRequest(topic, -1, 30_000, [TopicProduceData(topic, bytes(16), [PartitionProduceData(index, batch)])])
            connection = await cluster.connection(1, MAIN_LANE)
            response = await connection.ask(request, ProduceResponse, timeout_ms=30_000, version_max=11)
            assert response.responses[0].partition_responses[0].error_code == 0

    asyncio.run(body())


def committed(peer: Peer, partition: TopicPartition) -> list[bytes]:
    async def body() -> list[bytes]:
        values: list[bytes] = []
        async with Consumer(peer.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            end = (await consumer.end_offsets([partition]))[partition]
            assert end == 2, "the record and its marker"
            while await consumer.position(partition) < end:
                values += [record.value or b"" for record in await consumer.poll(100)]
        return values

    return asyncio.run(body())


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_hanging_transaction_ends_as_its_coordinator_decided(peer: Peer, admin: Admin, topic: str, is_commit: bool) -> None:
    hang(peer, topic, is_commit=is_commit)
    key = TopicPartition(topic, 0)
    assert admin.find_hanging_transactions([key]) == [], "its last record is too young"
    [found] = admin.find_hanging_transactions([key], longer_than_ms=0)
    assert (found.transactional_id, found.start_offset) == (topic, 0)
    assert found.outcome is (Outcome.COMMIT if is_commit else Outcome.ABORT)
    if is_commit:
        with pytest.raises(AssertionError, match="has committed it"):
            ottla(peer, "abort", topic, "0", "--yes")
    [row] = ottla(peer, "find-hanging", "--topic", topic, "--longer-than", "0", ends_with=1)
    assert row["outcome"] == found.outcome.value
    assert ottla(peer, "find-hanging", "--topic", topic, "--longer-than", "0", "--yes") == [row]
    assert committed(peer, key) == ([b"late"] if is_commit else [])
    assert ottla(peer, "find-hanging", "--longer-than", "0") == []
    with pytest.raises(KafkaError, match="hangs no more"):
        admin.end_hanging_transaction(found)


def test_a_hanging_transaction_that_no_coordinator_knows_is_aborted_on_demand(peer: Peer, admin: Admin, topic: str) -> None:
    hang(peer, topic, is_commit=True)
    for _ in range(2):
        assert isinstance(admin.fence_producers([topic])[topic], FencedProducer)
    key = TopicPartition(topic, 0)
    [found] = admin.find_hanging_transactions([key], longer_than_ms=0)
    assert isinstance(found, HangingTransaction)
    assert found.outcome is Outcome.UNKNOWN
    with pytest.raises(KafkaError, match="no coordinator knows"):
        admin.end_hanging_transaction(found)
    [row] = ottla(peer, "abort", topic, "0", ends_with=1)
    assert admin.find_hanging_transactions([key], longer_than_ms=0) == [found], "without --yes nothing is done"
    assert ottla(peer, "abort", topic, "0", "--yes") == [row]
    assert committed(peer, key) == []


def test_abort_leaves_a_transaction_that_is_open(peer: Peer, topic: str) -> None:
    with BlockingProducer(peer.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_and_wait(topic, b"x", partition=0)
        with pytest.raises(AssertionError, match="no transaction hangs"):
            ottla(peer, "abort", topic, "0", "--yes")
        producer.commit_transaction()
