"""A fixed share of what ``tests/torture`` does many times: a node that pauses, links that are cut, power that is cut, each under load.

Every trouble lasts until the others have noticed: no node is paused or cut off for a time that was chosen. Disks and links that can be
cut take root, loop devices and network namespaces; where a machine does not give them, only the pause is tried.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.links import Hosts, LinkedCluster
from tests.cluster.power import Disk, PoweredNode
from tests.cluster.processes import ClusterProcesses, quorum_only
from tests.cluster.replicated_killing import ALL, run, run_cuts_of_all
from tests.waiting import eventually

from ottla.errors import KafkaError
from ottla.sync import Admin

SESSION_MS = 1_000


class Pausing(ClusterProcesses):
    """A broker that is not the controller stops for longer than its session, and goes on."""

    def pause(self) -> None:
        victim, asked = self.one_and_another()
        self.nodes[victim].send_signal(signal.SIGSTOP)
        self.wait_for(asked, ALL - {victim})
        self.nodes[victim].send_signal(signal.SIGCONT)
        self.wait_for(asked, ALL)

    def one_and_another(self) -> tuple[int, int]:
        """A broker, and another one that is the controller."""
        active = eventually(lambda: self.controller, lambda found: found in ALL)
        return min(ALL - {active}), active

    def wait_for(self, asked: int, serving: set[int]) -> None:
        """These brokers are not fenced, and no other one is."""

        def found() -> set[int]:
            try:
                with Admin(self.nodes[asked].bootstrap) as admin:
                    return {node.node_id for node in admin.describe_cluster().nodes}
            except KafkaError:
                return set()

        eventually(found, lambda nodes: nodes == serving)


class Troubled(Pausing, LinkedCluster):
    """Nodes on hosts of their own, with disks of their own: ``kill`` is a power cut."""

    node_type = PoweredNode

    def cut_links(self) -> None:
        """What a broker says to the others arrives nowhere, and it hears all of them."""
        victim, asked = self.one_and_another()
        for other in ALL - {victim}:
            self.hosts.cut(victim, other)
        self.wait_for(asked, ALL - {victim})
        self.hosts.heal()
        self.wait_for(asked, ALL)

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            for node in self.nodes.values():
                assert isinstance(node, PoweredNode)
                node.disk.unmount()


def why_not(directory: Path) -> str | None:
    """Why this machine does not let power and links be cut."""
    try:
        Disk(directory).unmount()
        Hosts([1]).remove()
    except (AssertionError, OSError) as error:
        return str(error)
    return None


@quorum_only
@pytest.mark.slow
def test_a_pause_cut_links_and_a_power_cut_lose_and_double_nothing_and_the_replicas_are_equal(tmp_path: Path) -> None:
    """Mechanisms 26, 30, 38: on other timeouts than the defaults, so that a session ends soon."""
    session = {"broker_session_timeout_ms": str(SESSION_MS), "broker_heartbeat_interval_ms": str(SESSION_MS // 4)}
    reason = why_not(tmp_path / "disk")
    if reason is None:
        print(run(tmp_path, kill_count=3, make=Troubled, kinds=("pause", "cut_links", "controller"), **session))
    else:
        print(run(tmp_path, kill_count=1, make=Pausing, kinds=("pause",), **session))
        pytest.skip(f"links and power are not cut here: {reason}")


@quorum_only
@pytest.mark.slow
def test_a_power_cut_of_all_nodes_at_once_loses_nothing_that_was_synced_before_it_was_acknowledged(tmp_path: Path) -> None:
    """Mechanisms 19, 46, 50: with flush.messages=1."""
    reason = why_not(tmp_path / "disk")
    if reason is not None:
        pytest.skip(f"power is not cut here: {reason}")
    print(run_cuts_of_all(tmp_path, cut_count=1))
