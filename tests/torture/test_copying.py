"""Read, process and write in transactions, as Kafka's own system tests have it, over kills, pauses, cut links and power cuts of nodes.

Kafka's TransactionalMessageCopier takes part at level 2 beside our own client, librdkafka at level 1. Sizes and timeouts are those of
kafkatest's transactions_test: 750 records a transaction, 40 s, some 100,000 records. Copiers are killed, too, and abort some of it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from tests.cluster.copier import Task
from tests.cluster.copying import ALL, Java, all_in_sync, run
from tests.cluster.links import LinkedCluster
from tests.cluster.power import PoweredCluster
from tests.torture.test_cut_links import CUTS, LAG_MS, SECONDS, SESSION_MS
from tests.torture.test_pauses import PAUSE_COUNT, PAUSES_S, PausingCluster

from ottla.sync import Admin

KILL_COUNT, SCHEDULE_COUNT, CUT_COUNT, CUTS_OF_ALL_COUNT = 30, 50, 10, 5
MAKERS: Final = ("librdkafka", "ottla", "java")


@pytest.fixture
def copier(java: list[str]) -> Java:
    """Kafka's own; it ends when it has read what there was, and is started again."""

    def command(task: Task) -> list[str]:
        where = ["--input-partition", str(max(task.partition, 0)), *(["--group-mode"] if task.partition < 0 else [])]
        return [
            *(*java, "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", task.bootstrap, "--input-topic", task.source),
            *("--output-topic", task.target, "--consumer-group", task.group, "--transactional-id", task.name, *where),
            *("--transaction-size", str(task.size), "--transaction-timeout", str(task.timeout_ms)),
            *("--use-group-metadata", "--enable-random-aborts"),
        ]

    return command


@pytest.mark.parametrize("is_group", [False, True])
def test_thirty_kills_of_coordinators_leaders_and_controllers_in_turn(tmp_path: Path, copier: Java, is_group: bool) -> None:
    print(run(tmp_path, makers=MAKERS, is_group=is_group, round_count=KILL_COUNT, java=copier))


def test_twenty_pauses(tmp_path: Path, copier: Java) -> None:
    session = {"broker_session_timeout_ms": str(SESSION_MS), "broker_heartbeat_interval_ms": str(SESSION_MS // 4)}

    def pause(cluster: Any, admin: Admin, number: int) -> str:
        cluster.nodes[number % len(ALL) + 1].kill()
        all_in_sync(admin)
        return f"pauses of {PAUSES_S[number // len(ALL) % len(PAUSES_S)]} s"

    print(run(tmp_path, makers=MAKERS, round_count=PAUSE_COUNT, disturb=pause, make=PausingCluster, java=copier, properties=session))


def test_fifty_schedules_of_cut_links(tmp_path: Path, copier: Java) -> None:
    timeouts = {
        "broker_session_timeout_ms": str(SESSION_MS),
        "broker_heartbeat_interval_ms": str(SESSION_MS // 4),
        "replica_lag_time_max_ms": str(LAG_MS),
    }
    random, cuts = Random("copying over cut links"), itertools.cycle(CUTS)

    def cut(cluster: Any, admin: Admin, number: int) -> str:
        node = cluster.controller if number % 3 == 0 else random.choice(sorted(ALL))
        how: Callable[..., None] = next(cuts)
        how(cluster.hosts, node, random.choice(sorted(ALL - {node})))
        time.sleep(SECONDS[number // len(CUTS) % len(SECONDS)])
        cluster.hosts.heal()
        if number % 2:
            all_in_sync(admin)
        return f"cuts ({how.__name__})"

    print(run(tmp_path, makers=MAKERS, round_count=SCHEDULE_COUNT, disturb=cut, make=LinkedCluster, java=copier, properties=timeouts))


def test_ten_power_cuts_of_one_node(tmp_path: Path, copier: Java) -> None:
    """On defaults: what the node had not synced, the others have."""
    print(run(tmp_path, makers=MAKERS, round_count=CUT_COUNT, make=PoweredCluster, java=copier))


def test_five_power_cuts_of_all_nodes_with_everything_synced_before_it_is_acknowledged(tmp_path: Path, copier: Java) -> None:
    """``flush.messages=1`` of every topic, those of the coordinators among them."""

    def cut_all(cluster: Any, admin: Admin, number: int) -> str:
        cluster.cut_all()
        cluster.return_all()
        all_in_sync(admin)
        return "power cuts of all"

    makers = ("ottla", "ottla", "java")
    synced = {"log_flush_interval_messages": "1"}
    print(run(tmp_path, makers=makers, round_count=CUTS_OF_ALL_COUNT, disturb=cut_all, make=PoweredCluster, java=copier, properties=synced))
