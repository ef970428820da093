"""A history of watched clients: what is lost or doubled is found and named, what is not is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from ottla import aio
from ottla.history.operations import read_history
from ottla.sync import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.testing import History, ThreadNodes, broker
from ottla.testing.records import Seen
from ottla.testing.whereabouts import addresses_of


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
    unwatched = Consumer(served.bootstrap, auto_offset_reset="earliest")
    with history.watch(unwatched, "consumer") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert len(consumer.poll(10_000)) == 3
        consumer.seek(TopicPartition(topic, 0), 1)
        assert len(consumer.poll(10_000)) == 2
        history.check()
        unwatched.seek(TopicPartition(topic, 0), 1)
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


def test_a_client_of_another_broker_is_named_as_such(served: ThreadNodes, topic: str) -> None:
    """Its records were called lost, in words of the broker that never had them."""
    with broker() as other, Admin(other.bootstrap) as admin:
        assert admin.create_topics([NewTopic(topic)]) == {topic: None}, "both brokers have it"
        history = History(other.bootstrap)
        send(history, served, topic)
        where = f"producer talks to {served.bootstrap}, and this history reads {other.bootstrap}: if that is another broker or cluster"
        with pytest.raises(AssertionError, match=rf"unseen in {topic}-0(.*\n)+{where}, make a History of ottla.testing"):
            history.check()


def test_a_topic_of_another_broker_is_named_as_such(served: ThreadNodes, topic: str) -> None:
    """Of a client that does not say where it is."""
    with broker(auto_create_topics_enable=False) as other:
        history = History(other.bootstrap)
        producer = history.watch(confluent_kafka.Producer({"bootstrap.servers": served.bootstrap}))
        producer.produce(topic, b"1")
        producer.flush()
        where = (
            f"topic '{topic}', to which client 1 sent, does not exist at {other.bootstrap}, where this history reads: it was deleted, or"
        )
        with pytest.raises(AssertionError, match=rf"{where} the client talks to another broker or cluster"):
            history.check()


def test_a_history_of_the_same_broker_says_nothing_of_another_one(served: ThreadNodes, topic: str) -> None:
    port = served.bootstrap.rpartition(":")[2]
    history = History(f"localhost:{port}")
    send(history, served, topic)
    history.sending("producer", topic, "3")
    history.sent("producer", topic, "3", partition=0, offset=3)
    with pytest.raises(AssertionError, match=r"the history has 1 anomaly:\n.*$"):
        history.check()


def test_each_client_that_says_so_is_asked_where_it_is(served: ThreadNodes) -> None:
    at = {("127.0.0.1", int(served.bootstrap.rpartition(":")[2]))}

    async def made() -> list[object]:
        found: list[object] = [aio.Producer(served.bootstrap), aiokafka.AIOKafkaProducer(bootstrap_servers=served.bootstrap)]
        found.append(aiokafka.AIOKafkaConsumer(bootstrap_servers=served.bootstrap))
        assert all(addresses_of(client) == at for client in found)
        for client in found:
            await (client.close() if isinstance(client, aio.Producer) else client.stop())  # type: ignore[attr-defined]
        return found

    assert len(asyncio.run(made())) == 3
    with Producer(served.bootstrap) as producer, Consumer([served.bootstrap]) as consumer:
        assert addresses_of(producer) == addresses_of(consumer) == at
    of_kafka_python = kafka.KafkaProducer(bootstrap_servers=[served.bootstrap])
    assert addresses_of(of_kafka_python) == at
    of_kafka_python.close()
    assert addresses_of(confluent_kafka.Producer({"bootstrap.servers": served.bootstrap})) == frozenset()
