"""The log of requests: a line for each where that is wanted, and none where it is not, whatever the root's level is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from ottla import loggers
from ottla.errors import KafkaError
from ottla.sync import Admin, Consumer, Producer
from ottla.testing import broker
from ottla.types import TopicPartition

Lines = list[tuple[str, str, Mapping[str, Any]]]


@contextmanager
def running() -> Iterator[tuple[str, Lines]]:
    """A broker, and the events that are not dropped."""
    found: Lines = []
    before = dict(loggers._levels)
    with broker() as made:
        loggers.send_to(lambda name, method, event, values: found.append((name, event, values)))
        try:
            yield made.bootstrap, found
        finally:
            loggers.send_to(None)
            loggers._levels.clear()
            loggers.set_levels(before.items())


def use(bootstrap: str) -> None:
    with Admin(bootstrap, client_id="asker") as admin, pytest.raises(KafkaError):
        admin.describe_topic("absent")
    with Producer(bootstrap, client_id="writer") as producer:
        producer.send("t", b"v").result()
    with Consumer(bootstrap, client_id="reader", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        while not consumer.poll(1000):
            pass


def test_each_request_is_a_line_where_that_is_wanted_and_says_who_asked() -> None:
    with running() as (bootstrap, lines):
        use(bootstrap)
        loggers.set_levels([(loggers.ROOT, "DEBUG")])
        use(bootstrap)
        assert not [event for name, event, _ in lines if name == loggers.REQUESTS], "not without its own level"
        opened = [values for _, event, values in lines if event == "connection_opened"]
        assert opened
        loggers.set_levels([(loggers.REQUESTS, "DEBUG")])
        use(bootstrap)
        asked = [values for name, event, values in lines if (name, event) == (loggers.REQUESTS, "request")]
        loggers.set_levels([(loggers.REQUESTS, "WARN")])
        del lines[:]
        use(bootstrap)
        assert not [event for name, event, _ in lines if name == loggers.REQUESTS]
    clients = {(values["api"], values["client_id"]) for values in asked}
    assert {("Metadata", "asker"), ("Produce", "writer"), ("Fetch", "reader")} <= clients
    for values in asked:
        assert values.keys() - {"error", "topic", "partition", "more_errors"} == {
            "api", "version", "correlation_id", "client_id", "host", "listener", "principal", "took_us"
        }  # fmt: skip
        assert values["took_us"] >= 0


def test_a_request_that_was_refused_says_so() -> None:
    with running() as (bootstrap, lines):
        loggers.set_levels([(loggers.REQUESTS, "DEBUG")])
        with Producer(bootstrap, transactional_id="x", transaction_timeout_ms=2**31 - 1) as producer, pytest.raises(KafkaError):
            producer.init_transactions()
    errors = {values.get("error") for _, event, values in lines if event == "request"}
    assert "INVALID_TRANSACTION_TIMEOUT" in errors


def test_a_refused_partition_is_named() -> None:
    """The line of a Produce that was refused had neither the error nor the topic: both are in its partition."""
    with running() as (bootstrap, lines):
        use(bootstrap)
        loggers.set_levels([(loggers.REQUESTS, "DEBUG")])
        with Producer(bootstrap, client_id="writer", max_request_size=2**24) as producer, pytest.raises(KafkaError):
            producer.send("t", bytes(2**21)).result()
    told = [values for _, event, values in lines if event == "request" and "error" in values]
    assert [(values["api"], values["error"], values["topic"], values["partition"]) for values in told] == [
        ("Produce", "MESSAGE_TOO_LARGE", "t", 0)
    ]
