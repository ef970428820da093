"""A history of watched clients: what is lost or doubled is found and named, what is not is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import aio
from ottla.history.operations import read_history
from ottla.sync import Consumer, Producer, TopicPartition
from ottla.testing import History, ThreadNodes, broker
from ottla.testing.records import Seen


@pytest.fixture(scope="module")
def served() -> Iterator[ThreadNodes]:
    with broker() as made:
        yield made


@pytest.fixture
def topic(served: ThreadNodes) -> Iterator[str]:
    yield served.topic("t")
    served.faults.clear()


def send(history: History, served: ThreadNodes, topic: str, count: int = 3, *, is_idempotent: bool = True) -> None:
    with history.watch(Producer(served.bootstrap, enable_idempotence=is_idempotent), "producer") as producer:
        for number in range(count):
            producer.send_and_wait(topic, b"%d" % number)


def test_what_was_sent_and_read_is_valid(served: ThreadNodes, topic: str) -> None:
    history = History(served.bootstrap)
    send(history, served, topic)
    with history.watch(Consumer(served.bootstrap, group_id=topic, auto_offset_reset="earliest")) as consumer:
        consumer.subscribe([topic])
        assert [next(records).value for records in [iter(consumer)] for _ in range(3)] == [b"0", b"1", b"2"]
    history.check()
    verdict = history.judge()
    assert (verdict.counts["send"], verdict.record_count) == (3, 3 + 3 + 3)  # by the consumer, and at each of two judgements


def test_a_doubled_record_is_named(served: ThreadNodes, topic: str) -> None:
    history = History(served.bootstrap)
    served.faults.lost("Produce")
    send(history, served, topic, is_idempotent=False)
    with pytest.raises(AssertionError, match=rf"duplicate in {topic}-0: '0' is at offset 1, and was polled by the log at offset 0"):
        history.check()
    history.allow("duplicate", "inconsistent-offsets")
    history.check()


def test_a_lost_record_is_named(served: ThreadNodes, topic: str) -> None:
    """As if the broker had acknowledged what it did not keep."""
    history = History(served.bootstrap)
    send(history, served, topic)
    history.sending("producer", topic, "3")
    history.sent("producer", topic, "3", partition=0, offset=3)
    with pytest.raises(AssertionError, match=rf"the history has 1 anomaly:\n  unseen in {topic}-0: '3' was acknowledged to producer"):
        history.check()


def test_without_an_address_topics_are_not_read() -> None:
    history = History()
    history.sending("p", "t", "a")
    history.sent("p", "t", "a", partition=0, offset=0)
    history.check()
    history.assigned("c", [("t", 0)])
    history.polled("c", [Seen("t", 0, 0, "a"), Seen("t", 0, 0, "a")])
    with pytest.raises(AssertionError, match="int-nonmonotonic-poll"):
        history.check()


def test_a_test_that_watched_nothing_passes() -> None:
    History("127.0.0.1:1").check()


def test_serializers_are_seen_through(served: ThreadNodes, topic: str) -> None:
    history = History(served.bootstrap)

    def serialized(value: object) -> bytes:
        return json.dumps(value).encode()

    def deserialized(value: bytes | None) -> object:
        return json.loads(value or b"null")

    with history.watch(Producer(served.bootstrap, value_serializer=serialized, key_serializer=str.encode)) as producer:
        producer.send(topic, {"a": 1}, key="k")
    with history.watch(Consumer(served.bootstrap, value_deserializer=deserialized, auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.poll(10_000)[0].value == {"a": 1}
    history.check()
    assert {operation.value for operation in history.operations if operation.f == "send"} == {'k: {"a": 1}'}
    assert [operation.records[0][3] for operation in history.operations if operation.f == "poll"] == ['k: {"a": 1}'] * 2


def test_a_manual_consumer_that_goes_back_is_found_and_one_that_seeks_is_not(served: ThreadNodes, topic: str) -> None:
    history = History(served.bootstrap)
    send(history, served, topic)
    with history.watch(Consumer(served.bootstrap, auto_offset_reset="earliest"), "consumer") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert len(consumer.poll(10_000)) == 3
        consumer.seek(TopicPartition(topic, 0), 1)
        assert len(consumer.poll(10_000)) == 2
        history.check()
        consumer._client.seek(TopicPartition(topic, 0), 1)
        assert len(consumer.poll(10_000)) == 2
    with pytest.raises(AssertionError, match="nonmonotonic-poll"):
        history.check()


def test_transactions_of_ottlas_clients(served: ThreadNodes, topic: str) -> None:
    history = History(served.bootstrap)

    class Refused(Exception):
        pass

    with history.watch(Producer(served.bootstrap, transactional_id=topic)) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_many([(topic, b"committed"), (topic, b"too", b"key")])

        def refuse() -> None:
            with producer.transaction():
                producer.send_and_wait(topic, b"aborted")
                raise Refused

        with pytest.raises(Refused):
            refuse()

    async def body() -> None:
        async with history.watch(aio.Producer(served.bootstrap, transactional_id=f"{topic}-aio")) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send_many([(topic, b"by aio")])

    asyncio.run(body())
    history.check()
    ends = [(operation.f, operation.type) for operation in history.operations if operation.f.endswith("_transaction")]
    assert ends == [(f"{how}_transaction", kind) for how in ("commit", "abort", "commit") for kind in ("invoke", "ok")]
    read = [operation.records[0][3] for operation in history.operations if operation.f == "poll"]
    assert read == ["committed", "key: too", "by aio"]


def test_it_is_written_as_check_history_reads_it(served: ThreadNodes, topic: str, tmp_path: Path) -> None:
    history = History(served.bootstrap)
    send(history, served, topic, 1)
    history.write(tmp_path / "history.jsonl")
    assert list(read_history((tmp_path / "history.jsonl").open("rb"))) == history.operations


def test_watching_a_non_client_and_allowing_an_unknown_anomaly_are_refused() -> None:
    with pytest.raises(TypeError, match="str is neither a producer nor a consumer"):
        History().watch("x")
    with pytest.raises(TypeError, match=r"Producer is a class: watch a client, as in history.watch\(Producer\(...\)\)"):
        History().watch(Producer)
    with pytest.raises(ValueError, match="'lost' is no kind of anomaly"):
        History().allow("lost")


def test_records_that_the_test_sent_twice_itself_are_named_as_such(served: ThreadNodes, topic: str) -> None:
    history = History(served.bootstrap)
    send(history, served, topic, 2)
    send(history, served, topic, 1)
    with pytest.raises(AssertionError, match=rf"duplicate in (.*\n)+the test itself sent '0' 2 times to {topic}: key and value identify"):
        history.check()
