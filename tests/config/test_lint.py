"""What is said about a file before a broker is started with it."""

from __future__ import annotations

import pytest
from tests.config.test_sources import COMBINED_NODE

from ottla.config import BrokerConfig, parse_properties
from ottla.config.lint import Finding, Severity, lint


def test_unknown_keys_and_illegal_values_are_errors_and_keys_without_effect_are_noted() -> None:
    given = {"num.partition": "1", "num.partitions": "none", "message.max.bytes": "1", "background.threads": "10", "no.such.thing.x": "1"}
    mistyped, illegal, idle, unheard = lint(given)
    assert mistyped == Finding("num.partition", Severity.ERROR, "unknown; did you mean num.partitions?")
    assert (illegal.name, illegal.severity) == ("num.partitions", Severity.ERROR)
    assert (idle.name, idle.severity) == ("background.threads", Severity.NOTE)
    assert unheard.severity is Severity.ERROR


@pytest.mark.parametrize(("interval_ms", "session_ms", "is_warned"), [(4500, 9000, False), (4501, 9000, True), (9000, 9000, True)])
def test_a_session_that_is_not_clearly_longer_than_a_heartbeat_is_warned_of(interval_ms: int, session_ms: int, is_warned: bool) -> None:
    """As in Kafka, which logs it, and starts."""
    given = {"broker.heartbeat.interval.ms": str(interval_ms), "broker.session.timeout.ms": str(session_ms)}
    found = list(lint(given))
    assert [(finding.name, finding.severity) for finding in found] == [("broker.session.timeout.ms", Severity.WARNING)] * is_warned
    assert all(f"{session_ms} is below twice broker.heartbeat.interval.ms={interval_ms}" in finding.text for finding in found)


def test_a_default_may_contradict_what_is_given_and_an_illegal_value_is_not_compared() -> None:
    assert [finding.severity for finding in lint({"broker.session.timeout.ms": "3999"})] == [Severity.WARNING]
    assert [finding.severity for finding in lint({"broker.session.timeout.ms": "short"})] == [Severity.ERROR]


def test_two_ids_of_one_node_are_an_error_and_the_same_id_twice_is_none() -> None:
    [found] = lint({"node.id": "1", "broker.id": "7"})
    assert (found.severity, "broker.id=7 and node.id=1 differ" in found.text) == (Severity.ERROR, True)
    assert list(lint({"node.id": "7", "broker.id": "7"})) == []


@pytest.mark.parametrize(
    ("listened", "is_another"), [("C://:9193", False), ("C://:9193,D://:9195", False), ("C://:0", False), ("C://:9293", True)]
)
def test_a_copied_file_with_the_id_of_another_controller_is_warned_of(listened: str, is_another: bool) -> None:
    given = {"controller.quorum.voters": "1@a:9193,2@a:9293,3@a:9393", "controller.listener.names": "C,D", "node.id": "1"}
    given |= {"listeners": f"PLAINTEXT://:9092,{listened}", "offsets.topic.replication.factor": "3"}
    found = list(lint(given | {"transaction.state.log.replication.factor": "3"}))
    assert [finding.severity for finding in found] == [Severity.WARNING] * is_another
    assert all("1@a:9193 is this node, whose node.id is 1" in finding.text and "port 9293" in finding.text for finding in found)
    assert not [text for _, text in BrokerConfig({**given, "broker.id": "-1", "node.id": "2"}).contradictions() if "1@a" in text]
    del given["node.id"]
    assert list(BrokerConfig(given).contradictions()) == [], "a missing id is an error of its own"


def test_the_replicas_of_new_topics_are_a_matter_of_controllers() -> None:
    """A broker's file with 3 left topics with one replica, silently."""
    given = {"process.roles": "broker", "node.id": "4", "controller.quorum.voters": "1@a:9193", "controller.listener.names": "C"}
    [found] = lint(given | {"default.replication.factor": "3"})
    assert (found.name, found.severity) == ("default.replication.factor", Severity.WARNING)
    assert "set it in the files of the controllers" in found.text
    assert list(lint(given)) == []
    assert list(lint(given | {"min.insync.replicas": "2"})) == [], "the factor of the controllers counts, which this file does not have"
    assert not list(BrokerConfig(given | {"process.roles": "broker,controller", "default.replication.factor": "3"}).contradictions())


def test_a_file_of_kafkas_has_no_errors() -> None:
    assert {finding.severity for finding in lint(parse_properties(COMBINED_NODE))} == {Severity.NOTE}


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("tmp/data", "PrivateTmp"), ("var/tmp", "PrivateTmp"), ("home/me/data", "ProtectHome"), ("root", "ProtectHome"),
        ("etc/ottla", "ProtectSystem"), ("var/lib/ottla", None), ("tmpfs", None), ("srv/home", None),
    ],
)  # fmt: skip
def test_a_directory_where_data_does_not_last_or_the_unit_hides_is_warned_of(path: str, word: str | None) -> None:
    for key in ("log.dirs", "log.dir", "metadata.log.dir"):
        found = list(lint({"log.dirs": "/var/lib/ottla", key: f"/{path}"}))
        assert [(finding.name, finding.severity) for finding in found] == ([] if word is None else [(key, Severity.WARNING)])
        assert all(word in finding.text for finding in found if word)


def test_settings_of_replicas_that_lose_or_refuse_records_early_are_warned_of() -> None:
    voters = {"controller.quorum.voters": "1@a:1,2@b:1,3@c:1"}
    for given, name in (
        ({"min.insync.replicas": "2"}, "min.insync.replicas"),
        (voters | {"offsets.topic.replication.factor": "1"}, "offsets.topic.replication.factor"),
        (voters | {"transaction.state.log.replication.factor": "1"}, "transaction.state.log.replication.factor"),
        ({"unclean.leader.election.enable": "true"}, "unclean.leader.election.enable"),
    ):
        assert [(found.name, found.severity) for found in lint(given)] == [(name, Severity.WARNING)]
    for fine in ({"min.insync.replicas": "2", "default.replication.factor": "2"}, {"offsets.topic.replication.factor": "1"}, voters):
        assert list(lint(fine)) == []
