"""What people type every day, and how it fails: in this process, against one broker."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from tests.cli.test_yes import commands
from tests.waiting import eventually

from ottla.cli import local_brokers, record_format, waiting
from ottla.cli.group import _ends
from ottla.cli.main import COMMANDS, SECTIONS, cli
from ottla.cli.output import way_out, with_way_out
from ottla.cli.produce import Tally
from ottla.cli.record_parser import RecordParser
from ottla.cli.silence import Silence
from ottla.cli.stall import Stall
from ottla.cli.unanswered import Unanswered
from ottla.cli.waiting import Waiting, where_it_waits
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, Consumer, NewTopic, Producer, RecordMetadata, TopicPartition


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """``t`` has two partitions and five records in the first, of which the group ``readers`` has read four; ``u`` is empty."""
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path_factory.mktemp("data")), "offsets.topic.num.partitions": "1"}
    with BrokerThread(config | {"group.initial.rebalance.delay.ms": "0"}) as thread:
        with Admin(thread.bootstrap) as admin:
            topics = [NewTopic("t", 2, configs={"retention.ms": "86400000"}), NewTopic("u", 1)]
            assert admin.create_topics(topics) == {"t": None, "u": None}
        with Producer(thread.bootstrap) as producer:
            for number in range(5):
                producer.send("t", b"v%d" % number, key=b"k%d" % number, partition=0, headers={"n": b"%d" % number})
        with Consumer(thread.bootstrap, group_id="readers") as consumer:
            consumer.commit({("t", 0): 4})
        yield thread


def run(bootstrap: str, *arguments: str, stdin: bytes = b"") -> Result:
    """The command's end; an error of ottla's is in ``exception``, for ``main`` to print."""
    done = CliRunner().invoke(cli, arguments, env={"OTTLA_BOOTSTRAP": bootstrap}, input=stdin)
    assert done.exception is None or isinstance(done.exception, SystemExit | OttlaError), done.exception
    return done


def items(done: Result) -> list[Any]:
    found = json.loads(done.stdout)["items"]
    assert isinstance(found, list)
    return found


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_input_that_does_not_fit_ends_what_is_produced_and_the_error_says_how_much_was_sent(broker: BrokerThread) -> None:
    done = run(broker.bootstrap, "produce", "half", "-f", "%k %v\\n", stdin=b"a 1\nb 2\nnokey\nc 3\n")
    assert done.exit_code == 1
    assert "half 0 2 0 1" in " ".join(done.stdout.split())
    assert 'line 3: "nokey" has no " " after %k' in done.stderr
    assert "records sent before it: 2, after it: none" in done.stderr


def test_topics_are_created_where_they_do_not_exist_and_deleted_where_they_do(broker: BrokerThread) -> None:
    assert [each["result"] for each in items(run(broker.bootstrap, "topic", "create", "once", "--dry-run", "--json"))] == ["possible"]
    assert run(broker.bootstrap, "topic", "delete", "once", "--yes").exit_code == 1
    assert items(run(broker.bootstrap, "topic", "delete", "once", "--if-exists", "--json")) == [
        {"name": "once", "result": "absent", "error": None}
    ]
    for result in ("created", "exists"):
        done = run(broker.bootstrap, "topic", "create", "once", "--if-not-exists")
        assert (done.exit_code, done.stdout.splitlines()[-1].split()) == (0, ["once", result, "-"])
    assert run(broker.bootstrap, "topic", "create", "once").exit_code == 1
    plan = run(broker.bootstrap, "topic", "delete", "once", "never", "--if-exists")
    assert (plan.exit_code, "would delete once with all data" in plan.stderr) == (1, True)
    deleted = run(broker.bootstrap, "topic", "delete", "once", "never", "--if-exists", "--yes")
    assert deleted.exit_code == 0
    assert "never absent - once deleted -" in " ".join(" ".join(sorted(deleted.stdout.splitlines())).split())


def test_a_plan_of_a_configuration_has_old_and_new_values(broker: BrokerThread) -> None:
    for command in (("topic", "alter", "t", "-c"), ("config", "set", "--topic", "t")):
        assert "would change retention.ms from 86400000 to 500" in run(broker.bootstrap, *command, "retention.ms=500", "--dry-run").stderr
    gone = run(broker.bootstrap, "config", "set", "--topic", "t", "-d", "retention.ms", "-a", "cleanup.policy=compact", "--dry-run").stderr
    assert "would change retention.ms from 86400000 to its default" in gone
    assert "would change cleanup.policy from delete to delete,compact" in gone
    assert items(run(broker.bootstrap, "config", "get", "--topic", "t", "retention.ms", "--json"))[0]["value"] == "86400000"


def test_a_wrong_configuration_says_what_is_expected(broker: BrokerThread) -> None:
    assert "`ottla config keys` lists the keys" in run(broker.bootstrap, "topic", "create", "w", "-c", "nosuch=1").stdout
    late = run(broker.bootstrap, "topic", "create", "w", "-c", "retention.ms=1MB").stdout
    assert "expected a whole number of milliseconds, as in 604800000" in late


def test_consume_ends_when_no_record_has_come_for_so_long(broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is before the group's assignment does not count."""
    asked = list[str]()

    class Watched(Silence):
        def wait(self) -> None:
            asked.append("wait")
            super().wait()

        def begin(self) -> None:
            asked.append("begin")
            super().begin()

    monkeypatch.setattr("ottla.cli.consume.Silence", Watched)
    for place, expected in (("-p", "0"), []), (("-g", "silent"), ["wait", "begin"]):
        found = run(broker.bootstrap, "consume", "t", *place, "-n", "5", "--timeout", "60")
        assert (found.exit_code, "v0\nv1\nv2\nv3\nv4\n" in found.stdout) == (0, True)
        assert run(broker.bootstrap, "consume", "t", *place, "-o", "end", "--timeout", "0.1").exit_code == 0
        assert asked == 2 * expected
        asked.clear()
    assert run(broker.bootstrap, "group", "delete", "silent", "--yes").exit_code == 0


def test_a_new_group_begins_at_the_end_where_that_is_asked_for_and_another_one_at_its_offsets(broker: BrokerThread) -> None:
    def read(group: str, *limits: str) -> str:
        return run(broker.bootstrap, "consume", "t", "-g", group, "-o", "end", *limits).stdout

    assert "v0" not in read("late", "--timeout", "0.1")
    with Admin(broker.bootstrap) as admin:
        admin.set_offsets("late", {TopicPartition("t", 0): 3})
    found = read("late", "-n", "2")
    assert ("v3\nv4\n" in found, "v2" in found) == (True, False)
    refused = run(broker.bootstrap, "consume", "t", "-g", "late", "-o", "2")
    assert (refused.exit_code, "ottla group seek late" in " ".join(refused.stderr.split())) == (2, True)
    assert run(broker.bootstrap, "group", "delete", "late", "--yes").exit_code == 0


def test_silence_is_counted_from_the_last_record() -> None:
    now = 0.0
    silence = Silence(10.0, lambda: now)
    now = 9.0
    assert not silence.is_over(came=1)
    now = 18.0
    assert not silence.is_over(came=0)
    now = 19.0
    assert silence.is_over(came=0)
    silence.wait()
    now = 40.0
    assert not silence.is_over(came=0)
    silence.begin()
    now = 50.0
    assert silence.is_over(came=0)
    now = 1e9
    assert not Silence(None, lambda: now).is_over(came=0)


@pytest.mark.parametrize(
    ("move", "said"),
    [
        ("t:9=1", "topic 't' has no partition 9; it has 2"),
        ("t:0=1,9", "t:0: there is no broker 9; `ottla broker list` shows the brokers"),
    ],
)
def test_a_move_of_or_to_what_does_not_exist_has_no_plan(broker: BrokerThread, move: str, said: str) -> None:
    refused = run(broker.bootstrap, "partition", "reassign", move)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert said in str(refused.exception)


def test_single_partitions_of_a_topic_are_sought(broker: BrokerThread) -> None:
    def planned(*topics: str) -> list[int]:
        options = [part for topic in topics for part in ("--topic", topic)]
        return [each["partition"] for each in items(run(broker.bootstrap, "group", "seek", "readers", "--to", "start", *options, "--json"))]

    assert planned("t:1") == [1]
    assert planned("t:0,1") == planned("t") == planned("t:1", "t") == planned("t:0", "t:1") == [0, 1]
    absent = run(broker.bootstrap, "group", "seek", "readers", "--to", "start", "--topic", "t:5")
    assert "topic 't' has no partition 5; it has 2" in str(absent.exception)
    assert run(broker.bootstrap, "group", "seek", "readers", "--to", "start", "--topic", "t:x").exit_code == 2
    assert planned("t:0") == [0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alice", "'alice' lacks its type: write User:alice"),
        (":alice", "':alice' lacks its type: write User:alice"),
        ("User:", "'User:' lacks its name: write User:alice"),
        ("read", "'read' is an operation: write -o read"),
    ],
)
def test_a_principal_that_lacks_a_part_is_shown_with_it(nobody: str, text: str, said: str) -> None:
    assert said in run(nobody, "acl", "allow", text, "-o", "read", "--topic", "t").stderr


def test_the_line_of_each_command_in_a_list_of_commands_fits() -> None:
    groups = [cli.get_command(click.Context(cli), name) for name in COMMANDS]
    lists = [CliRunner().invoke(group, ["--help"], terminal_width=80).stdout for group in groups if isinstance(group, click.Group)]
    assert len(lists) > 10
    assert not [line for text in lists for line in text.partition("Commands:")[2].splitlines() if line.endswith("...")]


def test_the_help_lists_every_command_once_under_a_heading_on_a_line_that_fits() -> None:
    shown = CliRunner().invoke(cli, ["--help"], terminal_width=80).stdout
    assert shown.index("\nFirst steps:\n") < shown.index("\nTopics and records:\n") < shown.index("\nMonitoring and files:\n")
    sections = shown.partition("\nFirst steps:\n")[2].partition("\n\n  `ottla help")[0].splitlines()
    lines = [line for line in sections if line and not line.endswith(":")]
    texts = {name: text for section in SECTIONS.values() for name, (_, text) in section.items()}
    assert [tuple(line.split(None, 1)) for line in lines] == list(texts.items())
    assert len({len(line) - len(line.lstrip()) for line in lines}) == 1 == len({line.index(texts[line.split()[0]]) for line in lines})


def test_what_was_consumed_as_json_is_produced_again_byte_for_byte(broker: BrokerThread) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send("u", b"\xff\x00", key=None, headers=[("a", b"1"), ("a", None), ("b", b"\xfe")], timestamp_ms=1_700_000_000_000)
        producer.send("u", None, key=b"tombstone")
        producer.send("u", b"", key=b"")
    written = run(broker.bootstrap, "consume", "u", "-f", "json", "--exit").stdout_bytes
    assert run(broker.bootstrap, "produce", "again", "-f", "json", stdin=written).exit_code == 0
    assert run(broker.bootstrap, "produce", "-f", "json", stdin=written).exit_code == 0, "without a topic they go where they came from"

    def read(topic: str) -> list[tuple[Any, ...]]:
        with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            [end] = consumer.end_offsets([(topic, 0)]).values()
            found: list[tuple[Any, ...]] = []
            while len(found) < end:
                found += [(each.key, each.value, each.headers, each.timestamp_ms) for each in consumer.poll(1000)]
        return found

    first = read("again")
    assert len(first) == 3
    assert read("u") == first * 2
    wrong = run(broker.bootstrap, "produce", "again", "-f", "json", stdin=b'{"value": "x"}\n{"valu": "x"}\n')
    assert "line 2 is no record as `consume -f json` prints it: it has 'valu'" in wrong.stderr


def test_consume_prints_what_a_regular_expression_finds_anywhere(broker: BrokerThread) -> None:
    for regex, found in (("v[13]", "v1\nv3\n"), ("^k2$", "v2\n"), ("^4$", "v4\n"), ("nowhere", "")):
        assert run(broker.bootstrap, "consume", "t", "--exit", "-e", regex).stdout == found
    assert run(broker.bootstrap, "consume", "t", "-n", "1", "-e", "v3").stdout == "v3\n", "-n counts what is printed"
    refused = run(broker.bootstrap, "consume", "t", "-e", "(")
    assert (refused.exit_code, "-e (: " in refused.stderr) == (2, True)


def test_produce_at_a_terminal_says_that_it_reads_from_it(broker: BrokerThread) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "ottla", "produce", "typed", "-B", broker.bootstrap]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.close(theirs)
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said == "ottla: reading records for typed from the terminal, one per line unless -f is given; Ctrl-D ends\n"
        os.write(ours, b"one\n\x04")
        shown, _ = process.communicate(timeout=60)
    os.close(ours)
    assert (process.returncode, shown.split()[-4:]) == (0, ["0", "1", "0", "0"])
    assert run(broker.bootstrap, "topic", "delete", "typed", "--yes").exit_code == 0


def test_without_a_cluster_of_this_machine_the_lone_broker_is_asked(
    broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)
    monkeypatch.setattr(local_brokers, "LOCAL", broker.bootstrap)
    for command, said in ((("cluster", "status"), "alive"), (("cluster", "health"), "partitions   ")):
        done = CliRunner().invoke(cli, command)
        assert (done.exit_code, said in done.stdout) == (0, True), done.output
    elsewhere = CliRunner().invoke(cli, ["cluster", "health", "--data", str(tmp_path / "place")])
    assert "no cluster runs in" in str(elsewhere.exception)


def test_consume_says_where_it_waits_and_what_is_before(broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SECONDS", 0)
    run(broker.bootstrap, "topic", "create", "bare")
    back = "{}; `ottla group seek {} --to start`, while the group has no members, goes back to the 5 records before it"
    of_txn = "`ottla txn list` shows open ones"
    run(broker.bootstrap, "group", "seek", "waiter", "--topic", "t", "--to", "end", "--yes")
    for arguments, said in (
        (("t", "-o", "end"), "waiting at the end of t (2 partitions); -o start reads the 5 records before it"),
        (("bare",), "waiting for records of bare (1 partition): there are none yet"),
        (
            ("bare", "--read-committed"),
            "waiting for records of bare (1 partition): there are none yet, or none that its transaction has committed: " + of_txn,
        ),
        (
            ("t", "-g", "waiter"),
            back.format("waiting at the end of t (2 partitions) in group waiter", "waiter"),
        ),
    ):
        done = run(broker.bootstrap, "consume", *arguments, "--timeout", "0.5")
        assert (done.exit_code, said in done.stdout, done.stderr) == (0, False, f"ottla: {said}\n")
    assert run(broker.bootstrap, "consume", "bare", "--exit").stderr == "", "it does not wait"
    assert run(broker.bootstrap, "group", "delete", "waiter", "--yes").exit_code == 0


def test_the_line_of_a_consumer_that_waits_comes_once_and_only_before_its_first_record() -> None:
    now, said = 0.0, list[int]()
    idle, busy, unassigned = (Waiting(lambda each=each: said.append(each), lambda: now) for each in range(3))  # type: ignore[misc]
    idle.begin()
    busy.begin()
    for now, came in ((1.9, 0), (1.95, 1), (2.0, 0), (9.0, 0)):
        for each, count in ((idle, 0), (busy, came), (unassigned, 0)):
            each.look(came=count)
        assert said == ([] if now < 2 else [0])
    keys = [TopicPartition(name, 0) for name in "abcd"]
    ends = dict.fromkeys(keys, 4)
    assert where_it_waits(ends, dict.fromkeys(keys, 3), ends).startswith("waiting at the end of a, b, c and 1 more (4 partitions); -o")
    stuck = where_it_waits(dict.fromkeys(keys[:1], 3), dict.fromkeys(keys, 0), ends)
    assert stuck.startswith("waiting for 1 record of a (1 partition) that cannot be read yet: `ottla topic describe a` shows leaders")
    assert (
        where_it_waits({}, {}, {}, "g")
        == "group g has given this member no partition: others have them (`ottla group describe g --members`)"
    )


def test_a_stall_is_said_once_until_there_is_progress(capsys: pytest.CaptureFixture[str]) -> None:
    clock = [0.0]
    stall = Stall(lambda: f"since {clock[0]:g}", lambda: clock[0])
    for clock[0], progress in (
        (0.0, None), (9.0, None), (10.0, (1, 0)), (14.9, (1, 0)),  # nothing is waited for; then not for long enough
        (15.0, (1, 0)), (30.0, (1, 0)),
        (31.0, (2, 1)), (33.0, (3, 1)), (37.0, (3, 1)), (38.0, (3, 1)),
        (39.0, None), (50.0, None),
    ):  # fmt: skip
        stall.look(progress)
    assert capsys.readouterr().err == "ottla: waiting: since 15\nottla: waiting: since 38\n"


def test_records_on_their_way_are_waited_for_and_input_is_not() -> None:
    tally = Tally()
    assert tally.progress() is None
    tally.sent = 2
    assert (tally.progress(), tally.waiting().startswith("2 records, of 2 so far, are not written yet")) == ((2, 0), True)
    tally.note(1, None, KafkaError(ErrorCode.INVALID_RECORD, "x"))
    assert (tally.progress(), tally.waiting().startswith("1 record, of 2 so far, is not written yet")) == ((2, 1), True)
    tally.note(2, RecordMetadata("t", 0, 5, 0), None)
    assert tally.progress() is None


def test_consume_reads_the_topics_that_a_regular_expression_matches(broker: BrokerThread) -> None:
    for name in ("ord-a", "ord-b", "word"):
        run(broker.bootstrap, "produce", name, stdin=name.encode())
    for arguments, found in (
        (("^ord",), ["ord-a", "ord-b"]),  # as kcat has it: the name begins so
        (("^ord|^word",), ["ord-a", "ord-b", "word"]),
        (("--include", "w?ord.*"), ["ord-a", "ord-b", "word"]),  # as kafka-console-consumer has it: the whole name
    ):
        for options in (("--exit",), ("-g", "matching", "-n", str(len(found)))):
            done = run(broker.bootstrap, "consume", *arguments, *options)
            values = [line for line in sorted(done.stdout.splitlines()) if line in ("ord-a", "ord-b", "word")]  # the broker logs there, too
            assert (done.exit_code, values) == (0, found), arguments
        assert run(broker.bootstrap, "group", "delete", "matching", "--yes").exit_code == 0
    assert "no topic matches ord; `ottla topic list`" in str(run(broker.bootstrap, "consume", "--include", "ord").exception)
    late = run(broker.bootstrap, "consume", "--include", "none.*", "-g", "matching", "--timeout", "0.1")
    assert late.stderr == "ottla: no topic matches none.*; the group reads one as soon as it does\n"
    for wrong in ((), ("t", "--include", "t"), ("^t", "u"), ("^t(",)):
        assert run(broker.bootstrap, "consume", *wrong, "--exit").exit_code == 2, wrong
    assert run(broker.bootstrap, "topic", "delete", "ord-a", "ord-b", "word", "--yes").exit_code == 0


def test_produce_to_a_broker_that_is_not_there_fails_with_nothing_to_send(nobody: str) -> None:
    done = run(nobody, "produce", "t")
    assert isinstance(done.exception, KafkaError)
    ways = way_out(done.exception)
    assert "`ottla dev` starts a broker on this machine" in ways
    unknown = with_way_out(KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker at foo:9092: [Errno -2] Name or service not known"))
    assert "`ottla dev`" not in unknown, "the cause is the name"
    assert "; see that the name is spelt right (-B, OTTLA_BOOTSTRAP), and that this machine knows it: " in unknown
    wants = "as a listener does that wants TLS or a user (security.protocol)"
    closed = f"the connection broke: closed by the broker before its first answer, {wants}"
    told = with_way_out(KafkaError(ErrorCode.NETWORK_EXCEPTION, closed))
    assert told.endswith("a user (security.protocol); --command-config names a file with it"), "it said the same twice"
    assert "waits for its quorum takes no clients yet: its log says so at node_waits" in ways


def test_errors_of_the_network_name_the_way_out() -> None:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        one.listen()
        with pytest.raises(OSError, match="in use") as refused:
            two.bind(one.getsockname())
    assert "stop that, or take another port (`--port`, or `listeners` of the file; 0 picks a free one)" in way_out(refused.value)
    cut = "the connection broke: closed by the broker"
    assert "--command-config" in way_out(KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{cut} before its first answer"))
    assert way_out(KafkaError(ErrorCode.NETWORK_EXCEPTION, cut)) == "", "a listener that let the client in wants neither TLS nor a user"
    assert "ottla cluster health" in way_out(KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is active"))
    assert way_out(KafkaError(ErrorCode.INVALID_CONFIG, "x")) == ""


def test_errors_of_topics_and_rights_name_the_way_out() -> None:
    assert "`ottla topic list`" in way_out(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'jobz'"))
    assert way_out(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic 'jobz'; did you mean jobs?")) == ""
    assert "`ottla acl allow`" in way_out(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."))
    assert "`ottla group list`" in way_out(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND))
    assert "--downgrade" in way_out(KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "v=29 is below 30; request a downgrade to lower it"))
    assert "--downgrade" not in way_out(KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "nope=1: unknown feature"))
    assert "`ottla broker list`" in way_out(KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 0 of 'x': no broker has the id 9"))
    assert "`ottla broker list`" in way_out(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "broker 9 is not in the metadata"))
    disabled = with_way_out(KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."))
    assert disabled.startswith("SECURITY_DISABLED: No Authorizer is configured; ACLs need authorizer.class.name")
    assert with_way_out(KafkaError(ErrorCode.NONE, "That is all.")) == "NONE: That is all."
    for code, way in (
        (ErrorCode.TOPIC_ALREADY_EXISTS, "--if-not-exists"),
        (ErrorCode.INVALID_REPLICATION_FACTOR, "`ottla broker list`"),
        (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "`ottla txn list`"),
        (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "--command-config"),
    ):
        assert way in way_out(KafkaError(code, "x")), code


def test_consume_warns_of_an_offset_after_the_end(broker: BrokerThread) -> None:
    done = run(broker.bootstrap, "consume", "t", "-p", "0", "-o", "99", "--exit")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "ottla: warning: offset 99 is after the end, at 5\n")
    assert run(broker.bootstrap, "consume", "t", "-o", "5", "--exit").stderr == "", "it is the end of a partition"
    assert "topic 't' has no partition 9; it has 2" in str(run(broker.bootstrap, "consume", "t", "-p", "9").exception)


def test_what_is_produced_to_a_topic_that_does_not_exist_is_said_to_wait_with_the_way_out(tmp_path: Path) -> None:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "auto.create.topics.enable": "false"}
    with BrokerThread(config) as thread:
        done = CliRunner().invoke(cli, ["produce", "orders", "-B", thread.bootstrap, "-X", "max.block.ms=3000"], input=b"a\n")
    assert "ottla: topic 'orders' does not exist; what is sent to it waits for it" in done.stderr
    assert "`ottla topic create orders` creates it" in done.stderr
    assert isinstance(done.exception, KafkaError)
    assert f"{done.exception}{way_out(done.exception)}" == (
        "UNKNOWN_TOPIC_OR_PARTITION: topic 'orders' does not exist; `ottla topic list` shows the topics, "
        "and `ottla topic create orders` creates it"
    )


def test_the_language_of_formats_is_printed_and_is_complete(broker: BrokerThread) -> None:
    shown = run("", "help", "format").stdout
    for letter in (*record_format._TEXTS, *record_format._NUMBERS, "h", "d", "%", "{", "}"):
        assert f"%{letter}" in shown
    refused = run(broker.bootstrap, "consume", "t", "-f", "%Z")
    assert (refused.exit_code, "%Z is not known; `ottla help format` lists what there is" in refused.stderr) == (2, True)
    with pytest.raises(KafkaError, match="ottla help format"):
        RecordParser("%o")


def test_help_is_that_of_the_command(broker: BrokerThread) -> None:
    assert run("", "help", "topic", "describe").stdout == run("", "topic", "describe", "--help").stdout.replace(
        "Usage: cli", "Usage: ottla"
    )
    assert "OTTLA_BOOTSTRAP" in run("", "help", "consume").stdout
    assert run("", "help").stdout.startswith("Usage: ottla ")
    assert run("", "help", "topic", "describe", "x").exit_code == 2
    assert "'lst'" in run("", "help", "topic", "lst").stderr


def test_topics_are_described_with_what_they_override(broker: BrokerThread) -> None:
    found = items(run(broker.bootstrap, "topic", "describe", "t", "u", "--format", "json"))
    assert [(each["name"], each["configs"], len(each["partitions"])) for each in found] == [
        ("t", {"retention.ms": "86400000"}, 2),
        ("u", {}, 1),
    ]
    assert "retention.ms=86400000" in run(broker.bootstrap, "topic", "describe", "t", "u").stdout


def test_a_topic_that_there_is_not_is_not_planned_to_be_deleted(broker: BrokerThread) -> None:
    for yes in ((), ("--yes",)):
        done = run(broker.bootstrap, "topic", "delete", "t", "tt", *yes)
        assert "there is no topic 'tt', and nothing was deleted; did you mean t?" in str(done.exception)
    with Admin(broker.bootstrap) as admin:
        assert "t" in admin.list_topics(), "one that is not there keeps the others"


def test_a_plan_to_delete_what_groups_have_committed_says_what_is_lost(broker: BrokerThread) -> None:
    with Consumer(broker.bootstrap, group_id="warned") as consumer:
        consumer.commit({TopicPartition("t", 0): 0})
    planned = run(broker.bootstrap, "topic", "delete", "__consumer_offsets")
    assert (planned.exit_code, "every group forgets what it has read" in planned.stderr) == (1, True), planned.stderr
    assert "warning" not in run(broker.bootstrap, "topic", "delete", "t").stderr
    with Admin(broker.bootstrap) as admin:
        assert admin.delete_groups(["warned"]) == {"warned": None}


def test_producers_of_partitions_are_listed(broker: BrokerThread) -> None:
    [row] = items(run(broker.bootstrap, "producer", "list", "t", "--json"))
    assert (row["topic"], row["partition"], row["last_sequence"], row["transaction_start_offset"]) == ("t", 0, 4, None)
    head, line = (text.split() for text in run(broker.bootstrap, "producer", "list", "t").stdout.splitlines())
    shown = dict(zip(head, line, strict=True))["LAST-TIME"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", shown), "as `ottla txn list` shows times"
    assert round(datetime.fromisoformat(shown).timestamp() * 1000) == row["last_ms"], "JSON has milliseconds"
    assert items(run(broker.bootstrap, "producer", "list", "t", "-p", "1", "--json")) == []


def test_a_partition_that_a_topic_does_not_have_is_refused_before_anything_is_done(broker: BrokerThread) -> None:
    for command in (("producer", "list"), ("topic", "delete-records")):
        refused = run(broker.bootstrap, *command, "t", "-p", "9")
        assert "topic 't' has no partition 9; it has 2" in str(refused.exception), command
    beyond = run(broker.bootstrap, "topic", "delete-records", "t", "--offset", "99", "--yes", "-p", "0", "--json")
    assert (beyond.exit_code, ["`ottla topic offsets TOPIC`" in row["error"] for row in items(beyond)]) == (1, [True])


def test_groups_are_described_together(broker: BrokerThread) -> None:
    [group] = items(run(broker.bootstrap, "group", "describe", "--all", "--format", "json"))
    assert (group["group"], group["state"], group["lag"]) == ("readers", "Empty", 1)
    [state] = items(run(broker.bootstrap, "group", "describe", "readers", "--state", "--format", "json"))
    assert state == {"group": "readers", "state": "Empty", "assignor": None, "members": 0, "topics": ["t"], "lag": 1, "lag_unknown": 0}
    assert run(broker.bootstrap, "group", "describe").exit_code == 2
    assert run(broker.bootstrap, "group", "describe", "readers", "--all").exit_code == 2


def test_partitions_without_a_commit_are_counted_beside_the_lag(broker: BrokerThread) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.set_offsets("partial", {TopicPartition("t", 1): 0})
    [found] = items(run(broker.bootstrap, "group", "describe", "partial", "--json"))
    assert (found["lag"], found["lag_unknown"], len(found["offsets"])) == (0, 1, 1)
    assert run(broker.bootstrap, "group", "describe", "partial").stdout.splitlines()[0].endswith("lag 0, and unknown of 1 more partition")
    assert run(broker.bootstrap, "group", "delete", "partial", "--yes").exit_code == 0


def test_a_group_that_has_committed_nothing_has_no_lag_and_the_end_is_shown(broker: BrokerThread) -> None:
    with Consumer(broker.bootstrap, group_id="fresh", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(100)
        [found] = items(run(broker.bootstrap, "group", "describe", "fresh", "--json"))
        assert [(row["committed"], row["end_offset"], row["lag"]) for row in found["offsets"]] == [(None, 5, None), (None, 0, None)]
        assert found["lag"] is None
        text = run(broker.bootstrap, "group", "describe", "fresh").stdout.splitlines()
        assert text[0].endswith("members 1  lag -")
        assert text[2].split()[:6] == ["t", "0", "-", "5", "-", "no"]
        assert run(broker.bootstrap, "group", "describe", "fresh", "--state").stdout.split()[-2:] == ["-", "1"], (
            "an empty partition has no lag"
        )
        consumer.commit({("t", 0): 2})
        [found] = items(run(broker.bootstrap, "group", "describe", "fresh", "--json"))
        assert ([row["lag"] for row in found["offsets"]], found["lag"]) == ([3, None], 3)
    assert run(broker.bootstrap, "group", "delete", "fresh", "--yes").exit_code == 0


def test_the_end_of_a_partition_without_a_leader_is_not_asked_for() -> None:
    partitions = {0: SimpleNamespace(leader=1, replicas=[1]), 1: SimpleNamespace(leader=-1, replicas=[2])}

    class Asked:
        def describe_topic(self, name: str) -> SimpleNamespace:
            if name == "gone":
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'gone' does not exist")
            return SimpleNamespace(partitions=partitions)

        def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, SimpleNamespace]:
            return {key: SimpleNamespace(offset=7) for key in times}

        def describe_cluster(self, *, include_fenced: bool) -> SimpleNamespace:
            return SimpleNamespace(nodes=[SimpleNamespace(node_id=1), SimpleNamespace(node_id=2)], fenced=frozenset({2}))

    admin: Any = Asked()
    unanswered = Unanswered()
    assert _ends(admin, ["t", "gone"], unanswered) == {TopicPartition("t", 0): 7, TopicPartition("t", 1): None}
    assert unanswered.is_any


def test_offsets_that_a_partition_does_not_have_are_moved_to_its_ends_with_a_warning(broker: BrokerThread, tmp_path: Path) -> None:
    """As kafka-consumer-groups --reset-offsets does: with --to-offset, --shift-by and --from-file."""
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,99\nt,1,0\n")
    after, before = "offset {} is after the end of t-0; 5 is taken", "offset {} is before the first record of t-0; 0 is taken"
    for arguments, taken, warning in (
        (["import", "readers", str(file)], 5, after.format(99)),
        (["seek", "readers", "--to", "77", "--topic", "t:0"], 5, after.format(77)),
        (["seek", "readers", "--to", "-6", "--topic", "t:0"], 0, before.format(-1)),
        (["seek", "readers", "--by", "-9", "--topic", "t:0"], 0, before.format(-5)),
        (["seek", "readers", "--to", "5", "--topic", "t:0"], 5, ""),
    ):
        done = run(broker.bootstrap, "group", *arguments, "--json")
        assert (done.exit_code, items(done)[0]["to"]) == (1, taken), arguments
        assert done.stderr == (f"ottla: warning: {warning}\n" if warning else "") + "nothing was changed; add --yes to apply it\n"
    for line, problem in (("t,7,1", "topic 't' has no partition 7; it has 2"), ("tt,0,1", "topic 'tt' does not exist")):
        file.write_text(line)
        assert problem in str(run(broker.bootstrap, "group", "import", "readers", str(file), "--yes").exception)
    for target in ("soon", "1:2", ":end", "@soon", ""):
        refused = run(broker.bootstrap, "group", "seek", "readers", "--to", target)
        said = " ".join(refused.stderr.split())
        assert (refused.exit_code, f"--to {target}: expected start, end, an offset, +N (after the start), -N" in said) == (2, True), said


def committed(broker: BrokerThread, group: str) -> dict[TopicPartition, int]:
    with Admin(broker.bootstrap) as admin:
        return {key: found.offset for key, found in admin.committed_offsets(group).items()}


def test_offsets_of_a_group_are_moved_exported_imported_and_deleted(broker: BrokerThread, tmp_path: Path) -> None:
    key = TopicPartition("t", 0)
    for shift, offset in (("-2", 2), ("+99", 5), ("-99", 0)):
        planned = run(broker.bootstrap, "group", "seek", "readers", "--by", shift, "--json")
        assert (planned.exit_code, items(planned)[0]["to"]) == (1, offset)
    exported = run(broker.bootstrap, "group", "export", "readers")
    assert exported.stdout == "t,0,4\n"
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,3\nt,1,0\n")
    assert run(broker.bootstrap, "group", "import", "copy", str(file)).exit_code == 1
    assert committed(broker, "copy") == {}, "a plan changes nothing"
    assert run(broker.bootstrap, "group", "import", "copy", str(file), "--yes").exit_code == 0
    assert committed(broker, "copy") == {key: 3, TopicPartition("t", 1): 0}
    assert run(broker.bootstrap, "group", "seek", "copy", "--by", "-1", "--topic", "t", "--yes").exit_code == 0
    assert committed(broker, "copy") == {key: 2, TopicPartition("t", 1): 0}
    assert run(broker.bootstrap, "group", "delete-offsets", "copy", "--topic", "t", "-p", "1", "--yes").exit_code == 0
    assert committed(broker, "copy") == {key: 2}
    file.write_text("t,0,3\nt;1;0\n")
    assert "line 2: expected topic,partition,offset" in run(broker.bootstrap, "group", "import", "copy", str(file)).stderr
    assert run(broker.bootstrap, "group", "seek", "copy", "--by", "1", "--to", "end").exit_code == 2
    assert run(broker.bootstrap, "group", "delete", "copy", "--yes").exit_code == 0


def test_what_is_flushed_at_the_end_may_have_no_reader(broker: BrokerThread) -> None:
    command = [sys.executable, "-m", "ottla", "group", "export", "readers", "-B", broker.bootstrap]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=buffered)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_a_shell_completes_topics_groups_and_brokers(broker: BrokerThread, nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    shell = ShellComplete(cli, {}, "ottla", "_OTTLA_COMPLETE")

    def completed(*arguments: str, begun: str = "") -> list[str]:
        return [found.value for found in shell.get_completions(list(arguments), begun)]

    assert {"t", "u"} <= set(completed("topic", "describe"))
    assert "t" not in completed("consume", begun="u")
    assert completed("group", "seek", begun="rea") == ["readers"]
    assert completed("consume", "t", "-g", begun="r") == ["readers"]
    assert completed("broker", "drain") == ["1"]
    assert completed("consume", "t", "-o", begun="e") == completed("group", "seek", "readers", "--to", begun="e") == ["end"]
    assert completed("feature", "set", begun="tr") == ["transaction.version="]
    assert completed("feature", "set", begun="transaction.version=") == [f"transaction.version={level}" for level in (0, 1, 2)]
    assert completed("config", "explain", begun="log.retention.h") == ["log.retention.hours"]
    assert completed("config", "get", "--brokers", begun="log.retention.m") == ["log.retention.ms"]
    assert completed("topic", "describe", "-B", nobody) == [], "no broker, no names, and no error in the line that is typed"


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        ("topic create x -c ret", "retention.bytes= retention.ms="),
        ("topic create x --config cleanup.policy=", "compact delete"),
        ("topic alter t -c unclean.leader.election.enable=f", "false"),
        ("topic alter t -d segment.m", "segment.ms"),
        ("config set --topic t compression.type=g", "gzip"),
        ("config set --brokers log.retention.m", "log.retention.ms="),
        ("topic create x -c retention.ms=", "604800000"),
        ("topic create x -c nosuch=", ""),
        ("cluster hea", "health"),
        ("topic describe -B HOST u", "u"),
    ],
)
def test_bash_completes_keys_and_values_though_it_splits_words_at_equals_signs(broker: BrokerThread, line: str, fits: str) -> None:
    """As bash calls what `ottla completion bash` defines; only ``compopt`` is called outside a completion here."""
    typed = f"ottla {line}".replace("HOST", broker.bootstrap)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = f"""eval "$(ottla completion bash)"; compopt() {{ :; }}; COMP_LINE='{typed}'; COMP_POINT=${{#COMP_LINE}}
        _ottla_completion ottla; echo "${{COMPREPLY[*]}}" """
    environment = os.environ | {"PATH": path}
    done = subprocess.run(["bash", "--norc", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split(), done.stderr) == (fits.split(), "")


def test_every_command_that_reports_takes_the_same_option_for_json() -> None:
    for path, command in commands(cli):
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--json" in options) == ("--format" in options), path
        shown = command.get_help(click.Context(command))
        assert ("--json is short for json" in " ".join(shown.split())) == ("--format" in options), path


def test_every_command_and_every_option_has_a_help() -> None:
    for path, command in commands(cli):
        assert command.help, path
        for option in command.params:
            assert not isinstance(option, click.Option) or option.hidden or option.help, (path, option.opts)


def test_every_command_that_asks_brokers_takes_them_from_the_environment() -> None:
    for path, command in commands(cli):
        for parameter in command.params:
            wanted = {"bootstrap": "OTTLA_BOOTSTRAP", "command_config": "OTTLA_COMMAND_CONFIG"}.get(parameter.name or "")
            assert wanted is None or parameter.envvar == wanted, path


def test_keys_are_searched_and_explained_with_the_value_in_force(tmp_path: Path) -> None:
    found = {(row["resource"], row["name"]): row["default"] for row in items(run("", "config", "keys", "retention", "--json"))}
    week_ms = str(168 * 3_600_000)
    assert found["broker", "log.retention.ms"] == found["topic", "retention.ms"] == week_ms
    assert found["broker", "log.retention.hours"] == "168"
    assert {row["resource"] for row in items(run("", "config", "keys", "--resource", "group", "--json"))} == {"group"}
    assert "no key has 'retntion'" in str(run("", "config", "keys", "retntion").exception)
    [explained] = items(run("", "config", "explain", "log.retention.ms", "--json"))
    assert explained["default"] == week_ms
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nlog.dirs=/var/lib/ottla\n")
    assert run("", "config", "lint", str(file)).stdout == "nothing to report\n"
    file.write_text("node.id=1\nlog.dirs=/var/tmp/data\n")
    warned = run("", "config", "lint", str(file))
    assert (warned.exit_code, "PrivateTmp" in warned.stdout) == (0, True)


def test_dump_log_has_a_record_a_line_and_decodes_what_brokers_write(broker: BrokerThread, tmp_path: Path) -> None:
    with Producer(broker.bootstrap, transactional_id="app") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("dumped", b"two\nlines", key=b"\xff", headers={"h": b"\xfe"}, partition=0)
    logs = Path(broker._config.log_dirs[0])

    def dumped(pattern: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for file in sorted(logs.glob(pattern)):
            [document] = items(run("", "dump-log", "--records", "--json", str(file)))
            found += [record for batch in document["entries"] for record in batch["records"]]
        return found

    [segment] = logs.glob("dumped-0/*.log")
    # The file, a batch with its record, and a marker with its own, which comes after the answer to the commit.
    lines = eventually(lambda: run("", "dump-log", "--records", str(segment)).stdout.splitlines(), lambda lines: len(lines) == 5)
    assert 'key_base64="/w==" value="two\\nlines" headers=[{"key":"h","value_base64":"/g=="}]' in lines[2]
    committed = next(each for each in dumped("__consumer_offsets-0/*.log") if each["type"] == "OffsetCommit")
    assert committed["key"] == {"group": "readers", "topic": "t", "partition": 0}
    assert committed["value"]["offset"] == 4

    def states() -> set[str]:
        found = dumped("__transaction_state-*/*.log")
        return {each["value"]["transaction_status"] for each in found if each["key"]["transactional_id"] == "app"}

    eventually(states, lambda found: "COMPLETE_COMMIT" in found)
    [topic] = [
        each["value"] for each in dumped("__cluster_metadata-0/*.log") if each.get("type") == "TopicRecord" and each["value"]["name"] == "t"
    ]
    assert len(topic["topic_id"]) == 22
    damaged = tmp_path / "__consumer_offsets-0"
    damaged.mkdir()
    (damaged / segment.name).write_bytes(segment.read_bytes())
    assert "problem=" in run("", "dump-log", "--records", str(damaged / segment.name)).stdout


@pytest.mark.parametrize("offsets", ["0:9", "2:9", "7:9"])
def test_exit_stops_at_the_end_where_the_end_that_was_asked_for_is_not_there_yet(broker: BrokerThread, offsets: str):
    topic = f"short-{offsets.replace(':', '-')}"
    run(broker.bootstrap, "topic", "create", topic, "-p", "3")
    run(broker.bootstrap, "produce", topic, "-p", "0", stdin=b"a\nb\nc\n")
    done = run(broker.bootstrap, "consume", topic, "-o", offsets, "--exit", "-f", "%o ")
    assert (done.exit_code, done.stdout) == (0, "".join(f"{offset} " for offset in range(3) if offset >= int(offsets[0])))


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_producer_that_is_stopped_says_what_was_written(broker: BrokerThread, stop: signal.Signals) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(f"stopped-{stop.name}", 1)])
    call = [sys.executable, "-m", "ottla", "produce", f"stopped-{stop.name}", "-B", broker.bootstrap, "--format", "json"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(call, text=True, **pipes) as running:  # type: ignore[call-overload]
        running.stdin.write("a\nb\n")
        running.stdin.flush()
        with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(f"stopped-{stop.name}", 0)])
            seen = 0
            while seen < 2:
                seen += len(consumer.poll(1000))
        running.send_signal(stop)
        out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert [(row["partition"], row["records"], row["last_offset"]) for row in json.loads(out)["items"]] == [(0, 2, 1)]


def test_an_interrupted_producer_counts_what_may_be_missing(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    tally.sent = 3
    tally.note(1, RecordMetadata("t", 0, 5, 0), None)
    tally.report_interrupted("text")
    said = capsys.readouterr()
    assert said.out.split()[-5:] == ["t", "0", "1", "5", "5"]
    assert said.err == "ottla: interrupted: 2 of 3 records sent may not have been written\n"


def test_a_plan_to_delete_a_group_that_does_not_exist_is_refused(broker: BrokerThread) -> None:
    error = run(broker.bootstrap, "group", "delete", "readers", "raeders").exception
    assert isinstance(error, KafkaError)
    assert (error.code, "group 'raeders'" in error.message) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
    assert "would delete readers" in run(broker.bootstrap, "group", "delete", "readers").stderr
