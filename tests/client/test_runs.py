"""Usual records that are sent within a millisecond: they wait and are encoded together, and each is still one record with its future."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, Consumer, NewTopic, Producer, RecordMetadata, TopicPartition
from ottla.sync.sent_record import SentRecord
from ottla.sync.waiting import Run

WAIT_SECONDS_MAX = 30.0
BATCH_BYTES = 2_000
KINDS: Sequence[dict[str, Any]] = ({}, {}, {}, {"headers": {"a": b"1"}}, {"partition": 1})

Sent = Sequence[tuple[bytes, Future[RecordMetadata]]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path_factory.mktemp("data"))}) as thread:
        yield thread


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: BrokerThread) -> str:
    with Admin(broker.bootstrap) as admin:
        assert admin.create_topics([NewTopic(request.node.name, 3)]) == {request.node.name: None}
    return str(request.node.name)


def stored(broker: BrokerThread, topic: str, count: int) -> dict[tuple[int, int], bytes | None]:
    """The values by partition and offset."""
    found: dict[tuple[int, int], bytes | None] = {}
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(3)])
        while len(found) < count:
            found |= {(record.partition, record.offset): record.value for record in consumer.poll(1000)}
    return found


def check(broker: BrokerThread, topic: str, sent: Sent) -> None:
    """Each future says where its own record is, and those of a partition stand in the order of their sending."""
    places = [future.result(WAIT_SECONDS_MAX) for _, future in sent]
    found = stored(broker, topic, len(sent))
    assert [found[place.partition, place.offset] for place in places] == [value for value, _ in sent]
    for number in range(3):
        offsets = [place.offset for place in places if place.partition == number]
        assert offsets == sorted(offsets)


@contextlib.contextmanager
def loop_held(producer: Producer) -> Iterator[None]:
    """The client's loop does nothing within the block, so that all that is sent waits."""
    held, released = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        released.wait(WAIT_SECONDS_MAX)

    producer._thread.loop.call_soon_threadsafe(hold)
    assert held.wait(WAIT_SECONDS_MAX)
    try:
        yield
    finally:
        released.set()


def stop_time(producer: Producer) -> None:
    """All that is sent from now on is of one millisecond."""
    producer._now_ms = producer._inner._now_ms = lambda: 1_700_000_000_000


def test_records_of_all_sizes_and_kinds_keep_their_futures_and_their_order(broker: BrokerThread, topic: str) -> None:
    with Producer(broker.bootstrap, batch_size=BATCH_BYTES) as producer:
        producer.partitions_for(topic)
        stop_time(producer)
        sent: list[tuple[bytes, Future[RecordMetadata]]] = []
        with loop_held(producer):
            for number in range(2_000):
                given = KINDS[number % len(KINDS)]
                value = b"%d:" % number + bytes(number % 977 if number % 7 == 0 else number % 50)
                sent.append((value, producer.send(topic, value, **given)))
        producer.flush()
        check(broker, topic, sent)


def test_what_is_appended_after_the_loop_has_taken_all_is_taken_too(broker: BrokerThread, topic: str) -> None:
    with Producer(broker.bootstrap, linger_ms=0) as producer:
        producer.partitions_for(topic)
        stop_time(producer)
        sent = []
        for number in range(50):
            value = b"%d" % number
            sent.append((value, producer.send(topic, value)))
            sent[-1][1].result(WAIT_SECONDS_MAX)
        check(broker, topic, sent)


def test_a_buffer_that_holds_a_few_records_takes_a_long_run_bit_by_bit(broker: BrokerThread, topic: str) -> None:
    with Producer(broker.bootstrap, batch_size=BATCH_BYTES, buffer_memory=3_000) as producer:
        producer.partitions_for(topic)
        stop_time(producer)
        with loop_held(producer):
            sent = [(value, producer.send(topic, value)) for value in (b"%d" % number for number in range(1_000))]
        used = producer.metrics().buffer_used_bytes
        assert used <= 3_000 + BATCH_BYTES
        check(broker, topic, sent)


def test_many_at_once_keep_their_futures_and_their_order(broker: BrokerThread, topic: str) -> None:
    with Producer(broker.bootstrap, batch_size=BATCH_BYTES, buffer_memory=3_000) as producer:
        values = [b"%d" % number + bytes(number % 977 if number % 7 == 0 else 0) for number in range(3_000)]
        futures = producer.send_many((topic, value) if number % 11 else (topic, value, b"key") for number, value in enumerate(values))
        check(broker, topic, list(zip(values, futures, strict=True)))


def test_threads_that_send_at_once_lose_nothing(broker: BrokerThread, topic: str) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.partitions_for(topic)
        by_thread: list[list[tuple[bytes, Future[RecordMetadata]]]] = [[] for _ in range(4)]

        def send(thread: int) -> None:
            for number in range(1_000):
                value = b"%d-%d" % (thread, number)
                by_thread[thread].append((value, producer.send(topic, value, headers={"a": b""} if number % 10 == 0 else ())))

        threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_SECONDS_MAX)
        for sent in by_thread:
            assert len(sent) == 1_000
        places = [future.result(WAIT_SECONDS_MAX) for sent in by_thread for _, future in sent]
        assert len({(place.partition, place.offset) for place in places}) == 4_000
        found = stored(broker, topic, 4_000)
        assert [found[place.partition, place.offset] for place in places] == [value for sent in by_thread for value, _ in sent]


def test_a_producer_that_was_closed_within_the_millisecond_takes_none(broker: BrokerThread, topic: str) -> None:
    producer = Producer(broker.bootstrap)
    producer.partitions_for(topic)
    stop_time(producer)
    producer.send(topic, b"1")
    producer.close()
    with pytest.raises(KafkaError, match="closed"):
        producer.send(topic, b"2")


def test_a_value_whose_future_is_not_there_yet_waits_for_it() -> None:
    """The loop may look between the two: what it takes then has both."""
    run, record = Run("topic", 0, 10), SentRecord()
    run.append(b"first", record)
    run.values.append(b"second")
    assert run.take(10) == ([b"first"], [record])
    assert run.take(10) == ([], [])
    run.futures.append(record)
    assert run.take(10) == ([b"second"], [record])


def test_a_record_that_has_failed_does_not_land() -> None:
    """Its callbacks are called once, and so are those of one that lands."""
    told: list[Future[RecordMetadata]] = []
    failed, landed = SentRecord(), SentRecord()
    for record in failed, landed:
        record.add_done_callback(told.append)
    failed.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late"))
    place = RecordMetadata("topic", 0, 7, 0)
    SentRecord.land([failed, landed], [RecordMetadata("topic", 0, 6, 0), place])
    assert told == [failed, landed]
    assert isinstance(failed.exception(), KafkaError)
    assert landed.result() == place
