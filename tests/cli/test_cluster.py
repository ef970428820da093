"""``ottla cluster``: nodes under a supervisor, each started, looked at, killed, added and stopped as a shell does it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.cluster_command import ClusterCommand, consecutive_ports, interrupt, ottla
from tests.waiting import eventually

from ottla.cli.chosen_cluster import described
from ottla.cli.nodes.place import Place, PlaceError, PlaceState
from ottla.cli.nodes.plan import replicating
from ottla.sync import Admin, Consumer, NewTopic, Producer, TopicPartition


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterCommand]:
    """Three nodes. Who kills one starts it again."""
    port = consecutive_ports(10)
    with ClusterCommand(tmp_path_factory.mktemp("cluster") / "place", "--port", str(port), port=port).started("-n", "3") as running:
        yield running
        running.call("stop")
        assert running.wait() == 0


def leaders(bootstrap: str, topic: str) -> list[int]:
    with Admin(bootstrap) as admin:
        return sorted(partition.leader for partition in admin.describe_topic(topic).partitions.values())


@pytest.mark.slow
def test_three_nodes_serve_at_consecutive_ports_and_status_says_what_the_cluster_says(cluster: ClusterCommand) -> None:
    first = cluster.port
    assert cluster.line["bootstrap"].split(",")[:3] == [f"127.0.0.1:{first + index}" for index in range(3)]
    found = cluster.status()
    assert found["supervisor_pid"] == cluster.supervisor.pid
    assert found["cluster_id"] == cluster.line["cluster_id"]
    voters = found["nodes"][:3]
    assert [(node["node"], node["roles"], node["process"], node["broker"]) for node in voters] == [
        (number, ["broker", "controller"], "serving", "alive") for number in (1, 2, 3)
    ]
    assert [node["controller"] for node in voters].count("active") == 1
    with Admin(cluster.line["bootstrap"]) as admin:
        assert found["active_controller"] == admin.describe_quorum().leader_id
        assert admin.describe_cluster().cluster_id == cluster.line["cluster_id"]
    table = ottla("cluster", "status", "--data", str(cluster.place)).stdout.splitlines()
    assert table[1].split() == ["NODE", "ROLES", "PID", "ADDRESS", "PROCESS", "BROKER", "CONTROLLER"]
    assert table[2].split()[:3] == ["1", "broker,controller", str(cluster.pids[1])]


@pytest.mark.slow
def test_a_cluster_is_asked_from_outside_too(cluster: ClusterCommand, tmp_path: Path) -> None:
    result = ottla("cluster", "status", "-B", cluster.bootstrap, "--format", "json")
    assert result.returncode == 0, result.stderr
    [found] = json.loads(result.stdout)["items"]
    assert found["cluster_id"] == cluster.line["cluster_id"]
    assert [node["address"] for node in found["nodes"]][:3] == cluster.line["bootstrap"].split(",")[:3]
    assert [node["controller"] for node in found["nodes"]].count("active") == 1
    assert {node["broker"] for node in found["nodes"]} == {"alive"}
    assert ottla("cluster", "status", "-B", "host:port").returncode == 2
    outside = ottla("cluster", "status", OTTLA_BOOTSTRAP=cluster.bootstrap, XDG_DATA_HOME=str(tmp_path))
    assert (outside.returncode, outside.stdout.split()[2:5]) == (0, ["NODE", "ADDRESS", "RACK"]), outside.stderr
    with_processes = ottla("cluster", "status", "--data", str(cluster.place), OTTLA_BOOTSTRAP="127.0.0.1:1")
    assert (with_processes.returncode, "PID" in with_processes.stdout) == (0, True), "--data takes precedence"
    (tmp_path / "ottla").mkdir()
    (tmp_path / "ottla" / "cluster").symlink_to(cluster.place)  # the place of a cluster without --data
    for address, is_shown in ((cluster.bootstrap.split(",")[1], True), ("127.0.0.1:1", False)):
        named = ottla("cluster", "status", OTTLA_BOOTSTRAP=address, XDG_DATA_HOME=str(tmp_path))
        assert ("PID" in named.stdout) == is_shown, named.stderr


@pytest.mark.slow
def test_the_directory_of_a_cluster_has_readable_state_settings_and_logs(cluster: ClusterCommand) -> None:
    state = json.loads((cluster.place / "state.json").read_text())
    assert state["supervisor_pid"] == cluster.supervisor.pid
    assert {node["node_id"]: node["pid"] for node in state["nodes"]} == cluster.pids
    assert "controller.quorum.voters=1@127.0.0.1:" in (cluster.place / "node-1" / "server.properties").read_text()
    assert "broker_started" in (cluster.place / "node-1" / "node.log").read_text()
    assert (cluster.place / "control.sock").stat().st_mode & 0o077 == 0


def test_a_second_start_is_refused_with_the_way_out(cluster: ClusterCommand) -> None:
    before = cluster.pids
    text = cluster.refused("start")
    assert "already runs" in text
    assert f"ottla cluster stop --data {cluster.place}" in text
    assert cluster.pids == before


@pytest.mark.slow
def test_the_active_controller_is_killed_and_another_one_is_active(cluster: ClusterCommand) -> None:
    active = cluster.status()["active_controller"]
    pid = cluster.pids[active]
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("led-by-all", 3, 1)]) == {"led-by-all": None}
    assert cluster.call("kill", str(active)) == f"node {active} was killed\n"
    killed = cluster.node(active)
    assert (killed["process"], killed["pid"]) == ("killed", None)
    after = eventually(cluster.status, lambda found: found["active_controller"] not in (None, active))
    assert after["active_controller"] in {1, 2, 3} - {active}
    assert f"node {active} was killed (SIGKILL)" in cluster.errors.read_text()
    eventually(lambda: cluster.node(active)["broker"], lambda state: state == "fenced")
    described = ottla("topic", "describe", "led-by-all", "-B", cluster.bootstrap, "--format", "json")
    assert described.returncode == 0, described.stderr
    orphan = [found for found in json.loads(described.stdout)["items"][0]["partitions"] if found["replicas"] == [active]]
    assert [(found["leader"], found["end_offset"]) for found in orphan] == [(None, None)]
    assert f"node {active} does not run: it was killed (SIGKILL)" in cluster.refused("kill", str(active))
    cluster.call("restart", str(active))
    assert cluster.node(active)["process"] == "serving"
    assert cluster.pids[active] != pid


@pytest.mark.slow
def test_a_node_is_stopped_in_order_and_started_again(cluster: ClusterCommand) -> None:
    cluster.call("stop", "3")
    assert cluster.node(3)["process"] == "stopped"
    eventually(lambda: cluster.node(3)["broker"], lambda state: state == "fenced")  # as the broker that is asked has heard by then
    assert list((cluster.place / "node-3" / "data").glob(".kafka_cleanshutdown"))
    cluster.call("restart", "3")
    assert cluster.node(3)["process"] == "serving"
    eventually(lambda: cluster.node(3)["broker"], lambda state: state == "alive")


@pytest.mark.slow
def test_a_node_that_sigstop_has_stopped_is_shown_as_such_and_stops_at_once(cluster: ClusterCommand) -> None:
    """It was shown as one that serves, and to be started; its stop printed nothing for 50 s."""
    pid = cluster.pids[3]
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: cluster.node(3)["process"], lambda process: process == "stopped (SIGSTOP)")
    eventually(lambda: cluster.node(3)["broker"], lambda broker: broker == "fenced")
    health = ottla("cluster", "health", "--data", str(cluster.place))
    assert f"continue broker 3 (`kill -CONT {pid}`)" in health.stdout
    assert "start broker 3" not in health.stdout
    said = cluster.call("stop", "3")
    way = "it is continued (SIGCONT), to stop in order; a node that has not ended 50 s after the order is killed (SIGKILL)"
    assert said == f"ottla: process {pid} of node 3 is stopped (SIGSTOP): {way}\nnode 3 has stopped\n"
    assert cluster.node(3)["process"] == "stopped"
    cluster.call("restart", "3")
    eventually(lambda: cluster.node(3)["broker"], lambda state: state == "alive")


@pytest.mark.slow
def test_an_added_broker_gets_partitions_of_new_topics(cluster: ClusterCommand) -> None:
    """Mechanism 8."""
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("old", 4, 1)]) == {"old": None}
    assert cluster.call("add").startswith("node 4 has joined and serves at 127.0.0.1:")
    added = eventually(lambda: cluster.node(4), lambda node: node["broker"] == "alive")
    assert (added["roles"], added["controller"]) == (["broker"], None)
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("new", 4, 1)]) == {"new": None}
    assert leaders(cluster.bootstrap, "new") == [1, 2, 3, 4]
    assert 4 not in leaders(cluster.bootstrap, "old")


@pytest.mark.slow
def test_a_broker_is_removed_for_good_and_its_id_is_not_given_again(cluster: ClusterCommand) -> None:
    assert "the quorum keeps its voters" in cluster.refused("remove", "1")
    assert "there is no node 99" in cluster.refused("remove", "99")
    joined = cluster.call("add")
    added = int(joined.split()[1])
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("held", assignments={0: [added]})]) == {"held": None}
        assert f"node {added} holds 1 replica: " in cluster.refused("remove", str(added))
        assert cluster.node(added)["process"] == "serving", "a removal that is refused stops nothing"
        admin.delete_topics(["held"])
    removed = cluster.call("remove", str(added))
    assert removed == f"node {added} was removed; its directory {cluster.place / f'node-{added}'} is kept\n"
    assert added not in [node["node"] for node in cluster.status()["nodes"]]
    with Admin(cluster.bootstrap) as admin:
        assert added not in [node.node_id for node in admin.describe_cluster(include_fenced=True).nodes]
    assert cluster.call("add").startswith(f"node {added + 1} has joined")
    cluster.call("stop", str(added + 1))
    with Admin(cluster.bootstrap) as admin:
        admin.unregister_broker(added + 1)
    assert cluster.node(added + 1)["broker"] == "unregistered"
    cluster.call("remove", str(added + 1), "--delete-data")
    assert [(cluster.place / f"node-{number}").exists() for number in (added, added + 1)] == [True, False]


@pytest.mark.slow
def test_a_node_that_is_not_there_is_named(cluster: ClusterCommand) -> None:
    for command in ("kill", "stop", "restart"):
        assert cluster.refused(command, "9").startswith("ottla: there is no node 9; the nodes are 1, 2, 3")


@pytest.mark.slow
def test_ctrl_c_stops_all_nodes_and_the_next_start_resumes_them(tmp_path: Path) -> None:
    port = consecutive_ports(4)
    with ClusterCommand(tmp_path / "place", port=port).started("-n", "2", "--port", str(port)) as cluster:
        before, first = cluster.bootstrap, cluster.pids
        assert [os.getsid(pid) for pid in first.values()] == list(first.values()), "Ctrl-C is for the supervisor alone"
        with Admin(before) as admin:
            assert admin.create_topics([NewTopic("t", 2, 1)]) == {"t": None}
        with Producer(before) as producer:
            assert [producer.send("t", b"kept", partition=index).result(10).offset for index in (0, 1)] == [0, 0]
        interrupt(cluster.supervisor)
        assert cluster.wait() == 0
        assert len(list(cluster.place.glob("node-*/data/.kafka_cleanshutdown"))) == 2
        assert not (cluster.place / "state.json").exists()
        assert "does not run; `ottla cluster start` resumes it" in cluster.refused("status")
        assert "no cluster runs in" in cluster.refused("stop")
        cluster.started()
        assert cluster.bootstrap == before
        assert not set(cluster.pids.values()) & set(first.values())
        with Consumer(before, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
            read: list[bytes | None] = []
            while len(read) < 2:
                read += [record.value for record in consumer.poll(10_000)]
        assert read == [b"kept", b"kept"]
        cluster.supervisor.terminate()
        assert cluster.wait() == 0


@pytest.mark.slow
def test_nodes_end_with_a_supervisor_that_was_killed_and_the_next_start_waits_for_them(tmp_path: Path) -> None:
    port = consecutive_ports(4)
    with ClusterCommand(tmp_path / "place", "-X", "num.partitions=3", port=port).started("-n", "2", "--port", str(port)) as cluster:
        pids = cluster.pids
        os.kill(pids[2], signal.SIGSTOP)  # the slow one
        cluster.supervisor.kill()
        cluster.supervisor.wait()
        assert f"its supervisor {cluster.supervisor.pid} was killed" in cluster.refused("status")
        assert (cluster.place / "state.json").exists()
        os.kill(pids[2], signal.SIGCONT)
        cluster.started()
        assert not set(cluster.pids.values()) & set(pids.values())
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t")]) == {"t": None}
        assert len(leaders(cluster.bootstrap, "t")) == 3  # by -X of the first start
        cluster.supervisor.kill()
        cluster.supervisor.wait()
        cluster.wait_for_nodes()


@pytest.mark.slow
def test_a_killed_node_is_started_again_where_that_is_asked_for_and_a_second_ctrl_c_kills(tmp_path: Path) -> None:
    port = consecutive_ports(4)
    with ClusterCommand(tmp_path / "place", "--restart", port=port).started("-n", "1", "--port", str(port)) as cluster:
        pid = cluster.pids[1]
        cluster.call("kill", "1")
        eventually(lambda: cluster.node(1)["process"], lambda state: state == "serving")
        assert cluster.pids[1] != pid
        assert "node 1 was killed (SIGKILL); it is started again in 1 s" in cluster.errors.read_text()
        assert "started with one node" in cluster.refused("add")
        cluster.remember()
        os.kill(cluster.pids[1], signal.SIGSTOP)  # it cannot stop in order
        interrupt(cluster.supervisor)
        eventually(cluster.errors.read_text, lambda text: "stopping 1 node; a second Ctrl-C kills" in text)
        interrupt(cluster.supervisor)
        assert cluster.wait() == 0
        assert "killing the nodes that still run" in cluster.errors.read_text()


@pytest.mark.slow
def test_a_node_that_cannot_start_ends_the_others_and_has_the_last_word(tmp_path: Path) -> None:
    port = consecutive_ports(4)
    with ClusterCommand(tmp_path / "place", port=port).started("-n", "2", "--port", str(port)) as cluster:
        cluster.call("stop")
        assert cluster.wait() == 0
        shutil.rmtree(cluster.place / "node-2" / "data")
        text = cluster.refused("start")
        assert "node 2 ended with exit code 1" in text
        assert "is not formatted" in text
        assert "does not run" in cluster.refused("status")


@pytest.mark.slow
def test_a_cluster_needs_none_of_its_standard_streams(tmp_path: Path) -> None:
    port, place = consecutive_ports(4), tmp_path / "place"
    start = f"{sys.executable} -m ottla cluster start -n 1 --port {port} --data {place} <&- >&- 2>&-"
    shell = subprocess.Popen(["sh", "-c", f"exec {start}"])
    try:
        eventually(lambda: ottla("cluster", "status", "--data", str(place)).stdout, lambda text: "serving" in text)
        assert ottla("cluster", "stop", "--data", str(place)).returncode == 0
        assert shell.wait(60) == 0
    finally:
        shell.kill()
        shell.wait()


@pytest.mark.slow
def test_without_a_majority_of_controllers_produce_says_so_and_topics_are_described_without_offsets(tmp_path: Path) -> None:
    port = consecutive_ports(10)
    with ClusterCommand(tmp_path / "place", "--port", str(port), port=port).started("-n", "3") as cluster:
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", assignments={0: [2, 1, 3]})]) == {"t": None}
        for node in ("3", "2"):
            cluster.call("kill", node)
        command = [sys.executable, "-m", "ottla", "produce", "t", "-B", f"127.0.0.1:{port}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write("x\n")
            process.stdin.close()
            waiting, line = process.stderr.readline(), process.stderr.readline()
            process.kill()
        assert waiting.startswith("ottla: waiting: 1 record, of 1 so far, is not written yet; `ottla cluster health` says")
        assert "no majority of the controllers seems to run; `ottla cluster health` says what to start" in line
        described = ottla("topic", "describe", "t", "-B", f"127.0.0.1:{port}")
        assert ["0", "2", "-", "-"] in [[*line.split()[:2], *line.split()[-2:]] for line in described.stdout.splitlines()]
        assert "the offsets of 1 partition that it leads are not shown: broker 2 cannot be reached" in described.stderr
        unavailable = ottla("topic", "describe", "--unavailable", "-B", f"127.0.0.1:{port}", "--json")
        assert ("t", 0, 2) in [(row["topic"], row["partition"], row["leader"]) for row in json.loads(unavailable.stdout)["items"]]
        assert "broker 2 takes no connection at 127.0.0.1:" in unavailable.stderr
        moving = ottla("topic", "describe", "--under-replicated", "-B", f"127.0.0.1:{port}")
        assert "replicas that are being moved count as missing: no controller is active" in moving.stderr
        for done in (described, unavailable, moving):
            assert (done.returncode, "ottla cluster health" in done.stderr, "ottla dev" in done.stderr) == (1, True, False), done.stderr
        cluster.call("stop")


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    port = consecutive_ports(6)
    with socket.create_server(("127.0.0.1", port + 2)):
        refused = ottla("cluster", "start", "-n", "3", "--port", str(port), "--data", str(tmp_path / "place"))
    assert refused.returncode == 1
    assert f"port {port + 2} is in use by another program; stop it, or start with --port 0" in refused.stderr
    assert not (tmp_path / "place" / "cluster.json").exists(), "a place that never served is new"


def test_the_way_out_of_a_place_in_use_can_be_copied_where_its_path_has_blanks(tmp_path: Path) -> None:
    place, other = Place(str(tmp_path / "my data")), Place(str(tmp_path / "my data"))
    place.lock()
    place.write_state(PlaceState("id", 1, "localhost:9092", []))
    with pytest.raises(PlaceError, match=re.escape(f"`ottla cluster stop --data '{tmp_path / 'my data'}'` stops it")):
        other.lock()


def test_without_a_port_a_cluster_takes_free_ones_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = consecutive_ports(12)
    monkeypatch.setattr("ottla.cli.nodes.plan.FIRST_PORT", first)
    place = Place(str(tmp_path))
    with socket.create_server(("127.0.0.1", first + 1)):
        made, is_new = described(place, None, None, ())
        assert is_new
        assert made.ports == {1: first + 2, 2: first + 3, 3: first + 4}
        assert made.controller_ports == {1: first + 5, 2: first + 6, 3: first + 7}
    said = capsys.readouterr().err
    assert said == f"ottla: port {first} or one of the 5 that follow is in use; the nodes use {first + 2} to {first + 7}\n"
    assert described(place, None, None, ())[0].ports[1] == first
    assert capsys.readouterr().err == ""


def test_a_cluster_that_is_there_keeps_its_size_and_its_ports(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    made, _ = described(place, 2, 15_000, ("num.partitions=3",))
    place.write(made)
    found, is_new = described(place, None, None, ("log.retention.hours=1",))
    assert not is_new
    assert found.properties == replicating(2) | {"num.partitions": "3", "log.retention.hours": "1"}
    assert described(place, 2, 15_000, ())[0].ports == made.ports
    with pytest.raises(PlaceError, match="has a cluster of 2 nodes, not 3: start it without -n"):
        described(place, 3, None, ())
    with pytest.raises(PlaceError, match="has the ports from 15000 on; start it without --port"):
        described(place, None, 16_000, ())


def test_a_cluster_that_is_there_takes_other_ports_with_port_0_if_its_own_are_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = consecutive_ports(12)
    monkeypatch.setattr("ottla.cli.nodes.plan.FIRST_PORT", first)
    place = Place(str(tmp_path))
    made, _ = described(place, None, 0, ())
    place.write(made)
    assert described(place, None, 0, ())[0].ports == made.ports == {1: first, 2: first + 1, 3: first + 2}
    with socket.create_server(("127.0.0.1", first + 3)):
        found, is_new = described(place, None, 0, ())
    assert not is_new
    assert found.cluster_id == made.cluster_id
    assert found.ports == {1: first + 4, 2: first + 5, 3: first + 6}
    assert found.controller_ports == {1: first + 7, 2: first + 8, 3: first + 9}


def test_a_directory_of_something_else_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    refused = ottla("cluster", "start", "--data", str(tmp_path))
    assert refused.returncode == 1
    assert "has holiday.jpg and is no cluster's directory; choose a new or empty one" in refused.stderr


@pytest.mark.parametrize(("given", "why"), [("node.id=7", "differs from node to node"), ("num.partitions=x", "num.partitions")])
def test_a_key_that_no_node_could_start_with_is_refused_before_any_does(tmp_path: Path, given: str, why: str) -> None:
    refused = ottla("cluster", "start", "-X", given, "--data", str(tmp_path / "place"))
    assert refused.returncode == 1
    assert why in refused.stderr
    assert not (tmp_path / "place" / "cluster.json").exists()


@pytest.mark.slow
def test_without_a_cluster_each_command_says_how_to_make_one(tmp_path: Path) -> None:
    assert "`ottla cluster start` makes one" in ottla("cluster", "status", "--data", str(tmp_path)).stderr
    for command in ("stop", "add"):
        refused = ottla("cluster", command, "--data", str(tmp_path / "nowhere"))
        assert refused.returncode == 1
        assert "no cluster runs in" in refused.stderr


@pytest.mark.slow
def test_a_lost_directory_is_named_with_what_brings_the_node_back(tmp_path: Path) -> None:
    """A controller and a broker; and an addition in vain leaves nothing, whether it is refused at once or fails later."""
    port = consecutive_ports(10)
    with ClusterCommand(tmp_path / "place", "--port", str(port), port=port).started("-n", "3") as cluster:
        cluster.call("add")
        for node, why in (("4", ""), ("2", "only while all others run, and lack nothing (`ottla quorum`)")):
            cluster.call("kill", node)
            shutil.rmtree(cluster.place / f"node-{node}")
            refused = cluster.refused("restart", node)
            assert f"the log directory of node {node} is lost: {cluster.place}/node-{node}/data" in refused
            assert (why in refused, "has lost its votes" in refused) == (True, node == "2"), refused
            command = re.search("`ottla (storage format [^`]*)`, then `ottla cluster restart", refused)
            assert command is not None, refused
            assert ottla(*command[1].split()).returncode == 0
            assert f"node {node} serves" in cluster.call("restart", node)

        with subprocess.Popen(
            [sys.executable, "-m", "ottla", "cluster", "add", "--data", str(cluster.place)], stderr=subprocess.PIPE, text=True
        ) as adding:
            [pid] = eventually(lambda: processes_of(cluster.place, 5), lambda pids: len(pids) == 1)
            os.kill(pid, signal.SIGKILL)
            assert adding.stderr is not None
            assert "node 5 was killed" in adding.stderr.read()
        assert adding.returncode == 1
        (cluster.place / "node-6").touch()
        assert "node-6 is there already, and is no node's" in cluster.refused("add")
        for node in ("2", "3"):
            cluster.call("kill", node)
        without = cluster.refused("add")
        assert "nothing was added, which takes an active controller: of 3 controllers 2 must run, and nodes 2, 3 do not run" in without
        assert "; `ottla cluster restart 2` and `ottla cluster restart 3`, then add again" in without
        assert [node["node"] for node in cluster.status()["nodes"]] == [1, 2, 3, 4]
        assert sorted(path.name for path in cluster.place.glob("node-*")) == ["node-1", "node-2", "node-3", "node-4", "node-6"]
        (cluster.place / "node-6").unlink()
        cluster.call("restart", "2")
        assert cluster.call("add").startswith("node 6 has joined"), "the id of a node that failed is not given again"
        cluster.call("stop")


def processes_of(place: Path, node_id: int) -> list[int]:
    """The process of the node, from its start on."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            if str(place) in words and f"node-{node_id}" in words:
                found.append(int(path.parent.name))
    return found
