"""Batches that are larger than their topic takes: their records go on in smaller ones, in order, once each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.leaders import NOBODY, add_other, give, own_id
from tests.client.simulated import KEY, create, error_of, produce_answer, stored, with_broker
from tests.client.test_producer_model import FINAL, World, script
from tests.client.test_transactions import LEVELS, with_model
from tests.client.test_transactions import World as Transacting
from tests.client.transactional_broker import TransactionalBroker

from ottla import sync
from ottla.client.accumulator import PartitionQueue, ProducerBatch
from ottla.client.admin import NewTopic
from ottla.client.outgoing import Outgoing
from ottla.client.pieces import divide
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.client.sent_record import SentRecord
from ottla.client.verdict import Verdict, verdict_of
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.produce import ProduceRequest
from ottla.records.batch import HEADER_SIZE, SEQUENCE_MAX, read_header
from ottla.records.iteration import iterate_records
from ottla.runtime.serve import BrokerThread
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference, Lost
from ottla.sim.loop import run
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

TOO_LARGE = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "the batch has too many bytes")
LIMIT = 200
"""Of the topics here, in bytes of a batch."""


def limited(limit: int = LIMIT) -> dict[str, str]:
    return {"max.message.bytes": str(limit)}


# The table


@pytest.mark.parametrize(
    ("code", "given_", "fate"),
    [
        (ErrorCode.NONE, {}, Verdict.STORED),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, {"is_over": True}, Verdict.STORED),
        (ErrorCode.MESSAGE_TOO_LARGE, {}, Verdict.DIVIDED),
        (ErrorCode.RECORD_LIST_TOO_LARGE, {}, Verdict.DIVIDED),
        (ErrorCode.MESSAGE_TOO_LARGE, {"count": 1}, Verdict.GIVEN_UP),
        (ErrorCode.MESSAGE_TOO_LARGE, {"is_over": True}, Verdict.GIVEN_UP),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, {}, Verdict.AGAIN),
        (ErrorCode.BROKER_NOT_AVAILABLE, {}, Verdict.AGAIN),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, {"is_over": True}, Verdict.GIVEN_UP),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, {}, Verdict.RENUMBERED),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, {"follows_a_failure": True}, Verdict.FOLLOWS),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, {"is_idempotent": False}, Verdict.GIVEN_UP),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, {"is_transactional": True}, Verdict.GIVEN_UP),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, {"is_transactional": True, "follows_a_failure": True}, Verdict.FOLLOWS),
        (ErrorCode.UNKNOWN_PRODUCER_ID, {"is_transactional": True, "follows_a_failure": True}, Verdict.GIVEN_UP),
        (ErrorCode.INVALID_RECORD, {"follows_a_failure": True}, Verdict.GIVEN_UP),
    ],
)
def test_the_fate_of_a_batch(code: ErrorCode, given_: dict[str, int], fate: Verdict) -> None:
    known = {"count": 2, "is_over": False, "is_idempotent": True, "is_transactional": False, "follows_a_failure": False} | given_
    assert verdict_of(code, **known) is fate  # type: ignore[arg-type]


# One queue


def _record(rng: random.Random, size: int, when: int) -> Outgoing:
    key = rng.choice([None, b"", bytes(rng.randrange(9))])
    headers = tuple((f"h{index}", rng.choice([None, b"x"])) for index in range(rng.choice([0, 0, 3])))
    return Outgoing("topic", 0, key, rng.choice([None, bytes(size)]), headers, when, size)


@given(st.integers(0, 2**32))
def test_pieces_have_the_records_of_the_batch_and_its_place_among_the_others(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        queue = PartitionQueue(TopicPartition("topic", 0))
        counts = [rng.randint(2, 12) for _ in range(5)]
        sent: list[tuple[Outgoing, SentRecord]] = []
        for count in counts:
            for number in range(count):
                record = _record(rng, rng.choice([0, 1, 40, 3000]), rng.choice([0, 7, 2**40]))
                sent.append((record, SentRecord()))
                queue.add(*sent[-1], batch_bytes_max=1 << 20, now_ms=3, delivery_timeout_ms=1000)
                queue.batches[-1].is_closed = number == count - 1
        queue._numbered_for, queue._next_sequence = 7, rng.choice([0, SEQUENCE_MAX - 9])  # it wraps
        start = queue._next_sequence
        flying = [queue.take("connection", producer_id=7) for _ in range(4)]
        answered = flying.pop(rng.randrange(4))
        queue.landed(answered)
        before = answered.builder.size_bytes - HEADER_SIZE
        saved = divide(queue, answered, TOO_LARGE)
        pieces = list(answered.finished.result())
        assert before - saved == sum(piece.builder.size_bytes - HEADER_SIZE for piece in pieces), "buffer.memory is exact"
        assert len(pieces) > 1
        assert {(piece.deadline_ms, piece.numbered_for, piece.is_closed) for piece in pieces} == {(1003, 7, True)}
        for batch in flying:
            queue.landed(batch)
            queue.take_back(batch)
        order: list[ProducerBatch] = []
        while queue.batches:
            order.append(queue.take("another", producer_id=7))
        assert [batch.index for batch in order] == list(range(len(order))), "each counts in the window that the broker knows"
        assert [future for batch in order for future in batch.futures] == [future for _, future in sent]
        read = [record for batch in order for record in iterate_records(batch.builder.build())]
        assert [(r.key, r.value, tuple(r.headers), r.timestamp_ms) for r in read] == [
            (record.key, record.value, record.headers, record.timestamp_ms) for record, _ in sent
        ]
        assert [time for batch in order for time in batch.timestamps] == [record.timestamp_ms for record, _ in sent]
        numbers = [(batch.base_sequence + place) % 2**31 for batch in order for place in range(batch.count)]
        assert numbers == [(start + place) % 2**31 for place in range(len(sent))]

    run(main())


def test_later_batches_are_divided_as_the_first_had_to_be() -> None:
    async def main() -> None:
        queue = PartitionQueue(TopicPartition("topic", 0))
        for _ in range(2):
            for _ in range(16):
                queue.add(
                    Outgoing("topic", 0, None, bytes(92), (), 0, 92), SentRecord(), batch_bytes_max=1 << 20, now_ms=0, delivery_timeout_ms=9
                )
            queue.batches[-1].is_closed = True
        first, second = queue.take("c", 7), queue.take("c", 7)
        queue.landed(first)
        while first.count > 2:
            divide(queue, first, TOO_LARGE)
            first = queue.take("c", 7)
            queue.landed(first)
        queue.landed(second)
        divide(queue, second, TOO_LARGE)
        assert [piece.count for piece in second.finished.result()] == [2] * 8

    run(main())


# One broker


def test_what_a_topic_takes_one_by_one_arrives_however_it_was_gathered() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, configs=limited())
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=50))
        sent = [await producer.send("t", b"%03d" % number + bytes(47)) for number in range(100)]
        await producer.flush()
        assert [future.result().offset for future in sent] == list(range(100))
        assert producer.metrics().batches_divided > 1
        assert producer.metrics().buffer_used_bytes == 0
        assert producer.metrics().records_acknowledged == 100
        await producer.close()
        assert [value[:3] for value in await stored(broker, 100) if value] == [b"%03d" % number for number in range(100)]

    with_broker(body)


@pytest.mark.parametrize("enable_idempotence", [True, False])
def test_a_record_that_is_too_large_fails_alone(enable_idempotence: bool) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, configs=limited())
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=50, enable_idempotence=enable_idempotence))
        sent = [await producer.send("t", b"%02d" % number + bytes(300 if number in (0, 7, 19) else 48)) for number in range(20)]
        await asyncio.wait(sent)
        assert [number for number, future in enumerate(sent) if future.exception()] == [0, 7, 19]
        assert error_of(sent[7]).code == ErrorCode.MESSAGE_TOO_LARGE
        assert producer.metrics().buffer_used_bytes == 0
        await producer.close()
        values = [value[:2] for value in await stored(broker, 17) if value]
        expected = [b"%02d" % number for number in range(20) if number not in (0, 7, 19)]
        assert values == expected if enable_idempotence else sorted(values) == expected

    with_broker(body)


def test_a_flush_waits_for_the_pieces() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, configs=limited())
        cluster = broker.client("p")
        network = Interference(cluster)
        network.alter = lambda request, response: Held(400) if isinstance(request, ProduceRequest) else None
        producer = Producer(cluster, ProducerSettings(linger_ms=60_000))
        sent = [await producer.send("t", bytes(50)) for _ in range(12)]
        await producer.flush()
        assert all(future.done() for future in sent)
        await producer.close()

    with_broker(body)


def test_batches_in_flight_do_not_overtake_the_pieces_of_an_earlier_one() -> None:
    """Small batches behind a large one: the broker would take them, were it not for their numbers."""

    async def body(broker: SimBroker) -> None:
        await create(broker, configs=limited())
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=0))
        await producer.send_and_wait("t", b"00")  # the broker knows the producer: five may be in flight
        sent = []
        for number in range(1, 60):
            sent.append(await producer.send("t", b"%02d" % number + bytes(40 * (number % 3))))
            if number % 7:
                await asyncio.sleep(0.0002)
        await producer.flush()
        assert [future.result().offset for future in sent] == list(range(1, 60))
        await producer.close()

    with_broker(body)


WITHOUT_A_LEADER_S = 0.5
"""On the virtual clock: longer than the broker holds what may be early."""


def test_pieces_go_on_after_changes_of_the_leader() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, configs=limited())
        await add_other(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        producer = Producer(cluster, ProducerSettings(linger_ms=5))

        async def change() -> None:
            for _ in range(4):
                seen = len(network.of(ProduceRequest))
                while len(network.of(ProduceRequest)) < seen + 3:
                    await asyncio.sleep(0.001)
                await give(broker, NOBODY)
                await asyncio.sleep(WITHOUT_A_LEADER_S)
                await give(broker, own_id(broker))

        changing = asyncio.ensure_future(change())
        sent = []
        for number in range(120):
            sent.append(await producer.send("t", b"%03d" % number + bytes(48)))
            if number % 20 == 19:
                await asyncio.sleep(0.01)
        await producer.flush()
        await changing
        assert [future.result().offset for future in sent] == list(range(120))
        assert producer.metrics().batches_retried
        assert producer.metrics().batches_divided
        await producer.close()

    with_broker(body)


def test_close_and_the_delivery_timeout_end_what_is_divided() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, configs=limited())
        cluster = broker.client("p", request_timeout_ms=1000)
        network = Interference(cluster)
        network.refuse = lambda request: (
            produce_answer(request, ErrorCode.MESSAGE_TOO_LARGE if _count(request) > 2 else ErrorCode.NOT_ENOUGH_REPLICAS)
            if isinstance(request, ProduceRequest)
            else None
        )
        producer = Producer(cluster, ProducerSettings(linger_ms=0, delivery_timeout_ms=3000))
        sent = [await producer.send("t", bytes(50)) for _ in range(12)]
        await asyncio.wait(sent)
        assert {error_of(future).code for future in sent} == {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT}
        assert producer.metrics().buffer_used_bytes == 0
        more = [await producer.send("t", bytes(50)) for _ in range(12)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.5)
        assert all(future.done() and future.exception() for future in more)

    with_broker(body)


def _count(request: ProduceRequest) -> int:
    [topic] = request.topic_data
    return sum(read_header(part.records).count for part in topic.partition_data if isinstance(part.records, bytes | bytearray | memoryview))


# Transactions


def refuse_one_late(model: TransactionalBroker, code: ErrorCode) -> list[int]:
    """The next batch is refused, by an answer that comes when others have been sent after it; how many were."""
    after: list[int] = []

    def answer(request: Request) -> Response | Held | Lost | None:
        if not isinstance(request, ProduceRequest):
            return model._answer(request)
        if not after:
            after.append(0)
            return Held(50, instead=model._refused(request, code))
        after[0] += 1
        return model._answer(request)

    model.network.refuse = answer
    return after


@LEVELS
@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_batches_after_one_that_comes_back_keep_their_transaction(level: int, code: ErrorCode) -> None:
    async def body(world: Transacting) -> None:
        producer, model = world.producer, world.model
        async with producer.transaction():
            await producer.send_and_wait("t", b"known", partition=0)
            after = refuse_one_late(model, code)
            for number in range(12):
                await producer.send("t", b"%02d" % number, partition=0)
                if number % 4 == 3:
                    await asyncio.sleep(0.01)
            assert after == [2], "they were in flight, and were refused as out of order"
        log = model.logs[KEY]
        assert [value for batch in log for value in batch.values] == [b"known", *[b"%02d" % number for number in range(12)]]
        assert {batch.outcome for batch in log} == {True}
        assert {(batch.producer_id, batch.epoch) for batch in log} == {(log[0].producer_id, log[0].epoch)}
        assert bool(producer.metrics().batches_divided) == (code == ErrorCode.MESSAGE_TOO_LARGE)

    with_model(level, body)


# Any faults


@pytest.mark.parametrize("seed", range(25))
def test_records_that_fit_alone_are_never_too_large_under_any_faults(seed: int) -> None:
    async def body(broker: SimBroker) -> None:
        rng = random.Random(seed)
        for topic in ("t", "doomed"):
            await create(broker, topic, configs=limited(rng.choice([75, 90, 120])))
        world = World(broker, linger_ms=rng.choice([0, 5, 40]), batch_size=rng.choice([200, 16_384]))
        for step in script(rng):
            if step[:2] != ("refuse", FINAL):
                await world.take(step)
        await world.end()
        await world.check()
        assert all(error_of(future).code != FINAL for future in world.sent.values() if future.exception())

    with_broker(body, seed, auto_create_topics_enable="false")


# A real broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread({"node.id": "1", "log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}) as thread:
        yield thread


@pytest.mark.parametrize("compression_type", ["none", "gzip"])
def test_a_real_broker_has_all_records_in_order_and_once(broker: BrokerThread, compression_type: Literal["none", "gzip"]) -> None:
    with sync.Admin(broker.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 1, configs=limited(1000))]) == {"t": None}
    content = random.Random(1)
    values = [b"%05d" % number + content.randbytes(60) for number in range(2000)]
    with sync.Producer(broker.bootstrap, linger_ms=5, compression_type=compression_type) as producer:
        futures = producer.send_many([("t", value) for value in values])
        producer.flush()
        assert [future.result().offset for future in futures] == list(range(2000))
        assert producer.metrics().batches_divided
    with sync.Consumer(broker.bootstrap) as consumer:
        consumer.assign([KEY])
        consumer.seek_to_beginning([KEY])
        read: list[bytes | None] = []
        while len(read) < 2000:
            read += [record.value for record in consumer.poll(1000)]
    assert read == values


def test_a_real_transaction_commits_what_was_divided(broker: BrokerThread) -> None:
    with sync.Admin(broker.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 1, configs=limited(400))]) == {"t": None}
    with sync.Producer(broker.bootstrap, linger_ms=5, transactional_id="x", batch_size=2000) as producer:
        producer.init_transactions()
        with producer.transaction():
            futures = [producer.send("t", b"%03d" % number + bytes(40)) for number in range(300)]
        assert [future.result().offset for future in futures] == list(range(300))
