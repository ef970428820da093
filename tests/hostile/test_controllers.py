"""Strangers at the controllers' listener of three nodes, and at what brokers ask of each other.

After every case all three nodes live and an honest client is served; after all of them the cluster makes topics, in an epoch that elections
can have reached, and starts again. ``make test`` tries a part, ``OTTLA_HOSTILE=all`` everything.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from tests.cluster.processes import IS_IN_ZOOKEEPER, ClusterProcesses
from tests.foreign_clients.broker_process import BrokerProcess
from tests.hostile import leaves
from tests.hostile.case import FRAME_BYTES_MAX, Case
from tests.hostile.cases import all_cases
from tests.hostile.judge import Judge
from tests.hostile.quorum import quorum_cases

from ottla import sync
from ottla.consensus.calls import SnapshotId

pytestmark = pytest.mark.skipif(IS_IN_ZOOKEEPER, reason="the controllers' listener is a quorum's")

STRIDE = 1 if os.environ.get("OTTLA_HOSTILE") == "all" else 4
"""Every so many of the cases that are many; those of the quorum are tried three times as often."""
EPOCH_MAX = 100_000
RECOVERY_SECONDS_MAX = 30.0


class ClusterJudge:
    """Three nodes, one of which is spoken to: the honest client's partition is led there."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.cluster = cluster
        self.asked = self.controller()
        with sync.Admin(cluster.bootstrap) as admin:
            for number in range(12):
                assert set(admin.create_topics([sync.NewTopic(f"fill-{number}", 3)]).values()) == {None}
        self.judge = Judge(self.node, node_id=self.asked)

    @property
    def node(self) -> BrokerProcess:
        return self.cluster.nodes[self.asked]

    def controller_port(self, node_id: int) -> int:
        return int(self.cluster.voters.split(",")[node_id - 1].rsplit(":", 1)[1])

    def controller(self) -> int:
        """The active controller, which is elected within a while."""
        deadline = time.monotonic() + RECOVERY_SECONDS_MAX
        while (found := self.cluster.controller) < 0:
            assert time.monotonic() < deadline, "there is a controller again"
        return found

    def snapshots(self) -> list[SnapshotId]:
        """Those that the node that is spoken to has on its disk."""
        names = [path.stem.split("-") for path in (self.node.data / "__cluster_metadata-0").glob("*-*.checkpoint")]
        return [SnapshotId(int(epoch), int(end_offset)) for end_offset, epoch in names]

    def try_case(self, case: Case, port: int) -> None:
        try:
            self.judge.try_case(case, port=port)
        finally:
            for node_id, node in self.cluster.nodes.items():
                assert node.is_running, f"{case.name} ended node {node_id}:\n{node.log()[-3000:]}"

    def assert_cluster_is_whole(self, name: str) -> None:
        """A topic is made, with a replica on each node, and the epoch is one that elections can have reached."""
        deadline = time.monotonic() + RECOVERY_SECONDS_MAX
        while True:
            with sync.Admin(self.cluster.bootstrap) as admin:
                made = admin.create_topics([sync.NewTopic(name, 1, 3)])
            if set(made.values()) == {None}:
                break
            assert time.monotonic() < deadline, made
        assert self.cluster.quorum(self.asked).leader_epoch < EPOCH_MAX


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterJudge]:
    with ClusterProcesses(
        tmp_path_factory.mktemp("hostile"),
        socket_request_max_bytes=str(FRAME_BYTES_MAX),
        auto_create_topics_enable="false",
        metadata_log_max_record_bytes_between_snapshots="2000",
    ) as cluster:
        yield ClusterJudge(cluster)


def frames_and_bodies() -> list[Case]:
    """The table of the brokers' listener; here most of it is an API that is not served."""
    return all_cases()


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_every_bad_input_of_the_brokers_listener_at_the_controllers(judge: ClusterJudge) -> None:
    port = judge.controller_port(judge.asked)
    for case in frames_and_bodies()[:: STRIDE * 2 if STRIDE > 1 else 1]:
        judge.try_case(case, port)
    judge.assert_cluster_is_whole("after-bad-inputs")


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_one_hostile_value_in_each_request_that_controllers_serve(judge: ClusterJudge) -> None:
    port = judge.controller_port(judge.asked)
    for case in list(leaves.of_controllers())[::STRIDE]:
        judge.try_case(case, port)
    judge.assert_cluster_is_whole("after-hostile-values")


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_one_hostile_value_in_each_request_between_brokers(judge: ClusterJudge) -> None:
    for case in list(leaves.of_brokers())[:: max(1, STRIDE // 2)]:
        judge.try_case(case, judge.node.port)
    judge.assert_cluster_is_whole("after-brokers")


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_forged_quorum_requests_end_no_node_and_the_cluster_restarts(judge: ClusterJudge) -> None:
    first = judge.cluster.quorum(judge.asked)
    leader = judge.controller()
    others = tuple(node for node in (1, 2, 3) if node != leader)
    count = len(list(quorum_cases(first.leader_epoch, leader, (others[0], others[1]), judge.snapshots())))
    for number in range(0, count, max(1, STRIDE // 3)):
        found = judge.cluster.quorum(judge.asked)  # an epoch that was believed ends the one before
        cases = list(quorum_cases(max(0, found.leader_epoch), leader, (others[0], others[1]), judge.snapshots()))
        if number < len(cases):
            judge.try_case(cases[number], judge.controller_port((leader, *others)[number % 3]))
    judge.assert_cluster_is_whole("after-forged-words")
    for node in judge.cluster.nodes.values():
        node.kill()
    for node in judge.cluster.nodes.values():
        node.spawn()
    for node in judge.cluster.nodes.values():
        node.wait_until_ready()
    judge.assert_cluster_is_whole("after-a-restart")
