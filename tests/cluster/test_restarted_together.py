"""All nodes of a cluster are killed at once, and started again: nobody waits until sessions end of processes that have ended."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.cluster.processes import ClusterProcesses, quorum_only
from tests.waiting import eventually

from ottla.sync import Admin, NewTopic

FOREVER_MS = "600000"
"""A session that ends long after the test has given up."""


@quorum_only
def test_nodes_that_were_killed_together_are_taken_back_by_proof(tmp_path: Path) -> None:
    """No controller has seen anything of the earlier processes: who listens at their addresses is the proof."""
    with ClusterProcesses(tmp_path, broker_session_timeout_ms=FOREVER_MS) as cluster:
        cluster.add(4)
        nodes = cluster.nodes.values()
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 6, 3), NewTopic("single", 4, 1)]) == {"t": None, "single": None}
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none of them notices that another one dies
            for node in nodes:
                node.send_signal(number)
        for node in nodes:
            node.kill()
        written = {node: len(node.log()) for node in nodes}
        for node in nodes:
            node.spawn()
        for node in nodes:
            node.wait_until_ready()
        with Admin(cluster.bootstrap) as admin:
            eventually(
                lambda: [part.leader for name in ("t", "single") for part in admin.describe_topic(name).partitions.values()],
                lambda leaders: len(leaders) == 10 and -1 not in leaders,
            )
        events = [json.loads(line) for node in nodes for line in node.log()[written[node] :].splitlines() if line.startswith("{")]
        assert {event["broker_id"] for event in events if event["event"] == "broker_registered"} == {1, 2, 3, 4}
        assert [event for event in events if event["event"] == "broker_fenced"] == []
