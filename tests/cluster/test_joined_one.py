"""A broker that is the only voter, and that others have joined: it is their controller, and keeps no one waiting for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicas import assert_replicas_are_equal, create, leaders, produce, wait_for_in_sync, wait_for_leader
from tests.foreign_clients.wire import RawClient
from tests.waiting import eventually

from ottla.errors import ErrorCode
from ottla.messages.describe_cluster import DescribeClusterRequest
from ottla.sync import Admin
from ottla.types import TopicPartition


def standings(cluster: ClusterProcesses, *, include_fenced_brokers: bool) -> dict[int, bool]:
    """Whether each broker that the answer lists is fenced."""
    with RawClient(cluster.nodes[1].port) as client:
        answer = client.ask(DescribeClusterRequest(include_fenced_brokers=include_fenced_brokers), 2)
    return {broker.broker_id: broker.is_fenced for broker in answer.brokers}


@pytest.mark.slow
def test_a_broker_that_died_while_its_only_controller_was_down_is_fenced_after_that_is_back(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, count=1, broker_session_timeout_ms="1500") as cluster:
        joined = cluster.add(4)
        eventually(lambda: standings(cluster, include_fenced_brokers=True), lambda found: found == {1: False, 4: False})
        joined.kill()
        cluster.nodes[1].kill()
        cluster.nodes[1].start()
        eventually(lambda: standings(cluster, include_fenced_brokers=True), lambda found: found == {1: False, 4: True})
        assert standings(cluster, include_fenced_brokers=False) == {1: False}
        joined.start()
        eventually(lambda: standings(cluster, include_fenced_brokers=False), lambda found: found == {1: False, 4: False})


@pytest.mark.slow
def test_its_partitions_are_replicated_as_any_others(tmp_path: Path) -> None:
    """Leaders and followers on both sides; the only controller dies, too, and everything goes on when it is back."""
    with ClusterProcesses(tmp_path, count=1, offsets_topic_replication_factor="1") as cluster, Admin(cluster.nodes[1].bootstrap) as admin:
        cluster.add(4)
        cluster.add(5)
        create(cluster, admin, "t", [[1, 4, 5], [4, 5, 1]], min_insync_replicas="2")
        for index, leader in enumerate((1, 4)):
            assert produce(cluster, leader, "t", b"three", index=index).error_code == ErrorCode.NONE
        cluster.nodes[4].kill()
        leader = eventually(lambda: leaders(admin, "t")[1], lambda found: found in (1, 5))  # 1, where the others came seconds later
        wait_for_leader(admin, "t", leader, 1, of=cluster)
        assert produce(cluster, leader, "t", b"two", index=1).error_code == ErrorCode.NONE
        cluster.nodes[4].start()
        wait_for_in_sync(admin, "t", {1, 4, 5}, 1)
        elected = TopicPartition("t", 1)
        assert admin.elect_leaders([elected]) == {elected: None}
        wait_for_leader(admin, "t", 4, 1, of=cluster)
        cluster.nodes[1].kill()
        assert produce(cluster, 4, "t", b"without a controller", acks=1, index=1).error_code == ErrorCode.NONE
        cluster.nodes[1].start()
        assert_replicas_are_equal(cluster, admin, "t")
