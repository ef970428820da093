"""What operators type: partitions, brokers, quotas, features and the quorum of a cluster of three nodes in one thread."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.test_commands import items
from tests.waiting import eventually

from ottla.cli.main import cli
from ottla.cli.output import with_way_out
from ottla.client.admin import Broker, Reassignment, Topic
from ottla.errors import OttlaError
from ottla.sync import Admin, NewTopic, Producer, TopicPartition
from ottla.testing import thread_cluster


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Three brokers; of ``t``, three partitions with three replicas, the first one with a record of 1970."""
    with thread_cluster(3) as nodes:
        with Admin(nodes.bootstrap) as admin:
            configs = {"message.timestamp.before.max.ms": str(2**63 - 1)}
            assert admin.create_topics([NewTopic("t", 3, 3, configs=configs)]) == {"t": None}
        with Producer(nodes.bootstrap) as producer:
            for number in range(3):
                producer.send("t", b"%d" % number, partition=0, timestamp_ms=1000 * (number + 1)).result(30)
        yield nodes.bootstrap


def ottla(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in this process, which is a second sooner, with its error as ``main`` shows it."""
    done = CliRunner().invoke(cli, arguments, env={"OTTLA_BOOTSTRAP": bootstrap})
    if isinstance(done.exception, OttlaError):
        return subprocess.CompletedProcess(arguments, 1, done.stdout, f"{done.stderr}ottla: {with_way_out(done.exception)}")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def shown(bootstrap: str, *arguments: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = items(ottla(bootstrap, *arguments, "--format", "json"))
    return found


def test_brokers_and_their_directories(bootstrap: str) -> None:
    brokers = shown(bootstrap, "broker", "list")
    assert [(row["id"], row["state"]) for row in brokers] == [(1, "serves"), (2, "serves"), (3, "serves")]
    [directory] = shown(bootstrap, "broker", "logdirs", "2")
    assert (directory["broker"], directory["replicas"], directory["error"]) == (2, 3, None)
    assert len(shown(bootstrap, "broker", "logdirs")) == 3
    only = shown(bootstrap, "broker", "logdirs", "2", "--directory", str(directory["directory"]))
    assert [(row["broker"], row["directory"]) for row in only] == [(2, directory["directory"])]
    assert ottla(bootstrap, "broker", "logdirs", "2", "--directory", "/nowhere").returncode == 1
    replicas = shown(bootstrap, "broker", "logdirs", "2", "--replicas")
    assert len(replicas) == 3
    assert sum(int(str(row["bytes"])) for row in replicas) == directory["bytes"]
    assert [row["bytes"] for row in replicas] == sorted((row["bytes"] for row in replicas), key=lambda size: -int(str(size)))
    assert {(row["broker"], row["directory"], row["state"], row["lag"]) for row in replicas} == {(2, directory["directory"], "", 0)}
    [described] = shown(bootstrap, "broker", "describe", "2")
    assert (described["id"], described["state"], described["replicas"], described["out_of_sync"]) == (2, "serves", 3, 0)
    assert described["configs"]["node.id"] == "2"  # type: ignore[index]
    assert "broker 2  state serves  address 127.0.0.1:" in ottla(bootstrap, "broker", "describe", "1", "2").stdout
    assert "brokers 1, 2, 3 are" in ottla(bootstrap, "broker", "describe", "9").stderr
    planned = ottla(bootstrap, "broker", "unregister", "3")
    assert planned.returncode == 1
    assert "would remove broker 3 from the cluster; it holds 3 replicas: move them first" in planned.stderr
    refused = ottla(bootstrap, "broker", "unregister", "9", "--yes")
    assert (refused.returncode, "BROKER_ID_NOT_REGISTERED" in refused.stderr) == (1, True), refused.stderr


def test_the_quorum(bootstrap: str) -> None:
    nodes = shown(bootstrap, "quorum")
    assert sorted(str(row["role"]) for row in nodes) == ["leader", "voter", "voter"]
    assert [row["lag"] for row in nodes if row["role"] == "leader"] == [0]


@pytest.mark.parametrize("words", [("quorum",), ("topic", "list"), ("cluster", "health", "-B"), ("cluster", "status", "-B")])
def test_a_listener_of_controllers_is_named_as_one(bootstrap: str, words: tuple[str, ...]) -> None:
    with Admin(bootstrap) as admin:
        voters = admin.describe_configs(Broker(1))["controller.quorum.voters"].value or ""
    address = voters.partition(",")[0].partition("@")[2]
    refused = ottla(address, *words, *[address] * (words[-1] == "-B"))
    assert refused.returncode == 1
    assert "this is a listener of controllers: -B takes the address of a broker's listener for clients" in refused.stderr


def test_a_reassignment_is_planned_made_and_seen(bootstrap: str) -> None:
    planned = ottla(bootstrap, "partition", "reassign", "t:1=3,1", "--format", "json")
    [plan] = json.loads(planned.stdout)["items"]
    assert (planned.returncode, plan["partition"], plan["replicas_afterwards"]) == (1, 1, [3, 1])
    done = shown(bootstrap, "partition", "reassign", "t:1=3,1", "--yes")
    assert [(row["partition"], row["result"]) for row in done] == [(1, "begun")]
    assert {row["partition"] for row in shown(bootstrap, "partition", "moves")} <= {1}, "no other one is under way"
    with Admin(bootstrap) as admin:
        eventually(lambda: list(admin.describe_topic("t").partitions[1].replicas), lambda replicas: replicas == [3, 1])
    assert shown(bootstrap, "partition", "moves") == []
    failed = ottla(bootstrap, "partition", "reassign", "t:7=1", "--yes", "--format", "json")
    assert (failed.returncode, json.loads(failed.stdout)["items"][0]["result"]) == (1, "failed")
    cancelled = ottla(bootstrap, "partition", "cancel", "t:2", "--yes", "--format", "json")
    assert "NO_REASSIGNMENT_IN_PROGRESS" in json.loads(cancelled.stdout)["items"][0]["error"]


def test_a_reassignment_says_what_was_before_and_is_taken_back_by_that(bootstrap: str, tmp_path: Path) -> None:
    """With --yes it kept nothing of what partitions had."""
    file = tmp_path / "moved.json"
    with Admin(bootstrap) as admin:
        assert admin.create_topics([NewTopic("back", assignments={0: [1, 2], 1: [2, 3], 2: [3, 1]})]) == {"back": None}

        def replicas() -> list[list[int]]:
            there = [] if admin.list_partition_reassignments() else admin.describe_topic("back").partitions.values()
            return [list(partition.replicas) for partition in there]

        moved = ottla(bootstrap, "partition", "reassign", "back:0=3,2", "back:1=1,3", "back:2=2,1", "back:7=1", "--yes", "--json")
        rows = [(row["replicas"], row["replicas_afterwards"], row["result"]) for row in json.loads(moved.stdout)["items"]]
        assert rows[:3] == [([1, 2], [3, 2], "begun"), ([2, 3], [1, 3], "begun"), ([3, 1], [2, 1], "begun")]
        assert rows[3] == (None, [1], "failed")
        file.write_text(moved.stdout)
        eventually(replicas, lambda found: found == [[3, 2], [1, 3], [2, 1]])
        assert ottla(bootstrap, "partition", "reassign", "back:2=1,2", "--yes").returncode == 0
        eventually(replicas, lambda found: found == [[3, 2], [1, 3], [1, 2]])
        undone = ottla(bootstrap, "partition", "reassign", "--undo", str(file), "--yes", "--json")
        assert [row["replicas_afterwards"] for row in json.loads(undone.stdout)["items"]] == [[1, 2], [2, 3]], undone.stderr
        assert "back:2 is left out: it has replicas 1,2, so that it was moved again since" in undone.stderr
        eventually(replicas, lambda found: found == [[1, 2], [2, 3], [1, 2]])
        again = ottla(bootstrap, "partition", "reassign", "--undo", str(file), "--yes", "--json")
        assert (again.returncode, json.loads(again.stdout)["items"]) == (0, []), "it is as it was"
        admin.delete_topics(["back"])
        gone = ottla(bootstrap, "partition", "reassign", "--undo", str(file), "--yes", "--json")
        assert "back:0 is left out: it is no longer there" in gone.stderr
    file.write_text("[]")
    assert ottla(bootstrap, "partition", "reassign", "--undo", str(file)).returncode == 2


def test_preferred_leaders_are_elected(bootstrap: str) -> None:
    """A plan lists what another than the first replica leads, and nothing else."""
    with Admin(bootstrap) as admin:
        assert admin.create_topics([NewTopic("elected", assignments={0: [1, 2], 1: [3, 2]})]) == {"elected": None}
        assert admin.alter_partition_reassignments({TopicPartition("elected", 0): [2, 1]}) == {TopicPartition("elected", 0): None}
        eventually(lambda: list(admin.describe_topic("elected").partitions[0].replicas), lambda replicas: replicas == [2, 1])
        planned = ottla(bootstrap, "partition", "elect", "elected:0", "elected:1", "--format", "json")
        assert (planned.returncode, "would elect the first replica as leader of 1 partition;" in planned.stderr) == (1, True)
        [plan] = json.loads(planned.stdout)["items"]
        assert (plan["topic"], plan["partition"], plan["leader"], plan["replicas"]) == ("elected", 0, 1, [2, 1])
        assert "elected" in ottla(bootstrap, "partition", "elect").stdout, "of all partitions"
        assert admin.describe_topic("elected").partitions[0].leader == 1, "a plan elects nobody"
        done = ottla(bootstrap, "partition", "elect", "--yes", "--format", "json")
        assert done.returncode == 0, done.stderr
        eventually(lambda: admin.describe_topic("elected").partitions[0].leader, lambda leader: leader == 2)
    nothing = ottla(bootstrap, "partition", "elect", "elected:0")
    assert (nothing.returncode, "there is nothing to elect" in nothing.stderr) == (0, True)
    nowhere = ottla(bootstrap, "partition", "elect", "elected:7")
    assert (nowhere.returncode, "has no partition 7" in nowhere.stderr) == (1, True)
    unclean = ottla(bootstrap, "partition", "elect", "--unclean", "--yes")
    assert (unclean.returncode, "--unclean needs partitions" in unclean.stderr) == (2, True)


def test_quotas(bootstrap: str) -> None:
    planned = ottla(bootstrap, "quota", "set", "producer_byte_rate=1048576", "--user", "alice")
    assert (planned.returncode, "would set producer_byte_rate=1048576 of user=alice" in planned.stderr) == (1, True)
    for arguments in (
        ["producer_byte_rate=1000", "--user", "alice"],
        ["consumer_byte_rate=2000", "--client-id", "<default>"],
        ["connection_creation_rate=3", "--ip", "10.0.0.7"],
    ):
        done = ottla(bootstrap, "quota", "set", *arguments, "--yes")
        assert done.returncode == 0, done.stderr
    listed = shown(bootstrap, "quota", "list")
    assert [(row["entity"], row["quota"], row["value"]) for row in listed] == [
        ("client-id=<default>", "consumer_byte_rate", 2000.0),
        ("ip=10.0.0.7", "connection_creation_rate", 3.0),
        ("user=alice", "producer_byte_rate", 1000.0),
    ]
    assert ottla(bootstrap, "quota", "set", "-d", "producer_byte_rate", "--user", "alice", "--yes").returncode == 0
    assert len(shown(bootstrap, "quota", "list")) == 2
    assert [row["value"] for row in shown(bootstrap, "quota", "list", "--client-id", "<default>")] == [2000.0]
    assert [row["entity"] for row in shown(bootstrap, "quota", "list", "--ip", "10.0.0.7")] == ["ip=10.0.0.7"]
    assert shown(bootstrap, "quota", "list", "--user", "alice") == []
    refused = ottla(bootstrap, "quota", "set", "nonsense=1", "--user", "a", "--yes")
    assert (refused.returncode, "nonsense" in refused.stderr) == (1, True)


def test_features(bootstrap: str) -> None:
    found = {row["feature"]: row for row in shown(bootstrap, "feature", "list")}
    assert (found["transaction.version"]["level"], found["transaction.version"]["supported_to"]) == (2, 2)
    planned = ottla(bootstrap, "feature", "set", "transaction.version=1", "--downgrade")
    assert (planned.returncode, "would set transaction.version=1" in planned.stderr) == (1, True)
    refused = ottla(bootstrap, "feature", "set", "transaction.version=9", "--yes")
    assert refused.returncode == 1
    assert {row["feature"]: row for row in shown(bootstrap, "feature", "list")}["transaction.version"]["level"] == 2


def test_offsets_at_a_time(bootstrap: str) -> None:
    at = datetime.fromtimestamp(2, UTC).isoformat()
    rows = shown(bootstrap, "topic", "offsets", "t", "--at", at, "--at", "now")
    assert (rows[0]["start_offset"], rows[0][f"at {at}"], rows[0]["at now"], rows[0]["end_offset"]) == (0, 1, 3, 3)
    wrong = ottla(bootstrap, "topic", "offsets", "t", "--at", "tomorrow")
    assert wrong.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["partition", "elect", "t", "--yes"], "expected TOPIC:PARTITION"),
        (["partition", "reassign", "t:0", "--yes"], "as in orders:0=1,2,3"),
        (["partition", "reassign", "t:0=1,1", "--yes"], "names a broker twice"),
        (["partition", "reassign", "t:0=1,2", "t:1=1,2", "t:0=2,1", "--yes"], "moved once by one command: t:0 is given twice"),
        (["topic", "create", "t", "-c", "retention.ms=1", "-c", "retention.ms=2"], "changed once by one command: retention.ms is given"),
        (["topic", "alter", "t", "-c", "retention.ms=1", "-c", "retention.ms=2"], "changed once by one command: retention.ms is given"),
        (["topic", "alter", "t", "-c", "retention.ms=1", "-d", "retention.ms"], "changed once by one command: retention.ms is given"),
        (["config", "set", "--topic", "t", "-a", "cleanup.policy=compact", "-d", "cleanup.policy"], "cleanup.policy is given twice"),
        (["quota", "set", "producer_byte_rate=1", "producer_byte_rate=2", "--user", "a", "--yes"], "producer_byte_rate is given twice"),
        (["quota", "set", "producer_byte_rate=1", "-d", "producer_byte_rate", "--user", "a", "--yes"], "producer_byte_rate is given twice"),
        (["quota", "set", "producer_byte_rate=1", "--yes"], "whose? give --user"),
        (["quota", "set", "producer_byte_rate=x", "--user", "a", "--yes"], "expected a number"),
        (["quota", "set", "--user", "a", "--yes"], "nothing to change"),
        (["feature", "set", "transaction.version=two", "--yes"], "expected the number of a level"),
        (["topics", "list"], "did you mean 'topic'?"),
        (["xyzzy"], "broker, certs, check-history"),
    ],
)
def test_a_wrong_call_says_what_was_expected(arguments: list[str], text: str) -> None:
    done = ottla("127.0.0.1:1", *arguments)
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(("shell", "text"), [("bash", "_OTTLA_COMPLETE=bash_complete"), ("zsh", "#compdef ottla"), ("fish", "function")])
def test_a_shell_completes(shell: str, text: str) -> None:
    done = subprocess.run([sys.executable, "-m", "ottla", "completion", shell], capture_output=True, text=True, timeout=60, check=True)
    assert text in done.stdout


def test_health_compares_the_voters_of_all_brokers(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with another list counts another majority, and starts all the same."""
    describe = Admin.describe_configs

    def describe_configs(admin: Admin, resource: object) -> object:
        found = dict(describe(admin, resource))  # type: ignore[arg-type]
        if resource == Broker(1):
            found["controller.quorum.voters"] = replace(found["controller.quorum.voters"], value="1@a:1,3@c:1")
        return found

    assert "other controllers" not in ottla(bootstrap, "cluster", "health", "-B", bootstrap).stdout
    monkeypatch.setattr(Admin, "describe_configs", describe_configs)
    done = ottla(bootstrap, "cluster", "health", "-B", bootstrap)
    assert done.returncode == 1
    assert "broker 1 has other controllers in controller.quorum.voters than the rest (1: 1@a:1,3@c:1)" in done.stdout


def test_a_move_is_throttled_and_the_throttle_is_shown_and_taken_off(bootstrap: str) -> None:
    """Four keys had to be set by hand, and were forgotten silently: a broker that came back empty was filled slowly, too."""
    with Admin(bootstrap) as admin:
        lists = {"leader.replication.throttled.replicas": "7:1"}
        admin.create_topics([NewTopic("slow", assignments={0: [1, 2], 1: [2, 3]}, configs=lists)])
        refused = ottla(bootstrap, "partition", "reassign", "slow:0=1,3", "--throttle", "fast")
        assert (refused.returncode, "expected bytes a second, as in 50MB" in refused.stderr) == (2, True)
        moved = ottla(bootstrap, "partition", "reassign", "slow:0=1,3", "slow:1=3,2", "--throttle", "50MB", "--yes")
        assert (moved.returncode, "`ottla partition unthrottle --wait --yes`" in moved.stderr) == (0, True)
        configs = admin.describe_configs(Topic("slow"))
        assert configs["leader.replication.throttled.replicas"].value == "7:1,0:1,0:2"
        assert configs["follower.replication.throttled.replicas"].value == "0:3", "another order copies nothing"
        for node in (1, 2, 3):
            broker = admin.describe_configs(Broker(node))
            assert {broker[f"{side}.replication.throttled.rate"].value for side in ("leader", "follower")} == {"50000000"}
        eventually(lambda: admin.list_partition_reassignments(), lambda moves: not moves)
        note = "throttled to 50,000,000 bytes/s on brokers 1, 2, 3, for topic slow, and no replica is being moved"
        assert f"NOTE     replicas that catch up are {note}" in ottla(bootstrap, "cluster", "health", "-B", bootstrap).stdout
        planned = ottla(bootstrap, "partition", "unthrottle")
        assert (planned.returncode, "would take these off" in planned.stderr) == (1, True)
        assert len(planned.stdout.splitlines()) == 1 + 2 + 6
        assert ottla(bootstrap, "partition", "unthrottle", "--wait", "--yes").returncode == 0
        assert not admin.describe_configs(Topic("slow"))["leader.replication.throttled.replicas"].value
        assert "throttled" not in ottla(bootstrap, "cluster", "health", "-B", bootstrap).stdout
        assert ottla(bootstrap, "partition", "unthrottle").stderr == "ottla: no throttle is set\n"


def test_all_moves_are_taken_back_at_once(bootstrap: str) -> None:
    """Each had to be named."""
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        assert admin.create_topics([NewTopic("takenback", assignments={0: [1], 1: [1]})]) == {"takenback": None}
        for number in range(8):  # the first fetch takes a megabyte of a partition, whatever the rate
            producer.send("takenback", bytes(700_000), partition=number % 2).result(30)
        begun = ottla(bootstrap, "partition", "reassign", "takenback:0=2", "takenback:1=3", "--throttle", "1KB", "--yes")
        assert begun.returncode == 0, begun.stderr
        planned = ottla(bootstrap, "partition", "cancel", "--all", "--format", "json")
        assert (planned.returncode, "would take back 2 moves: what is added is dropped" in planned.stderr) == (1, True)
        rows = [(row["partition"], row["adding"], row["removing"]) for row in json.loads(planned.stdout)["items"]]
        assert rows == [(0, [2], [1]), (1, [3], [1])]
        assert len(admin.list_partition_reassignments()) == 2
        done = shown(bootstrap, "partition", "cancel", "--all", "--yes")
        results = [(row["topic"], row["partition"], row["result"]) for row in done]
        assert results == [("takenback", 0, "taken back"), ("takenback", 1, "taken back")]
        assert admin.list_partition_reassignments() == {}
        none = ottla(bootstrap, "partition", "cancel", "--all", "--yes", "--format", "json")
        assert (none.returncode, json.loads(none.stdout)["items"], "no move is under way" in none.stderr) == (0, [], True)
        assert ottla(bootstrap, "partition", "unthrottle", "--yes").returncode == 0
    for words in ((), ("t:0", "--all")):
        wrong = ottla(bootstrap, "partition", "cancel", *words)
        assert (wrong.returncode, "or --all for every move that is under way" in wrong.stderr) == (2, True)


def test_a_drain_takes_a_throttle_for_replicas_alone(bootstrap: str) -> None:
    assert "another leader copies nothing" in ottla(bootstrap, "broker", "drain", "1", "--throttle", "1MB").stderr


def test_replicas_that_a_move_adds_are_not_counted_by_a_plan(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of two replicas seemed to have three, and the advice was to leave it one."""
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("moved", assignments={0: [1, 2, 3]})])
    key = TopicPartition("moved", 0)
    monkeypatch.setattr(Admin, "list_partition_reassignments", lambda _: {key: Reassignment((1, 2, 3), (3,), (2,))})
    planned = ottla(bootstrap, "partition", "reassign", "--topics", "moved", "--brokers", "1,2")
    assert "moved:0 is being moved, and this plan takes the place of that move: wait for it" in planned.stderr
    assert "`ottla partition cancel moved:0`" in planned.stderr
    assert "replicas now" not in planned.stderr
    few = ottla(bootstrap, "partition", "reassign", "--topics", "moved,t", "--brokers", "1,2")
    assert "topic 't' has 3 replicas, and --brokers names 2" in few.stderr
    assert "`ottla partition reassign t:0=1,2`" in few.stderr
