"""What is said about the files of several nodes of one cluster."""

from __future__ import annotations

import pytest

from ottla.config import BrokerConfig
from ottla.config.lint import Severity
from ottla.config.lint_nodes import compare

VOTERS = "1@a:9193,2@b:9193,3@c:9193"


def node(node_id: int, **other: str) -> BrokerConfig:
    """A node's file; of ``other`` each underscore is a dot."""
    host = "abc"[node_id - 1]
    given = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": VOTERS,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:9092,CONTROLLER://{host}:9193",
    }
    return BrokerConfig(given | {name.replace("_", "."): value for name, value in other.items()})


def compared(*configs: BrokerConfig) -> list[tuple[str, str, Severity]]:
    files = {f"n{number}": config for number, config in enumerate(configs, 1)}
    return [(file, finding.name, finding.severity) for file, finding in compare(files)]


def test_files_that_agree_have_nothing_to_report() -> None:
    assert compared(node(1), node(2), node(3)) == []
    assert compared(node(1, min_insync_replicas="2")) == [], "one file has none to be compared with"


@pytest.mark.parametrize(
    ("voters", "severity"),
    [
        ("1@a:9193,3@c:9193", Severity.ERROR),
        ("1@a:9193,2@b:9999,3@c:9193", Severity.ERROR),
        ("3@c:9193,2@b:9193,1@a:9193", None),
        ("1@a.example:9193,2@b:9193,3@c:9193", Severity.WARNING),
    ],
)
def test_a_node_that_counts_other_voters_is_found(voters: str, severity: Severity | None) -> None:
    expected = [] if severity is None else [("n1", "controller.quorum.voters", severity)]
    assert compared(node(1, controller_quorum_voters=voters), node(2), node(3)) == expected


def test_a_controller_with_two_listeners_may_be_reached_by_either() -> None:
    two = "PLAINTEXT://{0}:9092,CONTROLLER://{0}:9193,C2://{0}:9195"
    both = [node(number, listeners=two.format(host)) for number, host in enumerate("abc", 1)]
    moved = node(1, controller_quorum_voters=VOTERS.replace("9193", "9195"), listeners=two.format("a"))
    assert compared(moved, *both[1:]) == [("n1", "controller.quorum.voters", Severity.WARNING)]


def test_two_nodes_with_one_id_or_one_address_are_found() -> None:
    assert compared(node(1), node(2), node(2)) == [("n3", "node.id", Severity.ERROR), *[("n3", "listeners", Severity.ERROR)] * 2]


def test_an_address_on_every_interface_is_that_of_its_machine() -> None:
    everywhere = "PLAINTEXT://:9092,CONTROLLER://:9193"
    assert compared(node(1, listeners=everywhere), node(2, listeners=everywhere)) == []
    advertised = {"listeners": everywhere, "advertised_listeners": "PLAINTEXT://b:9092"}
    assert compared(node(1, **advertised), node(2)) == [("n2", "listeners", Severity.ERROR)]


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("default.replication.factor", "3", Severity.WARNING),
        ("min.insync.replicas", "2", Severity.WARNING),
        ("delegation.token.secret.key", "hush", Severity.ERROR),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", Severity.ERROR),
        ("unclean.leader.election.enable", "true", Severity.WARNING),
    ],
)
def test_what_has_to_be_the_same_on_all_nodes_is_compared(name: str, value: str, severity: Severity) -> None:
    other = {name.replace(".", "_"): value}
    assert compared(node(1), node(2, **other), node(3)) == [("n2", name, severity)]
    assert compared(node(1, **other), node(2), node(3, **other)) == [("n2", name, severity)]
    texts = [finding.text for _, finding in compare({"n1": node(1), "n2": node(2, **other)})]
    assert "hush" not in "".join(texts)


def test_the_factor_of_a_broker_alone_is_not_compared() -> None:
    broker = node(3, process_roles="broker", default_replication_factor="3", listeners="PLAINTEXT://d:9092")
    assert compared(node(1), node(2), broker) == []
