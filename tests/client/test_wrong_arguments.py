"""Arguments of a wrong type, and partitions as pairs: each method refuses the first with a TypeError and takes the second."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import re
from typing import Any

import kafka
import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, with_broker

from ottla import aio, sync
from ottla.client.admin import Admin, NewTopic, Topic
from ottla.client.admin.groups import CommittedOffset
from ottla.client.group_metadata import OffsetAndMetadata
from ottla.client.other_keywords import OTHER_KEYWORDS, OTHER_POSITIONS
from ottla.client.other_methods import OTHER_METHODS, OTHER_METHODS_OF_FUTURES
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker
from ottla.sync.sent_record import SentRecord

LISTS = [
    (name, parameter.name)
    for name, method in inspect.getmembers(Admin, inspect.iscoroutinefunction)
    if not name.startswith("_")
    for parameter in inspect.signature(method).parameters.values()
    if str(parameter.annotation).startswith(("Iterable[", "Sequence["))
]


def test_the_lists_of_all_methods_were_found() -> None:
    assert {("delete_topics", "names"), ("fence_producers", "transactional_ids"), ("describe_log_dirs", "node_ids")} <= set(LISTS)
    assert len(LISTS) >= 20


@pytest.mark.parametrize(("name", "parameter"), LISTS)
def test_a_string_in_the_place_of_a_list_is_refused(name: str, parameter: str) -> None:
    """Each of its characters was an item: ``delete_topics("ab")`` deleted the topics a and b."""

    async def body(broker: SimBroker) -> None:
        await create(broker, "a")
        await create(broker, "b")
        admin = Admin(broker.client("admin"))
        method = getattr(admin, name)
        given = {key: "x" for key in ("group_id", "key") if key in inspect.signature(method).parameters}
        with pytest.raises(TypeError, match="list of"):
            await method(**given, **{parameter: "ab"})
        assert set(await admin.list_topics()) >= {"a", "b"}
        await admin.close()

    with_broker(body)


@pytest.mark.parametrize("name", ["committed", "beginning_offsets", "end_offsets"])
def test_a_consumer_refuses_a_name_in_the_place_of_partitions(name: str) -> None:
    async def body(broker: SimBroker) -> None:
        consumer = consumer_of(broker.client("c"), group_id="g")
        for wrong in ("g1", ("t", 0), KEY):
            with pytest.raises(TypeError, match="a list of partitions is expected"):
                await getattr(consumer, name)(wrong)
        await consumer.close()

    with_broker(body)


def test_a_partition_may_be_a_pair_wherever_administration_takes_one() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 5)
        admin = Admin(broker.client("admin"))
        await admin.set_offsets("g", {("t", 0): OffsetAndMetadata(2, "two")}, metadata="for all")
        assert await admin.committed_offsets("g") == {KEY: CommittedOffset(2, -1, "two")}
        await admin.set_offsets("h", await admin.committed_offsets("g"))
        assert await admin.committed_offsets("h") == {KEY: CommittedOffset(2, -1, "two")}
        foreign: Any = {("t", 0): kafka.OffsetAndMetadata(2, "two", -1)}
        with pytest.raises(TypeError, match=r"the offset of .*, which is no whole number; .*, or an OffsetAndMetadata of ottla.aio"):
            await admin.set_offsets("g", foreign)
        await admin.set_offsets("g", {("t", 0): 3})
        assert (await admin.committed_offsets("g", [("t", 0)]))[KEY].offset == 3
        assert await admin.pending_offsets("g", [("t", 0)]) == set()
        assert await admin.delete_records({("t", 0): 2}) == {KEY: 2}
        assert set(await admin.describe_producers([("t", 0)])) == {KEY}
        assert await admin.find_hanging_transactions([("t", 0)]) == []
        assert set(await admin.elect_leaders([("t", 0)])) == {KEY}
        assert set(await admin.alter_partition_reassignments({("t", 0): [1]})) == {KEY}
        assert await admin.delete_offsets("g", [("t", 0)]) == {KEY: None}
        await admin.abort_transaction(("t", 0), producer_id=1, producer_epoch=0, coordinator_epoch=0)
        wrong: Any = "t"
        for call in (admin.set_offsets("g", wrong), admin.delete_records(wrong), admin.alter_partition_reassignments(wrong)):
            with pytest.raises(TypeError, match="a dict by partition is expected"):
                await call
        await admin.close()

    with_broker(body)


def test_values_may_be_numbers_and_booleans_wherever_a_configuration_is_given() -> None:
    async def body(broker: SimBroker) -> None:
        admin = Admin(broker.client("admin"))
        assert await admin.create_topics([NewTopic("t", configs={"retention.ms": 3_600_000, "preallocate": True})]) == {"t": None}
        found = await admin.describe_configs(Topic("t"))
        assert (found["retention.ms"].value, found["preallocate"].value) == ("3600000", "true")
        await admin.replace_configs(Topic("t"), {"retention.ms": 7_200_000, "preallocate": False})
        found = await admin.describe_configs(Topic("t"))
        assert (found["retention.ms"].value, found["preallocate"].value) == ("7200000", "false")
        await admin.close()

    with_broker(body)


def test_what_is_no_count_no_value_and_no_dict_is_a_type_error() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        admin = Admin(broker.client("admin"))
        wrong: Any
        for wrong, text in (
            (NewTopic("q", "3"), "partition_count='3' is no whole number"),  # type: ignore[arg-type]
            (NewTopic("q", 1, 1.5), r"replication_factor=1\.5 is no whole number"),  # type: ignore[arg-type]
            (NewTopic("q", configs={"retention.ms": None}), "retention.ms=None: give a string, a number"),  # type: ignore[dict-item]
        ):
            with pytest.raises(TypeError, match=text):
                await admin.create_topics([wrong])
        for wrong, text in (({"t": "3"}, "the partition count of 't'='3' is no whole"), ([("t", 3)], "create_partitions takes a dict")):
            with pytest.raises(TypeError, match=text):
                await admin.create_partitions(wrong)
        wrong = Topic("t")
        with pytest.raises(TypeError, match=r"alter_configs takes a dict, such as .*, and not a Topic"):
            await admin.alter_configs(wrong)
        wrong = ["retention.ms"]
        with pytest.raises(TypeError, match="replace_configs takes a dict"):
            await admin.replace_configs(Topic("t"), wrong)
        await admin.close()

    with_broker(body)


def test_a_keyword_of_another_client_is_refused_with_what_is_meant() -> None:
    given: Any = {"name": "orders", "num_partitions": 3}
    with pytest.raises(TypeError, match=r"NewTopic\(\) has no argument 'num_partitions': write partition_count"):
        NewTopic(**given)
    seconds: Any = {"timeout": 1.0}
    with sync.Consumer("h:1") as consumer, pytest.raises(TypeError, match=r"poll\(\) has no argument 'timeout'.*timeout_ms=1000"):
        consumer.poll(**seconds)
    with sync.Producer("h:1") as producer, pytest.raises(TypeError, match=r"flush\(\) has no argument 'timeout'.*delivery_timeout_ms"):
        producer.flush(**seconds)

    async def asynchronous() -> None:
        async with aio.Consumer("h:1") as consumer:
            with pytest.raises(TypeError, match=r"poll\(\) has no argument 'timeout'"):
                await consumer.poll(**seconds)
            wrong: Any = {"shoe_size": 1}
            with pytest.raises(TypeError, match="unexpected keyword argument 'shoe_size'"):
                await consumer.poll(**wrong)

    asyncio.run(asynchronous())


@pytest.mark.parametrize("call", OTHER_KEYWORDS)
def test_a_row_of_other_keywords_names_a_call_and_no_argument_of_it(call: str) -> None:
    name, _, method = call.partition(".")
    for module in (aio, sync):
        kind = getattr(module, name)
        parameters = inspect.signature(getattr(kind, method) if method else kind).parameters
        assert not OTHER_KEYWORDS[call].keys() & parameters.keys()
        for hint in OTHER_KEYWORDS[call].values():
            meant = re.match(r"write (\w+)", hint)
            assert meant is None or meant[1] in parameters, hint


@pytest.mark.parametrize("call", [call for call in OTHER_KEYWORDS if "." in call])
def test_each_row_of_other_keywords_is_what_its_call_says(call: str) -> None:
    """Those of ``Admin`` were not: its methods look at their arguments when they are awaited."""
    name, _, method = call.partition(".")
    keyword, hint = next(iter(OTHER_KEYWORDS[call].items()))
    text = re.escape(f"{method}() has no argument '{keyword}': {hint}")
    positional = ["t"] if method == "send" else []  # which looks at other names itself
    with made(sync, name) as client, pytest.raises(TypeError, match=text):
        getattr(client, method)(*positional, **{keyword: KEY})

    async def asynchronous() -> None:
        async with made(aio, name) as client:
            with pytest.raises(TypeError, match=text):
                await getattr(client, method)(*positional, **{keyword: KEY})

    asyncio.run(asynchronous())


@pytest.mark.parametrize("call", [call for call in OTHER_POSITIONS if "." in call])
def test_more_than_a_call_takes_by_position_is_refused_with_what_is_meant(call: str) -> None:
    name, _, method = call.partition(".")
    text = re.escape(f"{method}() takes no such argument by position: {OTHER_POSITIONS[call]}")
    with made(sync, name) as client, pytest.raises(TypeError, match=text):
        getattr(client, method)(*[KEY] * 4)

    async def asynchronous() -> None:
        async with made(aio, name) as client:
            with pytest.raises(TypeError, match=text):
                await getattr(client, method)(*[KEY] * 4)

    asyncio.run(asynchronous())


@pytest.mark.parametrize("name", OTHER_METHODS_OF_FUTURES)
def test_a_method_of_another_clients_future_is_an_attribute_error_with_what_is_meant(name: str) -> None:
    future = SentRecord()
    assert not hasattr(future, name)
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': {re.escape(OTHER_METHODS_OF_FUTURES[name])}") as refused:
        getattr(future, name)
    assert refused.value.name == name
    assert all(callable(getattr(future, meant)) for meant in re.findall(r"write (\w+)\(", OTHER_METHODS_OF_FUTURES[name]))
    with pytest.raises(AttributeError, match=r"has no attribute 'shoe_size'$"):
        future.shoe_size  # noqa: B018


@pytest.mark.parametrize("method", ["pause", "resume", "seek_to_beginning", "seek_to_end"])
def test_one_partition_in_the_place_of_a_list_is_refused(method: str) -> None:
    with sync.Consumer("h:1") as consumer:
        consumer.assign([KEY])
        with pytest.raises(TypeError, match=r"a list of partitions is expected, such as \[\(\"orders\", 0\)\], and not TopicPartition"):
            getattr(consumer, method)(KEY)
        getattr(consumer, method)([KEY])


def refuses_row(row: Any, text: str) -> None:
    """``send_many`` of both clients refuses the row with that text."""
    with sync.Producer("h:1") as producer, pytest.raises(TypeError, match=text):
        producer.send_many([row])

    async def asynchronous() -> None:
        async with aio.Producer("h:1") as producer:
            with pytest.raises(TypeError, match=text):
                await producer.send_many([row])

    asyncio.run(asynchronous())


def test_a_row_of_send_many_with_more_than_a_key_is_refused() -> None:
    """The fourth was dropped in silence, be it meant as a partition or as headers."""
    row = ("t", b"v", b"k", 3)
    text = re.escape("send_many takes (topic, value) or (topic, value, key), and a row ends with [b'k', 3]: use send for the rest")
    refuses_row(row, text)


def test_one_new_topic_in_the_place_of_a_list_is_refused() -> None:
    one: Any = NewTopic("orders")
    with sync.Admin("h:1") as admin, pytest.raises(TypeError, match=r"create_topics takes a list of NewTopic, such as \[NewTopic\("):
        admin.create_topics(one)


@pytest.mark.parametrize("name", ["bootstrap.servers", "bootstrap_server", "brokers", "metadata.broker.list", "boostrap_servers"])
def test_the_brokers_by_another_name_are_refused_with_the_name_here(name: str) -> None:
    wrong: Any = {name: "h:1"}
    for kind in (sync.Producer, sync.Consumer, sync.Admin):
        with pytest.raises(KafkaError, match="bootstrap_servers") as refused:
            kind(**wrong)
        assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_a_serializer_of_another_clients_form_is_refused_where_it_is_given() -> None:
    class Object:
        def serialize(self, topic: str, value: object) -> bytes:
            return b""

    def with_context(value: object, context: object) -> bytes:
        return b""

    forms: list[tuple[Any, str]] = [
        (Object(), r"lambda value: it\.serialize\(topic, value\)"),
        (with_context, "a function of one argument, the value"),
    ]
    for wrong, text in forms:
        with pytest.raises(KafkaError, match=rf"value_serializer=.*{text}") as refused:
            sync.Producer("h:1", value_serializer=wrong)
        assert refused.value.code == ErrorCode.INVALID_CONFIG
        with pytest.raises(KafkaError, match=r"value_deserializer=.*expected a function"):
            sync.Consumer("h:1", value_deserializer=wrong)
    sync.Producer("h:1", value_serializer=str.encode, key_serializer=bytes).close()


def test_an_argument_of_another_clients_send_is_refused_with_what_is_meant() -> None:
    given: Any = {"callback": print}
    text = r"send\(\) has no argument 'callback': write on_delivery"
    with sync.Producer("h:1") as producer:
        with pytest.raises(TypeError, match=text):
            producer.send("t", b"x", **given)
        with pytest.raises(TypeError, match=r"send\(\) got an unexpected keyword argument 'shoe_size'"):
            producer.send("t", b"x", shoe_size=1)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"send_and_wait\(\) has no argument 'timestamp': write timestamp_ms"):
            producer.send_and_wait("t", b"x", timestamp=1)  # type: ignore[call-arg]

    async def asynchronous() -> None:
        async with aio.Producer("h:1") as producer:
            with pytest.raises(TypeError, match=text):
                await producer.send("t", b"x", **given)

    asyncio.run(asynchronous())


def made(module: Any, name: str) -> Any:
    """A client that has connected to nothing."""
    return getattr(module, name)("h:1")


@pytest.mark.parametrize(("name", "method"), [(name, method) for name, methods in OTHER_METHODS.items() for method in methods])
def test_a_method_of_another_client_is_an_attribute_error_with_what_is_meant(name: str, method: str) -> None:
    for module in (aio, sync):
        kind = getattr(module, name)
        assert not hasattr(kind, method)
        with pytest.raises(AttributeError, match=f"'{name}' object has no attribute '{method}': ") as refused:
            getattr(kind, method)
        assert refused.value.name == method
        hint = OTHER_METHODS[name][method]
        for meant in re.findall(r"write (\w+)\(", hint):
            assert meant == "Admin" or callable(getattr(kind, meant)), hint


def test_what_is_not_there_is_not_listed_and_a_client_behaves_as_any_object() -> None:
    for name in OTHER_METHODS:
        with made(sync, name) as client:
            assert "close" in dir(client)
            assert not OTHER_METHODS[name].keys() & set(dir(client))
            assert not any(hasattr(client, method) for method in OTHER_METHODS[name])
            with pytest.raises(AttributeError, match=r"has no attribute 'shoe_size'$"):
                client.shoe_size  # noqa: B018
            for copied in (pickle.dumps, copy.copy):
                with pytest.raises(TypeError, match=f"<ottla.sync.{name} .*> cannot be copied or pickled: make a client where it is used"):
                    copied(client)


def test_a_block_or_a_loop_without_async_says_what_to_write() -> None:
    async def body() -> None:
        async with aio.Producer("h:1") as producer, aio.Consumer("h:1") as consumer:
            with pytest.raises(AttributeError, match="'Producer' object has no attribute '__enter__': write `async with`"), producer:  # type: ignore[attr-defined]
                pass
            with pytest.raises(TypeError, match="'Consumer' object is not iterable: write `async for`"):
                list(consumer)  # type: ignore[call-overload]

    asyncio.run(body())


def test_a_method_of_a_subclass_is_its_own() -> None:
    class Mine(sync.Producer):
        def produce(self) -> str:
            return "mine"

    with Mine("h:1") as producer:
        assert producer.produce() == "mine"
        with pytest.raises(AttributeError, match=r"'Mine' object has no attribute 'poll': callbacks are called by themselves"):
            producer.poll  # type: ignore[attr-defined]  # noqa: B018


def test_a_callback_that_cannot_be_called_is_refused_where_it_is_given() -> None:
    """The record was sent, and no one learnt what became of it: a line of the log said so, or a RuntimeWarning."""

    async def awaited(metadata: object, error: object) -> None: ...

    wrong: Any
    for wrong, text in ((5, "on_delivery=5 is no function"), (awaited, "on_delivery is a coroutine function, which would not be awaited")):
        with sync.Producer("h:1") as producer, pytest.raises(TypeError, match=text):
            producer.send("t", b"v", on_delivery=wrong)

        async def asynchronous(wrong: Any = wrong, text: str = text) -> None:
            async with aio.Producer("h:1") as producer:
                with pytest.raises(TypeError, match=text):
                    await producer.send("t", b"v", on_delivery=wrong)

        asyncio.run(asynchronous())


@pytest.mark.parametrize("row", [b"value", (b"value",), "tv", 5])
def test_what_is_no_row_of_send_many_is_refused_with_what_is_expected(row: Any) -> None:
    text = re.escape(f"send_many takes (topic, value) or (topic, value, key), and a row is {row!r}")
    refuses_row(row, text)


def test_what_no_request_can_hold_is_a_type_error_that_names_the_argument() -> None:
    """They were an EncodeError of the protocol, which no ``except KafkaError`` takes, or Python's own words."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        admin = Admin(broker.client("admin"))
        consumer = consumer_of(broker.client("c"), group_id="g")
        consumer.assign([KEY])
        wrong: Any
        for wrong in (1e9, "1"):
            for client in (admin, consumer):
                with pytest.raises(TypeError, match=r"the time of t-0 is .*: whole milliseconds since 1970 are expected"):
                    await client.offsets_for_times({KEY: wrong})
            with pytest.raises(TypeError, match=r"the offset of t-0 is .*, which is no whole number"):
                await admin.set_offsets("g", {KEY: wrong})
            with pytest.raises(TypeError, match=r"the offset of t-0=.* is no whole number"):
                await admin.delete_records({KEY: wrong})
        for wrong in (5, None, ["t"]):
            for call in (admin.describe_group, admin.committed_offsets):
                with pytest.raises(TypeError, match=r"group_id=.*: one name is expected"):
                    await call(wrong)
            for ask in (admin.describe_topic, consumer.partitions_for):
                with pytest.raises(TypeError, match=r"(name|topic)=.*: one name is expected"):
                    await ask(wrong)
            with pytest.raises(TypeError, match=r"name=.*: one name is expected"):
                await admin.create_topics([NewTopic(wrong)])
        wrong = [("retention.ms", "1")]
        with pytest.raises(TypeError, match=r"NewTopic\(configs=\) takes a dict"):
            await admin.create_topics([NewTopic("q", configs=wrong)])
        with pytest.raises(KafkaError, match="the offset of t-0 is -5, which is negative") as refused:
            await admin.set_offsets("g", {KEY: -5})
        assert refused.value.code == ErrorCode.INVALID_REQUEST
        await consumer.close()
        await admin.close()

    with_broker(body)


def test_a_record_that_is_too_large_and_a_state_that_there_is_not_say_what_there_is() -> None:
    text = r"max_request_size=.*max\.message\.bytes of topic 't'"
    with sync.Producer("h:1") as producer, pytest.raises(KafkaError, match=text) as refused:
        producer.send("t", bytes(2_000_000))
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE

    async def body(broker: SimBroker) -> None:
        admin = Admin(broker.client("admin"))
        with pytest.raises(KafkaError, match="unknown states of transactions: Ongoin; there are Empty, Ongoing, "):
            await admin.list_transactions(states=["Ongoin"])
        await admin.close()

    with_broker(body)
