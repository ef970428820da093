"""Topics by expression, plans that the command makes, changes as JSON, and all faults of a file at once: against one broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_daily import items, run

from ottla.errors import KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, NewTopic


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    """A broker with the topics ``orders-a``, ``orders-b`` and ``other``."""
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic(name, 2) for name in ("orders-a", "orders-b", "other")])
        yield broker.bootstrap


def test_topics_are_listed_described_and_deleted_by_an_expression_with_a_plan_first(bootstrap: str) -> None:
    assert [row["name"] for row in items(run(bootstrap, "topic", "list", "^orders", "--json"))] == ["orders-a", "orders-b"]
    assert [row["name"] for row in items(run(bootstrap, "topic", "describe", "^o.*r-?b?$", "--json"))] == ["other"]
    planned = run(bootstrap, "topic", "delete", "^orders")
    assert (planned.exit_code, "would delete orders-a, orders-b with all data" in planned.stderr) == (1, True)
    assert "no topic matches ^nothing" in str(run(bootstrap, "topic", "delete", "^nothing", "--yes").exception)
    assert run(bootstrap, "topic", "delete", "^(", "--yes").exit_code == 2
    assert run(bootstrap, "topic", "delete", "^orders", "--yes").exit_code == 0
    assert [row["name"] for row in items(run(bootstrap, "topic", "list", "--json"))] == ["other"]
    assert "topic 'absent' does not exist" in str(run(bootstrap, "topic", "list", "absent").exception)


def test_replicas_are_assigned_by_hand_or_by_a_plan(bootstrap: str) -> None:
    assert run(bootstrap, "topic", "create", "placed", "--replica-assignment", "1,1,1").exit_code == 0
    with Admin(bootstrap) as admin:
        assert [found.replicas for found in admin.describe_topic("placed").partitions.values()] == [[1], [1], [1]]
    assert run(bootstrap, "topic", "create", "p", "--replica-assignment", "1,1", "-p", "2").exit_code == 2
    assert run(bootstrap, "topic", "create", "p", "--replica-assignment", "1;1").exit_code == 2
    plan = items(run(bootstrap, "partition", "reassign", "--topics", "orders-a,other", "--brokers", "1", "--json"))
    assert [(row["topic"], row["partition"], row["replicas_afterwards"]) for row in plan] == [
        (topic, index, [1]) for topic in ("orders-a", "other") for index in (0, 1)
    ]
    assert "there is no broker 7" in str(run(bootstrap, "partition", "reassign", "--topics", "other", "--brokers", "7").exception)
    assert run(bootstrap, "partition", "reassign", "--topics", "other").exit_code == 2


def test_changes_answer_programs_and_a_brokers_key_hints_at_the_topics(bootstrap: str) -> None:
    for command, name, result in (
        (("config", "set", "--topic", "other", "retention.ms=5"), "retention.ms", "changed"),
        (("topic", "alter", "other", "-c", "retention.ms=6", "--dry-run"), "retention.ms", "possible"),
        (("quota", "set", "producer_byte_rate=5", "--user", "a", "--yes"), "producer_byte_rate", "changed"),
        (("feature", "set", "transaction.version=2", "--yes"), "transaction.version", "set"),
    ):
        assert items(run(bootstrap, *command, "--json")) == [{"name": name, "result": result, "error": None}], command
    refused = run(bootstrap, "config", "set", "--topic", "other", "log.retention.hours=5").exception
    assert isinstance(refused, KafkaError)
    assert "did you mean 'retention.ms'?" in refused.message


def test_lint_reports_all_that_no_node_starts_with(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "node.id=1\nlisteners=NOSUCH://:9092\nprocess.roles=broker,controller\ncontroller.quorum.voters=2@h:1\nlog.dirs=/var/lib/ottla\n"
    )
    found = items(run("", "config", "lint", str(file), "--json"))
    assert {row["name"] for row in found if row["severity"] == "error"} == {"controller.quorum.voters", "listeners"}


def test_a_cluster_id_that_is_no_uuid_is_warned_of(tmp_path: Path) -> None:
    own = ("storage", "format", "-X", "node.id=1", "-X", f"log.dirs={tmp_path / 'd'}")
    assert "cluster id 'mine' is no UUID" in run("", *own, "-t", "mine").stderr


def test_the_zookeeper_beside_the_nodes_takes_no_tls(tmp_path: Path) -> None:
    secured = ("--zookeeper", "own", "-X", "zookeeper.ssl.client.enable=true", "--data", str(tmp_path / "c"))
    done = run("", "cluster", "start", *secured)
    assert (done.exit_code, "takes no TLS" in " ".join(done.stderr.split())) == (2, True)
