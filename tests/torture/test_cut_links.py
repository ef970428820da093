"""Links between nodes, and to clients, under load: cut one way or both, slow, or reset. No process ends, and none may be taken for dead."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from tests.cluster.links import CLIENTS, Hosts, LinkedCluster
from tests.cluster.replicas import create, wait_for_in_sync
from tests.cluster.replicated_killing import ALL, HISTORY, PROPERTIES, REPLICAS, are_kept, by_producer, judge, read_to_the_end, working
from tests.durability.killing import SENT_PER_ROUND, wait_for_group, wait_for_load
from tests.durability.load import PARTITION_COUNT, TOPIC, History, begin_at_the_beginning
from tests.waiting import eventually

from ottla.sync import Admin

SCHEDULE_COUNT = 50
SESSION_MS, LAG_MS = 2_000, 3_000
SECONDS: Final = (0.5, 1.5, 3.0, 6.0)
Cut = Callable[[Hosts, int, int], None]


def one_way(hosts: Hosts, node: int, other: int) -> None:
    hosts.cut(node, other)


def both_ways(hosts: Hosts, node: int, other: int) -> None:
    hosts.cut(node, other)
    hosts.cut(other, node)


def alone(hosts: Hosts, node: int, _: int) -> None:
    """No other node, but the clients reach it."""
    for other in ALL - {node}:
        both_ways(hosts, node, other)


def dark(hosts: Hosts, node: int, _: int) -> None:
    """Nobody reaches it, and it reaches nobody."""
    alone(hosts, node, 0)
    both_ways(hosts, node, CLIENTS)


def hears_nobody(hosts: Hosts, node: int, _: int) -> None:
    for other in (ALL - {node}) | {CLIENTS}:
        hosts.cut(other, node)


def slow(hosts: Hosts, node: int, _: int) -> None:
    hosts.slow(node)


def reset(hosts: Hosts, node: int, _: int) -> None:
    hosts.reset(node)


CUTS: Final[tuple[Cut, ...]] = (one_way, both_ways, alone, dark, hears_nobody, slow, reset)


def test_fifty_schedules_of_cut_links_lose_and_double_nothing_and_kill_nobody(tmp_path: Path, java_client: list[str]) -> None:
    history, random = History(), Random("cut links")
    timeouts = {
        "broker_session_timeout_ms": str(SESSION_MS),
        "broker_heartbeat_interval_ms": str(SESSION_MS // 4),
        "replica_lag_time_max_ms": str(LAG_MS),
    }
    cluster = LinkedCluster(tmp_path, 3, **PROPERTIES | timeouts)
    with cluster, Admin(cluster.bootstrap) as admin:
        create(cluster, admin, TOPIC, REPLICAS)
        begin_at_the_beginning(admin)
        with working(history, cluster.access, java_client) as (producers, members, reader):
            wait_for_load(history)
            for member in members:
                wait_for_group(history, member)
            for number, cut in zip(range(SCHEDULE_COUNT), itertools.cycle(CUTS), strict=False):
                wait_for_load(history)
                history.allow(SENT_PER_ROUND)
                confirmed = dict(history.confirmed)
                node = cluster.quorum(1).leader_id if number % 3 == 0 else random.choice(sorted(ALL))
                other = random.choice(sorted(ALL - {node}))
                cut(cluster.hosts, node, other)
                time.sleep(SECONDS[number // len(CUTS) % len(SECONDS)])
                cluster.hosts.heal()
                eventually(partial(are_kept, cluster.bootstrap, confirmed), bool)
                if number % 2:  # else the next cut finds some that have not caught up
                    for index in range(PARTITION_COUNT):
                        wait_for_in_sync(admin, TOPIC, ALL, index)
            log = read_to_the_end(cluster, history, producers, reader)
        judge(cluster, admin, history, reader, log, tmp_path / HISTORY)
        logs = "".join(node.log() for node in cluster.nodes.values())
        assert "broker_fenced" in logs, "some cuts were longer than the session"
        assert "its process has ended" not in logs, "a broker that cannot be reached was taken for dead"
        assert "broker_connection_ended" in logs, "some connections were reset"
    assert len(history.sent_count) == len(producers), "every client has sent something"
    print(f"{SCHEDULE_COUNT} schedules, {len(log)} records ({by_producer(history.sent_count)}), fenced {logs.count('broker_fenced')} times")
