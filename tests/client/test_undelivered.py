"""The error of a record that was not delivered has the record, so that a program can write it elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.simulated import create, with_broker

from ottla.client import failures
from ottla.client.accumulator import RecordMetadata
from ottla.client.failures import DeliveryError, Failures, of_record
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.client.transaction_errors import ProducerFencedError
from ottla.errors import ErrorCode, KafkaError, UndeliveredRecord
from ottla.sim.cluster import SimBroker
from ottla.sync import Producer as BlockingProducer
from ottla.testing import thread_cluster
from ottla.types import TopicPartition

HEADERS = (("h", b"1"), ("h", None))


def test_the_callback_the_future_and_the_flush_have_the_record() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        told: list[KafkaError | None] = []

        def note(place: RecordMetadata | None, error: KafkaError | None) -> None:
            told.append(error)

        producer = Producer(broker.client("producer"), ProducerSettings(delivery_timeout_ms=1000, linger_ms=10))
        assert (await producer.send_and_wait("t", b"stored", partition=0)).offset == 0
        broker.kill(power_cut=False)
        future = await producer.send("t", b"one", key=b"k", headers=HEADERS, partition=0, timestamp_ms=77, on_delivery=note)
        await producer.send("t", None, partition=0, timestamp_ms=78)
        with pytest.raises(DeliveryError) as caught:
            await producer.flush()
        first = UndeliveredRecord("t", 0, b"k", b"one", HEADERS, 77)
        error = future.exception()
        assert isinstance(error, KafkaError)
        assert told == [error]
        assert error.undelivered == first
        [(partition, second)] = caught.value.failures
        assert (partition, second.undelivered) == (TopicPartition("t", 0), UndeliveredRecord("t", 0, None, None, (), 78))
        assert (second.code, str(second)) == (error.code, str(error))
        await producer.close()

    with_broker(body)


def test_what_found_no_room_has_its_record() -> None:
    """No broker answers any longer: each record fails, in the buffer or before it."""
    failed: dict[int, Any] = {}
    with (
        thread_cluster(1) as nodes,
        BlockingProducer(nodes.bootstrap, buffer_memory=20_000, max_block_ms=100, delivery_timeout_ms=3_000) as producer,
    ):
        producer.send("t", b"first").result(60)
        nodes.stop(1)
        futures, refused = [], list[KafkaError]()
        for number in range(60):
            key = b"k%d" % number if number % 2 else None
            headers = [("h", b"1")] if number % 2 else []
            try:
                futures.append(producer.send("t", b"%d" % number + bytes(1000), key=key, headers=headers, partition=0 if key else None))
            except KafkaError as full:  # the buffer has been full for long enough
                refused.append(full)
                break
        failed = {number: future.exception(60) for number, future in enumerate(futures)}
    assert any("remained full" in error.message for error in [*failed.values(), *refused])
    for number, error in failed.items():
        lost = error.undelivered
        assert (lost.topic, lost.value) == ("t", b"%d" % number + bytes(1000))
        assert (lost.key, lost.headers) == ((b"k%d" % number, (("h", b"1"),)) if number % 2 else (None, ()))
        assert lost.partition == 0 or (lost.partition == -1 and lost.key is None)


def test_an_error_with_its_record_is_of_the_same_kind() -> None:
    cause = OSError("why")
    error = ProducerFencedError(ErrorCode.PRODUCER_FENCED, "text")
    error.__cause__ = cause
    record = UndeliveredRecord("t", 0, None, b"x", (), 1)
    made = of_record(error, record)
    assert (type(made), made.code, made.message, str(made)) == (type(error), error.code, error.message, str(error))
    assert (made.__cause__, made.undelivered, error.undelivered) == (cause, record, None)


def test_records_that_no_caller_looks_at_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unseen:
        is_unseen = True

        def done(self) -> bool:
            return True

        def set_exception(self, exception: BaseException) -> None: ...

        def exception(self) -> None:
            self.is_unseen = False

    monkeypatch.setattr(failures, "KEPT_BYTES_MAX", 100)
    kept, pending = Failures(), Unseen()

    def add() -> None:
        kept.add(TopicPartition("t", 0), KafkaError(ErrorCode.REQUEST_TIMED_OUT), pending)

    assert kept.takes(60)
    add()
    assert not kept.takes(60)
    assert kept.takes(40)
    assert not kept.takes(1)
    pending.exception()
    assert kept.takes(90), "what was seen is no longer kept"
    pending.is_unseen = True
    add()
    assert not kept.takes(90)
    kept.forget()
    assert kept.takes(90)
    pending.is_unseen = True
    add()
    with pytest.raises(DeliveryError):
        kept.raise_unseen()
    assert kept.takes(100)
    kept.is_over = True
    assert kept.takes(1000), "nothing is kept any longer"
