"""What a replica reports is what it has kept: on a disk without room it reports less, until there is some."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.cluster.in_simulation import SimNodes, play
from tests.cluster.test_delete_records import VALUES, delete, starts

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode
from ottla.sim.disk_faults import Fault
from ottla.types import TopicPartition

NO_START = Fault("append", "log-start-offset-checkpoint.tmp", errno.ENOSPC, lasts=True)
NO_EPOCHS = Fault("append", "t-0/leader-epoch-checkpoint.tmp", errno.ENOSPC, lasts=True)
NO_HIGH_WATERMARKS = Fault("append", "replication-offset-checkpoint.tmp", errno.ENOSPC, lasts=True)


def fill(nodes: SimNodes, node: int, *faults: Fault) -> None:
    nodes.nodes[node].machine.disk.faults += faults


def make_room(nodes: SimNodes, node: int) -> None:
    nodes.nodes[node].machine.disk.faults.clear()


async def restart_without_the_leader(nodes: SimNodes, *, power_cut: bool) -> None:
    """All nodes die, and nodes 2 and 3 are back. Node 3 leads what node 1 has led, unless it has lost power.

    With min.insync.replicas=2 it is eligible whichever of them is fenced first.
    """
    for node in (1, 2, 3):
        nodes.nodes[node].kill(power_cut=power_cut)
    for node in (2, 3):
        nodes.nodes[node].begin()
    await nodes.until(lambda: nodes.has(3, "t") and (power_cut or nodes.partition(3, "t").led_epoch >= 0))


def test_deleted_records_stay_deleted_when_a_follower_had_no_room_to_keep_its_new_start() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 3], min_insync_replicas="2")
        await nodes.send("t", *VALUES)
        fill(nodes, 3, NO_START)
        assert await delete(nodes, 1, [3], timeout_ms=5000) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        assert starts(nodes, 1) == [3]
        waiting = asyncio.ensure_future(delete(nodes, 1, [3]))
        await asyncio.sleep(5)
        assert not waiting.done()
        make_room(nodes, 3)
        assert await waiting == [(0, 3)]
        await restart_without_the_leader(nodes, power_cut=False)
        assert starts(nodes, 3) == [3]

    play(body)


def test_a_follower_whose_retention_has_no_room_reports_what_it_has_removed() -> None:
    """Without a checkpoint its segments are removed at once: that is as good."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        fill(nodes, 3, NO_START)
        for _ in range(10):
            await nodes.send("t", b"x" * 50_000)
        assert await delete(nodes, 1, [5]) == [(0, 5)]
        nodes.nodes[3].kill(power_cut=True)
        nodes.nodes[3].begin()
        await nodes.until(lambda: nodes.has(3, "t"))
        assert nodes.partition(3, "t").log.segments[0].base_offset == 5

    play(
        body,
        log_segment_bytes="55000",
        log_retention_check_interval_ms="1000",
        log_flush_offset_checkpoint_interval_ms="3600000",
        log_flush_start_offset_checkpoint_interval_ms="3600000",
    )


def test_a_leader_without_room_answers_no_second_request_as_done() -> None:
    """The first one has moved the start, and was refused."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await nodes.send("t", *VALUES)
        fill(nodes, 1, NO_START)
        assert await delete(nodes, 1, [3]) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
        assert await delete(nodes, 1, [3]) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
        assert await delete(nodes, 1, [2]) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
        make_room(nodes, 1)
        assert await delete(nodes, 1, [3]) == [(0, 3)]
        assert await delete(nodes, 1, [2]) == [(0, 3)]
        nodes.nodes[1].kill(power_cut=True)
        nodes.nodes[1].begin()
        await nodes.until(lambda: nodes.has(1, "t"))
        assert starts(nodes, 1) == [3]

    play(body)


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_follower_reports_no_record_that_flush_messages_has_it_sync_first(power_cut: bool) -> None:
    """Its disk takes the batch and has no room for the epoch, without which nothing is synced."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 3], flush_messages="1", min_insync_replicas="2")
        fill(nodes, 3, NO_EPOCHS)
        sending = asyncio.ensure_future(nodes.send("t", b"a"))
        await nodes.until(lambda: nodes.partition(3, "t").log.log_end_offset == 1)
        await asyncio.sleep(5)
        assert not sending.done()
        assert nodes.partition(1, "t").high_watermark == 0
        make_room(nodes, 3)
        await sending
        await restart_without_the_leader(nodes, power_cut=power_cut)
        assert nodes.partition(3, "t").log.log_end_offset == 1

    play(body)


def test_a_follower_that_was_killed_before_it_had_synced_a_record_syncs_it_before_it_reports_it() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 3], flush_messages="1", min_insync_replicas="2")
        fill(nodes, 3, NO_EPOCHS)
        sending = asyncio.ensure_future(nodes.send("t", b"a"))
        await nodes.until(lambda: nodes.partition(3, "t").log.log_end_offset == 1)
        nodes.nodes[3].kill(power_cut=False)
        nodes.nodes[3].begin()
        await nodes.until(lambda: nodes.has(3, "t"))
        assert nodes.partition(3, "t").log.log_end_offset == 1, "the system has it, and nothing says that the disk does"
        await asyncio.sleep(5)
        assert not sending.done()
        make_room(nodes, 3)
        await sending
        await restart_without_the_leader(nodes, power_cut=True)
        assert nodes.partition(3, "t").log.log_end_offset == 1

    play(body)


async def _lead(nodes: SimNodes, replicas: list[int]) -> None:
    async def elect(cluster: Cluster) -> None:
        admin, partition = Admin(cluster), TopicPartition("t", 0)
        assert await admin.alter_partition_reassignments({partition: replicas}) == {partition: None}
        assert await admin.elect_leaders([partition]) == {partition: None}

    await nodes.act(elect)
    await nodes.until(lambda: nodes.partition(replicas[0], "t").led_epoch >= 0)


def test_a_start_offset_that_a_follower_cannot_keep_does_not_reach_the_next_leader() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await nodes.send("t", *VALUES)
        fill(nodes, 3, NO_START)
        assert await delete(nodes, 1, [3], timeout_ms=2000) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        await nodes.until(lambda: starts(nodes, 2, 3) == [3, 3])
        await _lead(nodes, [2, 1, 3])
        assert await delete(nodes, 2, [3], timeout_ms=2000) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        make_room(nodes, 3)
        assert await delete(nodes, 2, [3]) == [(0, 3)]

    play(body)


def test_a_replica_that_was_away_while_records_were_deleted_joins_the_isr_when_it_has_kept_the_new_start() -> None:
    """It was not waited for. It may lead next."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 3], min_insync_replicas="2")
        await nodes.send("t", *VALUES)
        nodes.nodes[3].kill(power_cut=False)
        assert await delete(nodes, 1, [3]) == [(0, 3)]
        fill(nodes, 3, NO_START)
        nodes.nodes[3].begin()
        await nodes.until(lambda: nodes.has(3, "t") and starts(nodes, 3) == [3])
        await asyncio.sleep(5)
        assert nodes.in_sync(1, "t") == {1}
        make_room(nodes, 3)
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 3})
        await restart_without_the_leader(nodes, power_cut=False)
        assert starts(nodes, 3) == [3]

    play(body)


def test_a_leader_takes_what_was_deleted_for_committed_though_its_disk_had_no_room_to_say_so() -> None:
    """Its high watermark would lie below its start, which no follower could reach: with min.insync.replicas=2 none would ever join."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 3], min_insync_replicas="2")
        fill(nodes, 1, NO_HIGH_WATERMARKS)
        await nodes.send("t", *VALUES)
        nodes.nodes[3].kill(power_cut=False)
        assert await delete(nodes, 1, [3]) == [(0, 3)]
        nodes.nodes[1].kill(power_cut=False)
        make_room(nodes, 1)
        nodes.nodes[1].begin()
        await nodes.until(lambda: nodes.has(1, "t") and nodes.partition(1, "t").led_epoch >= 0)
        assert nodes.partition(1, "t").high_watermark == 3
        nodes.nodes[3].begin()
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 3})
        assert starts(nodes, 1, 3) == [3, 3]

    play(body)
