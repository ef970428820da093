"""Topics by expression, plans that the command makes, changes as JSON, and all faults of a file at once: against one broker."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.test_daily import items, run

from ottla.cli.output import names_of_plan
from ottla.cli.partition_states import min_isr_beyond, topics_beyond
from ottla.errors import KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, NewTopic


def texts_of(file: Path) -> dict[str, str]:
    """What lint says of the file, by key."""
    return {row["name"]: row["text"] for row in json.loads(run("", "config", "lint", str(file), "--json").stdout)["items"]}


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


def test_more_replicas_in_sync_than_there_are_is_done_with_a_warning(bootstrap: str) -> None:
    said = "ottla: warning: min.insync.replicas=2, and topic {} has 1 replica of each partition: acks=all is refused while one"
    for name, command in (
        ("few", ("topic", "create", "few", "-c", "min.insync.replicas=2")),
        ("one", ("topic", "create", "one", "-r", "1", "-c", "min.insync.replicas=2", "--dry-run")),
        ("other", ("config", "set", "--topic", "other", "min.insync.replicas=2")),
        ("other", ("topic", "alter", "other", "-c", "min.insync.replicas=2")),
    ):
        done = run(bootstrap, *command)
        assert (done.exit_code, said.format(name) in done.stderr) == (0, True), (command, done.stderr)
    fitting = run(bootstrap, "topic", "alter", "other", "-c", "min.insync.replicas=1")
    assert (fitting.exit_code, "warning" in fitting.stderr) == (0, False)
    assert "warning" not in run(bootstrap, "config", "set", "--topic", "other", "-d", "min.insync.replicas").stderr


@pytest.mark.parametrize(("min_isr", "count", "expected"), [(1, 1, False), (2, 1, True), (2, 2, True), (2, 3, False), (3, 3, True)])
def test_as_many_in_sync_as_there_are_leaves_none_to_spare(min_isr: int, count: int, expected: bool) -> None:
    admin: Any = None
    assert (min_isr_beyond(admin, "t", str(min_isr), count) is not None) is expected


def test_a_default_for_all_brokers_that_leaves_topics_none_to_spare_is_set_with_a_warning() -> None:
    def topic(count: int, *, is_internal: bool = False) -> SimpleNamespace:
        return SimpleNamespace(is_internal=is_internal, partitions={0: SimpleNamespace(replicas=list(range(count)))})

    topics = {"one": topic(1), "two": topic(2), "three": topic(3), "__own": topic(2, is_internal=True)}
    admin: Any = SimpleNamespace(list_topics=lambda: topics, describe_config_of_topics=lambda names, _: dict.fromkeys(names, "2"))
    said = (
        "warning: 1 topic (two) has no more replicas than min.insync.replicas: acks=all is refused there while one of them is not in sync"
    )
    assert topics_beyond(admin) == said
    del topics["two"]
    assert topics_beyond(admin) is None


def test_a_plan_of_many_topics_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"m{index}" for index in range(1111)]
    assert names_of_plan(names, "topics") == "these 1,111 topics"
    assert capsys.readouterr().err.splitlines() == names
    assert names_of_plan(names[:3], "topics") == "m0, m1, m2"


def test_lint_reports_all_that_no_node_starts_with(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "node.id=1\nlisteners=NOSUCH://:9092\nprocess.roles=broker,controller\ncontroller.quorum.voters=2@h:1\nlog.dirs=/var/lib/ottla\n"
    )
    found = items(run("", "config", "lint", str(file), "--json"))
    assert {row["name"] for row in found if row["severity"] == "error"} == {"controller.quorum.voters", "listeners"}


def test_lint_reports_each_fault_of_a_file_in_one_go(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "node.id=1\nlog.dirs=/var/lib/ottla\nprocess.roles=brokr\nnum.partition=3\ncontroller.quorum.voters=1@a:1,2-b:1,3=c:1\n"
        "listeners=SASL_SSL://:9092,SASL_PLAINTEXT://:9093,SSL:9094\nsasl.enabled.mechanisms=PLAIN,GSSAPI\n"
        "early.start.listeners=SSL,SASL_SSL\nbackground.threads=0\n"
    )
    done = run("", "config", "lint", str(file), "--json")
    texts = [f"{row['name']}: {row['text']}" for row in items(done) if row["severity"] == "error"]
    for part in (
        "process.roles: ",
        "num.partition: unknown",
        "voters=2-b:1",
        "voters=3=c:1",
        "listeners: 'SSL:9094'",
        "background.threads: ",
    ):
        assert [part in text for text in texts].count(True) == 1, (part, texts)
    for listener in ("SASL_SSL", "SASL_PLAINTEXT"):
        assert any(f"listener {listener} speaks SASL, and sasl.enabled.mechanisms=PLAIN,GSSAPI" in text for text in texts), texts
        assert any(f"listener {listener} offers PLAIN, and listener.name.{listener.lower()}" in text for text in texts), texts
    assert (done.exit_code, len(texts), len({*texts})) == (1, 10, 10), texts
    open_file = tmp_path / "open.properties"
    open_file.write_text(
        "node.id=1\nlog.dirs=/var/lib/ottla\nearly.start.listeners=A,B\nconnections.max.reauth.ms=5\nssl.client.auth=required\n"
    )
    named = [row["text"].partition(":")[0] for row in items(run("", "config", "lint", str(open_file), "--json"))]
    assert named == [
        "early.start.listeners=A",
        "early.start.listeners=B",
        "connections.max.reauth.ms=5 would protect nothing",
        "ssl.client.auth=required would protect nothing",
    ]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("SSL://:99999", "has a port above 65535"),
        ("SSL://h", "of the form NAME://host:port"),
        (f"SSL://h:{'9' * 5000}", "has a port above"),
    ],
)
def test_a_listener_that_cannot_be_read_hides_no_other_fault_and_causes_none(tmp_path: Path, address: str, said: str) -> None:
    """The address is wrong, and its name is known: what protects it is not said to protect nothing."""
    file = tmp_path / "server.properties"
    file.write_text(
        f"node.id=1\nlog.dirs=/var/lib/ottla\nlisteners=SASL_PLAINTEXT://:9093,{address}\nsasl.enabled.mechanisms=GSSAPI\n"
        "ssl.client.auth=required\nadvertised.listeners=SSL//h:1,OTHER://h:1\nearly.start.listeners=A\n"
    )
    found = [(row["line"], row["text"]) for row in items(run("", "config", "lint", str(file), "--json"))]
    assert [line for line, _ in found] == [3, 6, 6, 4, 7], found
    assert said in found[0][1]
    assert "advertised.listeners: 'SSL//h:1' is not of the form" in found[1][1]


def test_a_key_that_is_set_twice_and_an_empty_directory_are_warned_of_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# a comment\nnode.id=1\nlisteners=PLAINTEXT://:1,\\\n  SSL://:2\nlog.dirs=\nnum.partitions 3\nnum.partitions=2\nnod.id\n"
    )
    rows = items(run("", "config", "lint", str(file), "--json"))
    found = {(row["line"], row["severity"], row["text"]) for row in rows if row["name"] != "ssl.keystore.location"}
    assert found == {
        (5, "warning", "empty: the logs go to the data directory of the user, and Kafka would not start"),
        (7, "warning", "set on lines 6 and 7: the last value counts; remove the others"),
        (8, "error", "unknown, and without a value: a line has the form KEY=VALUE; did you mean node.id?"),
    }


def test_an_illegal_value_hides_no_other_fault_and_causes_none(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "node.id=none\nlog.dirs=/var/lib/ottla\nprocess.roles=broker,controller\ncontroller.quorum.voters=1@a:1\nlisteners=NOSUCH://:1\n"
    )
    assert [row["name"] for row in items(run("", "config", "lint", str(file), "--json"))] == ["node.id", "listeners"]


def test_a_cluster_id_that_is_no_uuid_is_warned_of(tmp_path: Path) -> None:
    own = ("storage", "format", "-X", "node.id=1", "-X", f"log.dirs={tmp_path / 'd'}")
    assert "cluster id 'mine' is no UUID" in run("", *own, "-t", "mine").stderr


def test_the_zookeeper_beside_the_nodes_takes_no_tls(tmp_path: Path) -> None:
    secured = ("--zookeeper", "own", "-X", "zookeeper.ssl.client.enable=true", "--data", str(tmp_path / "c"))
    done = run("", "cluster", "start", *secured)
    assert (done.exit_code, "takes no TLS" in " ".join(done.stderr.split())) == (2, True)


def test_lint_finds_all_that_is_wrong_of_several_files_at_once(tmp_path: Path) -> None:
    """One line came for each run, a round a fault: what a contradiction had kept from being read was not looked at."""
    own = {
        "process.roles": "broker,controller",
        "node.id": "7",
        "controller.quorum.voters": "1@a:1,2@b:2,3@c:3",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://a:9092",
        "inter.broker.listener.name": "FOO",
        "min.insync.replicas": "5",
        "super.users": "admin",
        "broker.id": "8",
    }
    files = [tmp_path / "1.properties", tmp_path / "2.properties"]
    files[0].write_text("".join(f"{key}={value}\n" for key, value in own.items()))
    files[1].write_text("node.id=1\nnum.partition=2\n")
    done = run("", "config", "lint", *map(str, files), "--json")
    assert done.exit_code == 1
    rows = [(row["file"], row["name"], row["severity"]) for row in json.loads(done.stdout)["items"]]
    wrong = ("broker.id", "super.users", "controller.quorum.voters", "listeners", "inter.broker.listener.name")
    assert {name for file, name, severity in rows if (file, severity) == (str(files[0]), "error")} == set(wrong)
    assert (str(files[0]), "min.insync.replicas", "warning") in rows
    expected = [("num.partition", "error"), ("min.insync.replicas", "warning")]  # which the first file has otherwise
    assert [row for row in rows if row[0] == str(files[1])] == [(str(files[1]), *row) for row in expected]
    files[0].write_text(files[0].read_text().replace("broker.id=8\n", ""))
    found = texts_of(files[0])
    assert "does not have this node, whose node.id is 7" in found["controller.quorum.voters"]
    assert "has no listener of controller.listener.names" in found["listeners"]
    assert "is no principal" in found["super.users"]
    assert "FOO is not one of the listeners" in found["inter.broker.listener.name"]
    text = run("", "config", "lint", *map(str, files)).stdout
    assert text.startswith("FILE ")
    assert run("", "config", "lint", str(files[0])).stdout.startswith("LINE ")


def test_what_a_refused_authorizer_would_have_protected_is_not_said_to_be_unprotected(tmp_path: Path) -> None:
    file = tmp_path / "s.properties"
    file.write_text("authorizer.class.name=no.Such\nsuper.users=User:a\nnum.partitions=0\n")
    assert sorted(texts_of(file)) == ["authorizer.class.name", "num.partitions"]


def test_a_misspelt_key_of_brokers_is_refused_and_one_of_a_plug_in_is_stored_with_force(bootstrap: str) -> None:
    """It was warned of, stored, and stayed: the same mistake at a topic was refused."""
    for options in (("--brokers",), ("--broker", "1"), ("--brokers", "--dry-run")):
        refused = str(run(bootstrap, "config", "set", *options, "mesage.max.byte=5").exception)
        assert "mesage.max.byte is not a broker key; did you mean message.max.bytes? --force stores it all the same" in refused
    assert "`ottla config keys` lists them" in str(run(bootstrap, "config", "set", "--brokers", "zzz=5").exception)
    assert "mesage.max.byte" not in run(bootstrap, "config", "get", "--brokers").stdout
    assert run(bootstrap, "config", "set", "--brokers", "my.plugin.word=5", "--force").exit_code == 0
    assert "my.plugin.word" in run(bootstrap, "config", "get", "--brokers").stdout
    assert run(bootstrap, "config", "set", "--brokers", "-d", "my.plugin.word").exit_code == 0, "what is stored is removed without it"
    assert "my.plugin.word" not in run(bootstrap, "config", "get", "--brokers").stdout


def test_a_key_that_needs_a_restart_names_the_one_that_does_not(bootstrap: str) -> None:
    refused = str(run(bootstrap, "config", "set", "--brokers", "log.retention.hours=5").exception)
    assert "set it in the broker's file, or set log.retention.ms, which takes precedence and can be changed" in refused


def test_lint_compares_the_files_of_several_nodes(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.properties" for number in (1, 2)]
    for number, file in enumerate(files, 1):
        own = f"node.id={number}\nlisteners=PLAINTEXT://10.0.0.{number}:9092,CONTROLLER://10.0.0.{number}:9093\n"
        voters = "1@10.0.0.1:9093,2@10.0.0.2:9093" + ",3@10.0.0.3:9093" * (number == 1)
        file.write_text(f"{own}process.roles=broker,controller\ncontroller.listener.names=CONTROLLER\ncontroller.quorum.voters={voters}\n")
    done = run("", "config", "lint", *map(str, files), "--json")
    found = [row for row in items(done) if row["name"] == "controller.quorum.voters"]
    assert (done.exit_code, [row["file"] for row in found]) == (1, [str(files[1])])
    assert (found[0]["line"], found[0]["severity"]) == (5, "error")


def test_lint_reports_a_store_that_a_start_refuses(tmp_path: Path) -> None:
    assert run("", "certs", "authority", str(tmp_path / "ca")).exit_code == 0
    file, data = tmp_path / "s.properties", tmp_path / "data"
    tls = "listeners=SSL://127.0.0.1:0\ninter.broker.listener.name=SSL\nssl.keystore.type=PEM\n"
    file.write_text(f"{tls}ssl.keystore.location={tmp_path / 'missing.pem'}\nlog.dirs={data}\n")

    def stores() -> list[tuple[str, int, str, str]]:
        rows = items(run("", "config", "lint", str(file), "--json"))
        return [(row["name"], row["line"], row["severity"], row["text"]) for row in rows if row["name"].startswith("ssl.")]

    [(name, line, severity, text)] = stores()
    assert (name, line, severity) == ("ssl.keystore.location", 4, "warning"), "it may be a file of another machine"
    assert "missing.pem cannot be read here: No such file or directory" in text
    data.mkdir()
    (data / "meta.properties").write_text("")
    assert [row[2] for row in stores()] == ["error"], "the node is of this machine"
    [certificate] = [path for path in (tmp_path / "ca").iterdir() if "BEGIN CERT" in path.read_text() and "PRIVATE" not in path.read_text()]
    file.write_text(f"{tls}ssl.keystore.location={certificate}\nlog.dirs={data}\n")
    [(_, _, severity, text)] = stores()
    assert (severity, "has 0 private keys and 1 certificates" in text) == ("error", True)


def test_lint_reports_a_directory_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("")
    file = tmp_path / "s.properties"
    file.write_text(f"log.dirs={tmp_path / 'taken' / 'd1'}\n")
    assert "taken is not a directory" in texts_of(file)["log.dirs"]
    (tmp_path / "d2").mkdir()
    file.write_text(f"log.dirs={tmp_path / 'd2'}\n")
    assert "may not read" not in texts_of(file)["log.dirs"]
    monkeypatch.setattr("os.access", lambda path, _, access=os.access: access(path, os.R_OK) and not str(path).endswith("d2"))
    done = run("", "config", "lint", str(file), "--json")
    assert (done.exit_code, "its owner may not read and write it" in done.stdout) == (1, True)
    monkeypatch.setattr("os.geteuid", lambda: 65_500)
    done = run("", "config", "lint", str(file), "--json")
    assert (done.exit_code, "the user of this command may not read and write it" in done.stdout) == (0, True)
