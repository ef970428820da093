"""Wrong calls, and topics that do not exist: each is answered by a sentence with the way out."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.simulated import consumer_of, create, fill, with_broker

from ottla import aio, sync
from ottla.broker.handlers.patterns import matcher
from ottla.client.admin import Admin
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker
from ottla.types import TopicPartition


@pytest.mark.parametrize("kind", [aio.Consumer, aio.Producer, aio.Admin, sync.Consumer, sync.Producer, sync.Admin])
@pytest.mark.parametrize(("topics", "settings"), [(("orders",), {"bootstrap_servers": "h:1"}), (("orders", "payments"), {})])
def test_topics_in_the_place_of_brokers_are_refused_with_where_they_are_given(
    kind: Callable[..., object], topics: tuple[str, ...], settings: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match=r"the brokers' addresses.*subscribe\(\[\"orders\"\]\)"):
        kind(*topics, **settings)


@pytest.mark.parametrize("name", ["linger.ms", "linger-ms"])
def test_a_setting_by_kafkas_name_is_refused_with_its_name_here(name: str) -> None:
    settings: Any = {name: 5}
    with pytest.raises(KafkaError, match=f"unknown setting '{name}': write it with _, as linger_ms") as refused:
        sync.Producer("h:1", **settings)
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_idempotence_is_refused_beside_acks_that_rule_it_out() -> None:
    with pytest.raises(KafkaError, match=r"enable_idempotence=true needs acks=all, and acks=1 is set") as refused:
        sync.Producer("h:1", enable_idempotence=True, acks=1)
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    sync.Producer("h:1", acks=1).close()  # the default gives way


@pytest.mark.parametrize("kind", [aio.Consumer, aio.Producer, aio.Admin])
def test_a_client_of_asyncio_outside_a_loop_names_the_other_one(kind: Callable[..., object]) -> None:
    with pytest.raises(RuntimeError, match=r"made on a running loop.*uses ottla\.sync"):
        kind("h:1")


def test_brokers_that_are_given_twice_or_as_a_url_are_refused_with_what_is_expected() -> None:
    with pytest.raises(TypeError, match="the brokers' addresses are given twice"):
        sync.Producer("h:1", bootstrap_servers="h:1")  # type: ignore[misc]
    with pytest.raises(KafkaError, match=r"'http://127\.0\.0\.1:1' is a URL: host:port is expected") as refused:
        sync.Producer("http://127.0.0.1:1")
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_an_empty_group_id_is_refused() -> None:
    with pytest.raises(KafkaError, match=r"group_id='': it must not be empty") as refused:
        sync.Consumer("h:1", group_id="")
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_errors_of_groups_name_the_group_and_the_way_out() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        admin = Admin(broker.client("admin"))
        refused = (await admin.delete_groups(["nope"]))["nope"]
        assert str(refused) == "GROUP_ID_NOT_FOUND: group 'nope'"
        consumer = consumer_of(broker.client("c"), group_id="g")
        consumer.subscribe(["t"])
        while not await consumer.poll(1_000):
            pass
        with pytest.raises(KafkaError, match=r"in group 'g': the group has members.*stop them first"):
            await admin.set_offsets("g", {("t", 0): 0})
        await consumer.close()
        await admin.close()

    with_broker(body)


def test_a_pattern_that_is_no_regular_expression_is_refused_in_words() -> None:
    """RE2's binding has its reason as bytes."""
    with pytest.raises(KafkaError, match="is no regular expression: no argument for repetition") as refused:
        matcher("*")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_callback_that_raises_ends_one_poll_and_leaves_the_assignment() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        calls: list[object] = []

        def assigned(partitions: object) -> None:
            calls.append(partitions)
            raise ZeroDivisionError

        consumer = consumer_of(broker.client("c"), group_id="g")
        consumer.subscribe(["t"], on_assigned=assigned)
        with pytest.raises(KafkaError, match="is not assigned"):
            consumer.seek(("t", 0), 0)
        consumer.seek_to_beginning()
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            while True:
                await consumer.poll(1_000)
        assert consumer.assignment() == [TopicPartition("t", 0)]
        while not await consumer.poll(1_000):
            pass
        assert len(calls) == 1
        await consumer.close()

    with_broker(body)


def test_a_transaction_timeout_that_is_refused_is_named_with_its_bound() -> None:
    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("p"), ProducerSettings(transactional_id="x", transaction_timeout_ms=2_000_000))
        with pytest.raises(KafkaError, match=r"transaction_timeout_ms=2000000 exceeds the brokers' transaction\.max\.timeout\.ms"):
            await producer.init_transactions()
        await producer.close()

    with_broker(body)


def test_wrong_arguments_are_refused_with_what_is_expected() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        admin = Admin(broker.client("admin"))
        names: Any = ["prices"]
        with pytest.raises(TypeError, match=r"a list of NewTopic.*not 'prices'"):
            await admin.create_topics(names)
        for alone in ("prices", ""):
            name_alone: Any = alone
            with pytest.raises(TypeError, match=rf"create_topics takes a list of NewTopic.*, and not '{alone}'$"):
                await admin.create_topics(name_alone)
        await admin.close()
        consumer = consumer_of(broker.client("c"), group_id="g")
        name: Any = "t"
        with pytest.raises(TypeError, match=r"subscribe takes a list of topics, such as \['t'\], and not 't'"):
            consumer.subscribe(name)
        consumer.assign([("t", 0)])
        seconds: Any = 1.0
        with pytest.raises(TypeError, match=r"timeout_ms=1\.0: a whole number of milliseconds"):
            await consumer.poll(seconds)
        [record] = await consumer.poll(10_000)
        for wrong, text in (([record], r"and not a list: commit\(record\)"), ({("t", 0): "x"}, r"the offset of .* is 'x'")):
            given: Any = wrong
            with pytest.raises(TypeError, match=text):
                await consumer.commit(given)
        await consumer.commit(record)
        word: Any = "x"
        with pytest.raises(TypeError, match="offset 'x' is no whole number"):
            consumer.seek(("t", 0), word)
        with pytest.raises(KafkaError, match="offset -1 is negative; seek_to_beginning and seek_to_end") as refused:
            consumer.seek(("t", 0), -1)
        assert refused.value.code == ErrorCode.INVALID_REQUEST
        assert await consumer.position(("t", 0)) == 1
        await consumer.close()

    with_broker(body)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "ottla.client" and record.levelno == logging.WARNING]


def test_a_misspelt_topic_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c"), group_id="g", allow_auto_create_topics=False)
        consumer.subscribe(["t", "nosuchy"])
        for _ in range(10):
            await consumer.poll(2_000)
        assert warnings_of(caplog) == ["topic 'nosuchy' does not exist; this consumer reads it as soon as it does"]
        await create(broker, "nosuchy")
        await fill(broker, 1, topic="nosuchy")
        async with asyncio.timeout(60):
            while not await consumer.poll(1_000):
                pass
        await consumer.close()

    with_broker(body, auto_create_topics_enable="true")
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize(("policy", "place"), [("earliest", "first record"), ("latest", "end")])
def test_a_position_whose_record_was_deleted_is_warned_of_where_it_is_reset(
    caplog: pytest.LogCaptureFixture, policy: str, place: str
) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 10)
        admin = Admin(broker.client("admin"))
        await admin.delete_records({("t", 0): 7})
        await admin.close()
        consumer = consumer_of(broker.client("c"), auto_offset_reset=policy)
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), 2)
        found = [record.offset for record in await consumer.poll(10_000)]
        assert found == ([7, 8, 9] if policy == "earliest" else [])
        await consumer.close()

    with_broker(body)
    text = f"offset 2 of t-0 is out of range: it was deleted, or was never there; the consumer goes on at the {place} (auto_offset_reset)"
    assert warnings_of(caplog) == [text]


def test_a_producer_that_waits_for_a_topic_says_so_and_sends_when_it_exists(caplog: pytest.LogCaptureFixture) -> None:
    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("c"), ProducerSettings())
        sending = [asyncio.create_task(producer.send("later", b"%d" % number)) for number in range(2)]
        await asyncio.sleep(0.9)  # of the simulated clock, as the sleep below
        assert warnings_of(caplog) == [], "a broker that creates topics may take so long"
        await asyncio.sleep(1.5)
        [warning] = warnings_of(caplog)
        assert re.fullmatch("topic 'later' does not exist; what is sent to it waits for it, for another 5[789] s", warning)
        await create(broker, "later")
        for task in sending:
            await (await task)
        with pytest.raises(KafkaError, match="topic 'never' does not exist"):
            await producer.send("never", b"")
        await producer.close()

    with_broker(body, auto_create_topics_enable="false")
    assert len(warnings_of(caplog)) == 2, "once for each topic"


def test_partitions_for_says_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    """A misspelt topic was a minute of silence."""

    async def body(broker: SimBroker) -> None:
        for client in (Producer(broker.client("p"), ProducerSettings(max_block_ms=5_000)), consumer_of(broker.client("c"))):
            caplog.clear()
            with pytest.raises(KafkaError, match="topic 'never' does not exist"):
                await client.partitions_for("never")
            [warning] = warnings_of(caplog)
            assert re.fullmatch(r"topic 'never' does not exist; partitions_for waits for it, for another [\d.]+ s", warning)
            await client.close()

    with_broker(body, auto_create_topics_enable="false")


@pytest.mark.parametrize("is_created", [True, False])
def test_a_topic_that_the_broker_may_create_is_warned_of_only_where_it_does_not(caplog: pytest.LogCaptureFixture, is_created: bool) -> None:
    async def body(broker: SimBroker) -> None:
        consumer = consumer_of(broker.client("c"), group_id="g")
        consumer.subscribe(["later"])
        for _ in range(5):
            await consumer.poll(2_000)
        await consumer.close()

    with_broker(body, auto_create_topics_enable=str(is_created).lower())
    assert len(warnings_of(caplog)) == (0 if is_created else 1)


@pytest.mark.parametrize("has_position", [False, True])
def test_partitions_that_do_not_exist_are_warned_of_once(caplog: pytest.LogCaptureFixture, has_position: bool) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        consumer = consumer_of(broker.client("c"))
        consumer.assign([("nope", 0), ("nope", 1), ("t", 0), ("t", 9)])
        if has_position:
            consumer.seek(("nope", 0), 0)
            consumer.seek(("nope", 1), 0)
            consumer.seek(("t", 9), 0)
        for _ in range(5):
            await consumer.poll(2_000)
        await consumer.close()

    with_broker(body)
    assert warnings_of(caplog) == [
        "topic 'nope' does not exist; this consumer reads it as soon as it does",
        "partition 9 of topic 't' does not exist, which has 2; this consumer reads it as soon as it does",
    ]


def test_addresses_that_are_none_or_no_port_are_refused_as_what_they_are() -> None:
    """None, as of a variable that is not set, was "given twice"."""
    nothing: Any = None
    for make in (lambda: sync.Producer(nothing), lambda: sync.Producer(bootstrap_servers=nothing)):
        with pytest.raises(KafkaError, match=r"the brokers' addresses are None, as of a variable") as refused:
            make()
        assert refused.value.code == ErrorCode.INVALID_CONFIG
    with pytest.raises(KafkaError, match="bootstrap server 'h:99999': ports are numbers from 1 to 65535"):
        sync.Producer("h:99999")
    sync.Producer("h:1,h:2, ").close()


def test_a_pattern_of_librdkafkas_form_is_refused_with_the_form_that_is_meant() -> None:
    """It was a topic of a name that can never be: each poll raised."""
    with sync.Consumer("h:1", group_id="g") as consumer:
        with pytest.raises(
            KafkaError, match=r"'\^orders\.\*' is no name of a topic: a regular expression is pattern='orders\.\*'"
        ) as refused:
            consumer.subscribe(["prices", "^orders.*"])
        assert refused.value.code == ErrorCode.INVALID_REQUEST
        number: Any = 5
        with pytest.raises(TypeError, match="subscribe takes a list of topics, and 5 is no string"):
            consumer.subscribe([number])


def test_a_negative_time_limit_is_refused() -> None:
    """confluent-kafka's ``poll(-1)`` waits without an end; here it returned at once, and its loop took a core."""
    with sync.Consumer("h:1", group_id="g") as consumer, pytest.raises(KafkaError, match=r"timeout_ms=-1 is negative; .* iterates"):
        consumer.poll(-1)


def test_a_session_timeout_that_the_brokers_refuse_is_named_with_their_bounds() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c"), group_id="g", session_timeout_ms=1_000, heartbeat_interval_ms=300)
        consumer.subscribe(["t"])
        with pytest.raises(KafkaError, match=r"joining group 'g': session_timeout_ms=1000 is not between .*group\.min\.session") as refused:
            await consumer.poll(10_000)
        assert refused.value.code == ErrorCode.INVALID_SESSION_TIMEOUT
        await consumer.close()

    with_broker(body)
