"""Apache Kafka 4.3's own tools move a partition between three nodes, and give it back to its preferred leader."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cluster.processes import ClusterProcesses
from tests.interop.tools import run
from tests.waiting import eventually

TOOLS = "org.apache.kafka.tools."
TOOL_SECONDS_MAX = 60


def test_kafkas_tools_move_a_partition_and_its_leader(java: list[str], tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, auto_leader_rebalance_enable="false") as cluster:

        def ask(name: str, *arguments: str) -> str:
            return run(*java, TOOLS + name, "--bootstrap-server", cluster.nodes[1].bootstrap, *arguments, seconds_max=TOOL_SECONDS_MAX)

        def described() -> str:
            return ask("TopicCommand", "--describe", "--topic", "orders")

        ask("TopicCommand", "--create", "--topic", "orders", "--replica-assignment", "1:2")
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [3, 2]}]}))
        file = ("--reassignment-json-file", str(plan))
        assert "Successfully started partition reassignment" in ask("reassign.ReassignPartitionsCommand", *file, "--execute")
        verified = eventually(
            lambda: ask("reassign.ReassignPartitionsCommand", *file, "--verify"), lambda shown: "is completed" in shown
        )  # fmt: skip
        assert "Reassignment of partition orders-0 is completed" in verified
        assert re.search(r"Leader: [23]\s+Replicas: 3,2\s", described())

        cluster.nodes[3].restart()
        eventually(described, lambda shown: re.search(r"Leader: 2\s+Replicas: 3,2\s+Isr: (2,3|3,2)\s", shown) is not None)
        ask("LeaderElectionCommand", "--election-type", "preferred", "--topic", "orders", "--partition", "0")
        eventually(described, lambda shown: re.search(r"Leader: 3\s+Replicas: 3,2\s", shown) is not None)
        assert "orders" not in ask("TopicCommand", "--describe", "--under-replicated-partitions")
