"""A follower whose disk is slow, or whose leader's is, while the leader changes: replicas that are in sync are equal.

What a fetch was asked at and what it is appended at are two moments. Between them a write or a cut of an earlier epoch may be under way,
and the sender's file may be another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest
from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.replicas.partition import Partition
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.metadata.image import ClusterImage
from ottla.ports import Buffer, FileRegion
from ottla.sim.connection import SimConnection
from ottla.sim.disk_faults import Slow
from ottla.sim.files import SimFileRegion
from ottla.storage.log.replay import records_between
from ottla.types import TopicPartition

T = TypeVar("T")
P = TopicPartition("t", 0)


async def admin(nodes: SimNodes, call: Callable[[Admin], Awaitable[T]]) -> T:
    async def run(cluster: Cluster) -> T:
        asked = Admin(cluster)
        found = await call(asked)
        await asked.close()
        return found

    return await nodes.act(run)


async def make_leader(nodes: SimNodes, *replicas: int) -> None:
    """The first of them is elected, as the preferred leader."""
    await admin(nodes, lambda asked: asked.alter_partition_reassignments({P: list(replicas)}))
    await nodes.until(lambda: tuple(image_of(nodes, replicas[0]).topics["t"].partitions[0].replicas) == replicas)
    await admin(nodes, lambda asked: asked.elect_leaders([P]))


def play_soundly(body: Callable[[SimNodes], Awaitable[None]], *, broker_ids: Sequence[int] = ()) -> None:
    """No node logs an error."""
    events = play(body, broker_ids=broker_ids)
    assert [event for event in events if event["log_level"] in ("error", "critical")] == []


def image_of(nodes: SimNodes, node: int) -> ClusterImage:
    broker = nodes.broker(node)
    assert broker is not None
    return broker.image


async def send(nodes: SimNodes, value: bytes, acks: str = "all") -> int:
    """Its offset."""

    async def run(cluster: Cluster) -> int:
        producer = Producer(cluster, ProducerSettings(acks=acks, enable_idempotence=False, linger_ms=0, delivery_timeout_ms=60_000))
        sent = await producer.send_and_wait("t", value, partition=0)
        await producer.close()
        return sent.offset

    return await nodes.act(run)


async def records_of(partition: Partition) -> list[tuple[int, int, bytes | None]]:
    log = partition.log
    reading = records_between(log, log.log_start_offset, log.log_end_offset, check_crc=True)
    return [(record.offset, log.epochs.epoch_at(record.offset), record.value) async for found in reading for record in found]


async def check_replicas_are_equal(nodes: SimNodes, *replicas: int) -> dict[int, bytes | None]:
    """Once all are in sync, and none writes or cuts; what each has at its offset."""
    leader = image_of(nodes, replicas[0]).topics["t"].partitions[0].leader
    await nodes.until(lambda: nodes.in_sync(leader, "t") == set(replicas))
    await nodes.until(lambda: len({nodes.partition(node, "t").log.log_end_offset for node in replicas}) == 1)
    await nodes.until(lambda: all(nodes.partition(node, "t").role.is_end_known for node in replicas))
    first, *others = [await records_of(nodes.partition(node, "t")) for node in replicas]
    assert others == [first] * len(others)
    return {offset: value for offset, _, value in first}


def test_a_write_of_the_earlier_epoch_is_under_way_when_the_new_leader_answers() -> None:
    """What the new leader has at the offset of that write was left out, as if it were there: acks=all lost it with the next leader."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        await nodes.send("t", b"a", b"b")
        for node in (2, 3):
            await nodes.until(lambda node=node: nodes.partition(node, "t").high_watermark == 2)  # type: ignore[misc]
        old, disk = nodes.partition(1, "t"), nodes.nodes[1].machine.disk
        disk.slow.append(Slow("append", ".log", 50, within=old.log.directory))
        await admin(nodes, lambda asked: asked.alter_partition_reassignments({P: [2, 1, 3]}))
        await nodes.until(lambda: tuple(image_of(nodes, 1).topics["t"].partitions[0].replicas) == (2, 1, 3))
        written_late = asyncio.ensure_future(send(nodes, b"old-2", "1"))
        await nodes.until(lambda: old.log.tail.is_flushing)
        nodes.simulation.fabric.slow_link("node-1", "node-2", 5)
        await admin(nodes, lambda asked: asked.elect_leaders([P]))
        await nodes.until(lambda: nodes.partition(2, "t").led_epoch >= 0)
        assert old.log.tail.is_flushing, "that is what this is about"
        values = [b"new-%d" % number for number in range(4)]
        offsets = dict(zip(values, await asyncio.gather(*(send(nodes, value) for value in values)), strict=True))
        await written_late
        kept = await check_replicas_are_equal(nodes, 1, 2, 3)
        assert {value: kept[offset] for value, offset in offsets.items()} == {value: value for value in values}

    play_soundly(body)


def test_a_cut_for_the_earlier_leader_is_under_way_when_the_next_one_answers() -> None:
    """It was asked for at the old end, and appended at that offset once the log was cut: a hole in a replica that counted as in sync."""

    async def body(nodes: SimNodes) -> None:
        fabric = nodes.simulation.fabric
        await nodes.create("t", [4, 5, 6], min_insync_replicas="2")
        await nodes.send("t", b"a", b"b")
        for node in (5, 6):
            await nodes.until(lambda node=node: nodes.partition(node, "t").high_watermark == 2)  # type: ignore[misc]
        cut, disk = nodes.partition(6, "t"), nodes.brokers[6].machine.disk
        await admin(nodes, lambda asked: asked.alter_partition_reassignments({P: [5, 4, 6]}))
        for one, other in ((4, 5), (5, 4)):
            fabric.cut_link(f"node-{one}", f"node-{other}")
        sending = [asyncio.ensure_future(send(nodes, value)) for value in (b"c-2", b"c-3")]  # on 4 and 6, not on 5: they wait
        await nodes.until(lambda: cut.log.log_end_offset == 4)
        disk.slow.append(Slow("truncate", ".log", 300, within=cut.log.directory))
        await admin(nodes, lambda asked: asked.elect_leaders([P]))
        await nodes.until(lambda: cut.role.cutting is not None)
        await make_leader(nodes, 4, 5, 6)
        await nodes.until(lambda: nodes.partition(4, "t").led_epoch >= 0)
        sending.append(asyncio.ensure_future(send(nodes, b"d-4")))
        await nodes.until(lambda: cut.followed is not None and cut.followed.leader_id == 4)
        assert cut.role.cutting is not None, "that is what this is about"
        for one, other in ((4, 5), (5, 4)):
            fabric.join_link(f"node-{one}", f"node-{other}")
        await asyncio.gather(*sending)
        kept = await check_replicas_are_equal(nodes, 4, 5, 6)
        assert {b"c-2", b"c-3", b"d-4"} <= set(kept.values())
        assert sorted(kept) == list(range(len(kept))), "no hole"

    play_soundly(body, broker_ids=(4, 5, 6))


def test_the_high_watermark_stays_within_a_log_that_is_cut_while_its_leader_changes() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])
        await nodes.send("t", b"a", b"b", b"c")
        partition = nodes.partition(2, "t")
        await nodes.until(lambda: partition.high_watermark == 3)
        old = partition.followed
        assert old is not None
        await nodes.nodes[2].machine.run(partition.log.truncate_to(1))
        partition.committed.cut_to(partition.log.log_end_offset)
        assert partition.high_watermark == old.high_watermark == 1

    play_soundly(body)


def test_an_answer_that_leaves_late_has_batches_of_an_epoch_that_its_receiver_has_not_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender's file was cut and written again, as a follower's, before the socket took it (KAFKA-18723)."""
    held: list[tuple[SimConnection, list[Buffer | FileRegion]]] = []
    is_slow = False
    original = SimConnection.send

    def held_back(connection: SimConnection, buffers: list[Buffer | FileRegion]) -> None:
        is_meant = connection.local[0] == "node-4" and connection.peer[0].startswith("node-6")
        if is_slow and is_meant and any(isinstance(item, SimFileRegion) for item in buffers):
            held.append((connection, buffers))
        else:
            original(connection, buffers)

    monkeypatch.setattr(SimConnection, "send", held_back)

    async def body(nodes: SimNodes) -> None:
        nonlocal is_slow
        fabric = nodes.simulation.fabric
        await nodes.create("t", [4, 5, 6], min_insync_replicas="2")
        await nodes.send("t", b"a", b"b")
        for node in (5, 6):
            await nodes.until(lambda node=node: nodes.partition(node, "t").high_watermark == 2)  # type: ignore[misc]
        await admin(nodes, lambda asked: asked.alter_partition_reassignments({P: [5, 4, 6]}))
        for one, other in ((4, 5), (5, 4)):
            fabric.cut_link(f"node-{one}", f"node-{other}")  # 5 gets nothing more of 4
        for value in (b"old-2", b"old-3"):
            await send(nodes, value, "1")
        await nodes.until(lambda: nodes.partition(6, "t").log.log_end_offset == 4)
        is_slow = True
        for value in (b"old-4", b"old-5"):
            await send(nodes, value, "1")
        await nodes.until(lambda: len(held) > 0)
        for controller in (1, 2, 3):  # 6 hears nothing of the election
            fabric.cut_link(f"node-{controller}", "node-6")
            fabric.cut_link("node-6", f"node-{controller}")
        await admin(nodes, lambda asked: asked.elect_leaders([P]))
        await nodes.until(lambda: nodes.partition(5, "t").led_epoch >= 0)
        for one, other in ((4, 5), (5, 4)):
            fabric.join_link(f"node-{one}", f"node-{other}")
        for number in range(2, 6):
            await send(nodes, b"new-%d" % number, "1")
        rewritten = nodes.partition(4, "t").log
        await nodes.until(lambda: rewritten.log_end_offset == 6 and rewritten.epochs.latest_epoch > 0)
        is_slow = False
        for connection, buffers in held:
            original(connection, buffers)
        late = nodes.partition(6, "t")
        await nodes.until(lambda: late.followed is None or late.followed.wait_until_ms > 0)
        assert late.log.epochs.latest_epoch == 0, "it knows no later epoch"
        for controller in (1, 2, 3):
            fabric.join_link(f"node-{controller}", "node-6")
            fabric.join_link("node-6", f"node-{controller}")
        await check_replicas_are_equal(nodes, 4, 5, 6)

    play_soundly(body, broker_ids=(4, 5, 6))


def test_a_gap_left_by_compaction_is_accepted_in_a_topic_without_compaction() -> None:
    """The leader sends it twice: it stands in its log."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1])
        await nodes.send("t", b"a", b"b", b"c", b"d")
        leader = nodes.partition(1, "t")
        [segment] = leader.log.segments
        part = await leader.log.read(2, max_bytes=10_000, end_offset=4)
        assert part is not None
        tail = bytes(part.region.read())
        await nodes.nodes[1].machine.run(leader.log.truncate_to(1))
        leader.log.tail.stage_replicated(memoryview(bytearray(tail)), leader_epoch=0, now_ms=1, believes_gap=True)
        await nodes.nodes[1].machine.run(leader.log.flush())
        assert segment.size > 0
        await admin(nodes, lambda asked: asked.alter_partition_reassignments({P: [1, 2]}))
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 2})
        kept = await check_replicas_are_equal(nodes, 1, 2)
        assert kept == {0: b"a", 2: b"c", 3: b"d"}

    play_soundly(body)
