"""A broker that hangs while another one takes its place: what it was asked goes there, and waits for no request_timeout_ms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.simulated import KEY, consumer_of, create, end_of, with_broker

from ottla.client.cluster import TRANSACTION_LANE
from ottla.client.late_answers import AGAIN_MS, LATE_MS
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.client.transaction_errors import CommitOutcomeUnknownError
from ottla.messages.end_txn import EndTxnRequest
from ottla.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from ottla.messages.offset_commit import OffsetCommitRequest
from ottla.messages.produce import ProduceRequest
from ottla.sim.cluster import PORT, SimBroker
from ottla.sim.interference import Held, Interference
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

ELSEWHERE, ELSEWHERE_PORT = 7, 9192
"""Another name of the broker, which listens there, too."""
HANGS_MS = 25_000
SOON = 0.5
"""Seconds on the virtual clock."""


def beside_another(body: Callable[[SimBroker], Awaitable[None]]) -> None:
    """``body`` runs with a broker that clients take for two."""
    listeners = f"PLAINTEXT://broker:{PORT},OTHER://broker:{ELSEWHERE_PORT}"
    with_broker(body, listeners=listeners, listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT")


def now() -> float:
    return asyncio.get_running_loop().time()


class TwoBrokers:
    """Metadata names both. What is asked of the first one may hang, and the other one may take its place."""

    def __init__(self, network: Interference) -> None:
        self._hangs: type[Request] | None = None
        self._hung = self._questions = 0
        self._moves_after: int | None = None
        self._moves = range(100)
        network.alter = self._alter

    def hang(self, kind: type[Request], *, moves_after: int | None = 0, moves: range = range(100)) -> None:
        """The answer of the next such request is held up; its broker's place is taken after so many questions of who has it, or never.

        Of partitions those of these numbers have the next leader.
        """
        self._hangs, self._moves_after, self._moves = kind, moves_after, moves

    def _alter(self, request: Request, response: Any) -> Response | Held | None:
        if self._hangs is not None and isinstance(request, self._hangs):
            self._hung += 1
            return Held(HANGS_MS) if self._hung == 1 else None
        if not isinstance(response, MetadataResponse | FindCoordinatorResponse):
            return None
        self._questions += self._hung > 0
        has_moved = self._moves_after is not None and self._questions > self._moves_after
        if isinstance(response, FindCoordinatorResponse):
            places: list[Any] = [response, *response.coordinators]
            for place in places:
                place.node_id, place.port = (ELSEWHERE, ELSEWHERE_PORT) if has_moved else (place.node_id, PORT)
            return response
        [own] = response.brokers
        own.port = PORT
        response.brokers.append(MetadataResponseBroker(ELSEWHERE, own.host, ELSEWHERE_PORT))
        for topic in response.topics if has_moved else []:
            for partition in topic.partitions:
                if partition.partition_index in self._moves:
                    partition.leader_id, partition.leader_epoch = ELSEWHERE, partition.leader_epoch + 1
        return response


@pytest.mark.parametrize("moves_after", [0, 2])
def test_a_batch_goes_to_the_next_leader_and_is_stored_once(moves_after: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        brokers = TwoBrokers(network)
        producer = Producer(cluster, ProducerSettings(linger_ms=0))
        await producer.send_and_wait("t", b"0")
        brokers.hang(ProduceRequest, moves_after=moves_after)
        started = now()
        assert (await producer.send_and_wait("t", b"1")).offset == 1
        assert now() - started < (LATE_MS + moves_after * AGAIN_MS) / 1000 + SOON
        assert len(network.of(ProduceRequest)) == 3
        assert (await cluster.any_connection()).address == f"broker:{ELSEWHERE_PORT}", "the other one is known to hang"
        assert await end_of(broker) == 2
        await producer.close()

    beside_another(body)


def test_a_batch_whose_leader_stays_is_waited_for() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        brokers = TwoBrokers(network)
        producer = Producer(cluster, ProducerSettings(linger_ms=0))
        await producer.send_and_wait("t", b"0")
        asked = len(network.of(MetadataRequest))
        brokers.hang(ProduceRequest, moves_after=None)
        started = now()
        assert (await producer.send_and_wait("t", b"1")).offset == 1
        assert now() - started >= HANGS_MS / 1000
        assert len(network.of(ProduceRequest)) == 2
        assert len(network.of(MetadataRequest)) - asked == 1 + (HANGS_MS - LATE_MS) // AGAIN_MS - 1
        await producer.close()

    beside_another(body)


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_batch_whose_leader_stays_holds_up_none_that_was_sent_with_it(is_idempotent: bool) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        cluster = broker.client("p")
        network = Interference(cluster)
        brokers = TwoBrokers(network)
        producer = Producer(cluster, ProducerSettings(linger_ms=0, enable_idempotence=is_idempotent))
        for partition in (0, 1):
            await producer.send_and_wait("t", b"0", partition=partition)
        asked = len(network.of(ProduceRequest))
        brokers.hang(ProduceRequest, moves=range(1, 2))
        started = now()
        stays, moved = [await producer.send("t", b"1", partition=partition) for partition in (0, 1)]
        await moved
        assert now() - started < LATE_MS / 1000 + SOON
        await stays
        assert now() - started >= HANGS_MS / 1000
        assert len(network.of(ProduceRequest)) - asked == 2
        assert await end_of(broker, TopicPartition("t", 0)) == 2
        await producer.close()
        assert producer.metrics().buffer_used_bytes == 0

    beside_another(body)


def test_a_commit_goes_to_the_next_coordinator() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        brokers = TwoBrokers(network)
        consumer = consumer_of(cluster, group_id="g", enable_auto_commit=False)
        await cluster.refresh()
        consumer.assign([KEY])
        await consumer.commit({KEY: 1})
        brokers.hang(OffsetCommitRequest)
        started = now()
        await consumer.commit({KEY: 2})
        assert now() - started < LATE_MS / 1000 + SOON
        assert await consumer.committed([KEY]) == {KEY: 2}
        await consumer.close()

    beside_another(body)


def test_a_transaction_ends_at_the_next_coordinator() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        brokers = TwoBrokers(network)
        producer = Producer(cluster, ProducerSettings(linger_ms=0, transactional_id="tx"))
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", b"0")
        brokers.hang(EndTxnRequest)
        started = now()
        await producer.commit_transaction()
        assert now() - started < LATE_MS / 1000 + SOON
        assert len(network.of(FindCoordinatorRequest)) > 1
        await producer.begin_transaction()
        await producer.send("t", b"1")
        await producer.commit_transaction()
        assert await end_of(broker) == 4, "two records, and two ends"
        await producer.close()

    beside_another(body)


def test_a_coordinator_that_left_a_call_unanswered_to_its_end_is_looked_for_again() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        brokers = TwoBrokers(network)
        producer = Producer(cluster, ProducerSettings(linger_ms=0, transactional_id="tx", max_block_ms=LATE_MS - 1_000))
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", b"0")
        brokers.hang(EndTxnRequest)
        asked = len(network.of(FindCoordinatorRequest))
        with pytest.raises(CommitOutcomeUnknownError):
            await producer.commit_transaction()
        started = now()
        await producer.commit_transaction()
        assert now() - started < SOON
        assert len(network.of(FindCoordinatorRequest)) == asked + 1
        assert cluster.open_connection(ELSEWHERE, TRANSACTION_LANE) is not None
        await producer.close()

    beside_another(body)
