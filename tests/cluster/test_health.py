"""``ottla cluster health``: what it says of a cluster that is well, one that has lost a node, and one that has it again."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from tests.cli.named_commands import fault_of
from tests.cluster.loop_clients import asking
from tests.cluster.one_loop import LoopCluster, cluster_on_loop
from tests.foreign_clients.broker_process import lasting_port
from tests.foreign_clients.wire import RawClient
from tests.waiting import eventually_is

from ottla.aio import NewTopic, Producer
from ottla.broker.handlers.partition_states import offline_replicas
from ottla.cli import cluster_health_command
from ottla.cli.cluster_health import look, notes_of, summary
from ottla.cli.health_findings import findings
from ottla.cli.health_partitions import PartitionStates
from ottla.cli.health_seen import Finding, Health
from ottla.cli.main import cli
from ottla.cli.nodes.place import NodeStatus
from ottla.cli.nodes.standing import Standing, seen_from_outside
from ottla.cli.output import way_out
from ottla.cli.quorum_health import Voter, ended_voters
from ottla.cli.quorum_voters import voters_in, without_connection
from ottla.cli.throttles import Throttles
from ottla.cli.unanswered_health import is_login
from ottla.client.admin import PartitionDescription, QuorumDescription, QuorumReplica
from ottla.client.admin.brokers import ClusterDescription
from ottla.client.admin.descriptions import ALMOST_FULL_BELOW_BYTES, LogDir
from ottla.client.cluster_metadata import Node
from ottla.client.out_of_reach import BrokerOutOfReach
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.metadata.image import LOST_DIRECTORY, PartitionImage
from ottla.runtime.serve import BrokerThread
from ottla.runtime.zookeeper_server import ZooKeeperServer
from ottla.storage.directory.room import RESERVE_BYTES
from ottla.sync import Admin
from ottla.types import LATE_TRANSACTION_MS, TopicPartition


async def health(cluster: LoopCluster, *options: str) -> tuple[int | None, str]:
    """The exit code and the output, while the nodes' loop goes on."""
    command = [sys.executable, "-m", "ottla", "cluster", "health", "-B", cluster.bootstrap, *options]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    shown, _ = await process.communicate()
    return process.returncode, shown.decode()


async def seen(cluster: LoopCluster) -> tuple[int | None, Any]:
    code, shown = await health(cluster, "--json")
    return code, json.loads(shown)["items"][0]


@pytest.mark.slow
def test_a_node_that_is_gone_is_a_problem_with_a_way_out_until_it_is_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            topics = [
                NewTopic("three", assignments={0: [1, 2, 3], 1: [2, 3, 1]}, configs={"min.insync.replicas": "2"}),
                NewTopic("two", assignments={0: [2, 1]}, configs={"min.insync.replicas": "2"}),
                NewTopic("one", assignments={0: [2]}),
            ]
            async with asking(cluster, 1) as admin:
                assert set((await admin.create_topics(topics)).values()) == {None}

            async def code() -> int | None:
                return (await health(cluster))[0]

            await eventually_is(code, 0)
            assert "healthy" in (await health(cluster))[1].splitlines()[0]
            await cluster.stop(2)

            async def states() -> dict[str, list[str]]:
                found = (await seen(cluster))[1]["seen"]["partitions"]
                brokers = ("could_lead", "silent_leaders", "full_leaders")
                return {key: value for key, value in found.items() if isinstance(value, list) and key not in brokers}

            expected = {
                "offline": ["one-0"],
                "under_min_isr": ["two-0"],
                "at_min_isr": ["three-0", "three-1"],
                "waiting": [],
                "unanswered": [],
                "full": [],
                "under_replicated": ["one-0", "three-0", "three-1", "two-0"],
                "without_preferred_leader": ["three-1", "two-0"],
                "eligible_in_use": ["one-0", "two-0"],
                "held": [],
                "tight": ["two-0"],
                "silent_owners": [],
                "sole": ["one-0"],
                "electable": [],
            }
            await eventually_is(states, expected)
            exit_code, found = await seen(cluster)
            assert exit_code == 1
            assert not found["is_healthy"]
            assert found["seen"]["brokers"] == [1, 2, 3]
            assert found["seen"]["fenced"] == [2]
            assert found["seen"]["partitions"]["could_lead"] == [2]
            assert found["seen"]["controller"] in (1, 3)
            problems = {problem["problem"]: problem["remedy"] for problem in found["problems"]}
            assert problems["1 partition (one-0) has no leader and cannot be read or written"].startswith("start broker 2 (`ottla")
            assert problems["1 partition (two-0) has too few replicas in sync: acks=all is refused"].startswith("start broker 2 (")
            assert "`ottla cluster restart 2`" in problems["broker 2 is registered and does not serve"]
            screen = (await health(cluster))[1]
            assert "3 registered, 1 fenced (2)" in screen
            assert "4: 1 offline, 1 below min ISR, 2 at min ISR, 4 under replicated" in screen
            await cluster.start(2)
            await eventually_is(code, 0)

    asyncio.run(body())


@pytest.mark.slow
def test_a_cluster_in_zookeeper_mode_is_well_when_it_is(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """One of the brokers is the controller; without ZooKeeper that is not known. A broker that is down is not registered."""

    async def body() -> None:
        async with cluster_on_loop(tmp_path, zookeeper=f"{zookeeper.address}/{tmp_path.name}") as cluster:
            async with asking(cluster, 1) as admin:
                topic = NewTopic("three", assignments={0: [1, 2, 3]}, configs={"min.insync.replicas": "2"})
                assert await admin.create_topics([topic]) == {"three": None}

            async def code() -> int | None:
                return (await health(cluster))[0]

            await eventually_is(code, 0)
            controller = next(iter(cluster.nodes.values())).controller.replica.leader_id
            screen = (await health(cluster))[1]
            assert f"controller   {controller} is active in ZooKeeper mode" in screen

            async def problems() -> dict[str, str]:
                """Remedies by problem: brokers learn of a change one after the other, and any of them is asked."""
                return {problem["problem"]: problem["remedy"] for problem in (await seen(cluster))[1]["problems"]}

            async def is_lost() -> bool:
                found = (await problems()).items()
                return any("the brokers do not reach it" in problem and "see that ZooKeeper runs" in remedy for problem, remedy in found)

            async def rows() -> tuple[int | None, set[str]]:
                shown = await asyncio.to_thread(seen_from_outside, cluster.bootstrap, 30_000)
                return shown.active_controller, {row[4] for row in shown.rows}

            await asyncio.to_thread(zookeeper.kill)
            await eventually_is(is_lost, True)
            await eventually_is(rows, (None, {"candidate"}))
            await asyncio.to_thread(zookeeper.start)
            await eventually_is(code, 0)

            gone = next(node for node in (2, 3) if node != controller)
            unregistered = f"broker {gone} holds replicas and is not registered"

            async def is_gone() -> bool:
                found = await problems()
                is_named = f"`ottla cluster restart {gone}`" in found.get(unregistered, "")
                return is_named and not any("controller" in problem for problem in found)

            await cluster.stop(gone)
            await eventually_is(is_gone, True)

    asyncio.run(body())


WELL = Health("id", [1, 2, 3], [], 1, 5, [Voter(1, 0, False), Voter(2, 3, False)], None, PartitionStates(), 3, [], [])


def problems(found: Health) -> list[str]:
    return [finding.problem for finding in findings(found)]


def test_each_thing_that_is_wrong_is_a_problem() -> None:
    assert problems(WELL) == []
    assert next(summary(WELL, [])) == "cluster id: healthy"
    assert problems(replace(WELL, controller=None, controller_problem="why"))[0].startswith("no controller is active")
    full = "log directory /d of broker 2 is full: nothing is written there"
    assert problems(replace(WELL, full_log_dirs=[(2, "/d")])) == [full]
    sizes = (-1, 0, ALMOST_FULL_BELOW_BYTES - 1, ALMOST_FULL_BELOW_BYTES)
    directories = [LogDir("/d", None, 100 << 20, usable, ()) for usable in sizes]
    assert [(one.is_full, one.is_almost_full) for one in directories] == [(False, False), (True, False), (False, True), (False, False)]
    assert ALMOST_FULL_BELOW_BYTES == 2 * RESERVE_BYTES, "as a broker decides"
    assert problems(replace(WELL, offline_log_dirs=[(2, "/d")])) == ["log directory /d of broker 2 is offline"]
    assert problems(replace(WELL, silent=[3])) == ["broker 3 serves, and does not answer"]
    assert problems(replace(WELL, fenced=[3])) == ["broker 3 is registered and does not serve"]


def test_a_broker_that_just_did_not_answer_is_not_counted_among_the_controllers_that_run() -> None:
    """Two seconds after a SIGSTOP the head said that one more might fail, below which the broker did not answer."""
    voters = [Voter(node, 0, False) for node in (1, 2, 3)]
    stopped = replace(WELL, voters=voters, silent=[3])
    assert any("of 3 controllers 2 must run, and 2 do: no more may fail" in line for line in summary(stopped, []))


def test_each_problem_has_a_kind_and_notes_are_values_too() -> None:
    """Programs had to read the text: notes were on the screen alone."""
    states = PartitionStates(offline=["a-0"], under_min_isr=["b-0"], full=["c-0"], full_leaders={3}, held=["d-0"], tight=["b-0"])
    voters = [Voter(1, 0, False), Voter(2, 5, True), Voter(3, 5, False, lags_for_ms=60_000)]
    ill = replace(
        *(WELL,), partitions=states, voters=voters, fenced=[2], silent=[3], full_log_dirs=[(3, "/d")], offline_log_dirs=[(1, "/e")],
        default_replicas=5, other_voters={3: "1,2,4"}, dead_addresses={1: {2: "a:1"}}, notes=["a note"],
    )  # fmt: skip
    found = list(findings(ill)) + list(findings(replace(ill, controller=None))) + list(findings(replace(ill, controller_silence="why")))
    assert all(finding.kind for finding in found), [finding.problem for finding in found if not finding.kind]
    kinds = {finding.kind: finding for finding in found}
    assert kinds.keys() >= {"no_controller", "controller_silent", "broker_fenced", "broker_silent", "voter_down", "voter_lags"}
    assert kinds.keys() >= {"partitions_offline", "partitions_under_min_isr", "partitions_full", "log_dir_full", "log_dir_offline"}
    assert kinds["partitions_full"].nodes == (3,)
    noted = list(notes_of(ill))
    assert noted[-1] == ("a note", "")
    assert noted[0][0].startswith("1 partition (b-0) has no more replicas than min.insync.replicas")


def test_why_a_broker_did_not_answer_decides_what_to_do_about_it() -> None:
    """An expired certificate and an ended process had one text, which asked whether the broker was overloaded."""
    expired = "SASL_AUTHENTICATION_FAILED: broker 3 cannot be reached: TLS with a:1: the peer's certificate is refused: expired"
    [shut] = findings(replace(WELL, unanswered={3: expired}))
    assert shut.problem == f"broker 3 serves, and lets no client in from here: {expired}"
    assert "docs/security.md, Certificates that change" in shut.remedy
    first = next(findings(replace(WELL, controller=3, unanswered={3: expired}, fenced=[2])))
    assert first.problem == shut.problem, "what it causes comes after it"
    assert "it is the active controller, to which other nodes do not return" in first.remedy
    [_, fenced] = findings(replace(WELL, controller=3, unanswered={3: expired}, fenced=[2]))
    assert "; where it runs, first mend what is wrong with broker 3, as above" in fenced.remedy
    ended = "NETWORK_EXCEPTION: broker 3 cannot be reached: no broker at a:1: [Errno 111] Connect call failed ('a', 1)"
    [dead] = findings(replace(WELL, silent=[3], unanswered={3: ended}))
    assert dead.problem == f"broker 3 serves, and nothing listens at its address: {ended}"
    assert dead.remedy.startswith("start broker 3 (`ottla broker start FILE`")
    [slow] = findings(replace(WELL, silent=[3], unanswered={3: "REQUEST_TIMED_OUT: t"}))
    assert (slow.problem, "SIGSTOP" in slow.remedy) == ("broker 3 serves, and does not answer: REQUEST_TIMED_OUT: t", True)
    login = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")
    assert (is_login(BrokerOutOfReach(3, login)), is_login(KafkaError(ErrorCode.NETWORK_EXCEPTION, "no"))) == (True, False)


def test_a_full_disk_is_what_its_consequences_send_to() -> None:
    """They sent to the network between brokers that all run."""
    states = PartitionStates()
    states.add(TopicPartition("t", 0), partition(1, [1, 2, 3], [1, 2]), min_isr=2, adding=[], serving={1, 2, 3})
    full, lagging, at_risk = findings(replace(WELL, partitions=states, full_log_dirs=[(3, "/d")]))
    assert at_risk.remedy == "make room on broker 3: a log directory there is full, as above"
    assert (lagging.problem, lagging.remedy.split(":")[0]) == (
        "broker 3 is not in sync for 1 partition",
        "its log directory is full, as above",
    )
    assert full.problem.startswith("log directory /d of broker 3 is full")
    [elsewhere, at_risk] = findings(replace(WELL, partitions=states))
    assert "look at its log, its disk and its network" in elsewhere.remedy
    assert at_risk.remedy == "broker 3 catches up, as above: `ottla topic describe --under-replicated` lists what is left"


def test_acks_all_that_waits_for_a_broker_without_answer_is_said_as_it_is() -> None:
    """Without a controller nobody takes the silent broker out of the replicas in sync: nothing more needs to fail."""
    states = PartitionStates()
    for number, follower in enumerate((2, 3)):
        found = partition(1, [1, follower, 9], [1, follower])
        states.add(TopicPartition("t", number), found, min_isr=2, adding=[], serving={1, 2, 3}, silent=[3])
    assert (states.at_min_isr, states.waiting) == (["t-0", "t-1"], ["t-1"])
    waits = "1 partition (t-1) has a replica in sync that does not answer: acks=all waits for it, and "
    at_risk = "1 partition (t-0) has no replica in sync to spare: one more failure stops acks=all there"
    assert problems(replace(WELL, partitions=states))[1:] == [f"{waits}it is out of sync after replica.lag.time.max.ms", at_risk]
    assert f"{waits}only a majority of the controllers takes it out of the replicas in sync" in problems(
        replace(WELL, partitions=states, controller=None)
    )


def test_a_wait_names_the_nodes_that_are_missing() -> None:
    """It named a number of brokers, and "1 more" problem."""
    found = list(findings(replace(WELL, default_replicas=4, voters=[Voter(1, 0, False), Voter(3, 9, True), Voter(4, 0, False)])))
    assert "brokers are registered" in found[1].problem
    assert cluster_health_command._nodes_of(found[::-1]) == " (look at node 3)"
    assert cluster_health_command._nodes_of(found) == "", "it names the node itself"


def test_a_throttle_is_named_as_a_cause_of_lag() -> None:
    states = PartitionStates(missing={3: 2})
    throttled = replace(WELL, partitions=states, throttles=Throttles({1: 2_000_000, 3: 1_000_000}, ["t"]))
    [lagging] = findings(throttled)
    cause = "a throttle may hold it back (1,000,000 to 2,000,000 bytes/s on brokers 1, 3, for topic t: `ottla partition unthrottle --yes` "
    cause += "takes it off); it"
    assert lagging.remedy.startswith(cause)
    assert "throttle" not in "".join(finding.remedy for finding in findings(replace(throttled, throttles=None)))
    assert "         `ottla partition unthrottle --wait --yes` takes that off" in summary(replace(throttled, is_moving=True), [])


def test_each_controller_that_is_silent_or_lags_is_named_with_how_many_more_may_fail() -> None:
    one, two, three = Voter(1, 0, False, 0, 0), Voter(2, 1, True, 9_900, 0), Voter(3, 120, False, 200, 31_000)
    follows = "controller 2 does not follow the metadata log: it"
    [silent, lagging] = findings(replace(WELL, voters=[one, two, three]))
    assert silent.problem == f"{follows} last fetched 9 s ago"
    assert silent.remedy.endswith("cuts it off from controller 1; of 3 controllers 2 must run, and 2 do: no more may fail")
    assert lagging.problem == "controller 3 lags: it lacks 120 records of the metadata log, and last had all 31 s ago"
    assert lagging.remedy.endswith("of 3 controllers 2 must run, and 2 do: no more may fail")
    turned_away = replace(WELL, voters=[one, two, three], configured_voters={1: "a:1", 2: "b:2", 3: "c:3"})
    assert next(findings(turned_away)).remedy.startswith(
        "its process takes connections at b:2: it is stopped (SIGSTOP) or hangs, was turned away, or cannot reach controller 1"
    )
    assert next(findings(replace(turned_away, unreachable_voters=[2]))).remedy.startswith("start node 2 (")
    assert problems(replace(WELL, voters=[one, Voter(2, -1, True)])) == [f"{follows} has not fetched since 1 leads"]
    assert problems(replace(WELL, voters=[one, replace(three, lags_for_ms=9_000)])) == [], "it has just started"
    shown = list(summary(replace(WELL, voters=[one, replace(two, node_id=5), *(Voter(node, 0, False, 0, 0) for node in (2, 3, 4))]), []))
    assert "controller   1 is active in epoch 5; lag of the voters: 1: 0, 5: silent, 2: 0, 3: 0, 4: 0; " in shown[2]
    assert shown[2].endswith("of 5 controllers 3 must run, and 4 do: 1 more may fail")
    assert list(summary(replace(WELL, voters=[one]), []))[2].endswith("lag of the voters: 1: 0"), "a lone broker has nothing to spare"


def test_a_controller_that_has_ended_is_one_at_once() -> None:
    """The active one counts it as a follower for seconds: rolling restarts would go on, and stop the majority."""
    one, two, three = Voter(1, 0, False, 0, 0), Voter(2, 0, False, 300, 0, True), Voter(3, 0, False, 200, 0)
    ill = replace(WELL, voters=[one, two, three], configured_voters={2: "b:2"}, unreachable_voters=[2])
    [found] = findings(ill)
    assert found.problem == "controller 2 has ended: nothing listens at b:2, and it does not fetch the metadata log"
    assert found.remedy.startswith("start node 2 (")
    assert found.remedy.endswith("of 3 controllers 2 must run, and 2 do: no more may fail")
    assert "2: ended, 3: 0" in list(summary(ill, []))[2]
    lost = replace(ill, voters=[one, two, replace(three, has_ended=True)], configured_voters={2: "b:2", 3: "c:3"})
    assert all(found.remedy.endswith("of 3 controllers 2 must run, and 1 does: too few to change anything") for found in findings(lost))


def test_fewer_brokers_than_a_topic_needs_are_a_problem(tmp_path: Path) -> None:
    """At the first start one of three brokers registers first: a script that waits for health goes on to create topics."""
    assert problems(replace(WELL, brokers=[1, 2, 3], default_replicas=3)) == []
    [found] = findings(replace(WELL, brokers=[2], default_replicas=3))
    assert found.problem == "1 broker is registered, and a topic has 3 replicas by default: none can be created without -r"
    assert "`ottla broker start FILE`" in found.remedy
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "default.replication.factor": "2"}) as broker:
        shown = CliRunner().invoke(cli, ["cluster", "health", "-B", broker.bootstrap])
    assert shown.exit_code == 1
    assert "1 broker is registered, and a topic has 2 replicas by default" in shown.stdout


def test_a_port_that_refuses_is_no_proof_where_the_controller_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address may mean another machine where it is asked from."""
    monkeypatch.setattr("ottla.cli.quorum_health.FETCH_SECONDS_MAX", 0.05)
    with socket.socket() as dead, socket.create_server(("127.0.0.1", 0)) as live:
        dead.bind(("127.0.0.1", 0))
        refused, taken = (f"127.0.0.1:{one.getsockname()[1]}" for one in (dead, live))
        addresses = {2: refused, 3: refused, 4: taken, 5: "nohost.invalid:1"}
        looks = iter(range(700, 800, 10))

        def describe_quorum() -> QuorumDescription:
            at = next(looks)
            fetched = {1: at, 2: 650, 3: at, 4: 650, 5: 650}
            return QuorumDescription(1, 1, 9, tuple(QuorumReplica(node, b"", 9, ms, ms) for node, ms in fetched.items()), ())

        admin = SimpleNamespace(describe_quorum=describe_quorum)
        assert ended_voters(cast(Admin, admin), 1, addresses) == [2]


def test_the_status_without_a_controller_has_brokers_that_have_ended_as_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is there to fence them, and they would be alive for ever."""

    class Asked:
        def __init__(self, servers: str, **options: object) -> None: ...

        def __enter__(self) -> Asked:
            return self

        def __exit__(self, *error: object) -> None: ...

        def describe_cluster(self, *, include_fenced: bool) -> ClusterDescription:
            nodes = [Node(1, "127.0.0.1", live.getsockname()[1], None), Node(2, "127.0.0.1", dead.getsockname()[1], None)]
            return ClusterDescription("id", -1, nodes)

        def describe_quorum(self) -> QuorumDescription:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is active")

        def describe_configs(self, _: object) -> dict[str, Any]:
            ports = live.getsockname()[1], dead.getsockname()[1], dead.getsockname()[1]
            voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in zip((1, 2, 101), ports))
            return {"controller.quorum.voters": SimpleNamespace(value=voters)}

    monkeypatch.setattr("ottla.sync.Admin", Asked)
    with socket.create_server(("127.0.0.1", 0)) as live, socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        shown = seen_from_outside("a:1", 1000)
        listed = CliRunner().invoke(cli, ["broker", "list", "-B", "a:1", "--json"])
    found = [(row[0], *row[3:5]) for row in shown.rows]
    assert found == [(1, "alive", "unknown"), (2, "down", "ended"), (101, None, "ended")], "health has them as ended, too"
    assert [row["state"] for row in json.loads(listed.stdout)["items"]] == ["serves", "down"], "both served"
    assert (listed.exit_code, "STATE is as brokers last knew it, but for down: no controller is active" in listed.stderr) == (1, True)


def test_the_status_of_this_machines_cluster_has_a_controller_without_a_process_as_down() -> None:
    """Without an active one all of them were unknown."""
    nobody = Standing(None, None, "no controller is active")
    nodes = [cast(NodeStatus, SimpleNamespace(node_id=node, roles=("controller",), pid=pid)) for node, pid in ((1, 77), (2, None))]
    assert [nobody.controller_of(node) for node in nodes] == ["unknown", "down"]


def test_one_broker_that_had_everything_is_one() -> None:
    states = PartitionStates()
    states.add(TopicPartition("t", 0), partition(-1, [2], [2]), min_isr=1, adding=[], serving={1})
    offline = next(finding for finding in findings(replace(WELL, partitions=states, fenced=[2])) if finding.kind == "partitions_offline")
    assert ": it had everything; " in offline.remedy
    states.add(TopicPartition("t", 1), partition(-1, [3], [3]), min_isr=1, adding=[], serving={1})
    offline = next(finding for finding in findings(replace(WELL, partitions=states, fenced=[2, 3])) if finding.kind == "partitions_offline")
    assert ": they had everything; " in offline.remedy


class QuorumAsked:
    """A cluster of broker 1 and the controllers 101, which leads, and 102, at that port: it last fetched 300 ms ago, and never again."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.looks = 0

    def __call__(self, *_: object, **__: object) -> QuorumAsked:
        return self

    def __enter__(self) -> QuorumAsked:
        return self

    def __exit__(self, *_: object) -> None: ...

    def describe_cluster(self, *, include_fenced: bool) -> ClusterDescription:
        return ClusterDescription("id", 1, [Node(1, "127.0.0.1", 1, None)])

    def describe_quorum(self) -> QuorumDescription:
        self.looks += 1
        fetched = {101: 1000 + self.looks, 102: 700}
        return QuorumDescription(101, 1, 9, tuple(QuorumReplica(node, b"", 9, ms, ms) for node, ms in fetched.items()), ())

    def describe_configs(self, _: object) -> dict[str, Any]:
        values = {"controller.quorum.voters": f"101@127.0.0.1:1,102@127.0.0.1:{self.port}", "default.replication.factor": "1"}
        return {name: SimpleNamespace(value=value) for name, value in values.items()}

    def describe_log_dirs(self, brokers: list[int]) -> dict[int, list[LogDir]]:
        return {broker: [] for broker in brokers}

    def describe_partitions(self) -> dict[TopicPartition, PartitionDescription]:
        return {}

    def describe_topic(self, name: str) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)

    def list_partition_reassignments(self) -> dict[TopicPartition, object]:
        return {}

    def describe_config_of_topics(self, *_: object) -> dict[str, str]:
        return {}


def test_the_status_has_a_controller_that_has_just_ended_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The active one takes it for a follower for seconds."""
    monkeypatch.setattr("ottla.cli.quorum_health.FETCH_SECONDS_MAX", 0.05)
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        monkeypatch.setattr("ottla.sync.Admin", QuorumAsked(dead.getsockname()[1]))
        shown = seen_from_outside("a:1", 1000)
    assert [(row[0], row[4]) for row in shown.rows] == [(1, None), (101, "active"), (102, "ended")]


def test_a_controller_that_was_restarted_is_well_once_it_has_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its port is open, and what the leader knows is the last fetch of the process before: a rolling restart would go on too early."""
    monkeypatch.setattr("ottla.cli.quorum_health.FETCH_SECONDS_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as open_port:
        asked = cast(Admin, QuorumAsked(open_port.getsockname()[1]))
        assert problems(look(asked)) == []
        assert problems(look(asked, is_sure=True)) == ["controller 102 does not follow the metadata log: it last fetched 0 s ago"]


def test_without_a_controller_those_that_take_no_connection_are_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as live, socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in (live, dead)]
        voters = voters_in(f"1@{addresses[0]}, 2@{addresses[1]},3@nohost.invalid:1")
        assert list(voters.values()) == [*addresses, "nohost.invalid:1"]
        assert without_connection(voters) == [2, 3]
    assert voters_in("") == {}
    ill = replace(WELL, controller=None, controller_problem="why", configured_voters=voters)
    [named] = [finding.remedy for finding in findings(replace(ill, unreachable_voters=[2, 3]))]
    assert f"start controllers 2 ({addresses[1]}), 3 (nohost.invalid:1), which take no connection" in named
    assert named.endswith("of 3 controllers 2 must run")
    [one] = [finding.remedy for finding in findings(replace(ill, unreachable_voters=[2]))]
    assert f"start controller 2 ({addresses[1]}), which takes no connection" in one
    assert "`ottla cluster restart 2`" in one
    [none] = [finding.remedy for finding in findings(ill)]
    assert "all controllers take connections from here" in none
    [unknown] = [finding.remedy for finding in findings(replace(ill, configured_voters={}))]
    assert "start the voters of controller.quorum.voters that are down" in unknown


def test_a_way_out_is_one_that_can_be_gone() -> None:
    """Replicas move only to a broker that has none of the partition, and only while a controller is active."""

    def remedies(serving: set[int], **found: Any) -> list[str]:
        states = PartitionStates()
        states.add(TopicPartition("t", 0), partition(1, [1, 2, 3], [1, 2]), min_isr=1, adding=[], serving=serving)
        return [finding.remedy for finding in findings(replace(WELL, partitions=states, **found)) if "broker 3" in finding.problem]

    [spare] = remedies({1, 2, 4}, fenced=[3])
    assert ", or move its replicas to others (`ottla broker drain 3 --replicas --yes`) and forget it" in spare
    [none] = remedies({1, 2}, fenced=[3])
    assert "add a broker first" in none
    [absent] = remedies({1, 2}, brokers=[1, 2])
    assert "add a broker first" in absent
    [undecided] = remedies({1, 2, 4}, fenced=[3], controller=None)
    assert "drain" not in undecided


def test_a_move_to_a_broker_that_is_down_is_taken_back() -> None:
    """A broker was to be added, and this one drained, which a move that is under way does not let."""
    states = PartitionStates()
    states.add(TopicPartition("t", 0), partition(1, [1, 2, 3, 4], [1, 2, 3]), min_isr=1, adding=[4], serving={1, 2, 3})
    [target] = findings(replace(WELL, fenced=[4], partitions=states))
    assert target.remedy.startswith("start broker 4 (")
    assert "), or take back what is being moved to it (`ottla partition cancel t:0 --yes`) and forget it (" in target.remedy
    assert "drain" not in target.remedy
    states.add(TopicPartition("u", 0), partition(1, [1, 4], [1]), min_isr=1, adding=[], serving={1, 2, 3})
    both = next(finding for finding in findings(replace(WELL, fenced=[4], partitions=states)) if finding.kind == "broker_fenced")
    assert "`ottla partition cancel t:0 --yes`), and move its replicas to others (`ottla broker drain 4 --replicas --yes`)" in both.remedy
    for index in range(1, 7):
        found = partition(1, [1, 2, 3, 4], [1, 2, 3])
        states.add(TopicPartition("t", index), found, min_isr=1, adding=[4], serving={1, 2, 3})
    many = next(finding for finding in findings(replace(WELL, fenced=[4], partitions=states)) if finding.kind == "broker_fenced")
    assert "`ottla partition cancel --all --yes`" in many.remedy
    assert "add a broker first" not in many.remedy


def test_without_a_controller_what_brokers_show_may_be_old() -> None:
    ill = replace(WELL, controller=None, controller_problem="why", silent=[3])
    first, second = problems(ill)
    assert first.endswith("no leader elected, and what brokers and partitions show may be old (why)")
    assert second == "broker 3 served when a controller last was active, and does not answer"
    assert "controller   none is active: what follows, and who is fenced, is as brokers last knew it" in list(summary(ill, []))


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER])
def test_a_controller_that_does_not_answer_is_a_problem_and_the_rest_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    """The command failed with an error that advised the command itself."""

    def ask(admin: Admin) -> None:
        raise KafkaError(code, "ListPartitionReassignments was not answered in 5000 ms")

    monkeypatch.setattr(Admin, "list_partition_reassignments", ask)
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker:
        done = CliRunner().invoke(cli, ["cluster", "health", "-B", broker.bootstrap])
    assert done.exit_code == 1
    assert "PROBLEM  controller 1 does not answer: nothing can be created or changed, and no leader elected (ListPart" in done.stdout
    assert "log dirs     1, 0 offline" in done.stdout
    assert "`ottla cluster health`" not in done.output


def test_a_silent_controller_sends_to_what_it_waits_for() -> None:
    silent = replace(WELL, controller_silence="why")
    [of_a_quorum], [of_zookeeper] = list(findings(silent)), list(findings(replace(silent, is_in_zookeeper=True)))
    assert "`ottla quorum`" in of_a_quorum.remedy
    assert "see that ZooKeeper runs" in of_zookeeper.remedy
    assert any("in ZooKeeper mode, and does not answer" in line for line in summary(replace(silent, is_in_zookeeper=True), []))


def test_waiting_for_health_has_a_limit() -> None:
    """What the last look of a cluster says that answers is in ``tests/cli/test_silent_controller.py``."""
    runner = CliRunner()
    bootstrap = f"127.0.0.1:{lasting_port()}"
    nothing = runner.invoke(cli, ["cluster", "health", "-B", bootstrap, "--until-healthy", "--timeout", "0"])
    assert (nothing.exit_code, "not healthy after 0 s" in nothing.stderr) == (1, True)
    for command in (["cluster", "health"], ["cluster", "status"], ["quorum"]):
        problem = runner.invoke(cli, [*command, "-B", bootstrap]).exception
        assert isinstance(problem, KafkaError), command
        assert f"; {bootstrap} refuses connections: start the node there (`ottla broker start FILE`, `ottla cl" in problem.message
        assert way_out(problem) == "", "`ottla dev` would start another cluster"
    wrong = runner.invoke(cli, ["cluster", "health", "-B", bootstrap, "--timeout", "1"])
    assert (wrong.exit_code, "--timeout limits --until-healthy" in wrong.stderr) == (2, True)


def test_waiting_for_health_ends_when_the_cluster_is_well(tmp_path: Path) -> None:
    """Until then it prints nothing, and says on standard error what is wrong."""
    port = lasting_port()
    command = [sys.executable, "-m", "ottla", "cluster", "health", "--until-healthy", "--format", "json"]
    environment = os.environ | {"OTTLA_BOOTSTRAP": f"127.0.0.1:{port}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert (line.startswith("ottla: waiting: NETWORK_EXCEPTION"), "no broker at" in line) == (True, True)
        with BrokerThread({"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": str(tmp_path)}):
            shown, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    [item] = json.loads(shown)["items"]
    assert item["is_healthy"]


def test_what_is_waited_for_is_said_when_it_changes_and_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was said of a cluster that answers and is not well."""
    ill = [[Finding(text, "") for text in texts] for texts in (["a"], ["a"], ["b", "c"], ["b", "c"])]
    looks = iter([*ill, []])
    clock = iter([1.0, 2.0, 3.0, 30.0, 31.0])
    monkeypatch.setattr(cluster_health_command, "_look", lambda *_, **__: next(looks))
    monkeypatch.setattr(cluster_health_command, "_now", lambda: next(clock))
    monkeypatch.setattr(cluster_health_command, "WATCH_SECONDS", 0.0)
    done = CliRunner().invoke(cli, ["cluster", "health", "--until-healthy"])
    assert (done.exit_code, done.stderr) == (0, "ottla: waiting: a\n" + "ottla: waiting: b, and 1 more\n" * 2)


def partition(leader: int, replicas: list[int], in_sync: list[int], eligible: list[int] | None = None) -> PartitionDescription:
    return PartitionDescription(leader, 0, tuple(replicas), tuple(in_sync), None if eligible is None else tuple(eligible))


def test_a_lagging_replica_is_a_problem_and_a_moving_one_is_not() -> None:
    states = PartitionStates()
    states.add(TopicPartition("t", 0), partition(1, [1, 2], [1]), min_isr=1, adding=[2], serving={1, 2})
    states.add(TopicPartition("t", 1), partition(2, [1, 2], [1, 2]), min_isr=1, adding=[], serving={1, 2})
    assert problems(replace(WELL, partitions=states)) == []
    assert states.without_preferred_leader == ["t-1"]
    states.add(TopicPartition("t", 2), partition(1, [1, 2], [1]), min_isr=5, adding=[], serving={1, 2})
    assert problems(replace(WELL, partitions=states)) == [
        "broker 2 is not in sync for 1 partition",
        "1 partition (t-2) has too few replicas in sync: acks=all is refused",
    ]


def test_replicas_that_a_broker_cannot_open_send_one_to_its_log_and_its_limit_of_open_files() -> None:
    states = PartitionStates()
    mine = replace(partition(1, [1, 2], [1]), offline=(2,))
    states.add(TopicPartition("t", 0), mine, min_isr=1, adding=[], serving={1, 2})
    states.add(TopicPartition("t", 1), replace(partition(-1, [2], [2]), offline=(2,)), min_isr=1, adding=[], serving={1, 2})
    ill = replace(WELL, partitions=states)
    cause, *effects = findings(ill)
    assert (cause.problem, cause.nodes) == ("broker 2 cannot open 2 of its replicas", (2,))
    assert "the log says why: segment_damaged names a damaged file (docs/operating.md, A damaged log; " in cause.remedy
    assert "partition_offline has other causes: where that is too many open files, raise the limit of open files (ulimit -n" in cause.remedy
    assert "restart broker 2 (`ottla broker start FILE`" in cause.remedy
    assert [finding.problem.split(")")[0] for finding in effects] == ["1 partition (t-1", "1 partition (t-0"]
    assert all(finding.remedy.startswith("broker 2 cannot open replicas there: mend that, as above") for finding in effects)
    assert effects[0].remedy.endswith("; 1 partition (t-1) has no other replica: without that one the records are lost")
    said = next(findings(replace(ill, unopened_reasons={2: {"t-1": "damaged: /d/t-1/0.log"}})))
    assert said.problem == "broker 2 cannot open 2 of its replicas: t-1 (damaged: /d/t-1/0.log), ..."
    assert said.remedy.startswith("docs/operating.md, A damaged log, says what to do")
    assert "open files" not in said.remedy
    many = next(findings(replace(ill, unopened_reasons={2: {"t-0": "too many open files", "t-1": "too many open files"}})))
    assert many.problem.endswith("t-1 (too many open files)")
    assert many.remedy.startswith("raise the limit of open files (ulimit -n, or LimitNOFILE of the unit) and restart broker 2 (")
    failed = list(findings(replace(WELL, partitions=states, offline_log_dirs=[(2, "/d")])))
    assert "ulimit" not in str(failed), "its log directory is what is wrong"
    assert [finding.remedy.split("log director")[0] for finding in failed[1:]] == ["a ", "mend the ", "mend the "]
    assert "unclean" not in failed[2].remedy, "the broker has the records, if any has"
    assert failed[0].problem == "log directory /d of broker 2 is offline"


def test_an_unclean_election_is_advised_where_there_is_a_replica_that_could_lead() -> None:
    """It was advised for partitions with one replica, where no other one exists, and for whole topics."""
    states = PartitionStates()
    states.add(TopicPartition("alone", 0), partition(-1, [2], [2]), min_isr=1, adding=[], serving={1, 3})
    [_, sole] = findings(replace(WELL, partitions=states, fenced=[2]))
    assert "unclean" not in sole.remedy
    assert "; 1 partition (alone-0) has no other replica: without that one the records are lost" in sole.remedy
    states.add(TopicPartition("t", 0), partition(-1, [1, 2], [2]), min_isr=1, adding=[], serving={1, 3})
    both = list(findings(replace(WELL, partitions=states, fenced=[2])))[1]
    assert both.remedy.endswith("only if they never return: `ottla partition elect t:0 --unclean`, which may lose records")
    assert "1 partition (alone-0) has no other replica" in both.remedy


def test_a_broker_shows_the_replicas_that_others_have_reported_as_lost() -> None:
    image = PartitionImage((1, 2), (1,), 1, 0, 0, directories=(b"d" * 16, LOST_DIRECTORY))
    broker = SimpleNamespace(is_fenced=False, endpoints={"PLAINTEXT": None})
    asked: Any = SimpleNamespace(
        image=SimpleNamespace(brokers={1: broker, 2: broker}), partitions=SimpleNamespace(is_offline=lambda topic, index: False)
    )
    context: Any = SimpleNamespace(connection=SimpleNamespace(listener="PLAINTEXT"))
    assert offline_replicas(asked, context, "t", 0, image) == [2]


def test_topics_with_none_to_spare_by_their_configuration_are_a_note_and_no_problem() -> None:
    states = PartitionStates()
    for index, (replicas, min_isr) in enumerate((([1, 2], 2), ([1, 2, 3], 2), ([1], 1), ([1], 2), ([1, 2], 3))):
        states.add(TopicPartition("t", index), partition(1, replicas, replicas), min_isr=min_isr, adding=[], serving={1, 2, 3})
    seen_so = replace(WELL, partitions=states)
    assert (states.tight, problems(seen_so)) == (["t-0", "t-4"], [])
    lines = list(summary(seen_so, []))
    assert lines[0] == "cluster id: healthy"
    assert (
        "NOTE     2 partitions (t-0, t-4) have no more replicas than min.insync.replicas: acks=all is refused while one is not in sync"
        in lines
    )
    assert not any(line.startswith("NOTE") for line in summary(WELL, []))


def test_single_replicas_are_at_their_minimum_and_well() -> None:
    states = PartitionStates()
    states.add(TopicPartition("t", 0), partition(1, [1], [1]), min_isr=2, adding=[], serving={1})
    assert states.at_min_isr == ["t-0"]
    assert problems(replace(WELL, partitions=states)) == []


def test_every_advice_names_a_command_that_exists() -> None:
    states = PartitionStates()
    states.add(TopicPartition("t", 0), partition(2, [2, 3], [2]), min_isr=1, adding=[], serving={1, 3})  # offline
    states.add(TopicPartition("t", 1), partition(1, [1, 2, 3, 4], [1]), min_isr=2, adding=[], serving={1, 3})  # too few
    states.add(TopicPartition("t", 2), partition(1, [1, 2], [1]), min_isr=1, adding=[], serving={1, 3})  # none to spare
    nobodys = PartitionStates()
    nobodys.add(TopicPartition("t", 0), partition(-1, [2], []), min_isr=1, adding=[], serving={1, 3})
    lagging = PartitionStates()
    lagging.add(TopicPartition("t", 1), partition(1, [1, 2, 3], [1]), min_isr=2, adding=[], serving={1, 2, 3})
    ill = replace(
        WELL, controller=None, controller_problem="why", fenced=[2], partitions=states, voters=[Voter(2, -1, True)],
        offline_log_dirs=[(1, "/d")], silent=[3],
    )  # fmt: skip
    all_found = [
        finding
        for health in (ill, replace(ill, is_in_zookeeper=True), replace(WELL, partitions=nobodys), replace(WELL, partitions=lagging))
        for finding in findings(health)
    ]
    kinds = {re.sub(r"\d+|\(.*\)", "", finding.problem) for finding in all_found}
    assert len(kinds) >= 9, kinds
    for finding in all_found:
        commands = re.findall(r"`([^`]+)`", finding.remedy)
        assert commands, finding
        assert not list(filter(None, map(fault_of, commands))), finding


@pytest.mark.slow
def test_a_late_transaction_is_a_problem_and_an_open_one_is_not(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            async with asking(cluster, 1) as admin:
                topic = NewTopic("t", assignments={0: [1, 2, 3], 1: [2, 3, 1]}, configs={"min.insync.replicas": "2"})
                assert await admin.create_topics([topic]) == {"t": None}
            producer = Producer(cluster.bootstrap, transactional_id="late")
            await producer.init_transactions()
            await producer.begin_transaction()
            for index in range(2):
                await (await producer.send("t", b"value", partition=index))

            async def code() -> int | None:
                return (await health(cluster))[0]

            await eventually_is(code, 0)
            held = cluster.nodes[2].partitions.find("t", 1)
            assert held is not None
            held.log.producers.clock_was_set(-(900_000 + LATE_TRANSACTION_MS))
            exit_code, found = await seen(cluster)
            assert (exit_code, found["seen"]["partitions"]["held"]) == (1, ["t-1"])
            [problem] = found["problems"]
            assert problem["problem"].startswith("1 partition (t-1) has a transaction that is open for longer than any may be")
            await producer.close()

    asyncio.run(body())


def test_a_broker_that_does_not_answer_is_not_said_to_be_unable_to_open_replicas() -> None:
    """A process that was stopped (SIGSTOP) was sent to its log and to the limit of open files, until it was fenced."""
    states = PartitionStates(missing={3: 2}, unopened={3: 2}, at_min_isr=["t-0"], under_replicated=["t-0", "t-1"], lacking={"t-0": {3}})
    for found in (replace(WELL, partitions=states, silent=[3]), replace(WELL, partitions=states, silent=[3], unanswered={3: "timed out"})):
        shown = [f"{finding.problem} {finding.remedy}" for finding in findings(found)]
        assert not [text for text in shown if "open" in text.replace("`", "")], shown
        assert "broker 3 is not in sync for 2 partitions it does not answer, as above: `ottla cluster status` says what others see" in shown
    [cause, at_risk] = findings(replace(WELL, partitions=states))
    assert "cannot open replicas there" in at_risk.remedy
    assert cause.problem == "broker 3 cannot open 2 of its replicas"
    states.missing[3] = 3
    assert list(findings(replace(WELL, partitions=states)))[1].remedy.startswith("it cannot open some of them, as above")


def test_an_address_that_takes_no_connection_and_refuses_none_is_not_answered_by_a_start_of_a_broker() -> None:
    silent = KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker at 127.0.0.1:9092: timed out")
    assert "`ottla dev`" not in way_out(silent)
    assert "waits for a majority of the controllers (node_waits in its log says for which), or its process is stopped" in way_out(silent)
    refused = KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker at 127.0.0.1:9092: [Errno 111] Connect call failed")
    assert "`ottla dev`" in way_out(refused)
    waited = KafkaError(ErrorCode.NOT_CONTROLLER, "this broker could not register in 60000 ms")
    assert way_out(waited).startswith("; initial.broker.registration.timeout.ms is how long a start waits, and node_waits in the log says")


def test_a_broker_whose_process_lives_is_not_answered_by_a_start() -> None:
    """A process that was stopped (SIGSTOP) was to be started."""
    [paused] = findings(replace(WELL, fenced=[3], paused={3: 77}))
    assert paused.remedy.startswith("continue broker 3 (`kill -CONT 77`), or move its replicas")
    assert "broker start" not in paused.remedy
    [hanging] = findings(replace(WELL, fenced=[3], hanging={3: "b:3"}))
    assert hanging.remedy.startswith(
        "look at broker 3 (`ottla cluster status`): its process takes connections at b:3, and is starting, is st"
    )
    [silent] = findings(replace(WELL, silent=[3], unanswered={3: "timed out"}, paused={3: 77}))
    assert silent.problem == "broker 3 serves, and does not answer: its process 77 is stopped (SIGSTOP)"
    assert silent.remedy == "continue broker 3 (`kill -CONT 77`)"
    states = PartitionStates(missing={2: 1, 3: 1, 4: 1}, under_min_isr=["t-0"], lacking={"t-0": {2, 3, 4}})
    all_down = replace(WELL, fenced=[2, 3, 4], hanging={3: "b:3"}, paused={4: 77}, partitions=states)
    ways = list(findings(all_down))[-1].remedy.split("; ")
    assert [way.split(" (")[0] for way in ways] == ["continue broker 4", "look at broker 3", "start broker 2"]


def test_the_broker_that_does_not_answer_is_what_an_offline_partition_of_its_own_waits_for() -> None:
    """The cluster fences it between two answers: any brokers were to be started, or an unclean leader elected of none."""
    states = PartitionStates()
    states.add(TopicPartition("t", 0), partition(-1, [3], [3]), min_isr=1, adding=[], serving={1, 2, 3}, silent=[3])
    [_, offline] = findings(replace(WELL, partitions=states, silent=[3]))
    assert offline.problem == "1 partition (t-0) has no leader and cannot be read or written"
    assert offline.remedy == "broker 3 had everything, and does not answer, as above: it leads again once it does"


def test_leaders_that_were_not_in_sync_are_a_note_with_the_node_whose_log_has_them(tmp_path: Path) -> None:
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker:
        assert broker._broker is not None
        with Admin(broker.bootstrap) as admin:
            assert (admin.describe_quorum().unclean_elections, list(notes_of(look(admin)))) == (0, [])
            broker._broker.controller.unclean_election_count = 2
            assert admin.describe_quorum().unclean_elections == 2
            with RawClient(int(broker.bootstrap.rpartition(":")[2])) as other:  # kafka-python cannot read a tag that it does not know
                found = other.ask(DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])]), 2).topics[0].partitions[0]
            assert (found.leader_id, found.unclean_election_count) == (1, 0)
            [(note, way)] = notes_of(look(admin))
        assert note == "controller 1 has elected 2 leaders that were not in sync since its start: records may be lost"
        assert "`unclean_leader_elected`" in way
        done = CliRunner().invoke(cli, ["cluster", "health", "-B", broker.bootstrap])
        assert (done.exit_code, note in done.stdout) == (0, True)
        assert "1 leader that was not in sync" in str(list(notes_of(replace(WELL, unclean_elections=1))))
