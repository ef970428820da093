"""As test_replicated_kills.py, in ZooKeeper mode: leaders, followers, controllers and ZooKeeper itself are killed."""

from pathlib import Path
from typing import Any

from tests.cluster.in_zookeeper import ZookeeperCluster
from tests.cluster.replicated_killing import KINDS, run

from ottla.runtime.zookeeper_server import ZooKeeperServer

KILL_COUNT = 52


def test_fifty_kills_lose_and_double_nothing_and_the_replicas_are_equal(
    tmp_path: Path, zookeeper: ZooKeeperServer, java_client: list[str]
) -> None:
    def make(directory: Path, **properties: Any) -> ZookeeperCluster:
        return ZookeeperCluster(directory, zookeeper, **properties)

    print(run(tmp_path, kill_count=KILL_COUNT, make=make, kinds=(*KINDS, "zookeeper"), java=java_client))
