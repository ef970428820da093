"""``ottla cluster start --detach``, and what a new cluster begins with: it survives its first kill without an outage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.cluster_command import consecutive_ports, is_running, ottla
from tests.waiting import eventually

from ottla.cli.nodes.place import ClusterFile
from ottla.cli.nodes.plan import replicating, replication_of, voters_among
from ottla.sync import Admin, Producer


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Of a cluster that is stopped at the end, if it still runs."""
    place = tmp_path / "cluster"
    yield place
    ottla("cluster", "stop", "--data", str(place))


def started(place: Path, *options: str) -> Any:
    result = ottla("cluster", "start", "--detach", "--json", "--data", str(place), *options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.slow
def test_a_detached_cluster_gives_the_shell_back_survives_a_kill_and_is_stopped(place: Path) -> None:
    line = started(place, "--port", str(consecutive_ports(6)))
    again = ottla("cluster", "start", "--detach", "--data", str(place))
    assert (again.returncode, again.stdout) == (1, "")
    assert "already runs" in again.stderr
    with Admin(line["bootstrap"]) as admin, Producer(line["bootstrap"], acks="all") as producer:
        created = ottla("topic", "create", "orders", "-p", "3", "-B", line["bootstrap"])
        assert created.returncode == 0, created.stderr
        description = admin.describe_topic("orders")
        assert {len(partition.replicas) for partition in description.partitions.values()} == {3}
        assert admin.describe_config_of_topics(["orders"], "min.insync.replicas") == {"orders": "2"}
        assert ottla("cluster", "kill", "2", "--data", str(place)).returncode == 0
        for number in range(3):
            assert producer.send("orders", b"x", partition=number).result(60).partition == number
    pids = [pid for pid in line["nodes"].values() if is_running(pid)]
    assert len(pids) == 2
    stopped = ottla("cluster", "stop", "--data", str(place))
    assert stopped.returncode == 0, stopped.stderr
    eventually(lambda: [pid for pid in pids if is_running(pid)], lambda running: not running)
    assert "node 2 was killed" in (place / "supervisor.log").read_text()


def test_a_cluster_that_does_not_start_says_why_and_its_exit_code_says_that_it_did_not(place: Path) -> None:
    refused = ottla("cluster", "start", "--detach", "--data", str(place), "-X", "ssl.client.auth=required")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "would protect nothing" in refused.stderr
    assert not (place / "supervisor.log").exists()


@pytest.mark.parametrize(
    ("count", "factor", "min_isr", "says"),
    [
        (1, "1", "1", "replication factor 1, min.insync.replicas 1: no node may be down without an outage"),
        (
            2,
            "2",
            "1",
            "replication factor 2, min.insync.replicas 1: no node may be down without an outage (2 controllers must run)",
        ),
        (3, "3", "2", "replication factor 3, min.insync.replicas 2: 1 of 3 nodes may be down without an outage"),
        (4, "3", "2", "replication factor 3, min.insync.replicas 2: 1 of 4 nodes may be down without an outage"),
        (5, "3", "2", "replication factor 3, min.insync.replicas 2: 1 of 5 nodes may be down without an outage"),
    ],
)
def test_a_new_cluster_has_as_many_replicas_as_it_has_nodes_for(count: int, factor: str, min_isr: str, says: str) -> None:
    nodes, properties = list(range(count)), replicating(count)
    assert (properties["default.replication.factor"], properties["min.insync.replicas"]) == (factor, min_isr)
    assert {value for name, value in properties.items() if name.endswith("replication.factor")} == {factor}
    assert replication_of(ClusterFile("cluster", "id", nodes, voters_among(nodes), properties=properties)) == says
