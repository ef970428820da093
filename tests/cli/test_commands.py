"""The commands as a shell runs them, against a broker of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from ottla.cli.broker import gather
from ottla.cli.exit_codes import INTERRUPTED
from ottla.cli.main import COMMANDS
from ottla.config import from_environment
from ottla.runtime.serve import BrokerThread
from ottla.sync import Consumer, Producer, TopicPartition

SECONDS_MAX = 30


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("data")
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory), "group.initial.rebalance.delay.ms": "0"}
    with BrokerThread(config | {"offsets.topic.num.partitions": "2"}) as broker:
        yield broker.bootstrap


def ottla(bootstrap: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OTTLA_BOOTSTRAP": bootstrap}
    command = [sys.executable, "-m", "ottla", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment, timeout=SECONDS_MAX, check=False)


def items(result: subprocess.CompletedProcess[str]) -> Any:
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["_version"] == 1
    return document["items"]


@pytest.mark.slow
def test_every_command_has_help() -> None:
    for name in COMMANDS:
        result = ottla("", name, "--help")
        assert result.returncode == 0, f"{name}: {result.stderr}"
        assert result.stdout.startswith("Usage:")


def test_asking_for_help_imports_neither_broker_nor_client() -> None:
    code = "import sys\nfrom ottla.cli.main import cli\ncli.main(['--help'], standalone_mode=False)\nprint(*sys.modules, file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    loaded = set(result.stderr.split())
    assert "ottla.cli.main" in loaded
    assert not {name for name in loaded if re.match(r"ottla\.(broker|client|runtime|spark)|pyspark|asyncio|pandas|pyarrow", name)}


@pytest.mark.slow
def test_a_topic_is_created_listed_described_and_deleted(bootstrap: str) -> None:
    assert items(ottla(bootstrap, "topic", "create", "life", "-p", "2", "--format", "json")) == [
        {"name": "life", "result": "created", "error": None}
    ]
    again = ottla(bootstrap, "topic", "create", "life")
    assert again.returncode == 1
    assert "TOPIC_ALREADY_EXISTS" in again.stdout
    assert {"name": "life", "partitions": 2, "replicas": 1} in items(ottla(bootstrap, "topic", "list", "--format", "json"))
    [described] = items(ottla(bootstrap, "topic", "describe", "life", "--format", "json"))
    assert [partition["leader"] for partition in described["partitions"]] == [1, 1]
    assert ottla(bootstrap, "topic", "delete", "life").returncode == 1
    assert ottla(bootstrap, "topic", "delete", "life", "--yes").returncode == 0
    gone = ottla(bootstrap, "topic", "describe", "life")
    assert gone.returncode == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in gone.stderr


@pytest.mark.slow
def test_a_topic_is_altered_grows_and_loses_its_oldest_records(bootstrap: str) -> None:
    ottla(bootstrap, "topic", "create", "changing", "-p", "1")
    assert ottla(bootstrap, "topic", "alter", "changing", "-c", "retention.ms=1000", "-d", "flush.ms").returncode == 0
    assert ottla(bootstrap, "topic", "alter", "changing", "-c", "retention.ms=soon").returncode == 1
    assert ottla(bootstrap, "topic", "add-partitions", "changing", "-n", "1", "--dry-run").returncode == 0
    assert ottla(bootstrap, "topic", "add-partitions", "changing", "-n", "1").returncode == 0
    assert ottla(bootstrap, "topic", "add-partitions", "changing", "-p", "2").returncode == 1
    ottla(bootstrap, "produce", "changing", "-p", "0", stdin="1\n2\n3\n")
    assert "would delete" in ottla(bootstrap, "topic", "delete-records", "changing", "-o", "2").stderr
    deleted = ottla(bootstrap, "topic", "delete-records", "changing", "-o", "2", "-p", "0", "--yes", "--format", "json")
    assert items(deleted) == [{"partition": 0, "start_offset": 2, "error": None}]
    assert ottla(bootstrap, "consume", "changing", "-o", "start", "--exit").stdout == "3\n"
    assert ottla(bootstrap, "topic", "delete-records", "changing", "-o", "99", "--yes").returncode == 1


@pytest.mark.slow
def test_configuration_is_shown_changed_and_compared(bootstrap: str) -> None:
    ottla(bootstrap, "topic", "create", "configured", "-p", "1")
    topic = ("--topic", "configured")
    of_all = [{"name": "min.insync.replicas", "value": "1", "source": "all brokers", "can_change": True}]
    assert items(ottla(bootstrap, "config", "get", *topic, "--format", "json")) == of_all
    assert ottla(bootstrap, "config", "set", *topic, "retention.ms=1000", "-a", "cleanup.policy=compact", "--dry-run").returncode == 0
    assert items(ottla(bootstrap, "config", "get", *topic, "--format", "json")) == of_all
    assert ottla(bootstrap, "config", "set", *topic, "retention.ms=1000", "-a", "cleanup.policy=compact").returncode == 0
    assert items(ottla(bootstrap, "config", "get", *topic, "retention.ms", "--format", "json")) == [
        {"name": "retention.ms", "value": "1000", "source": "topic", "can_change": True}
    ]
    [difference] = [row for row in items(ottla(bootstrap, "config", "diff", *topic, "--format", "json")) if row["name"] == "cleanup.policy"]
    assert (difference["value"], difference["default"], difference["source"]) == ("delete,compact", "delete", "topic")
    [difference] = [row for row in items(ottla(bootstrap, "config", "diff", *topic, "--format", "json")) if row["name"] == "retention.ms"]
    assert difference["default"] == "604800000", "and not the 168 of a key in hours"
    assert ottla(bootstrap, "config", "set", *topic, "-d", "retention.ms", "-s", "cleanup.policy=delete").returncode == 0
    assert items(ottla(bootstrap, "config", "get", *topic, "cleanup.policy", "--format", "json"))[0]["value"] == "compact"
    everything = items(ottla(bootstrap, "config", "get", "--broker", "1", "--all", "--format", "json"))
    assert {"name": "node.id", "value": "1", "source": "default", "can_change": False} in everything
    assert "broker 7 is not in the metadata" in ottla(bootstrap, "config", "get", "--broker", "7").stderr
    refused = ottla(bootstrap, "config", "set", "--broker", "1", "node.id=2")
    assert refused.returncode == 1
    assert "INVALID_REQUEST" in refused.stderr
    assert "unknown key nonsense" in ottla(bootstrap, "config", "get", *topic, "nonsense").stderr
    assert ottla(bootstrap, "config", "get").returncode == 2
    assert ottla(bootstrap, "config", "set", *topic).returncode == 2


def test_the_level_of_a_logger_is_shown_changed_and_as_before(bootstrap: str) -> None:
    loggers, name = ("--broker-loggers", "1"), "ottla.broker.upkeep.cleaner"

    def level() -> str:
        [row] = items(ottla(bootstrap, "config", "get", *loggers, name, "--format", "json"))
        return str(row["value"])

    before = level()
    assert ottla(bootstrap, "config", "set", *loggers, f"{name}=DEBUG").returncode == 0
    assert level() == "DEBUG"
    assert ottla(bootstrap, "config", "set", *loggers, "--delete", name).returncode == 0
    assert level() == before
    for words in (("get", *loggers, "ottla.nope"), ("set", *loggers, "ottla.nope=DEBUG")):
        refused = ottla(bootstrap, "config", *words)
        assert "logger ottla.nope does not exist; `ottla config get --broker-loggers ID` lists them" in refused.stderr
    assert "expected the id of a broker" in ottla(bootstrap, "config", "set", "--broker-loggers", "x", f"{name}=DEBUG").stderr
    assert ottla(bootstrap, "config", "diff", *loggers).returncode == 2


def test_keys_are_explained_and_files_checked_without_a_broker(tmp_path: Path) -> None:
    rows = items(ottla("127.0.0.1:1", "config", "explain", "compression.type", "--format", "json"))
    assert [(row["resource"], row["changed"]) for row in rows] == [("broker", "cluster-wide"), ("topic", "at once")]
    [row] = items(ottla("127.0.0.1:1", "config", "explain", "num.partitions", "--format", "json"))
    assert (row["type"], row["default"], row["bounds"], row["changed"], row["effect"]) == ("int", "1", "1 ..", "restart", "yes")
    assert "did you mean num.partitions?" in ottla("", "config", "explain", "num.partition").stderr
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nbackground.threads=10\n")
    assert [row["severity"] for row in items(ottla("", "config", "lint", str(file), "--format", "json"))] == ["note"]
    file.write_text("num.partition=2\n")
    wrong = ottla("", "config", "lint", str(file))
    assert wrong.returncode == 1
    assert "did you mean num.partitions?" in wrong.stdout
    voters = "controller.quorum.voters=1@a:9093,2@b:9093,4@x"
    file.write_text(f"node.id=1\nlog.dirs={tmp_path}/logs\ncontroller.listener.names=C\nlisteners=PLAINTEXT://:9092,C://:9093\n{voters}\n")
    found = json.loads(ottla("", "config", "lint", str(file), "--format", "json").stdout)["items"]
    [row] = [row for row in found if row["severity"] == "error"]
    assert row["name"] == "controller.quorum.voters"
    assert row["text"] == "controller.quorum.voters=4@x is not of the form id@host:port, with commas between voters", "as a start says it"
    formatted = ottla("", "storage", "format", str(file), "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg")
    assert (formatted.returncode, "not of the form id@host:port" in formatted.stderr) == (1, True)
    file.write_text(file.read_text().replace(",4@x", ""))
    unnamed = ottla("", "storage", "format", str(file))
    assert (unnamed.returncode, "ottla storage random-uuid" in unnamed.stderr) == (2, True)
    assert not (tmp_path / "logs").exists(), "nothing is made where something is wrong"


@pytest.mark.slow
def test_records_go_in_and_come_out(bootstrap: str) -> None:
    ottla(bootstrap, "topic", "create", "records", "-p", "1")
    produced = ottla(bootstrap, "produce", "records", "-f", "%k %v\\n", "-H", "source=test", "-z", "lz4", stdin="a 1\nb 2\nc 3\n")
    assert produced.returncode == 0, produced.stderr
    assert ottla(bootstrap, "consume", "records", "--exit", "-f", "%o %k=%v %h{%k:%v}\\n").stdout.splitlines() == [
        "0 a=1 source:test", "1 b=2 source:test", "2 c=3 source:test",
    ]  # fmt: skip
    assert ottla(bootstrap, "consume", "records", "-o", "1:2").stdout == "2\n"
    assert ottla(bootstrap, "consume", "records", "-o", "-1", "-n", "1").stdout == "3\n"
    assert ottla(bootstrap, "consume", "records", "-o", "@-1h:now", "-f", "%v,").stdout == "1,2,3,"
    last = json.loads(ottla(bootstrap, "consume", "records", "-o", "2", "-n", "1", "-f", "json").stdout)
    assert (last["offset"], last["key"], last["value"]) == (2, "c", "3")


@pytest.mark.slow
def test_a_group_is_listed_described_sought_and_deleted(bootstrap: str) -> None:
    ottla(bootstrap, "topic", "create", "grouped", "-p", "1")
    ottla(bootstrap, "produce", "grouped", stdin="1\n2\n3\n4\n")
    assert ottla(bootstrap, "consume", "grouped", "-g", "readers", "-n", "3").stdout == "1\n2\n3\n"
    assert "readers" in [group["group"] for group in items(ottla(bootstrap, "group", "list", "--format", "json"))]
    [described] = items(ottla(bootstrap, "group", "describe", "readers", "--format", "json"))
    assert (described["state"], described["offsets"][0]["committed"], described["offsets"][0]["lag"]) == ("Empty", 3, 1)
    assert "nothing was changed" in ottla(bootstrap, "group", "seek", "readers", "--to", "start").stderr
    nothing = ottla(bootstrap, "group", "seek", "readers", "--by", "1", "--topic", "grouped:7").stderr
    assert "has committed nothing of grouped:7; `ottla group describe readers` shows what it has" in nothing
    assert ottla(bootstrap, "group", "seek", "readers", "--to", "1", "--yes").returncode == 0
    assert ottla(bootstrap, "consume", "grouped", "-g", "readers", "-n", "1").stdout == "2\n"
    assert ottla(bootstrap, "group", "delete", "readers", "--yes").returncode == 0
    assert ottla(bootstrap, "group", "describe", "readers").returncode == 1


@pytest.mark.slow
def test_a_consumer_group_is_described_with_what_its_members_have_and_are_to_have(bootstrap: str) -> None:
    ottla(bootstrap, "topic", "create", "grouped-848", "-p", "2")
    reader = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "readers-848", "group.protocol": "consumer"})
    assigned: list[Any] = []
    reader.subscribe(["grouped-848"], on_assign=lambda _, partitions: assigned.extend(partitions))
    deadline = time.monotonic() + SECONDS_MAX
    while not assigned:
        assert time.monotonic() < deadline
        reader.poll(0.05)
    listed = {group["group"]: group for group in items(ottla(bootstrap, "group", "list", "--format", "json"))}
    assert listed["readers-848"]["type"] == "consumer"
    [described] = items(ottla(bootstrap, "group", "describe", "readers-848", "--format", "json"))
    assert (described["type"], described["state"], described["protocol"]) == ("consumer", "Stable", "uniform")
    assert described["epoch"] == described["target_epoch"] == described["members"][0]["epoch"]
    [member] = items(ottla(bootstrap, "group", "describe", "readers-848", "--members", "--format", "json"))
    assert member["assigned"] == member["target"] == ["grouped-848-0", "grouped-848-1"]
    assert "type consumer" in ottla(bootstrap, "group", "describe", "readers-848").stdout
    assert ottla(bootstrap, "group", "describe", "readers-848", "--members", "--state").returncode == 2
    reader.close()
    assert ottla(bootstrap, "group", "delete", "readers-848", "--yes").returncode == 0
    assert ottla(bootstrap, "group", "describe", "readers-848").returncode == 1


@pytest.mark.slow
def test_consume_reads_as_a_member_of_either_protocol(bootstrap: str) -> None:
    ottla(bootstrap, "topic", "create", "either", "-p", "1")
    ottla(bootstrap, "produce", "either", stdin="1\n2\n3\n4\n")
    group = ("consume", "either", "-g", "either", "-n", "1")
    assert ottla(bootstrap, *group, "--group-protocol", "consumer").stdout == "1\n"
    [described] = items(ottla(bootstrap, "group", "describe", "either", "--format", "json"))
    assert (described["type"], described["offsets"][0]["committed"]) == ("consumer", 1)
    assert ottla(bootstrap, *group, "--group-protocol", "classic").stdout == "2\n"
    assert ottla(bootstrap, *group, "-X", "group.protocol=consumer").stdout == "3\n"
    refused = ottla(bootstrap, *group, "--group-protocol", "consumer", "-X", "session.timeout.ms=6000")
    assert "session.timeout.ms has no effect with group.protocol=consumer" in refused.stderr


def test_errors_name_the_cause_and_exit_codes_tell_its_kind(bootstrap: str) -> None:
    assert ottla(bootstrap, "nonsense").returncode == 2
    assert ottla(bootstrap, "topic", "create").returncode == 2
    nobody = ottla("127.0.0.1:1", "topic", "list")
    assert nobody.returncode == 1
    assert "no broker at 127.0.0.1:1" in nobody.stderr
    bad = ottla(bootstrap, "consume", "records", "-o", "sometime")
    assert bad.returncode == 2
    assert "expected start, end" in bad.stderr


def test_dump_log_shows_batches_and_damage(bootstrap: str, tmp_path: Path) -> None:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    with BrokerThread(config) as broker, Producer(broker.bootstrap) as producer:
        producer.send("dumped", b"value", key=b"key").result(10)
    segment = tmp_path / "dumped-0" / "00000000000000000000.log"
    [batch] = items(ottla("", "dump-log", str(segment), "--records", "--format", "json"))[0]["entries"]
    assert (batch["base_offset"], batch["count"], batch["is_valid"]) == (0, 1, True)
    segment.write_bytes(segment.read_bytes() + b"torn")
    damaged = ottla("", "dump-log", str(segment))
    assert damaged.returncode == 1
    assert "reason=" in damaged.stdout
    aborted = segment.with_suffix(".txnindex")
    aborted.write_bytes(bytes.fromhex("0000" + "".join(f"{number:016x}" for number in (7, 10, 20, 15))))
    assert "producer_id=7 first_offset=10 last_offset=20 last_stable_offset=15" in ottla("", "dump-log", str(aborted)).stdout


@pytest.mark.slow
def test_dev_serves_until_it_is_asked_to_stop_and_leaves_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-m", "ottla", "dev", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert ottla(told["bootstrap"], "topic", "list").returncode == 0
        assert Path(told["data"]).is_dir()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0
    assert not Path(told["data"]).exists()


def test_configuration_comes_from_file_environment_and_overrides_in_that_order(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# comment\nnum.partitions=2\nlog.dirs: /from/file\nmessage.max.bytes = 1000\\\n  000\n")
    environment = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_SEGMENT_BYTES": "4096", "KAFKA_OPTS": "-Xmx1g", "HOME": "/somebody"}
    values = gather(str(file), environment, ("num.partitions=4",))
    assert values == {
        "num.partitions": "4", "log.dirs": "/from/file", "message.max.bytes": "1000000", "log.segment.bytes": "4096",
    }  # fmt: skip
    assert gather(None, {"HOME": "/somebody"}, ())["log.dirs"].endswith("ottla/data")
    unit = {"HOME": "/somebody", "STATE_DIRECTORY": "/var/lib/ottla:/var/lib/other"}
    assert gather(None, unit, ())["log.dirs"] == "/var/lib/ottla", "systemd's StateDirectory"
    assert gather(str(file), unit, ())["log.dirs"] == "/from/file"
    assert from_environment({"OTTLA_NODE_ID": "7"}) == {"node.id": "7"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "t", "-f", "%q"), ("consume", "t", "-o", "x:y"), ("consume", "t", "-o", "@soon"), ("consume", "t", "-B", "host:port"),
        ("consume", "t", "-g", "group", "-o", "3"), ("consume", "t", "--group-protocol", "consumer"),
        ("consume", "t", "-g", "group", "--group-protocol", "new"),
        ("consume", "t", "-p", "first"), ("produce", "t", "-f", "%q"), ("produce",),
        ("produce", "t", "-H", "x"), ("produce", "t", "-B", ":::"), ("produce", "t", "--acks", "2"), ("topic", "list", "-B", "host:port"),
    ],
)  # fmt: skip
def test_a_wrong_call_ends_with_2_and_needs_no_broker(arguments: tuple[str, ...]) -> None:
    result = ottla("127.0.0.1:1", *arguments)
    assert result.returncode == 2, result.stderr
    assert "Error:" in result.stderr


def test_each_reason_of_a_refusal_is_reported_once_and_ends_with_1(bootstrap: str) -> None:
    ottla(bootstrap, "topic", "create", "strict", "-p", "1", "-c", "max.message.bytes=1000")
    refused = ottla(bootstrap, "produce", "strict", stdin=f"{'x' * 2000}\n")
    assert refused.returncode == 1
    assert refused.stderr.startswith("ottla: record 1 was refused: MESSAGE_TOO_LARGE")
    assert refused.stderr.endswith("1 of 1 records were refused\n")
    assert refused.stdout == "", "no head of a table without lines"
    again = ottla(bootstrap, "produce", "strict", stdin=f"{'x' * 2000}\n" * 3).stderr.splitlines()
    assert [line.partition(": MESS")[0] for line in again] == [
        "ottla: record 1 was refused",
        "ottla: 3 of 3 records were refused: 3 as record 1 was",
    ]


@pytest.mark.parametrize("command", [("produce", "t"), ("consume", "t", "-g", "group")])
@pytest.mark.slow
def test_produce_and_consume_report_that_no_broker_can_be_reached_and_that_one_can_again(tmp_path: Path, command: tuple[str, ...]) -> None:
    config = {"log.dirs": str(tmp_path), "offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    first = BrokerThread(config | {"listeners": "PLAINTEXT://127.0.0.1:0"}).start()
    address = first.bootstrap
    with Producer(address) as producer:
        producer.send_and_wait("t", b"hello")
    program = [sys.executable, "-u", "-m", "ottla", *command, "-B", address]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(program, text=True, **pipes) as running:  # type: ignore[call-overload]
        if command[0] == "produce":
            running.stdin.write("first\n")
            running.stdin.flush()
            with Consumer(address, auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition("t", 0)])
                while not any(record.value == b"first" for record in consumer.poll(1000)):
                    pass
        else:
            assert running.stdout.readline() == "hello\n"
        first.stop()
        assert running.stderr.readline().startswith("ottla: no broker can be reached, still trying: no broker at")
        with BrokerThread(config | {"listeners": f"PLAINTEXT://{address}"}):
            assert running.stderr.readline() == "ottla: reconnected\n"
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == 130


@pytest.mark.slow
def test_a_group_does_not_wait_for_a_topic_that_does_not_exist(bootstrap: str) -> None:
    done = ottla(bootstrap, "consume", "nosuch", "-g", "gg", "--timeout", "20")
    assert (done.returncode, "UNKNOWN_TOPIC_OR_PARTITION: topic 'nosuch'" in done.stderr) == (1, True)


@pytest.mark.slow
def test_a_member_that_is_stopped_by_sigterm_commits_and_leaves(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send("stopped", b"first").result(SECONDS_MAX)
    command = [sys.executable, "-m", "ottla", "consume", "stopped", "-g", "stopped-group"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"OTTLA_BOOTSTRAP": bootstrap}) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == b"first\n"
        refused = ottla(bootstrap, "group", "delete", "stopped-group", "--yes")
        assert (refused.returncode, "stop its members first: `ottla group describe stopped-group`" in refused.stdout) == (1, True)
        planned = ottla(bootstrap, "group", "delete", "stopped-group")
        assert (planned.returncode, "NON_EMPTY_GROUP: stop its members first" in planned.stderr) == (1, True)
        for words in (("--to", "start", "--topic", "stopped"), ("--to", "start", "--topic", "stopped", "--yes")):
            sought = ottla(bootstrap, "group", "seek", "stopped-group", *words)
            assert (sought.returncode, "NON_EMPTY_GROUP: group 'stopped-group' has members" in sought.stderr) == (1, True), sought.stderr
        member.send_signal(signal.SIGTERM)
        assert member.wait(SECONDS_MAX) == INTERRUPTED
    [found] = items(ottla(bootstrap, "group", "describe", "stopped-group", "--format", "json"))
    assert (found["state"], found["members"], found["lag"]) == ("Empty", [], 0)
    assert [(row["topic"], row["committed"]) for row in found["offsets"]] == [("stopped", 1)]


@pytest.mark.slow
def test_what_is_wrong_with_a_group_that_has_members_and_has_committed_nothing(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send("uncommitted", b"first").result(SECONDS_MAX)
    with Consumer(bootstrap, group_id="live", enable_auto_commit=False, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["uncommitted"])
        while not consumer.poll(1000):
            pass
        refused = ottla(bootstrap, "group", "seek", "live", "--to", "start", "--yes")
    assert (refused.returncode, "NON_EMPTY_GROUP: group 'live' has members: stop them first" in refused.stderr) == (1, True)


def test_no_topic_is_deleted_where_one_does_not_exist(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send("kept", b"first").result(SECONDS_MAX)
    refused = ottla(bootstrap, "topic", "delete", "kept", "nosuch", "--yes")
    assert (refused.returncode, "nothing was deleted" in refused.stderr) == (1, True)
    assert "kept" in ottla(bootstrap, "topic", "list").stdout
