"""Apache Kafka 4.3's own tools move a partition between three nodes, and give it back to its preferred leader."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cluster.processes import ClusterProcesses
from tests.interop.tools import run
from tests.waiting import eventually

from ottla.sync import Admin, Broker, ConfigSource, NewTopic, Producer, Topic

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


def test_kafkas_tool_throttles_a_move_and_takes_the_throttle_away_again(java: list[str], tmp_path: Path) -> None:
    """``--execute --throttle``, which other values replace while it runs, and ``--verify`` (KIP-73)."""
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.bootstrap) as admin:

        def ask(*arguments: str) -> str:
            command = TOOLS + "reassign.ReassignPartitionsCommand"
            plan = ("--bootstrap-server", cluster.nodes[1].bootstrap, "--reassignment-json-file", str(file))
            return run(*java, command, *plan, *arguments, seconds_max=TOOL_SECONDS_MAX)

        def throttles() -> set[tuple[str, str | None]]:
            found = [*(Broker(node) for node in (1, 2, 3)), Topic("orders")]
            return {
                (config.name, config.value)
                for resource in found
                for config in admin.describe_configs(resource).values()
                if ".throttled." in config.name and config.source in (ConfigSource.TOPIC, ConfigSource.BROKER)
            }

        assert admin.create_topics([NewTopic("orders", assignments={0: [1, 2]})]) == {"orders": None}
        with Producer(cluster.bootstrap) as producer:
            for future in [producer.send("orders", b"x" * 10_000, partition=0) for _ in range(600)]:
                future.result(30)
        file = tmp_path / "plan.json"
        file.write_text(json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [3, 2]}]}))
        shown = ask("--execute", "--throttle", "1")
        assert "Successfully started partition reassignment" in shown
        assert throttles() == {
            *((f"{side}.replication.throttled.rate", "1") for side in ("leader", "follower")),
            ("leader.replication.throttled.replicas", "0:1,0:2"),
            ("follower.replication.throttled.replicas", "0:3"),
        }
        assert "is still in progress" in ask("--verify")
        assert "Successfully started" in ask("--execute", "--additional", "--throttle", "100000000")
        eventually(lambda: ask("--verify"), lambda found: "is completed" in found)
        eventually(throttles, lambda found: found == set())
