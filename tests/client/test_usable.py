"""Calls that could never end are refused: of a closed client, on another loop, in a client's own thread, and after a fork."""

from __future__ import annotations

import asyncio
import copy
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ottla import aio, sync, testing
from ottla.client.options import ConsumerOptions
from ottla.errors import ErrorCode, KafkaError
from ottla.sync import loop_thread
from ottla.testing.served import Served

WAIT_SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Served]:
    with testing.broker(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=1) as found:
        yield found


@pytest.fixture
def topic(broker: Served) -> str:
    return broker.topic()


def is_closed(error: KafkaError) -> bool:
    return (error.code, error.message) == (ErrorCode.INVALID_REQUEST, "this client is closed")


def member(broker: Served, topic: str) -> aio.Consumer[bytes | None, bytes | None]:
    """Returns a member of the topic's group, whose rebalances wait until each member has joined."""
    settings: ConsumerOptions = {
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "partition_assignment_strategy": ["range"],
        "heartbeat_interval_ms": 20,
    }
    consumer = aio.Consumer(broker.bootstrap, **settings)
    consumer.subscribe([topic])
    return consumer


async def members_of(broker: Served, group_id: str, count: int) -> None:
    """Waits until the group has so many members."""
    async with aio.Admin(broker.bootstrap) as admin, asyncio.timeout(WAIT_SECONDS_MAX):
        while len((await admin.describe_group(group_id)).members) != count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["assigned", "subscribed"])
def test_a_poll_ends_when_another_task_closes_its_consumer(broker: Served, topic: str, kind: str) -> None:
    async def body() -> None:
        consumer = member(broker, topic)
        if kind == "assigned":
            await consumer.unsubscribe()
            consumer.assign([(topic, 0)])
        polling = asyncio.create_task(consumer.poll(3_600_000))
        if kind == "subscribed":
            await members_of(broker, topic, 1)
        else:
            await consumer.position((topic, 0))
        await consumer.close()
        with pytest.raises(KafkaError) as ended:
            await asyncio.wait_for(polling, WAIT_SECONDS_MAX)
        assert is_closed(ended.value)

    asyncio.run(body())


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_a_member_that_leaves_while_it_joins_stays_out_of_its_group(broker: Served, topic: str, end: str) -> None:
    async def body() -> None:
        first, second = member(broker, topic), member(broker, topic)
        while not first.assignment():
            await first.poll(100)
        polling = asyncio.create_task(second.poll(2_000))  # its join waits for the first member, which does not poll
        await members_of(broker, topic, 2)
        await getattr(second, end)()
        if end == "close":
            with pytest.raises(KafkaError, match="this client is closed"):
                await polling
        else:
            assert await polling == []
        await members_of(broker, topic, 1)
        await second.close()
        await first.close()

    asyncio.run(body())


def test_a_poll_while_another_task_leaves_the_group_does_not_join_it_again(broker: Served, topic: str) -> None:
    async def body() -> None:
        first, second = member(broker, topic), member(broker, topic)
        while not first.assignment():
            await first.poll(100)
        joining = asyncio.create_task(second.poll(60_000))
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while first._membership is None or not first._membership.needs_rejoin:  # its heartbeat has said so
                await asyncio.sleep(0.01)
        leaving = asyncio.create_task(first.unsubscribe())
        await asyncio.sleep(0)  # it has begun
        await first.poll(0)
        await leaving
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not second.assignment():  # which waits for all members
                await asyncio.sleep(0.01)
        await members_of(broker, topic, 1)
        assert first._rebalances is not None
        assert first._rebalances._joining is None, "no join is under way that would make it a member again"
        joining.cancel()
        await asyncio.wait([joining])
        await first.close()
        await second.close()

    asyncio.run(body())


def test_a_closed_client_of_asyncio_does_nothing_more(broker: Served, topic: str) -> None:
    async def body() -> None:
        producer, admin = aio.Producer(broker.bootstrap), aio.Admin(broker.bootstrap)
        consumer = aio.Consumer(broker.bootstrap, group_id=topic)
        consumer.assign([(topic, 0)])
        await producer.send_and_wait(topic, b"x")
        for client in (producer, admin, consumer):
            await client.close()
            await client.close()
        calls: list[Any] = [
            lambda: producer.send(topic, b"x"),
            producer.flush,
            lambda: producer.partitions_for(topic),
            admin.list_topics,
            lambda: consumer.poll(0),
            lambda: anext(aiter(consumer)),
            consumer.commit,
            lambda: consumer.committed([(topic, 0)]),
            lambda: consumer.end_offsets([(topic, 0)]),
        ]
        for call in calls:
            with pytest.raises(KafkaError) as refused:
                await call()
            assert is_closed(refused.value)
        for plain in (lambda: consumer.subscribe([topic]), lambda: consumer.assign([(topic, 0)])):
            with pytest.raises(KafkaError, match="this client is closed"):
                plain()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(body())


def test_a_client_of_asyncio_on_another_loop_says_so(broker: Served, topic: str) -> None:
    async def make() -> list[Any]:
        producer, consumer = aio.Producer(broker.bootstrap), aio.Consumer(broker.bootstrap)
        await producer.send_and_wait(topic, b"x")
        consumer.assign([(topic, 0)])
        return [
            lambda: producer.send(topic, b"x"),
            lambda: producer.send_and_wait(topic, b"x"),
            producer.close,
            lambda: consumer.poll(0),
            lambda: anext(aiter(consumer)),
            consumer.close,
            aio.Admin(broker.bootstrap).list_topics,
        ]

    async def use(calls: list[Any]) -> None:
        for call in calls:
            with pytest.raises(RuntimeError, match="was made on another event loop"):
                await call()

    with pytest.warns(ResourceWarning):  # no loop is left to close them on
        asyncio.run(use(asyncio.run(make())))


def test_a_callback_that_waits_for_its_own_client_is_refused_and_may_send(broker: Served, topic: str) -> None:
    refused: list[KafkaError] = []
    later: list[Any] = []
    called = threading.Event()
    waits: list[Any] = []
    dead = broker.topic("dead")

    def on_delivery(metadata: sync.RecordMetadata | None, error: KafkaError | None) -> None:
        try:
            for wait in waits:
                with pytest.raises(KafkaError) as problem:
                    wait()
                refused.append(problem.value)
            later.append(producer.send(dead, b"a topic that the producer does not know yet"))
            assert producer.metrics().records_acknowledged
        finally:
            called.set()

    with sync.Producer(broker.bootstrap) as producer:
        waits += [producer.flush, producer.close, lambda: producer.send_and_wait(topic, b"x"), lambda: producer.partitions_for(topic)]
        waits += [lambda: producer.send(topic, b"1").result(0), lambda: producer.send(topic, b"2", key=b"k").exception(0)]
        producer.send(topic, b"x", on_delivery=on_delivery)
        assert called.wait(WAIT_SECONDS_MAX)
        assert later[0].result(WAIT_SECONDS_MAX).offset == 0
        producer.flush()
        assert producer.send_and_wait(topic, b"the producer goes on").offset == 3
    assert [error.code for error in refused] == [ErrorCode.INVALID_REQUEST] * 6
    assert "a callback of this client may not wait for it" in refused[0].message


def test_a_callback_may_ask_for_what_is_known_and_wait_for_another_client(broker: Served, topic: str) -> None:
    found: list[int] = []
    called = threading.Event()

    with sync.Producer(broker.bootstrap) as producer, sync.Producer(broker.bootstrap) as other:

        def on_delivery(metadata: sync.RecordMetadata | None, error: KafkaError | None) -> None:
            found.append(first.result().offset)
            found.append(other.send(topic, b"y").result(WAIT_SECONDS_MAX).offset)
            called.set()

        first = producer.send(topic, b"x")
        producer.flush()
        producer.send(topic, b"x", on_delivery=on_delivery)
        assert called.wait(WAIT_SECONDS_MAX)
    assert found == [0, 2]


def test_a_rebalance_callback_may_close_its_consumer(broker: Served, topic: str) -> None:
    consumer = sync.Consumer(broker.bootstrap, group_id=topic)
    consumer.subscribe([topic], on_assigned=lambda partitions: consumer.close())
    with pytest.raises(KafkaError, match="this client is closed"):
        consumer.poll(int(WAIT_SECONDS_MAX * 1000))
    consumer = sync.Consumer(broker.bootstrap, group_id=topic)
    consumer.subscribe([topic], on_revoked=lambda partitions: consumer.close())
    while not consumer.assignment():
        consumer.poll(100)
    with pytest.raises(KafkaError, match="this client is closed"):
        consumer.unsubscribe()


def test_a_thread_with_the_number_of_one_that_has_ended_is_no_callback() -> None:
    thread = loop_thread.LoopThread()
    thread.stop()
    thread._thread = threading.current_thread()  # the system gives the number to the next thread that starts
    with pytest.raises(KafkaError, match="this client is closed"):
        thread.call(list)


@pytest.mark.parametrize("kind", ["Producer", "Consumer", "Admin"])
def test_a_client_shows_what_it_is_and_no_secret_and_is_not_entered_once_closed(kind: str) -> None:
    secret: Any = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "u",
        "sasl_plain_password": "s3cret",
    }
    client = getattr(sync, kind)(["h:1", "i"], client_id="billing", **secret)
    assert repr(client) == f"<ottla.sync.{kind} 'billing' at h:1,i:9092, open>"
    client.close()
    assert repr(client) == f"<ottla.sync.{kind} 'billing' at h:1,i:9092, closed>"
    with pytest.raises(KafkaError, match="this client is closed"), client:
        pass

    async def body() -> None:
        client = getattr(aio, kind)("h:1")
        assert repr(client) == f"<ottla.aio.{kind} 'ottla' at h:1, open>"
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copy.copy(client)
        await client.close()
        assert repr(client) == f"<ottla.aio.{kind} 'ottla' at h:1, closed>"
        with pytest.raises(KafkaError, match="this client is closed"):
            async with client:
                pass

    asyncio.run(body())


@pytest.mark.parametrize("kind", [sync.Producer, aio.Producer])
def test_a_client_whose_settings_were_refused_can_be_shown(kind: Any) -> None:
    """As by tools that show the variables of each frame of a traceback."""
    assert f"{kind.__name__} object at 0x" in repr(kind.__new__(kind))


def test_a_client_from_before_a_fork_is_refused_in_the_child_and_serves_its_parent(broker: Served, topic: str) -> None:
    with sync.Producer(broker.bootstrap) as producer, sync.Consumer(broker.bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        assert producer.send_and_wait(topic, b"x").offset == 0
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # not pytest's
            signal.alarm(10)
            code = 1
            try:
                for call in (lambda: producer.send(topic, b"x"), producer.flush, lambda: consumer.poll(0)):
                    with pytest.raises(KafkaError, match="made before a fork"):
                        call()
                producer.close()
                consumer.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert producer.send_and_wait(topic, b"x").offset == 1


def test_a_commit_takes_a_text_and_no_negative_offset(broker: Served, topic: str) -> None:
    with sync.Consumer(broker.bootstrap, group_id=topic) as consumer, sync.Admin(broker.bootstrap) as admin:
        consumer.commit({(topic, 0): sync.OffsetAndMetadata(7, "as of monday")})
        found = admin.committed_offsets(topic)[sync.TopicPartition(topic, 0)]
        assert (found.offset, found.metadata) == (7, "as of monday")
        for wrong in (-3, sync.OffsetAndMetadata(-1)):
            with pytest.raises(KafkaError, match="which is negative; give that of the next record to read") as refused:
                consumer.commit({(topic, 0): wrong})
            assert refused.value.code == ErrorCode.INVALID_REQUEST
        assert consumer.committed([(topic, 0)]) == {sync.TopicPartition(topic, 0): 7}


def test_a_time_before_1970_and_a_third_positional_argument_are_refused_by_send() -> None:
    given: Any = (b"key",)
    with sync.Producer("h:1") as producer:
        with pytest.raises(TypeError, match="timestamp_ms=-5: give milliseconds since 1970 as an int, 0 or more"):
            producer.send("t", b"x", timestamp_ms=-5)
        with pytest.raises(TypeError, match=r"after topic and value all arguments of send are named: send\(topic, value, key=key"):
            producer.send("t", b"x", *given)

    async def asynchronous() -> None:
        async with aio.Producer("h:1") as producer:
            with pytest.raises(TypeError, match="after topic and value all arguments of send are named"):
                await producer.send("t", b"x", *given)

    asyncio.run(asynchronous())
