"""Replicas that catch up keep to the throttle, on the leader's side and on the follower's; those in sync are not held back (KIP-73)."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.test_throttling import set_quota
from tests.cluster.in_simulation import SimNodes, play

from ottla.admin_http.kafka_names import broker_families
from ottla.client.admin import Admin, Broker, Topic
from ottla.client.cluster import Cluster
from ottla.types import TopicPartition

RECORD_BYTES = 10_000
RECORDS = 60
RATE = 50_000
SIDES = {"leader": ("0:1", 1), "follower": ("0:3", 3)}
"""Which replica is listed, and whose rate is set."""
WINDOWS_SECONDS = 11


async def throttle(nodes: SimNodes, side: str, replicas: str, broker: int, rate: int = RATE) -> None:
    async def body(cluster: Cluster) -> None:
        admin, is_set = Admin(cluster), bool(replicas)
        await admin.alter_configs({Topic("t"): {f"{side}.replication.throttled.replicas": replicas if is_set else None}})
        await admin.alter_configs({Broker(broker): {f"{side}.replication.throttled.rate": rate if is_set else None}})

    await nodes.act(body)


async def move(nodes: SimNodes, topic: str, *replicas: int) -> None:
    async def body(cluster: Cluster) -> None:
        partition = TopicPartition(topic, 0)
        assert await Admin(cluster).alter_partition_reassignments({partition: list(replicas)}) == {partition: None}

    await nodes.act(body)


async def filled(nodes: SimNodes, topic: str = "t") -> None:
    await nodes.create(topic, [1, 2])
    await nodes.send(topic, *[b"x" * RECORD_BYTES] * RECORDS)


def now() -> float:
    return asyncio.get_running_loop().time()


def metric(nodes: SimNodes, node: int, name: str) -> float:
    broker = nodes.nodes[node].broker
    assert broker is not None
    return next(float(family.samples[0].value) for family in broker_families(broker.status, idle_share=0.0) if family.name == name)


@pytest.mark.parametrize("side", SIDES)
def test_a_new_replica_is_copied_at_the_rate_and_nothing_else_is_held_back(side: str) -> None:
    async def body(nodes: SimNodes) -> None:
        await filled(nodes)
        await filled(nodes, "other")
        await throttle(nodes, side, *SIDES[side])
        began = now()
        await move(nodes, "t", 1, 2, 3)
        await move(nodes, "other", 1, 2, 3)
        await nodes.until(lambda: nodes.in_sync(1, "other") == {1, 2, 3})
        assert now() < began + 2, "no throttle holds for that topic"
        await nodes.send("t", b"y")
        assert now() < began + 3, "what is in sync is not held back"
        name = f"kafka_server_{side}replication_byte_rate"
        rate_max = 0.0
        while nodes.in_sync(1, "t") != {1, 2, 3}:
            rate_max = max(rate_max, metric(nodes, SIDES[side][1], name))
            await asyncio.sleep(0.05)
            assert now() < began + 60
        seconds, size = now() - began, RECORD_BYTES * RECORDS
        assert seconds > size / RATE - 2, f"{size} bytes took {seconds} s"
        assert seconds < size / RATE + WINDOWS_SECONDS
        assert rate_max > RATE / 2
        other_side = "follower" if side == "leader" else "leader"
        assert metric(nodes, 4 - SIDES[side][1], f"kafka_server_{other_side}replication_byte_rate") == 0

    play(body, replica_fetch_max_bytes=str(RECORD_BYTES), replica_fetch_response_max_bytes=str(2 * RECORD_BYTES))


@pytest.mark.parametrize("side", SIDES)
def test_a_throttle_that_is_removed_holds_back_nothing_more(side: str) -> None:
    async def body(nodes: SimNodes) -> None:
        await filled(nodes)
        await throttle(nodes, side, *SIDES[side], rate=10)
        await move(nodes, "t", 1, 2, 3)
        await asyncio.sleep(30)
        assert nodes.in_sync(1, "t") == {1, 2}
        assert nodes.partition(3, "t").log.log_end_offset < RECORDS / 2
        await throttle(nodes, side, "", SIDES[side][1])
        began = now()
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 2, 3})
        assert now() < began + 2

    play(body, replica_fetch_max_bytes=str(RECORD_BYTES), replica_fetch_response_max_bytes=str(2 * RECORD_BYTES))


def test_replicas_in_sync_are_never_held_back_though_what_they_fetch_counts() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await throttle(nodes, "leader", "*", 1, rate=10)
        for node in (2, 3):
            await throttle(nodes, "follower", "*", node, rate=10)
        began = now()
        for _ in range(5):
            await nodes.send("t", b"x" * RECORD_BYTES)
        assert now() < began + 2
        assert metric(nodes, 1, "kafka_server_leaderreplication_byte_rate") > 2 * RECORD_BYTES
        assert metric(nodes, 2, "kafka_server_followerreplication_byte_rate") > RECORD_BYTES
        assert nodes.in_sync(1, "t") == {1, 2, 3}

    play(body)


@pytest.mark.parametrize("kind", ["user", "client-id"])
def test_a_quota_of_all_clients_holds_back_no_replica(kind: str) -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await nodes.act(lambda cluster: set_quota(cluster, {kind: None}, consumer_byte_rate=10, request_percentage=0.001))
        began = now()
        for _ in range(5):
            await nodes.send("t", b"x" * RECORD_BYTES)
        assert now() < began + 2
        assert nodes.in_sync(1, "t") == {1, 2, 3}

    play(body)
