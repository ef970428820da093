"""Errors of a client name what happened: a topic that was deleted, a broker that does not answer, an application that did not poll."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.simulated import consumer_of, create, take, with_broker
from tests.client.test_poll_interval import INTERVAL_MS, PROTOCOLS, SETTINGS

from ottla import sync
from ottla.client.admin import Admin
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.sim.cluster import SimBroker
from ottla.testing import thread_cluster


def test_records_of_a_topic_that_is_deleted_meanwhile_fail_with_that() -> None:
    """Their error was that replicas were down."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = Producer(broker.client("p"), ProducerSettings(delivery_timeout_ms=3000, linger_ms=0))
        await (await producer.send("t", b"stored"))
        admin = Admin(broker.client("a"))
        assert await admin.delete_topics(["t"]) == {"t": None}
        with pytest.raises(KafkaError, match="the last error: topic 't' does not exist, or no longer") as caught:
            await (await producer.send("t", b"late"))
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await admin.close()
        await producer.close()

    with_broker(body, auto_create_topics_enable="false")


@pytest.mark.parametrize("call", [lambda producer: producer.send("t", b"x"), lambda producer: producer.partitions_for("t")])
def test_a_broker_that_takes_connections_and_never_answers_holds_a_send_for_max_block_ms(call: Callable[[sync.Producer], Any]) -> None:
    """It was held until the connection was given up, for 10 s."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with sync.Producer(address, max_block_ms=300) as producer:
            with pytest.raises(KafkaError, match=f"max_block_ms=300.* it waited for .*{address}") as caught:
                call(producer)
            assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT


def test_a_tls_client_at_a_plain_listener_is_pointed_to_it(tmp_path: Any) -> None:
    with (
        BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker,
        sync.Admin(broker.bootstrap, security_protocol="SSL", default_api_timeout_ms=2000) as admin,
        pytest.raises(KafkaError, match=r"handshake.*; a listener that speaks plain text ends it so"),
    ):
        admin.describe_cluster()


@PROTOCOLS
def test_a_member_that_left_because_it_was_not_polled_says_so(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c"), group_id="g", max_poll_interval_ms=INTERVAL_MS, **SETTINGS[protocol])
        consumer.subscribe(["t"])
        while not consumer.assignment():
            await consumer.poll(100)
        assert not caplog.messages
        await asyncio.sleep(2 * INTERVAL_MS / 1000)  # of virtual time: the interval passes
        [line] = [record for record in caplog.records if record.name == "ottla.client"]
        assert line.levelno == logging.WARNING
        assert line.getMessage().startswith("a consumer has left group 'g': max_poll_interval_ms=1000 passed without a poll")
        why = "poll to rejoin; it left the group, for max_poll_interval_ms=1000 passed without a poll"
        with pytest.raises(KafkaError, match=why) as caught:
            await consumer.commit({("t", 0): 1})
        assert caught.value.code == ErrorCode.ILLEGAL_GENERATION
        with pytest.raises(KafkaError, match=why):
            consumer.group_metadata()
        while not consumer.assignment():
            await consumer.poll(100)
        await consumer.poll(100)
        await consumer.commit({("t", 0): 0})
        await consumer.close()

    with_broker(body)


def test_a_member_whose_instance_id_was_taken_names_it_and_the_way_out() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        first, second = (consumer_of(broker.client(name), group_id="g", group_instance_id="worker-1") for name in "ab")
        for consumer in (first, second):
            consumer.subscribe(["t"])
        while not first.assignment():
            await first.poll(100)
        while not second.assignment():
            await second.poll(100)
        text = "another process has joined with group_instance_id='worker-1'; this one cannot while that runs: end one of the two"
        with pytest.raises(KafkaError, match=f"joining group 'g': {text}") as caught:
            await take(first, 1)  # of a topic without records: it polls until that raises
        assert caught.value.code == ErrorCode.FENCED_INSTANCE_ID
        with pytest.raises(KafkaError, match=text) as refused:
            await first.commit({("t", 0): 1})
        assert "poll to rejoin" not in str(refused.value)
        await first.close()
        await second.close()

    with_broker(body)


def test_the_warning_of_a_topic_that_is_waited_for_has_the_tenths_of_what_is_left(caplog: pytest.LogCaptureFixture) -> None:
    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("p"), ProducerSettings(max_block_ms=3_000))
        with pytest.raises(KafkaError):
            await producer.send("nope", b"x")
        await producer.close()

    with_broker(body, auto_create_topics_enable="false")
    [line] = [text for text in caplog.messages if "does not exist" in text]
    found = re.search(r"for another (\d\.\d) s$", line)
    assert found is not None
    assert 0.5 < float(found[1]) < 2


def test_a_callback_that_raises_is_a_line_of_the_clients_logger(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    """It was a traceback of asyncio or of concurrent.futures, without the record."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("of the application")

    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker, sync.Producer(broker.bootstrap) as p:
        p.send("t", b"x", on_delivery=fail).result(60)
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (record.name, record.exc_info is not None) == ("ottla.client", True)
    assert record.getMessage().startswith("on_delivery raised ZeroDivisionError: of the application; the record was stored at t-0 offset 0")


def test_partitions_for_makes_a_topic_where_brokers_do(caplog: pytest.LogCaptureFixture) -> None:
    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("p"), ProducerSettings())
        assert await producer.partitions_for("made") == [0]
        await producer.close()

    with_broker(body)
    assert not caplog.messages


def test_records_that_wait_together_for_room_fail_together() -> None:
    """Each waited for max_block_ms after the one before it: the last of these for more than a minute.

    No broker answers, so that no room comes. All are in the queue before the first one waits: what the client's own thread sends waits
    there, as from a callback.
    """
    with (
        thread_cluster(1) as nodes,
        sync.Producer(nodes.bootstrap, buffer_memory=20_000, max_block_ms=1_000, delivery_timeout_ms=40_000) as producer,
    ):
        producer.send("t", b"first").result(60)
        nodes.stop(1)
        futures = producer._thread.call(lambda: [producer.send("t", bytes(1000)) for _ in range(90)])
        error = futures[-1].exception(30)
        assert isinstance(error, KafkaError)
        assert (error.code, error.message) == (ErrorCode.REQUEST_TIMED_OUT, "the buffer of 20000 bytes remained full")
        in_buffer = [future for future in futures if not future.done()]
        assert in_buffer == futures[: len(in_buffer)]
        assert len(in_buffer) in range(18, 22), "what had room"
        assert {str(future.exception()) for future in futures[len(in_buffer) :]} == {str(error)}
        nodes.start(1)
        assert [future.exception(60) for future in in_buffer] == [None] * len(in_buffer)
