"""What ``send_many`` has sent when it raises: nothing of a list with a row that cannot be sent, and else what a note of the error says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from ottla import aio, sync
from ottla.errors import ErrorCode, KafkaError
from ottla.testing import ThreadNodes, broker

BAD: dict[str, tuple[tuple[Any, ...], type[Exception]]] = {
    "a value of another type": (("t", "text"), TypeError),
    "a row of another shape": (("t",), TypeError),
    "a record that no request could hold": (("t", b"x" * 2_000_000), KafkaError),
}
Send = Callable[[str, Iterable[tuple[Any, ...]]], None]


def blocking(bootstrap: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with sync.Producer(bootstrap, max_block_ms=500) as producer:
        producer.send_many(rows)


def asynchronous(bootstrap: str, rows: Iterable[tuple[Any, ...]]) -> None:
    async def send() -> None:
        async with aio.Producer(bootstrap, max_block_ms=500) as producer:
            await producer.send_many(rows)

    asyncio.run(send())


@pytest.fixture(scope="module")
def kafka() -> Iterator[ThreadNodes]:
    """A broker that creates no topics by itself."""
    with broker(auto_create_topics_enable="false") as nodes:
        yield nodes


FACES = pytest.mark.parametrize("send", [blocking, asynchronous])


def end_of(bootstrap: str, topic: str) -> int:
    with sync.Consumer(bootstrap) as consumer:
        return consumer.end_offsets([(topic, 0)])[aio.TopicPartition(topic, 0)]


@FACES
@pytest.mark.parametrize("bad", BAD)
def test_of_a_list_with_a_row_that_cannot_be_sent_nothing_is_sent(kafka: ThreadNodes, send: Send, bad: str) -> None:
    topic, (row, kind) = kafka.topic(), BAD[bad]
    rows = [(topic, b"1")] * 2_500 + [row, (topic, b"3")]
    for given in (rows, tuple(rows)):
        with pytest.raises(kind) as raised:
            send(kafka.bootstrap, given)
        assert not hasattr(raised.value, "__notes__")
    assert end_of(kafka.bootstrap, topic) == 0


def test_a_serializer_that_raises_sends_nothing_of_a_list(kafka: ThreadNodes) -> None:
    topic = kafka.topic()
    with sync.Producer(kafka.bootstrap, value_serializer=str.encode) as producer, pytest.raises(TypeError):
        producer.send_many([(topic, "1"), (topic, "2"), (topic, 3)])
    assert end_of(kafka.bootstrap, topic) == 0


@FACES
def test_of_another_iterable_the_error_says_how_many_rows_were_sent(kafka: ThreadNodes, send: Send) -> None:
    topic = kafka.topic()

    def rows() -> Iterator[tuple[Any, ...]]:
        yield from [(topic, b"1")] * 4_500
        yield topic, "text"

    with pytest.raises(TypeError) as raised:
        send(kafka.bootstrap, rows())
    assert raised.value.__notes__ == ["send_many has sent 4000 rows before this one"]
    assert end_of(kafka.bootstrap, topic) == 4_000


@FACES
@pytest.mark.parametrize("key", [None, b"k"])
def test_a_topic_that_does_not_exist_stops_the_rows_after_it_and_the_error_says_how_many_were_sent(
    kafka: ThreadNodes, send: Send, key: bytes | None
) -> None:
    topic = kafka.topic()
    rows = [(topic, b"1", key), (topic, b"2", key), ("absent", b"3", key), (topic, b"4", key)]
    with pytest.raises(KafkaError) as raised:
        send(kafka.bootstrap, rows)
    assert raised.value.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT)
    assert raised.value.__notes__ == ["send_many has sent 2 rows before this one"]
    assert end_of(kafka.bootstrap, topic) == 2
