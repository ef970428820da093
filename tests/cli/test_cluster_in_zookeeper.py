"""``ottla cluster start --zookeeper``: a cluster whose metadata is in a ZooKeeper beside its nodes, or in any other."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.cli.cluster_command import ClusterCommand, consecutive_ports, ottla
from tests.waiting import eventually

from ottla.runtime.zookeeper_server import ZooKeeperServer, four_letters
from ottla.sync import Admin, NewTopic


def children(parent: int, word: str) -> list[int]:
    """Returns the processes of that parent whose command line has the word."""
    listed = subprocess.run(["ps", "-wweo", "ppid=,pid=,args="], capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [found for line in listed if len(found := line.split(maxsplit=2)) == 3]
    return [int(row[1]) for row in rows if row[0] == str(parent) and word in row[2]]


@pytest.mark.slow
def test_a_cluster_with_a_zookeeper_of_its_own_is_killed_in_parts_and_resumed(tmp_path: Path) -> None:
    port = consecutive_ports(10)
    command = ClusterCommand(tmp_path / "place", "--port", str(port), port=port)
    with command.started("-n", "2", "--zookeeper", "own") as cluster:
        found = cluster.status()
        assert found["home"] == f"zookeeper 127.0.0.1:{port + 2}"
        assert [node["roles"] for node in found["nodes"]] == [["broker"], ["broker"]]
        assert sorted(node["controller"] for node in found["nodes"]) == ["active", "candidate"]
        outside = ottla("cluster", "status", "-B", cluster.bootstrap)
        assert outside.returncode == 0, outside.stderr
        assert sorted(line.split()[4] for line in outside.stdout.splitlines()[2:]) == ["active", "candidate"]
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 2, 2)]) == {"t": None}
        cluster.call("kill", str(found["active_controller"]))
        other = 3 - found["active_controller"]
        eventually(cluster.status, lambda now: now["active_controller"] == other)
        cluster.call("add")
        cluster.remember()
        assert "zookeeper.connect=127.0.0.1:" in (cluster.place / "node-3" / "server.properties").read_text()
        [shell] = children(cluster.supervisor.pid, "/bin/sh")
        os.kill(next(pid for pid in children(shell, "java")), signal.SIGKILL)
        eventually(lambda: cluster.status()["home"], lambda home: home == f"zookeeper 127.0.0.1:{port + 2} (ended)")
        said = cluster.errors.read_text()
        assert f"the ZooKeeper at 127.0.0.1:{port + 2} has ended (killed by signal 9)" in said
        assert f"then `ottla cluster start --data {cluster.place}` starts it again" in said
        cluster.call("stop")
        assert cluster.wait() == 0
    assert not four_letters("127.0.0.1", port + 2, "srvr")
    with ClusterCommand(tmp_path / "place", port=port).started() as cluster:
        with Admin(cluster.bootstrap) as admin:
            eventually(admin.list_topics, lambda topics: "t" in topics)
        cluster.call("stop")
        assert cluster.wait() == 0
    refused = ottla("cluster", "start", "--data", str(tmp_path / "place"), "--zookeeper", "127.0.0.1:1/other")
    assert refused.returncode != 0
    assert "keeps its metadata in the ZooKeeper at" in refused.stderr


@pytest.mark.slow
def test_a_zookeeper_that_is_not_there_is_named(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    options = ("-X", "zookeeper.connection.timeout.ms=500")
    place = ("--data", str(tmp_path / "place"))
    refused = ottla("cluster", "start", *place, "--zookeeper", f"127.0.0.1:{consecutive_ports(1)}", *options)
    assert refused.returncode != 0
    assert "does not answer within 500 ms" in refused.stderr
