"""Partitions at rest cost nothing: no fetch of a follower looks at them, and what happens to them then is told all the same."""

from __future__ import annotations

import asyncio

import pytest
from tests.cluster.in_simulation import SimNodes, play

IDLE_SECONDS = 60
SENT = 20


def visits(nodes: SimNodes) -> int:
    """How many partitions of the topic the fetches of followers have looked at, on all nodes."""
    brokers = [node.broker for node in nodes.nodes.values() if node.broker is not None]
    return sum(broker.partitions.meters["t"].fetch_requests for broker in brokers)


def fetches(nodes: SimNodes) -> int:
    """How many fetches they were."""
    brokers = [node.broker for node in nodes.nodes.values() if node.broker is not None]
    return sum(sum(meters.requests) for broker in brokers for name, meters in broker.status.request_meters if name == "Fetch")


async def quiet(nodes: SimNodes, count: int) -> None:
    await nodes.create("t", *[[1 + index % 3, 1 + (index + 1) % 3, 1 + (index + 2) % 3] for index in range(count)])
    await asyncio.sleep(5)


@pytest.mark.parametrize("count", [3, 90])
def test_polls_of_an_idle_cluster_look_at_no_partition(count: int) -> None:
    async def body(nodes: SimNodes) -> None:
        await quiet(nodes, count)
        seen, asked = visits(nodes), fetches(nodes)
        await asyncio.sleep(IDLE_SECONDS)
        assert visits(nodes) == seen
        assert fetches(nodes) - asked >= 6 * IDLE_SECONDS, "each of six followers asks twice a second"

    play(body)


def visits_for_records(count: int) -> int:
    """While one of so many partitions is written to."""
    found = 0

    async def body(nodes: SimNodes) -> None:
        nonlocal found
        await quiet(nodes, count)
        before = visits(nodes)
        for _ in range(SENT):
            await nodes.send("t", b"x")
            await asyncio.sleep(1)
        found = visits(nodes) - before

    play(body)
    return found


def test_a_record_costs_as_many_looks_among_many_partitions_as_among_few() -> None:
    few, many = visits_for_records(3), visits_for_records(90)
    assert many <= few + SENT, "which fetch brings what differs by some turns of the loop"
    assert few <= 8 * SENT, "twice two followers, and what they then report"


def test_changes_of_a_partition_at_rest_reach_its_followers() -> None:
    """Its start moves by retention; its records come, and are committed; its leader is another one."""

    async def body(nodes: SimNodes) -> None:
        await quiet(nodes, 3)
        await nodes.send("t", *[b"x" * 900] * 8)
        await asyncio.sleep(5)
        assert [nodes.partition(node, "t").high_watermark for node in (1, 2, 3)] == [8, 8, 8]
        seen = visits(nodes)
        await asyncio.sleep(5)
        assert visits(nodes) == seen
        await nodes.until(lambda: nodes.partition(1, "t").log.log_start_offset > 0)
        start = nodes.partition(1, "t").log.log_start_offset
        await nodes.until(lambda: [nodes.partition(node, "t").log.log_start_offset for node in (2, 3)] == [start, start])
        leading = nodes.partition(1, "t").leading
        assert leading is not None
        await nodes.until(lambda: {follower.start_offset for follower in leading.machine.followers.values()} == {start})
        nodes.nodes[1].kill(power_cut=False)
        await nodes.send("t", b"y")
        assert nodes.partition(2, "t").led_epoch >= 0
        await nodes.until(lambda: nodes.partition(3, "t").high_watermark == 9)

    play(body, log_retention_bytes="1000", log_segment_bytes="1100", log_retention_check_interval_ms="20000", log_retention_ms="-1")


def test_a_watch_ends_with_its_connection() -> None:
    async def body(nodes: SimNodes) -> None:
        await quiet(nodes, 3)
        partition = nodes.partition(1, "t")
        assert len(partition.follower_waiters) == 2
        nodes.nodes[3].kill(power_cut=False)
        await nodes.until(lambda: len(partition.follower_waiters) == 1)
        leading = partition.leading
        assert leading is not None
        await nodes.until(lambda: leading.machine.isr == (1, 2))
        assert leading.machine.followers[3].rests_with is None
        nodes.nodes[3].begin()
        await nodes.until(lambda: leading.machine.isr == (1, 2, 3))
        assert len(partition.follower_waiters) == 2

    play(body)
