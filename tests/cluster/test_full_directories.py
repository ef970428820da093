"""One disk of three is full: others serve what lies there, where they have it, until there is room again."""

from __future__ import annotations

import asyncio
import os

import pytest
from tests.cluster.in_simulation import SimNodes, play
from tests.cluster.test_early_requests import numbered, produce
from tests.cluster.test_slow_writes import records_of
from tests.simulation.quorum_nodes import started

from ottla.client.admin import Admin, Topic
from ottla.client.cluster import Cluster
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode
from ottla.sim.disk import VOLUME_BYTES, SimDisk
from ottla.storage.directory.room import RESERVE_BYTES
from ottla.types import TopicPartition

FULL_SECONDS = int(os.environ.get("OTTLA_SECONDS", "15"))
STALL_SECONDS_MAX = 1.0
ALL = [TopicPartition("t", index) for index in range(3)]


def fill(disk: SimDisk) -> None:
    disk.capacity_bytes = disk.used_bytes + 10


def empty(disk: SimDisk) -> None:
    disk.capacity_bytes = VOLUME_BYTES


class Writers:
    """One for each partition, acks=all, five in flight; how long each was without an acknowledgement at most."""

    def __init__(self, nodes: SimNodes) -> None:
        self._nodes = nodes
        self._is_over = False
        self.acknowledged: dict[TopicPartition, list[tuple[int, bytes]]] = {partition: [] for partition in ALL}
        self.longest = dict.fromkeys(ALL, 0.0)
        self.failed: list[BaseException] = []

    async def run(self) -> None:
        await asyncio.gather(*(self._write(partition) for partition in ALL))

    async def _write(self, partition: TopicPartition) -> None:
        loop = asyncio.get_running_loop()

        async def body(cluster: Cluster) -> None:
            producer = Producer(cluster, ProducerSettings(acks="all", linger_ms=0, delivery_timeout_ms=120_000))
            last, number, sending = loop.time(), 0, set[asyncio.Task[None]]()

            async def send(value: bytes) -> None:
                nonlocal last
                sent = await producer.send_and_wait(partition.topic, value, partition=partition.partition)
                self.acknowledged[partition].append((sent.offset, value))
                self.longest[partition] = max(self.longest[partition], loop.time() - last)
                last = loop.time()

            while not self._is_over:
                done = {task for task in sending if task.done()}
                self.failed += [error for task in done if (error := task.exception()) is not None]
                sending -= done
                if len(sending) < 5:
                    sending.add(asyncio.ensure_future(send(b"%d" % number)))
                    number += 1
                await asyncio.sleep(0.01)
            await asyncio.gather(*sending)
            await producer.close()

        await self._nodes.act(body)

    def end(self) -> None:
        self._is_over = True


async def values_of(nodes: SimNodes, partition: TopicPartition) -> list[tuple[int, bytes | None]]:
    leader = nodes.nodes[1].broker.image.topics["t"].partitions[partition.partition].leader  # type: ignore[union-attr]
    return [(offset, value) for offset, _, value in await records_of(nodes.partition(leader, "t", partition.partition))]


@pytest.mark.parametrize("is_controller", [True, False])
def test_mechanism_30_one_full_disk_of_three_keeps_no_write_waiting_and_doubles_nothing(is_controller: bool) -> None:
    """The metadata log lies on it, too: its reserve takes the records that say who else leads."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2], min_insync_replicas="2")
        active = next(node for node in nodes.nodes if nodes.nodes[node].broker.controller.replica.leader_id == node)  # type: ignore[union-attr]
        full = active if is_controller else next(node for node in nodes.nodes if node != active)
        disk, writers = nodes.nodes[full].machine.disk, Writers(nodes)
        writing = asyncio.ensure_future(writers.run())
        await asyncio.sleep(2)
        fill(disk)
        writers.longest = dict.fromkeys(ALL, 0.0)
        await asyncio.sleep(FULL_SECONDS)
        assert max(writers.longest.values()) <= STALL_SECONDS_MAX, writers.longest
        other = next(node for node in nodes.nodes if node != full)
        for index in range(3):
            assert full not in nodes.in_sync(other, "t", index)
        assert nodes.nodes[full].broker is not None, "it goes on"
        empty(disk)
        for index in range(3):
            await nodes.until(lambda index=index: nodes.in_sync(other, "t", index) == {1, 2, 3})  # type: ignore[misc]
        writers.end()
        await writing
        assert max(writers.longest.values()) <= STALL_SECONDS_MAX, writers.longest
        assert writers.failed == []
        for partition in ALL:
            kept, sent = await values_of(nodes, partition), writers.acknowledged[partition]
            assert len(sent) > 20 * FULL_SECONDS
            assert len({value for _, value in kept}) == len(kept), "once"
            assert [value for _, value in kept] == sorted((value for _, value in kept), key=lambda value: int(value or b"")), "in order"
            assert dict(kept).items() >= dict(sent).items()

    play(body, replica_lag_time_max_ms="30000")


def test_the_only_replica_in_a_full_directory_stays_and_can_be_read() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [2])
        await nodes.send("t", b"a")
        disk = nodes.nodes[2].machine.disk
        fill(disk)

        async def send(cluster: Cluster) -> list[int]:
            return [(await produce(nodes, cluster, 2, "t", numbered(sequence)))[0] for sequence in range(3)]

        assert await nodes.act(send) == [ErrorCode.KAFKA_STORAGE_ERROR] * 3, "none is called out of order"
        await asyncio.sleep(5)
        assert nodes.partition(2, "t").led_epoch >= 0
        assert await values_of(nodes, TopicPartition("t", 0)) == [(0, b"a")]

        async def usable(cluster: Cluster) -> dict[int, int]:
            return {node: one[0].usable_bytes for node, one in (await Admin(cluster).describe_log_dirs([1, 2])).items()}

        shown = await nodes.act(usable)
        assert (shown[1] > 0, shown[2]) == (True, 0), "what is left is not for records"
        empty(disk)
        await nodes.until(lambda: not nodes.nodes[2].broker.partitions.directories[0].room.is_full)  # type: ignore[union-attr]
        assert await nodes.act(send) == [0, 0, 0]

    play(body)


def test_two_full_disks_leave_a_partition_readable() -> None:
    """Each gives it up while the other is in sync; one of the two has to stay."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [2, 3])
        await nodes.send("t", b"a")
        for node in (2, 3):
            fill(nodes.nodes[node].machine.disk)

        async def send(cluster: Cluster) -> list[int]:
            return [(await produce(nodes, cluster, node, "t", numbered(0)))[0] for node in (2, 3, 2, 3)]

        assert ErrorCode.NONE not in await nodes.act(send)
        await asyncio.sleep(10)
        image = nodes.nodes[1].broker.image.topics["t"].partitions[0]  # type: ignore[union-attr]
        assert image.leader in (2, 3)
        assert nodes.partition(image.leader, "t").led_epoch >= 0
        for node in (2, 3):
            empty(nodes.nodes[node].machine.disk)
        await nodes.until(lambda: nodes.in_sync(1, "t") == {2, 3})
        await nodes.send("t", b"b")

    play(body)


@pytest.mark.parametrize("restarted", [{1}, {1, 2, 3}], ids=str)
def test_a_node_that_was_full_and_starts_with_room_is_in_sync_again(restarted: set[int]) -> None:
    """The controller has its replicas as lost; the new process does not know, and may be registered before it has read the metadata."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        disk = nodes.nodes[1].machine.disk
        fill(disk)
        for index in range(3):
            await nodes.send("t", b"a", index=index)
        await nodes.until(lambda: all(nodes.in_sync(2, "t", index) == {2, 3} for index in range(3)))
        for node in restarted:
            nodes.nodes[node].kill(power_cut=False)
        empty(disk)
        for node in restarted:
            nodes.nodes[node].begin()
        await started([nodes.nodes[node] for node in restarted])
        await nodes.until(lambda: all(nodes.in_sync(2, "t", index) == {1, 2, 3} for index in range(3)))

    play(body)


def test_retention_makes_room_where_the_segment_that_grows_fills_the_directory() -> None:
    """It could not be closed, so that nothing of it was ever deleted, and no advice but to delete the topic helped."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [2])
        await nodes.send("t", *[b"x" * 100_000] * 5)
        disk = nodes.nodes[2].machine.disk
        fill(disk)

        async def send(cluster: Cluster) -> int:
            return (await produce(nodes, cluster, 2, "t", numbered(0)))[0]

        assert await nodes.act(send) == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(nodes.partition(2, "t").log.segments) == 1
        await nodes.act(lambda cluster: Admin(cluster).alter_configs({Topic("t"): {"retention.ms": 1, "file.delete.delay.ms": 0}}))
        before = disk.used_bytes
        await nodes.until(lambda: nodes.partition(2, "t").log.log_start_offset == 5)
        await nodes.until(lambda: disk.used_bytes < before - 400_000)
        disk.capacity_bytes += RESERVE_BYTES  # for what is kept back, and as much again
        await nodes.until(lambda: not nodes.nodes[2].broker.partitions.directories[0].room.is_full)  # type: ignore[union-attr]
        assert await nodes.act(send) == ErrorCode.NONE

    play(body, log_retention_check_interval_ms="2000")
