"""Errors that were a bare name, or Python's own words with names of classes that no user knows, say what is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.client.simulated import consumer_of, create, with_broker

from ottla import sync
from ottla.client.admin import Admin, Topic
from ottla.client.outgoing import prepare
from ottla.client.partitioner import chosen_by
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker


def test_what_does_not_exist_is_said_not_to() -> None:
    """It was "t-7", "commit of none-0" and "none-0 of group 'g'"."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c"), group_id="g")
        admin = Admin(broker.client("a"))
        absent, beyond = "topic 'none' does not exist", "topic 't' has no partition 7; it has 1"
        no_offset = "offset of none-0 in group 'g': the topic or its partition does not exist"
        for call, text in (
            (lambda: consumer.end_offsets([("none", 0)]), absent),
            (lambda: consumer.end_offsets([("t", 7)]), beyond),
            (lambda: consumer.offsets_for_times({("t", 7): 1}), beyond),
            (lambda: consumer.commit({("none", 0): 1}), no_offset),
            (lambda: admin.set_offsets("g", {("none", 0): 1}), no_offset),
        ):
            with pytest.raises(KafkaError) as caught:
                await call()
            assert (caught.value.code, caught.value.message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        await consumer.close()
        await admin.close()

    with_broker(body, auto_create_topics_enable="false")


def test_a_header_is_named_and_one_partition_is_one() -> None:
    wrong: Any = "x"
    with pytest.raises(TypeError, match="the header 'trace' is of type str: give bytes or None, or encode it"):
        prepare(
            "t", None, key=None, partition=None, headers={"ok": b"", "trace": wrong}, timestamp_ms=0, key_serializer=None,
            value_serializer=None, size_bytes_max=100,
        )  # fmt: skip
    with pytest.raises(KafkaError, match="which has 1 partition, from 0 on"):
        chosen_by(lambda *_: 1, "t", b"k", 1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda admin: admin.alter_configs(Topic("t"), {"retention.ms": 1}),
            'alter_configs() takes no such argument by position: write changes, a dict: alter_configs({Topic("orders"): {"re',
        ),
        (lambda admin: admin.list_topics(timeout=3), "list_topics() has no argument 'timeout': there is no limit of its own: set"),
        (lambda admin: admin.create_topics([], timeout=3), "create_topics() has no argument 'timeout': write timeout_ms, in milliseconds"),
        (lambda admin: admin.describe_topic("a", "b"), "Admin.describe_topic() takes 2 positional arguments but 3 were given; its argum"),
        (lambda admin: admin.describe_topic(nam="a"), "topic() got an unexpected keyword argument 'nam'; its arguments are name"),
    ],
)  # fmt: skip
def test_calls_of_an_admin_are_named_as_users_know_them(call: Callable[[Any], object], said: str) -> None:
    with sync.Admin("h:1") as admin, pytest.raises(TypeError) as caught:
        call(admin)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("make", "name", "whose"),
    [(sync.Producer, "group_id", "consumers"), (sync.Producer, "fetch_min_bytes", "consumers"), (sync.Consumer, "linger_ms", "producers"),
     (sync.Admin, "max_poll_interval_ms", "consumers"), (sync.Admin, "acks", "producers")],
)  # fmt: skip
def test_a_setting_of_another_client_is_said_to_be_one(make: Callable[..., Any], name: str, whose: str) -> None:
    with pytest.raises(KafkaError, match=f"unknown setting '{name}': it is one of {whose}"):
        make("h:1", **{name: 1})


@pytest.mark.parametrize("count", [0, -1])
def test_a_poll_for_no_records_is_refused(count: int) -> None:
    """It returned an empty list, as if there were none."""
    with sync.Consumer("h:1") as consumer:
        consumer.assign([("t", 0)])
        with pytest.raises(KafkaError, match=f"max_records={count}: a number from 1 on is expected"):
            consumer.poll(10, max_records=count)
        with pytest.raises(TypeError, match="max_records='5' is no whole number"):
            consumer.poll(10, max_records="5")  # type: ignore[arg-type]
