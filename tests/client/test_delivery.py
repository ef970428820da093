"""Every record comes to an end, within delivery.timeout.ms, and no failure is overlooked."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.broker.leaders import NOBODY, add_other, give
from tests.client.simulated import create, end_of, error_of, produce_answer, stored, with_broker

from ottla.client import exchange, sender
from ottla.client.accumulator import RecordMetadata
from ottla.client.admin import Admin
from ottla.client.connection import ClientConnection
from ottla.client.failures import DeliveryError
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.client.sent_record import SentRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.api_keys import ApiKey
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.messages.metadata import MetadataRequest
from ottla.messages.produce import ProduceRequest, ProduceResponse
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference
from ottla.types import TopicPartition
from ottla.wire.schema import Request


def refuse_all(request: Request) -> ProduceResponse | None:
    return produce_answer(request, ErrorCode.INVALID_RECORD) if isinstance(request, ProduceRequest) else None


@pytest.mark.parametrize("seed", range(8))
def test_flush_and_close_end_when_a_topic_is_deleted_under_them(seed: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await create(broker, "kept")
        settings = ProducerSettings(linger_ms=0, batch_size=1, delivery_timeout_ms=4000, max_block_ms=0)
        producer = Producer(broker.client("p"), settings)
        await producer.send_and_wait("kept", b"x")
        await producer.send_and_wait("t", b"x")
        admin = Admin(broker.client("a"))
        deleting: asyncio.Task[Any] | None = None
        futures = []
        for number in range(150):
            try:
                futures.append(await producer.send("t", b"%d" % number))
            except KafkaError:
                assert "t" not in producer._cluster.topics, "it is refused only when the metadata has lost the topic"
            if number == 100:
                deleting = asyncio.get_running_loop().create_task(admin.delete_topics(["t"]))
            if number % 3 == 0:
                await asyncio.sleep(0.001)
        assert deleting is not None
        await deleting
        others = [await producer.send("kept", b"y") for _ in range(10)]
        with pytest.raises(DeliveryError):
            await producer.flush()
        await producer.close()
        await admin.close()
        assert all(future.exception() is None for future in others)
        assert all(error_of(future).is_retriable for future in futures if future.exception() is not None)

    with_broker(body, seed, auto_create_topics_enable="false")


def test_an_unexpected_failure_fails_the_batch_and_not_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    intact = exchange.exchange

    async def broken(cluster: Any, connection: Any, batches: list[Any], *others: Any, **arguments: Any) -> Any:
        if batches[0].timestamps[0] == 0:
            raise ZeroDivisionError("not foreseen")
        return await intact(cluster, connection, batches, *others, **arguments)

    monkeypatch.setattr(sender, "exchange", broken)

    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=0))
        lost = await producer.send("t", b"x", timestamp_ms=0)
        await asyncio.wait([lost])
        assert "ZeroDivisionError: not foreseen" in str(error_of(lost))
        assert (await producer.send_and_wait("t", b"y")).offset == 0
        await producer.close()

    with_broker(body)


@pytest.mark.parametrize(("call", "settings"), [("leader", {}), ("ask", {}), ("connection", {"enable_idempotence": False})])
def test_an_unexpected_failure_before_the_request_fails_the_batch_and_not_the_sender(call: str, settings: dict[str, Any]) -> None:
    """In the sender's loop, while it gets a producer id, and while it connects."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        await cluster.refresh(["t"])
        intact = getattr(cluster, call)

        def break_once(*arguments: Any) -> Any:
            setattr(cluster, call, intact)
            raise ZeroDivisionError("not foreseen")

        setattr(cluster, call, break_once)
        producer = Producer(cluster, ProducerSettings(linger_ms=0, **settings))
        lost = await producer.send("t", b"x")
        await asyncio.wait([lost])
        assert "ZeroDivisionError: not foreseen" in str(error_of(lost))
        assert (await producer.send_and_wait("t", b"y")).offset == 0
        await producer.close()

    with_broker(body)


def test_a_batch_whose_topic_leaves_the_metadata_before_its_request_is_made_is_sent_again() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        producer = Producer(cluster, ProducerSettings(linger_ms=0))
        await producer.send_and_wait("t", b"x")
        intact = cluster.open_connection

        def forget_once(leader: int) -> Any:
            cluster.open_connection = intact  # type: ignore[method-assign]
            asyncio.get_running_loop().call_soon(cluster.topics.pop, "t")
            return intact(leader)

        cluster.open_connection = forget_once  # type: ignore[assignment, method-assign]
        assert (await producer.send_and_wait("t", b"y")).offset == 1
        assert cluster.open_connection == intact
        await producer.close()

    with_broker(body)


def test_flush_waits_for_what_is_in_flight() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        network.alter = lambda request, response: Held(1_000) if isinstance(request, ProduceRequest) else None
        producer = Producer(cluster, ProducerSettings(linger_ms=0))
        future = await producer.send("t", b"x")
        while not network.of(ProduceRequest):
            await asyncio.sleep(0.001)
        await producer.flush()
        assert future.done()
        await producer.close()

    with_broker(body)


def test_a_batch_that_was_given_up_leaves_its_room_to_others() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        network.refuse = lambda request: (
            produce_answer(request, ErrorCode.NOT_LEADER_OR_FOLLOWER) if isinstance(request, ProduceRequest) else None
        )
        settings = ProducerSettings(linger_ms=0, delivery_timeout_ms=2000, buffer_memory=1000, max_block_ms=1000)
        producer = Producer(cluster, settings)
        large = await producer.send("t", bytes(2000))
        await asyncio.wait([large])
        assert error_of(large).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        network.refuse = lambda request: None
        assert (await producer.send_and_wait("t", b"y")).offset == 0
        await producer.close()

    with_broker(body)


def test_a_batch_that_is_refused_again_and_again_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """A disk is full, say: whoever writes waits for two minutes, and has to know for what."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        network.refuse = lambda request: (
            produce_answer(request, ErrorCode.KAFKA_STORAGE_ERROR) if isinstance(request, ProduceRequest) else None
        )
        producer = Producer(cluster, ProducerSettings(linger_ms=0, delivery_timeout_ms=20_000))
        refused = await producer.send("t", b"x")
        await asyncio.wait([refused])
        assert error_of(refused).code == ErrorCode.KAFKA_STORAGE_ERROR
        [said] = [record.getMessage() for record in caplog.records]
        assert said.startswith("what was sent to t-0 is not written yet, and the producer tries for another 1")
        assert "KAFKA_STORAGE_ERROR" in said
        await producer.close()

    with caplog.at_level(logging.WARNING, logger="ottla.client"):
        with_broker(body)


def test_a_batch_whose_time_was_over_while_its_request_was_out_is_not_sent_again() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        settled = asyncio.Event()

        def refuse_late(request: Request, response: Any) -> Held | None:
            if not isinstance(request, ProduceRequest):
                return None
            network.alter = lambda request, response: None
            asyncio.get_running_loop().call_later(25.001, settled.set)
            return Held(25_000, produce_answer(request, ErrorCode.NOT_LEADER_OR_FOLLOWER))

        network.alter = refuse_late
        producer = Producer(cluster, ProducerSettings(linger_ms=0, delivery_timeout_ms=2000))
        lost = await producer.send("t", b"x")
        await settled.wait()
        assert error_of(lost).code == ErrorCode.REQUEST_TIMED_OUT
        assert (await producer.send_and_wait("t", b"y")).offset == 1
        assert len(network.of(ProduceRequest)) == 2
        await producer.close()

    with_broker(body)


def test_delivery_timeout_holds_while_a_request_is_out() -> None:
    """The answer takes 25 s, below request.timeout.ms; the record has failed after the 2 s that it had."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        Interference(cluster).alter = lambda request, response: Held(25_000) if isinstance(request, ProduceRequest) else None
        clock = cluster.world.clock
        producer = Producer(cluster, ProducerSettings(linger_ms=0, delivery_timeout_ms=2000))
        begun_ms = clock.monotonic_ms()
        future = await producer.send("t", b"x")
        await asyncio.wait([future])
        assert 2000 <= clock.monotonic_ms() - begun_ms < 2100
        assert error_of(future).code == ErrorCode.REQUEST_TIMED_OUT
        await producer.close()
        assert await end_of(broker) == 1, "that it timed out does not say that it was not stored"

    with_broker(body)


def test_delivery_timeout_holds_while_metadata_is_silent() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        clock = cluster.world.clock
        producer = Producer(cluster, ProducerSettings(linger_ms=0, delivery_timeout_ms=2000))
        await producer.send_and_wait("t", b"x")
        network.refuse = lambda request: (
            produce_answer(request, ErrorCode.NOT_LEADER_OR_FOLLOWER) if isinstance(request, ProduceRequest) else None
        )
        network.alter = lambda request, response: Held(20_000) if isinstance(request, MetadataRequest) else None
        begun_ms = clock.monotonic_ms()
        future = await producer.send("t", b"y")
        await asyncio.wait([future])
        assert 2000 <= clock.monotonic_ms() - begun_ms < 2100
        assert error_of(future).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await producer.close()

    with_broker(body)


@pytest.mark.parametrize(
    "arguments",
    [
        {"value": "text"}, {"value": 5}, {"key": "text"}, {"headers": {"name": "text"}}, {"headers": {1: b"x"}}, {"headers": [b"xy", 1]},
        {"headers": 7}, {"partition": "0"}, {"partition": True}, {"timestamp_ms": "now"}, {"timestamp_ms": 2**63}, {"topic": None},
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_refused_before_it_touches_a_queue(arguments: dict[str, Any]) -> None:
    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=0))
        good = [await producer.send("t", b"before")]
        with pytest.raises(TypeError, match=r"give|headers are"):
            await producer.send(**({"topic": "t", "value": b"x"} | arguments))
        good.append(await producer.send("t", b"after"))
        await producer.close()
        assert [future.result().offset for future in good] == [0, 1]

    with_broker(body)


def test_headers_are_a_dict_or_pairs_and_contents_anything_that_has_bytes() -> None:
    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("p"), ProducerSettings(value_serializer=lambda value: f"<{value}>".encode()))
        await producer.send("t", 5, key=bytearray(b"k"), headers={"a": b"1", "b": None})
        await producer.send("t", None, key=memoryview(b"k"), headers=[("a", b"1"), ("a", b"2")])
        await producer.close()
        assert await stored(broker, 2) == [b"<5>", b"<None>"]

    with_broker(body)


def test_flush_raises_failures_that_the_application_has_not_seen() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        producer = Producer(cluster, ProducerSettings(linger_ms=0))
        network.refuse = refuse_all
        for value in (b"a", b"b"):
            await producer.send("t", value)
        with pytest.raises(DeliveryError, match=r"a record for t-0 was not delivered: .*1 other") as caught:
            await producer.flush()
        assert (caught.value.code, caught.value.count) == (ErrorCode.INVALID_RECORD, 2)
        assert [partition for partition, _ in caught.value.failures] == [TopicPartition("t", 0)] * 2
        await producer.flush()  # what was raised once has been seen

        with pytest.raises(KafkaError, match="INVALID_RECORD"):
            await producer.send_and_wait("t", b"seen by the caller")
        told: list[tuple[RecordMetadata | None, KafkaError | None]] = []
        await producer.send("t", b"seen by a callback", on_delivery=lambda landed, error: told.append((landed, error)))
        await producer.flush()
        network.refuse = lambda request: None
        await producer.send("t", b"good", on_delivery=lambda landed, error: told.append((landed, error)))
        await producer.flush()
        (_, refused), (landed, none) = told
        assert refused is not None
        assert refused.code == ErrorCode.INVALID_RECORD
        assert (landed and landed.offset, none) == (0, None)

        network.refuse = refuse_all
        await producer.send("t", b"last")
        with pytest.raises(DeliveryError):
            await producer.close()

    with_broker(body)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"linger_ms": "5"}, "linger_ms", 5), ({"acks": 1}, "acks", "1"), ({"acks": "ALL"}, "acks", "all"), ({"acks": -1}, "acks", "-1"),
        ({"enable_idempotence": "false"}, "enable_idempotence", False), ({"compression_type": "LZ4"}, "compression_type", "lz4"),
    ],
)  # fmt: skip
def test_settings_are_converted_when_they_are_made(given: dict[str, Any], field: str, value: object) -> None:
    assert getattr(ProducerSettings(**given), field) == value


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"linger_ms": "soon"}, "linger.ms='soon': expected an integer"), ({"linger_ms": -1}, "linger.ms=-1: it must be from 0"),
        ({"linger_ms": 1.5}, "an integer"), ({"linger_ms": True}, "an integer"), ({"batch_size": None}, "an integer"),
        ({"acks": "banana"}, "one of all, -1, 0, 1"), ({"acks": True}, "one of all"), ({"acks": 2}, "one of all"),
        ({"compression_type": "zst"}, "did you mean zstd"), ({"enable_idempotence": "perhaps"}, "true or false"),
        ({"key_serializer": 5}, "a function"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused_when_they_are_made(given: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaError, match=text) as caught:
        ProducerSettings(**given)
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_what_was_acknowledged_takes_no_room_and_leaves_none_behind() -> None:
    """A producer that has sent many batches buffers as much as one that has just begun, and no more."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        settings = ProducerSettings(linger_ms=0, buffer_memory=2000, max_block_ms=1000)
        accepted = []
        for count in (1, 100):
            producer = Producer(broker.client(f"p{count}"), settings)
            for _ in range(count):
                await producer.send_and_wait("t", bytes(50))
            broker.kill(power_cut=False)
            waiting = []
            with pytest.raises(KafkaError):  # noqa: PT012
                while True:
                    waiting.append(await producer.send("t", bytes(50)))
            accepted.append(len(waiting))
            await broker.start()
            await producer.flush()
            await producer.close()
        assert accepted[0] == accepted[1] > 10

    with_broker(body)


@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_a_close_that_is_given_up_ends_the_producer_and_fails_what_was_not_acknowledged(
    transactional_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """As ``asyncio.wait_for(producer.close(), 1)`` does. No second close would end what is left."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        producer = Producer(cluster, ProducerSettings(linger_ms=0, transactional_id=transactional_id))
        before = asyncio.all_tasks()
        if transactional_id is not None:
            await producer.init_transactions()
            await producer.begin_transaction()
        network.alter = lambda request, response: Held(600_000) if isinstance(request, ProduceRequest) else None
        sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(3)]
        while not network.of(ProduceRequest):
            await asyncio.sleep(0.01)  # simulated
        sent.append(await producer.send("t", b"3", partition=0))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 1)
        assert not any(future.is_unseen for future in sent[:3] if isinstance(future, SentRecord)), "asyncio would print each of them"
        unsent = ErrorCode.REQUEST_TIMED_OUT if transactional_id is None else ErrorCode.OPERATION_NOT_ATTEMPTED  # with its transaction
        assert [error_of(future).code for future in sent] == [*[ErrorCode.REQUEST_TIMED_OUT] * 3, unsent]
        assert cluster.is_closed
        assert asyncio.all_tasks() <= before

    with_broker(body)
    count = 4 if transactional_id is None else 3
    assert caplog.messages == [f"close ended before {count} records were acknowledged; they may have been stored"]


@pytest.mark.parametrize(
    ("has_quorum", "why"), [(True, "no majority of the controllers seems to run"), (False, "none answers the broker, as when .* ZooKeeper")]
)
def test_a_record_that_found_no_producer_id_says_that_no_controller_is_active(
    monkeypatch: pytest.MonkeyPatch, has_quorum: bool, why: str
) -> None:
    """Brokers in ZooKeeper mode have no quorum to describe."""
    monkeypatch.setattr(ClientConnection, "has", lambda _, api_key: has_quorum if api_key == ApiKey.DESCRIBE_QUORUM else True)

    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("p")
        network = Interference(cluster)
        network.refuse = lambda request: (
            InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE) if isinstance(request, InitProducerIdRequest) else None
        )
        producer = Producer(cluster, ProducerSettings(linger_ms=0, delivery_timeout_ms=3000))
        future = await producer.send("t", b"x")
        with pytest.raises(KafkaError, match=f"no producer id, which the active controller gives: {why}"):
            await future
        await producer.close()

    with_broker(body)


def test_a_record_whose_partition_nobody_leads_says_that_replicas_or_controllers_are_down() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await add_other(broker)
        await give(broker, NOBODY)
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=0, delivery_timeout_ms=3000))
        future = await producer.send("t", b"x")
        with pytest.raises(KafkaError, match="no broker leads the partition: those with a replica in sync are down, or no controller"):
            await future
        await producer.close()

    with_broker(body)
