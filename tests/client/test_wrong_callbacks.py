"""Callbacks, serializers and lists that could not work are refused where they are given, with what is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.client.simulated import consumer_of, create, with_broker

from ottla import sync
from ottla.client.admin import Admin
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker
from ottla.sync import Acl, Operation, Producer, ResourceType


async def _awaited(value: Any) -> bytes:
    return bytes(value)


@pytest.mark.parametrize("callback", [lambda: None, lambda metadata: None, lambda metadata, error, other: None])
def test_a_callback_that_cannot_take_metadata_and_error(callback: Callable[..., Any]) -> None:
    with Producer("h:1") as producer:
        for _ in range(2):
            with pytest.raises(TypeError, match="on_delivery is called with 2 arguments, the metadata and the error; this one takes"):
                producer.send("t", b"v", on_delivery=callback)


@pytest.mark.parametrize("name", ["on_assigned", "on_revoked", "on_lost"])
def test_callbacks_of_a_subscription(name: str) -> None:
    with sync.Consumer("h:1", group_id="g") as consumer:
        with pytest.raises(TypeError, match=f"{name}=5 is no function: it is called with a list of partitions"):
            consumer.subscribe(["t"], **{name: 5})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=f"{name} is called with 1 argument, a list of partitions; this one takes \\(\\)"):
            consumer.subscribe(["t"], **{name: lambda: None})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=f"{name} is a coroutine function, which ottla.sync would not await: give a plain one"):
            consumer.subscribe(["t"], **{name: _awaited})  # type: ignore[arg-type]
        assert not consumer.subscription()
        consumer.subscribe(["t"], **{name: print})  # type: ignore[arg-type]


def test_a_subscription_to_nothing_says_what_is_missing() -> None:
    with sync.Consumer("h:1", group_id="g") as consumer:
        with pytest.raises(TypeError, match=r"subscribe takes a list of topics, such as .*, and not None"):
            consumer.subscribe(None)  # type: ignore[arg-type]
        with pytest.raises(KafkaError, match=r"the list is empty: unsubscribe\(\) ends a subscription"):
            consumer.subscribe([])
        with pytest.raises(KafkaError, match="both are given"):
            consumer.subscribe(["t"], pattern="t")


def test_what_a_serializer_returns() -> None:
    settings: dict[str, Any] = {"value_serializer": str}
    with Producer("h:1", **settings) as producer, pytest.raises(TypeError, match="value_serializer returned a str: it is to return bytes"):
        producer.send("t", 5)
    settings = {"key_serializer": _awaited}
    with Producer("h:1", **settings) as producer, pytest.raises(TypeError, match="key_serializer returned a coroutine: give a plain funct"):
        producer.send("t", None, key=b"k")


def test_an_empty_list_of_brokers_and_an_empty_topic() -> None:
    with pytest.raises(KafkaError, match="the list of the brokers' addresses is empty"):
        Producer([])
    with Producer("h:1") as producer, pytest.raises(TypeError, match="its name must not be empty"):
        producer.send("", b"v")


def test_a_word_in_the_place_of_an_enums_member() -> None:
    with pytest.raises(TypeError, match=r"resource_type='topic': give a member of ResourceType, such as ResourceType\."):
        Acl("topic", "t", "User:u", Operation.READ)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="operation='read': give a member of Operation"):
        Acl(ResourceType.TOPIC, "t", "User:u", "read")  # type: ignore[arg-type]


def test_admin_says_what_a_limit_and_an_offset_may_be() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        admin = Admin(broker.client("admin"))
        with pytest.raises(KafkaError, match="timeout_ms=-1 is negative; leave it out for default_api_timeout_ms"):
            await admin.delete_records({("t", 0): 0}, timeout_ms=-1)
        (problem,) = (await admin.delete_records({("t", 0): 50})).values()
        assert isinstance(problem, KafkaError)
        assert problem.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert problem.message == "t-0: offset 50 is after its end, or negative; -1 deletes all that may be read"
        await admin.close()

    with_broker(body)


def test_members_without_a_common_assignor_are_told_their_own() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        one, other = (
            consumer_of(broker.client(name), group_id="g", partition_assignment_strategy=name) for name in ("range", "roundrobin")
        )
        one.subscribe(["t"])
        other.subscribe(["t"])
        await one.poll(1_000)
        with pytest.raises(KafkaError, match=r"no assignor in common with partition\.assignment\.strategy=roundrobin; `ottla group desc"):
            await other.poll(1_000)
        await one.close()
        await other.close()

    with_broker(body)
