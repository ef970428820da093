"""A coordinator that takes requests and answers none: a poll ends in its time nevertheless, and so does a close."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, take, with_broker

from ottla.client.group_metadata import GroupMetadata
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.client.transaction_errors import CommitOutcomeUnknownError, TransactionAbortableError
from ottla.errors import KafkaError
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.messages.end_txn import EndTxnRequest
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.leave_group import LeaveGroupRequest
from ottla.messages.offset_commit import OffsetCommitRequest
from ottla.messages.produce import ProduceRequest
from ottla.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Fate, Held, Interference
from ottla.wire.schema import Request

MAX_BLOCK_MS = 3_000
FOREVER_MS = 10_000_000
REQUEST_TIMEOUT_MS = 30_000
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@PROTOCOLS
def test_a_poll_and_a_close_end_in_their_time(protocol: str) -> None:
    def unanswered(request: Request) -> Fate:
        is_leave = isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch < 0
        return Held(FOREVER_MS) if is_leave or isinstance(request, OffsetCommitRequest | LeaveGroupRequest) else None

    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 3)
        cluster = broker.client("c")
        network, clock = Interference(cluster), cluster.world.clock
        settings = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 1_000, "group_protocol": protocol}
        consumer = consumer_of(cluster, group_id="g", **settings)
        consumer.subscribe(["t"])
        await take(consumer, 3)
        network.refuse = unanswered
        for _ in range(5):
            began_ms = clock.monotonic_ms()
            await consumer.poll(2_000)
            assert clock.monotonic_ms() - began_ms <= 2_100
        assert network.of(OffsetCommitRequest), "a commit was due"
        began_ms = clock.monotonic_ms()
        await consumer.close()
        assert clock.monotonic_ms() - began_ms <= REQUEST_TIMEOUT_MS + 1_100

    with_broker(body)


@pytest.mark.parametrize("how", ["range", "cooperative-sticky", "consumer"])
def test_a_poll_ends_in_its_time_while_the_commit_before_a_rebalance_is_not_answered(how: str) -> None:
    """Nothing is handed out meanwhile: the commit would not cover it, and the next owner would read it again."""
    of_member = (
        {"group_protocol": "consumer"} if how == "consumer" else {"partition_assignment_strategy": [how], "heartbeat_interval_ms": 500}
    )

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        for index in range(2):
            await fill(broker, 100, partition=index)
        cluster = broker.client("first")
        network, clock = Interference(cluster), cluster.world.clock
        first = consumer_of(cluster, group_id="g", auto_commit_interval_ms=FOREVER_MS, **of_member)
        revoked: list[int] = []
        first.subscribe(["t"], on_revoked=lambda partitions: revoked.append(len(partitions)))
        read = [(record.partition, record.offset) for record in await take(first, 4, max_records=2)]
        network.alter = lambda request, _: Held(8_000) if isinstance(request, OffsetCommitRequest) else None
        second = consumer_of(broker.client("second"), group_id="g", **of_member)
        second.subscribe(["t"])
        while not second.assignment():
            is_committing = bool(network.of(OffsetCommitRequest))
            began_ms = clock.monotonic_ms()
            found = await first.poll(500, max_records=1)
            assert clock.monotonic_ms() - began_ms <= 600
            assert not found or not is_committing or revoked
            read += [(record.partition, record.offset) for record in found]
            read += [(record.partition, record.offset) for record in await second.poll(10)]
        assert revoked
        assert len(read) < 200, "there was something to hand out"
        network.alter = lambda request, _: None
        while len(read) < 200:
            read += [(record.partition, record.offset) for member in (first, second) for record in await member.poll(100)]
        assert sorted(read) == [(index, offset) for index in range(2) for offset in range(100)]
        assert how != "range" or first.generation_id == 2, "the answer to a heartbeat of the first generation comes while it joins"
        await first.close()
        await second.close()

    interval = "500"
    with_broker(
        body,
        group_consumer_heartbeat_interval_ms=interval,
        group_consumer_min_heartbeat_interval_ms=interval,
        group_consumer_assignment_interval_ms="0",
    )


def test_an_automatic_commit_that_is_under_way_is_not_sent_again_after_a_newer_one() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 3)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=1_000)
        consumer.subscribe(["t"])
        await take(consumer, 3)
        network.refuse = lambda request: Held(20_000) if isinstance(request, OffsetCommitRequest) else None
        await consumer.poll(2_000)
        network.refuse = lambda request: None
        await consumer.commit({("t", 0): 1})
        await consumer.poll(500)
        sent = [request.topics[0].partitions[0].committed_offset for request in network.of(OffsetCommitRequest)]
        assert sent[0] == 3, "the automatic one"
        assert set(sent[sent.index(1) :]) == {1}
        await consumer.close()

    with_broker(body)


@pytest.mark.parametrize(
    ("call", "unanswered"),
    [
        ("init", InitProducerIdRequest),
        ("offsets", TxnOffsetCommitRequest),
        ("commit", EndTxnRequest),
        ("abort", EndTxnRequest),
        ("abort", ProduceRequest),
    ],
)
def test_a_call_of_a_transaction_ends_in_its_time(call: str, unanswered: type[Request]) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network, clock = Interference(cluster), cluster.world.clock
        producer = Producer(cluster, ProducerSettings(transactional_id="x", linger_ms=0, max_block_ms=MAX_BLOCK_MS))
        if call != "init":
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"1")
        network.alter = lambda request, _: Held(MAX_BLOCK_MS + 1_000) if isinstance(request, unanswered) else None
        if unanswered is ProduceRequest:
            await producer.send("t", b"2")
            while len(network.of(ProduceRequest)) < 2:
                await asyncio.sleep(0)
        began_ms = clock.monotonic_ms()
        match call:
            case "init":
                with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
                    await producer.init_transactions()
            case "offsets":
                with pytest.raises(TransactionAbortableError, match="REQUEST_TIMED_OUT"):
                    await producer.send_offsets_to_transaction({KEY: 1}, GroupMetadata("g"))
            case "commit":
                with pytest.raises(CommitOutcomeUnknownError):
                    await producer.commit_transaction()
            case _:
                with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
                    await producer.abort_transaction()
        assert clock.monotonic_ms() - began_ms <= MAX_BLOCK_MS
        network.alter = lambda request, _: None
        match call:  # what did not end may be called again
            case "init":
                await producer.init_transactions()
            case "commit":
                await producer.commit_transaction()
            case _:
                await producer.abort_transaction()
        await producer.close()

    with_broker(body)
