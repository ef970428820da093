"""A broker that was alone, and that others have joined: it is their controller, and keeps no one waiting for it."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.processes import ClusterProcesses
from tests.foreign_clients.wire import RawClient
from tests.waiting import eventually

from ottla.messages.describe_cluster import DescribeClusterRequest


def standings(cluster: ClusterProcesses, *, include_fenced_brokers: bool) -> dict[int, bool]:
    """Whether each broker that the answer lists is fenced."""
    with RawClient(cluster.nodes[1].port) as client:
        answer = client.ask(DescribeClusterRequest(include_fenced_brokers=include_fenced_brokers), 2)
    return {broker.broker_id: broker.is_fenced for broker in answer.brokers}


def test_a_broker_that_died_while_its_only_controller_was_down_is_fenced_after_that_is_back(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, count=1, broker_session_timeout_ms="1500") as cluster:
        joined = cluster.add(4)
        assert standings(cluster, include_fenced_brokers=True) == {1: False, 4: False}
        joined.kill()
        cluster.nodes[1].kill()
        cluster.nodes[1].start()
        eventually(lambda: standings(cluster, include_fenced_brokers=True), lambda found: found == {1: False, 4: True})
        assert standings(cluster, include_fenced_brokers=False) == {1: False}
        joined.start()
        eventually(lambda: standings(cluster, include_fenced_brokers=False), lambda found: found == {1: False, 4: False})
