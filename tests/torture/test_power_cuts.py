"""Power cuts of replicated nodes under load, on disks that forget what was not synced: of one node, and of all three at once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.cluster.power import PoweredCluster
from tests.cluster.replicas import create, wait_for_in_sync
from tests.cluster.replicated_killing import ALL, HISTORY, PROPERTIES, REPLICAS, are_kept, judge, read_to_the_end, run, working
from tests.durability.killing import SENT_PER_ROUND, wait_for_load
from tests.durability.load import PARTITION_COUNT, TOPIC, History, begin_at_the_beginning
from tests.waiting import eventually

from ottla.sync import Admin

CUT_COUNT = 20
CUTS_OF_ALL_COUNT = 5


def test_twenty_power_cuts_of_one_node_lose_and_double_nothing_and_the_replicas_are_equal(tmp_path: Path, java_client: list[str]) -> None:
    """On defaults: what the node had not synced, the others have."""
    print(run(tmp_path, kill_count=CUT_COUNT, make=PoweredCluster, java=java_client))


def test_five_power_cuts_of_all_nodes_at_once_lose_nothing_that_was_synced_before_it_was_acknowledged(tmp_path: Path) -> None:
    """With flush.messages=1 every acknowledged record, and every confirmed commit, is on two disks."""
    history = History()
    cluster = PoweredCluster(tmp_path, 3, **PROPERTIES | {"log_flush_interval_messages": "1"})
    with cluster, Admin(cluster.bootstrap) as admin:
        create(cluster, admin, TOPIC, REPLICAS)
        begin_at_the_beginning(admin)
        with working(history, cluster.bootstrap) as (producers, _, reader):
            for _ in range(CUTS_OF_ALL_COUNT):
                wait_for_load(history)
                history.allow(SENT_PER_ROUND)
                confirmed = dict(history.confirmed)
                cluster.cut_all()
                cluster.return_all()
                eventually(partial(are_kept, cluster.bootstrap, confirmed), bool)
                for index in range(PARTITION_COUNT):
                    wait_for_in_sync(admin, TOPIC, ALL, index)
            log = read_to_the_end(cluster, history, producers, reader)
        judge(cluster, admin, history, reader, log, tmp_path / HISTORY)
    print(f"{CUTS_OF_ALL_COUNT} power cuts of all three nodes, {len(log)} records")
