"""Power cuts of replicated nodes under load, on disks that forget what was not synced: of one node, and of all three at once."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.power import PoweredCluster
from tests.cluster.replicated_killing import run, run_cuts_of_all

CUT_COUNT = 20
CUTS_OF_ALL_COUNT = 5


def test_twenty_power_cuts_of_one_node_lose_and_double_nothing_and_the_replicas_are_equal(tmp_path: Path, java_client: list[str]) -> None:
    """On defaults: what the node had not synced, the others have."""
    print(run(tmp_path, kill_count=CUT_COUNT, make=PoweredCluster, java=java_client))


def test_five_power_cuts_of_all_nodes_at_once_lose_nothing_that_was_synced_before_it_was_acknowledged(
    tmp_path: Path, java_client: list[str]
) -> None:
    """With flush.messages=1 every acknowledged record, and every confirmed commit, is on two disks."""
    print(run_cuts_of_all(tmp_path, cut_count=CUTS_OF_ALL_COUNT, java=java_client))
