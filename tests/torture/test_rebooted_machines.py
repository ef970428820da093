"""A machine that loses power and is back within its session: its connections do not end before something comes on them."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.processes import ClusterProcesses
from tests.cluster.test_evidence import events, watched_by_all
from tests.cluster.vanishing import VanishingNode

ROUNDS = 5


class VanishingCluster(ClusterProcesses):
    node_type = VanishingNode


def test_a_broker_is_taken_back_at_once_whose_connections_vanished_with_its_machine(tmp_path: Path) -> None:
    """Its earlier connections are asked on, at the latest when it is refused as a duplicate; the session, of a minute, does not end."""
    with VanishingCluster(tmp_path, broker_session_timeout_ms="60000") as cluster:
        broker = cluster.add(4)
        watched_by_all(cluster, 1)
        for count in range(1, ROUNDS + 1):
            broker.kill()
            broker.start()
            watched_by_all(cluster, count + 1)
            assert len(events(cluster, "broker_registered")) == count + 1
            assert [event for event in events(cluster, "broker_fenced") if event["reason"] == "its session has ended"] == []


def test_a_broker_that_lives_keeps_its_place_when_all_controllers_have_lost_power(tmp_path: Path) -> None:
    """Those find their own brokers by who listens at their addresses, and are heard from by the one that has lived through it."""
    with VanishingCluster(tmp_path, broker_session_timeout_ms="60000") as cluster:
        cluster.add(4)
        watched_by_all(cluster, 1)
        for count in range(1, ROUNDS + 1):
            for node in (1, 2, 3):
                cluster.nodes[node].kill()
            for node in (1, 2, 3):
                cluster.nodes[node].spawn()
            for node in (1, 2, 3):
                cluster.nodes[node].wait_until_ready()
            watched_by_all(cluster, count + 1)
            assert len(events(cluster, "broker_registered")) == 1
            assert [event for event in events(cluster, "broker_fenced") if event["reason"] == "its session has ended"] == []
