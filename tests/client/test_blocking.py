"""The blocking face against a real broker: what threads and interrupts add."""

from __future__ import annotations

import asyncio
import inspect
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from ottla import aio
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, ClientClosedError, Consumer, DeliveryError, NewTopic, Producer, RecordMetadata, TopicPartition, loop_thread

WAIT_SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path_factory.mktemp("data")), "offsets.topic.num.partitions": "1"}
    with BrokerThread(config | {"group.initial.rebalance.delay.ms": "0"}) as thread:
        yield thread


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: BrokerThread) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    with Admin(broker.bootstrap) as admin:
        assert admin.create_topics([NewTopic(name, 2, configs={"max.message.bytes": "100000"})]) == {name: None}
    return str(name)


def take(consumer: Consumer, count: int) -> list[Any]:
    values: list[Any] = []
    while len(values) < count:
        values += [record.value for record in consumer.poll(1000)]
    return values


def test_records_sent_one_by_one_and_together_arrive_in_order(broker: BrokerThread, topic: str) -> None:
    told: list[RecordMetadata | None] = []
    with Producer(broker.bootstrap, value_serializer=lambda value: b"%d" % value) as producer:
        futures = [producer.send(topic, number, partition=0, on_delivery=lambda landed, _: told.append(landed)) for number in range(3000)]
        futures += producer.send_many((topic, number, b"key") for number in range(3000, 6000))
        assert producer.send_and_wait(topic, 6000, headers={"a": b"1"}).topic == topic
        producer.flush()
        assert all(future.done() for future in futures)
    assert [landed.offset for landed in told if landed is not None] == list(range(3000))
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", value_deserializer=lambda value: int(value or b"")) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        values = take(consumer, 6001)
    assert [value for value in values if value < 3000] == list(range(3000))
    assert [value for value in values if 3000 <= value < 6000] == list(range(3000, 6000))


def test_a_full_buffer_holds_the_caller_and_loses_nothing(broker: BrokerThread, topic: str) -> None:
    with Producer(broker.bootstrap, buffer_memory=20_000, batch_size=5000) as producer:
        futures = [producer.send(topic, bytes(1000), partition=0) for _ in range(2000)]
    assert [future.result().offset for future in futures] == list(range(2000))


def test_failures_come_out_of_the_with_block(broker: BrokerThread, topic: str) -> None:
    with pytest.raises(DeliveryError, match="MESSAGE_TOO_LARGE"), Producer(broker.bootstrap) as producer:  # noqa: PT012
        producer.send(topic, bytes(200_000))
        with pytest.raises(TypeError, match="set value_serializer"):
            producer.send(topic, "text")
        with pytest.raises(KafkaError, match="no partition 7"):
            producer.send(topic, b"x", partition=7)
    with pytest.raises(ZeroDivisionError) as caught, Producer(broker.bootstrap) as producer:  # noqa: PT012
        producer.send(topic, bytes(200_000))
        raise ZeroDivisionError
    assert "MESSAGE_TOO_LARGE" in caught.value.__notes__[0]
    with Producer(broker.bootstrap) as producer:
        future = producer.send(topic, bytes(200_000))
        assert isinstance(future.exception(WAIT_SECONDS_MAX), KafkaError)


def test_a_topic_that_cannot_be_is_refused_by_send_itself(broker: BrokerThread) -> None:
    with Producer(broker.bootstrap) as producer:
        with pytest.raises(KafkaError) as refused:
            producer.send("not/legal", b"x")
        with pytest.raises(KafkaError):
            producer.send_many([("not/legal", b"x")])
        assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_closed_producer_takes_no_more(broker: BrokerThread, topic: str) -> None:
    producer = Producer(broker.bootstrap)
    producer.close()
    producer.close()
    with pytest.raises(KafkaError, match="closed"):
        producer.send(topic, b"x")


def test_an_iteration_consumes_record_by_record(broker: BrokerThread, topic: str) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_many((topic, b"%d" % number, b"key") for number in range(500))
    settings: dict[str, Any] = {"group_id": topic, "auto_offset_reset": "earliest"}
    with Consumer(broker.bootstrap, **settings) as consumer:
        consumer.subscribe([topic])
        for record in consumer:
            if record.value == b"10":
                break
    with Consumer(broker.bootstrap, **settings) as consumer:
        consumer.subscribe([topic])
        assert next(iter(consumer)).value == b"11"
        assert take(consumer, 488) == [b"%d" % number for number in range(12, 500)]


def test_an_asynchronous_iteration_consumes_record_by_record(broker: BrokerThread, topic: str) -> None:
    async def main() -> None:
        async with aio.Producer(broker.bootstrap) as producer:
            await producer.send_many((topic, b"%d" % number, b"key") for number in range(500))
        settings: dict[str, Any] = {"group_id": topic, "auto_offset_reset": "earliest"}
        async with aio.Consumer(broker.bootstrap, **settings) as consumer:
            consumer.subscribe([topic])
            async for record in consumer:
                if record.value == b"10":
                    break
        async with aio.Consumer(broker.bootstrap, **settings) as consumer:
            consumer.subscribe([topic])
            assert (await anext(aiter(consumer))).value == b"11"
        with pytest.raises(DeliveryError):
            async with aio.Producer(broker.bootstrap) as producer:
                await producer.send(topic, bytes(200_000))

    asyncio.run(main())


def test_callbacks_of_a_consumer_run_in_the_thread_that_polls_and_may_use_it(broker: BrokerThread, topic: str) -> None:
    calls: list[tuple[str, threading.Thread]] = []
    with Producer(broker.bootstrap) as producer:
        producer.send_many((topic, b"%d" % number, b"key") for number in range(10))
    with Consumer(broker.bootstrap, group_id=topic, auto_offset_reset="earliest") as consumer:

        def on_assigned(partitions: list[TopicPartition]) -> None:
            calls.append(("assigned", threading.current_thread()))
            assert len(partitions) == 2
            for partition in partitions:
                if consumer.end_offsets([partition])[partition]:
                    consumer.seek(partition, 5)

        def on_revoked(partitions: list[TopicPartition]) -> None:
            calls.append(("revoked", threading.current_thread()))
            consumer.commit()

        consumer.subscribe([topic], on_assigned=on_assigned, on_revoked=on_revoked)
        assert take(consumer, 5) == [b"%d" % number for number in range(5, 10)]
        consumer.pause(consumer.assignment())
        assert len(consumer.paused()) == 2
        consumer.unsubscribe()
    assert calls == [("assigned", threading.main_thread()), ("revoked", threading.main_thread())]


def test_lost_partitions_are_reported_in_the_thread_that_polls(broker: BrokerThread, topic: str) -> None:
    calls: list[tuple[str, threading.Thread]] = []

    def noting(word: str) -> Callable[[list[TopicPartition]], None]:
        return lambda partitions: calls.append((word, threading.current_thread()))

    with Consumer(broker.bootstrap, group_id=topic, max_poll_interval_ms=300, heartbeat_interval_ms=50) as consumer:
        consumer.subscribe([topic], on_revoked=noting("revoked"), on_lost=noting("lost"))
        while not consumer.assignment():
            consumer.poll(100)
        eventually(lambda: consumer.generation_id, lambda generation: generation == -1)  # nothing polls, and the client leaves the group
        consumer.unsubscribe()
    assert set(calls) == {("lost", threading.main_thread())}  # more than once on a machine that was busy for so long


def test_what_a_callback_raises_comes_out_of_poll(broker: BrokerThread, topic: str) -> None:
    with Consumer(broker.bootstrap, group_id=topic) as consumer:
        consumer.subscribe([topic], on_assigned=lambda partitions: 1 / 0)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            while True:
                consumer.poll(1000)
        assert len(consumer.assignment()) == 2


@pytest.fixture
def interrupted_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The next fetch of a poll interrupts the main thread as Ctrl-C does, when it has its records and before the poll has them."""
    main = threading.main_thread().ident
    assert main is not None
    fetch = aio.Consumer._fetch
    due: list[bool] = []

    async def interrupting(self: aio.Consumer, timeout_ms: int, *, max_records: int | None = None) -> None:
        await fetch(self, timeout_ms, max_records=max_records)
        if due and self._handout.unread:
            due.clear()
            signal.pthread_kill(main, signal.SIGINT)

    monkeypatch.setattr(aio.Consumer, "_fetch", interrupting)
    return lambda: due.append(True)


def test_an_interrupted_poll_loses_nothing(broker: BrokerThread, topic: str, interrupted_after: Callable[[], None]) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_many((topic, b"%d" % number, b"key") for number in range(20))
    settings: dict[str, Any] = {"group_id": topic, "auto_offset_reset": "earliest", "max_poll_records": 4}
    values: list[bytes] = []
    with Consumer(broker.bootstrap, **settings) as consumer:
        consumer.subscribe([topic])
        while len(values) < 12:
            values += [record.value for record in consumer.poll(1000)]
        interrupted_after()
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            while True:
                values += [record.value for record in consumer.poll(1000)]
    with Consumer(broker.bootstrap, **settings) as consumer:
        consumer.subscribe([topic])
        values += take(consumer, 20 - len(values))
        assert consumer.poll(0) == []
    assert values == [b"%d" % number for number in range(20)]


def test_an_interrupt_that_comes_after_the_outcome_does_not_wait_for_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(queue.SimpleQueue[object]):
        is_due = True

        def get(self, *arguments: Any) -> object:
            outcome = super().get(*arguments)
            if Interrupted.is_due:
                Interrupted.is_due = False
                raise KeyboardInterrupt
            return outcome

    monkeypatch.setattr(loop_thread, "SimpleQueue", Interrupted)
    thread = loop_thread.LoopThread()

    async def answer() -> int:
        return 42

    with pytest.raises(KeyboardInterrupt):
        thread.run(answer())
    assert thread.run(answer()) == 42
    thread.stop()


@pytest.mark.parametrize("is_started", [False, True])
def test_an_interrupt_at_the_start_leaves_nothing_that_runs(monkeypatch: pytest.MonkeyPatch, is_started: bool) -> None:
    """It may come before the loop has been asked to start the coroutine, or when it has been, and ``run`` does not know."""
    thread = loop_thread.LoopThread()
    call_soon, due = thread.loop.call_soon_threadsafe, [True]

    def interrupted(*arguments: Any) -> asyncio.Handle | None:
        if not due:
            return call_soon(*arguments)
        due.clear()
        if is_started:
            call_soon(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(thread.loop, "call_soon_threadsafe", interrupted)

    async def endless() -> None:
        await asyncio.Event().wait()

    coroutine = endless()
    with pytest.raises(KeyboardInterrupt):
        thread.run(coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    thread.stop()


def test_a_block_that_ends_because_another_thread_closes_does_not_end_that_close(broker: BrokerThread, topic: str) -> None:
    """Each of the two closes ended the other's calls: the thread that came first raised, and the member stayed in its group."""
    raised: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def close(consumer: Consumer) -> None:
        try:
            consumer.close()
        except BaseException as error:  # noqa: BLE001 - of whatever kind
            raised.put(error)
        else:
            raised.put(None)

    for number in range(5):
        group = f"closing-{topic}-{number}"
        with Consumer(broker.bootstrap, group_id=group) as consumer:
            consumer.subscribe([topic])
            while not consumer.assignment():
                consumer.poll(100)
            threading.Thread(target=close, args=[consumer], daemon=True).start()
            with pytest.raises(ClientClosedError):
                next(iter(consumer))
        assert raised.get(timeout=WAIT_SECONDS_MAX) is None
        with Admin(broker.bootstrap) as admin:
            assert admin.describe_group(group).state == "Empty"


def test_a_poll_ends_when_another_thread_closes_its_consumer_and_no_later_one_waits(broker: BrokerThread, topic: str) -> None:
    consumer = Consumer(broker.bootstrap)
    consumer.assign([TopicPartition(topic, 0)])
    refused: queue.SimpleQueue[KafkaError] = queue.SimpleQueue()
    assigned = threading.Event()

    def read() -> None:
        assigned.set()
        try:
            while True:
                consumer.poll(3_600_000)
        except KafkaError as error:
            refused.put(error)

    threading.Thread(target=read, daemon=True).start()
    assert assigned.wait(WAIT_SECONDS_MAX)
    consumer.close()
    ended = refused.get(timeout=WAIT_SECONDS_MAX)
    assert (type(ended), ended.code, ended.message) == (ClientClosedError, ErrorCode.INVALID_REQUEST, "this client is closed")
    with pytest.raises(KafkaError, match="this client is closed"):
        consumer.poll(0)
    consumer.close()


def test_connectivity_is_reported_as_it_changes(tmp_path: Path) -> None:
    changes: list[KafkaError | None] = []
    changed = threading.Condition()

    def note(problem: KafkaError | None) -> None:
        with changed:
            changes.append(problem)
            changed.notify_all()

    def wait_for(count: int) -> None:
        with changed:
            assert changed.wait_for(lambda: len(changes) == count, WAIT_SECONDS_MAX)

    config = {"log.dirs": str(tmp_path / "data"), "offsets.topic.num.partitions": "1"}
    first = BrokerThread(config | {"listeners": "PLAINTEXT://127.0.0.1:0"}).start()
    bootstrap = first.bootstrap
    with Producer(bootstrap, on_connectivity=note) as producer:
        producer.send_and_wait("t", b"x")
        assert not changes
        first.stop()
        wait_for(1)
        with BrokerThread(config | {"listeners": f"PLAINTEXT://{bootstrap}"}):
            wait_for(2)
            producer.send_and_wait("t", b"y")
            producer.close()
    problem, back = changes
    assert problem is not None
    assert problem.code == ErrorCode.NETWORK_EXCEPTION
    assert back is None


def test_a_program_that_does_not_close_its_producer_ends_without_a_word_about_tasks() -> None:
    """Nothing listens at the address: the producer goes on trying until the process ends."""
    program = "import ottla.sync; producer = ottla.sync.Producer('127.0.0.1:1'); producer._thread.call(lambda: None)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "Task was destroyed" not in done.stderr


def test_the_records_before_it_and_its_own_room_hold_a_send_for_max_block_ms_together(
    broker: BrokerThread, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    seen: list[object] = []

    async def moved() -> None:
        seen.append("those before are moved")

    async def admit(name: str, partition: int | None, deadline_ms: int) -> None:
        seen.append(deadline_ms)

    def blocked_until_ms() -> int:
        seen.append("the time begins")
        return 17

    with Producer(broker.bootstrap) as producer:
        monkeypatch.setattr(producer._inner, "_blocked_until_ms", blocked_until_ms)
        monkeypatch.setattr(producer._inner, "_admit", admit)
        monkeypatch.setattr(producer, "_moved", moved)
        producer._run(producer._admit(topic, None))
        monkeypatch.undo()
    assert seen == ["the time begins", "those before are moved", 17]


ENDS_WITHOUT_CLOSE = """
import sys
from ottla.sync import Producer
producer = Producer(sys.argv[1], linger_ms=60_000)
producer.send(sys.argv[2], b"value")
if "flushes" in sys.argv:
    producer.flush()
"""


@pytest.mark.parametrize("does", ["nothing", "flushes"])
def test_a_program_that_ends_without_close_says_what_it_loses(broker: BrokerThread, topic: str, does: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDS_WITHOUT_CLOSE, broker.bootstrap, topic, does],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
        check=True,
    )
    says = "bytes of records that are not acknowledged: make a Producer with `with`, or close it" in ended.stderr
    assert says == (does == "nothing"), ended.stderr
