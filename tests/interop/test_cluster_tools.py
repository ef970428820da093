"""Apache Kafka 4.3's own tools against three nodes: they ask a broker that is not the controller, and read what the quorum wrote."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.cluster.processes import CLUSTER_ID, ClusterProcesses
from tests.interop.tools import run

TOOLS = "org.apache.kafka.tools."
TOOL_SECONDS_MAX = 60


def test_tools_see_the_quorum_its_brokers_and_its_log(java: list[str], tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        leader = cluster.quorum(1).leader_id
        other = next(node for node in cluster.nodes if node != leader)

        def ask(name: str, *arguments: str) -> str:
            return run(*java, name, "--bootstrap-server", cluster.nodes[other].bootstrap, *arguments, seconds_max=TOOL_SECONDS_MAX)

        created = ask(TOOLS + "TopicCommand", "--create", "--topic", "orders", "--partitions", "3", "--replication-factor", "1")
        assert "Created topic orders" in created
        described = ask(TOOLS + "TopicCommand", "--describe", "--topic", "orders")
        assert sorted(re.findall(r"Leader: (\d)", described)) == ["1", "2", "3"]
        status = ask(TOOLS + "MetadataQuorumCommand", "describe", "--status")
        assert re.search(rf"LeaderId:\s+{leader}\n", status), status
        replication = ask(TOOLS + "MetadataQuorumCommand", "describe", "--replication")
        assert (replication.count("Leader"), replication.count("Follower")) == (1, 2), replication
        assert "metadata.version" in ask(TOOLS + "FeatureCommand", "describe")
        cluster_id = ("cluster-id", "--bootstrap-server", cluster.nodes[other].bootstrap)
        assert CLUSTER_ID in run(*java, TOOLS + "ClusterTool", *cluster_id, seconds_max=TOOL_SECONDS_MAX)
        versions = ask(TOOLS + "BrokerApiVersionsCommand")
        assert all(f"127.0.0.1:{node.port}" in versions for node in cluster.nodes.values())
        for node in cluster.nodes.values():
            node.kill()
        for node in cluster.nodes.values():
            directory = tmp_path / f"copy-{node.port}"
            shutil.copytree(node.data / "__cluster_metadata-0", directory)
            read = ("--cluster-metadata-decoder", "--files", f"{directory}/{0:020d}.log")
            dumped = run(*java, TOOLS + "DumpLogSegments", *read, seconds_max=TOOL_SECONDS_MAX)
            for kind in ("LeaderChange", "FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD"):
                assert kind in dumped, kind
            assert '"name":"orders"' in dumped
            assert "isvalid: false" not in dumped
            assert "could not" not in dumped.lower()
