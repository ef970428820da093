"""Partitions of several replicas on processes of their own: what is acknowledged is kept, what is not committed is not seen."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Literal

import pytest
from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicas import (
    assert_replicas_are_equal,
    create,
    fetch,
    leaders,
    logged,
    partitions,
    produce,
    stored_end,
    visible_end,
    wait_for_in_sync,
)
from tests.waiting import eventually

from ottla.errors import ErrorCode
from ottla.sync import Admin, NewTopic, Producer

CODECS: tuple[Literal["none", "gzip", "snappy", "lz4", "zstd"], ...] = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.slow
def test_what_acks_all_acknowledges_is_in_three_logs_that_are_equal_byte_for_byte(tmp_path: Path) -> None:
    """Mechanism 22: through segments that roll, in every codec, from producers at once. Each replica is another broker (24)."""
    with ClusterProcesses(tmp_path, log_segment_bytes="16384") as cluster, Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 6, 3)]) == {"t": None}
        assert all(sorted(partition.replicas) == [1, 2, 3] for partition in partitions(admin, "t").values())
        assert sorted(leaders(admin, "t")) == [1, 1, 2, 2, 3, 3]
        for codec in CODECS:
            with Producer(cluster.bootstrap, compression_type=codec, linger_ms=5) as producer:
                sent = [producer.send("t", b"%s-%d" % (codec.encode(), n) * 9, partition=n % 6) for n in range(1200)]
                for future in sent:
                    future.result(30)
        assert_replicas_are_equal(cluster, admin, "t")
        for node in cluster.nodes.values():
            for index in range(6):
                assert stored_end(node.data / f"t-{index}") == len(CODECS) * 200
                assert len(list((node.data / f"t-{index}").glob("*.log"))) > 1


@pytest.mark.slow
def test_a_replication_factor_above_the_brokers_and_replicas_on_one_broker_are_refused(tmp_path: Path) -> None:
    """Mechanism 24."""
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.bootstrap) as admin:
        wanted = {
            "many": (NewTopic("many", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
            "twice": (NewTopic("twice", assignments={0: [1, 1, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            "unknown": (NewTopic("unknown", assignments={0: [1, 2, 9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        }
        refused = admin.create_topics([topic for topic, _ in wanted.values()])
        assert {name: error and error.code for name, error in refused.items()} == {name: code for name, (_, code) in wanted.items()}


@pytest.mark.slow
def test_a_follower_refuses_producers_and_consumers_and_says_who_leads(tmp_path: Path) -> None:
    """Mechanisms 14 and 23."""
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.bootstrap) as admin:
        create(cluster, admin, "t", [[2, 3, 1]])
        assert produce(cluster, 2, "t", b"x").error_code == ErrorCode.NONE
        for follower in (1, 3):
            eventually(lambda node=follower: stored_end(cluster.nodes[node].data / "t-0"), lambda end: end == 1)  # type: ignore[misc]
            for acks in (1, -1):
                refused = produce(cluster, follower, "t", b"y", acks=acks)
                assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert refused.current_leader is not None
                assert refused.current_leader.leader_id == 2
            assert fetch(cluster, follower, "t", 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert visible_end(cluster, 2, "t") == 1
        assert_replicas_are_equal(cluster, admin, "t")


@pytest.mark.slow
def test_below_min_insync_replicas_acks_all_is_refused_and_acks_1_is_not_visible_until_the_isr_is_back(tmp_path: Path) -> None:
    """Mechanism 21, KIP-966. Two of three replicas are killed; the controllers live on."""
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.nodes[1].bootstrap) as admin:
        for node in (4, 5):
            cluster.add(node)
        create(cluster, admin, "t", [[1, 4, 5]], min_insync_replicas="2")
        assert produce(cluster, 1, "t", b"three").error_code == ErrorCode.NONE
        cluster.nodes[4].kill()
        wait_for_in_sync(admin, "t", {1, 5})
        assert produce(cluster, 1, "t", b"two").error_code == ErrorCode.NONE
        cluster.nodes[5].kill()
        wait_for_in_sync(admin, "t", {1})

        refused = eventually(lambda: produce(cluster, 1, "t", b"refused"), lambda found: found.error_code != ErrorCode.REQUEST_TIMED_OUT)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        accepted = produce(cluster, 1, "t", b"one", acks=1)
        assert accepted.error_code == ErrorCode.NONE
        end = accepted.base_offset
        found = fetch(cluster, 1, "t", end)
        assert (found.error_code, found.high_watermark, bytes(found.records or b"")) == (ErrorCode.NONE, end, b"")
        assert visible_end(cluster, 1, "t") == end
        assert stored_end(cluster.nodes[1].data / "t-0") == end + 1

        cluster.nodes[5].start()
        eventually(lambda: visible_end(cluster, 1, "t"), lambda found: found == end + 1)
        assert b"one" in bytes(fetch(cluster, 1, "t", end).records)
        assert produce(cluster, 1, "t", b"again").error_code == ErrorCode.NONE
        cluster.nodes[4].start()
        assert_replicas_are_equal(cluster, admin, "t")


@pytest.mark.slow
def test_a_follower_that_is_stopped_leaves_the_isr_and_returns_when_it_goes_on(tmp_path: Path) -> None:
    """Mechanisms 26 and 27: by lag, while its session lives: ``replica.lag.time.max.ms`` is 2 s here, a session a minute.

    How soon it leaves is shown by ``tests/broker/test_isr_requests.py``.
    """
    cluster = ClusterProcesses(tmp_path, replica_lag_time_max_ms="2000", broker_session_timeout_ms="60000")
    with cluster, Admin(cluster.nodes[1].bootstrap) as admin:
        follower = cluster.add(4)
        create(cluster, admin, "t", [[1, 2, 4]], min_insync_replicas="1")
        assert produce(cluster, 1, "t", b"before").error_code == ErrorCode.NONE
        follower.send_signal(signal.SIGSTOP)
        try:
            assert produce(cluster, 1, "t", b"held up").error_code == ErrorCode.NONE, "committed once the follower has left"
            wait_for_in_sync(admin, "t", {1, 2})
        finally:
            follower.send_signal(signal.SIGCONT)
        wait_for_in_sync(admin, "t", {1, 2, 4})
        assert logged(cluster, "broker_fenced") == [], "its session lives"
        assert_replicas_are_equal(cluster, admin, "t")
