"""``ottla pipeline state``: it shows the last batch, also while another one is being written. Without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import click
import pytest
from click.testing import CliRunner

from ottla.cli.main import cli
from ottla.cli.pipeline import SILENCE_S, newest_values
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, Consumer, NewTopic, Producer

TOPIC = "devices-highest-seen-changelog"
WRITTEN_MS_MAX = 15_000
"""After that the broker ends the transaction, whose commit then fails."""


def test_a_batch_that_is_being_written_is_not_waited_for(tmp_path: Path):
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "broker"),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    }
    with (
        BrokerThread(properties) as broker,
        Admin(broker.bootstrap) as admin,
        Producer(broker.bootstrap, transactional_id="devices-highest", transaction_timeout_ms=WRITTEN_MS_MAX) as producer,
    ):
        assert admin.create_topics([NewTopic(TOPIC, 1)]) == {TOPIC: None}
        producer.init_transactions()
        with producer.transaction():
            producer.send(TOPIC, b'{"n":1}', key=b"device-7")
        with producer.transaction():
            producer.send_and_wait(TOPIC, b'{"n":2}', key=b"device-7")
            shown = CliRunner().invoke(cli, ["pipeline", "state", "devices", "seen", "-B", broker.bootstrap])
        assert shown.exit_code == 0, shown.output
        assert 'device-7  {"n":1}' in shown.output


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "broker")}) as broker:
        with Admin(broker.bootstrap) as admin:
            assert admin.create_topics([NewTopic(TOPIC, 1)]) == {TOPIC: None}
        with Producer(broker.bootstrap) as producer:
            producer.send_and_wait(TOPIC, b'{"n":1}\x1b]0;owned\x07', key=b"device\n\x1b[2J7\xc2\x9b")
        yield broker.bootstrap


def test_a_topic_of_which_nothing_comes_is_not_waited_for_without_end(bootstrap: str, monkeypatch: pytest.MonkeyPatch):
    """Its broker died between the question for the end and the records: it was polled for ever."""
    polls: list[int] = []

    def poll(consumer: Consumer, timeout_ms: int) -> list[object]:
        assert len(polls) < 10, "it is polled on"
        polls.append(timeout_ms)
        return []

    monkeypatch.setattr(Consumer, "poll", poll)
    text = f"{TOPIC}-0 is not read to its end: nothing came for {SILENCE_S} s from offset 0 on, and the end is 1"
    with Admin(bootstrap) as admin, pytest.raises(click.ClickException, match=text):
        newest_values(admin, TOPIC, bootstrap, now_s=lambda: 7.0 * len(polls))
    assert len(polls) == 5


def test_what_a_terminal_would_obey_is_shown_as_escapes(bootstrap: str):
    """Keys and values are data of whoever wrote the topic: they could clear the screen, and break the table's lines."""
    shown = CliRunner().invoke(cli, ["pipeline", "state", "devices", "seen", "-B", bootstrap])
    assert (
        shown.output
        == dedent(r"""
        KEY                   VALUE
        device\n\x1b[2J7\x9b  {"n":1}\x1b]0;owned\x07
    """).lstrip()
    )
    shown = CliRunner().invoke(cli, ["pipeline", "state", "devices", "seen", "-B", bootstrap, "--json"])
    assert json.loads(shown.output)["items"] == [{"key": "device\n\x1b[2J7\x9b", "value": '{"n":1}\x1b]0;owned\x07'}]
    assert all(line.isprintable() for line in shown.output.splitlines())


def test_a_key_that_has_moved_to_another_partition_has_its_later_value(bootstrap: str):
    """A topic that got more partitions has its keys elsewhere from then on: what was polled last counted."""
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        assert admin.create_partitions({TOPIC: 3}) == {TOPIC: None}
        for partition, time_ms, key, value in (
            (0, 1_000, b"moved", b"old"),
            (0, 1_000, b"gone", b"old"),
            (1, 2_000, b"moved", b"new"),
            (1, 2_000, b"gone", None),
            (2, 1_500, b"moved", b"between"),
            (1, 9_000, b"stays", b"first"),
            (1, 1_000, b"stays", b"last in its partition, whatever its time is"),
        ):
            producer.send_and_wait(TOPIC, value, key=key, partition=partition, timestamp_ms=time_ms)
        found = newest_values(admin, TOPIC, bootstrap)
    assert {key: found.get(key) for key in ("moved", "gone", "stays")} == {
        "moved": "new",
        "gone": None,
        "stays": "last in its partition, whatever its time is",
    }
