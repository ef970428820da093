"""``ottla broker drain`` on three nodes of Apache Kafka 4.3: a broker loses its leaders, gets them back, loses its replicas, is removed."""

from __future__ import annotations

from pathlib import Path

from bench.clusters import kafka_cluster
from tests.cli.test_drain import drain_and_give_back, replicas_of
from tests.cli.test_operators import ottla, shown
from tests.waiting import eventually


def test_a_broker_of_kafka_is_drained_and_removed(tmp_path: Path) -> None:
    with kafka_cluster() as cluster:
        bootstrap = cluster.bootstrap
        drain_and_give_back(bootstrap, tmp_path)
        moved = ottla(bootstrap, "broker", "drain", "3", "--replicas", "--yes")
        assert (moved.returncode, "then stop broker 3 and `ottla broker unregister 3 --yes`" in moved.stderr) == (0, True), moved.stderr
        eventually(lambda: shown(bootstrap, "partition", "moves"), lambda moves: moves == [])
        eventually(lambda: replicas_of(bootstrap, "t"), lambda found: found == [[1, 2], [1, 2]])
        cluster.kill(3)
        eventually(lambda: ottla(bootstrap, "broker", "unregister", "3", "--yes").returncode, lambda code: code == 0)
        eventually(lambda: ottla(bootstrap, "broker", "drain", "3").stderr, lambda text: "broker 3 is not registered" in text)
