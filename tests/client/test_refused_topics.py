"""A consumer of a topic that metadata refuses: its polls say so, and it reads the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.client.simulated import consumer_of, create, fill, with_broker

from ottla.client.consumer import Consumer
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata import MetadataResponse
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Interference
from ottla.wire.schema import Request, Response

FORMS = pytest.mark.parametrize("form", ["classic", "consumer", "assigned"])
POLLS_MAX = 20


def reader_of(broker: SimBroker, form: str, *topics: str) -> Consumer:
    """A consumer of the topics, in a group of that protocol or by hand."""
    if form == "assigned":
        consumer = consumer_of(broker.client("c"))
        consumer.assign([(topic, 0) for topic in topics])
    else:
        consumer = consumer_of(broker.client("c"), group_id="g", group_protocol=form)
        consumer.subscribe(list(topics))
    return consumer


async def polled(consumer: Consumer, is_enough: Callable[[list[bytes], list[KafkaError]], bool]) -> tuple[list[bytes], list[KafkaError]]:
    """The values and the errors of the polls until these are enough."""
    values: list[bytes] = []
    errors: list[KafkaError] = []
    for _ in range(POLLS_MAX):
        try:
            values += [record.value for record in await consumer.poll(2000)]
        except KafkaError as error:
            errors.append(error)
        if is_enough(values, errors):
            return values, errors
    raise AssertionError(f"not after {POLLS_MAX} polls: {values} {errors}")


@FORMS
def test_the_first_poll_refuses_a_name_that_no_topic_can_have(form: str) -> None:
    async def body(broker: SimBroker) -> None:
        consumer = reader_of(broker, form, "a b")
        with pytest.raises(KafkaError, match="topic 'a b': the character ' ' is not") as caught:
            await consumer.poll(60_000)
        assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            await consumer.poll(60_000)
        await consumer.close()

    with_broker(body)


@FORMS
def test_a_refused_topic_does_not_keep_others_from_being_read(form: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 3)
        consumer = reader_of(broker, form, "a b", "t")
        values, errors = await polled(consumer, lambda values, errors: len(values) == 3 and len(errors) > 1)
        assert values == [b"0", b"1", b"2"]
        assert {error.code for error in errors} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
        await consumer.close()

    with_broker(body)


@FORMS
def test_a_topic_without_the_right_to_see_it_is_read_once_the_right_is_there(form: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 1)
        consumer = reader_of(broker, form, "t")
        has_right = False

        def alter(request: Request, response: Any) -> Response | None:
            if isinstance(response, MetadataResponse) and not has_right:
                for topic in response.topics:
                    topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
                return response
            return None

        Interference(consumer._cluster).alter = alter
        with pytest.raises(KafkaError, match="the user of this client may not describe topic 't'") as caught:
            await consumer.poll(60_000)
        assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        has_right = True
        values, _ = await polled(consumer, lambda values, errors: bool(values))
        assert values == [b"0"]
        await consumer.close()

    with_broker(body)


def test_a_subscription_may_leave_the_refused_topic_out() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 2)
        consumer = reader_of(broker, "classic", "a b", "t")
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            await consumer.poll(60_000)
        consumer.subscribe(["t"])
        values, errors = await polled(consumer, lambda values, errors: len(values) == 2)
        assert values == [b"0", b"1"]
        assert errors == []
        assert await consumer.poll(5000) == []
        await consumer.close()

    with_broker(body)
