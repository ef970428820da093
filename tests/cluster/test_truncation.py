"""A follower whose log is cut: it survives what comes next."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from typing import Any

import pytest
from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.replicas.follower_log import Cut, append, truncate, truncate_each
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_fetchers import ReplicaFetchers
from ottla.client.cluster import Cluster
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.metadata.delta import ImageDelta
from ottla.sim.disk_faults import Fault
from ottla.storage.log.partition_log import PartitionLog

KEPT = 2
"""Records: what was acknowledged by both, and the first that was not, which was on its way."""


async def send_to_the_leader_alone(nodes: SimNodes, topic: str, *values: bytes, partitions: int = 1) -> None:
    async def body(cluster: Cluster) -> None:
        producer = Producer(cluster, ProducerSettings(acks="1", enable_idempotence=False, linger_ms=0))
        for value in values:
            for index in range(partitions):
                await producer.send_and_wait(topic, value, partition=index)
        await producer.close()

    await nodes.act(body)


async def diverged(nodes: SimNodes, *, partitions: int = 1) -> None:
    """Node 1 has stopped in order with records that node 2, which leads by now, has not; it is back, and has what node 2 has."""
    await nodes.create("t", *[[1, 2]] * partitions)
    for index in range(partitions):
        await nodes.send("t", b"common", index=index)
    nodes.nodes[2].machine.pause_process()
    await send_to_the_leader_alone(nodes, "t", b"lost", b"lost, too", partitions=partitions)
    await nodes.nodes[1].stop()
    nodes.nodes[2].machine.resume_process()
    await nodes.until(lambda: all(nodes.partition(2, "t", index).led_epoch >= 0 for index in range(partitions)))
    nodes.nodes[1].begin()
    await nodes.until(lambda: nodes.has(1, "t", partitions - 1))
    await nodes.until(lambda: all(nodes.in_sync(2, "t", index) == {1, 2} for index in range(partitions)))
    ends = {nodes.partition(node, "t", index).log.log_end_offset for index in range(partitions) for node in (1, 2)}
    assert ends == {KEPT}


def test_a_replica_leads_when_its_log_is_cut_and_not_before() -> None:
    """The cut was for the leader before: where the new epoch begins is known after it (seed 354 of the simulation)."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])
        await nodes.send("t", b"a", b"b", b"c")
        partition, broker = nodes.partition(2, "t"), nodes.nodes[2].broker
        followed = partition.followed
        assert followed is not None
        assert broker is not None
        image = broker.image.topics["t"].partitions[0]
        cutting = asyncio.ensure_future(nodes.nodes[2].machine.run(truncate(broker.partitions, [Cut(partition, followed, 1)])))
        while partition.role.cutting is None:
            await asyncio.sleep(0)
        partition.take_role(replace(image, leader=2, leader_epoch=image.leader_epoch + 1))
        assert partition.led_epoch < 0
        await cutting
        await nodes.until(lambda: partition.led_epoch == image.leader_epoch + 1)
        assert partition.log.log_end_offset == 1
        assert partition.log.epochs.latest_epoch == partition.led_epoch
        assert partition.leading is not None
        assert partition.leading.machine.epoch_start_offset == 1
        assert partition.high_watermark <= 1

    play(body)


@pytest.mark.parametrize("flush_messages", [1, 2**63 - 1])
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_log_that_was_cut_below_what_was_synced_is_not_taken_for_damaged(power_cut: bool, flush_messages: int) -> None:
    async def body(nodes: SimNodes) -> None:
        await diverged(nodes)
        nodes.nodes[1].kill(power_cut=power_cut)
        nodes.nodes[1].begin()
        await nodes.until(lambda: nodes.has(1, "t"))
        await nodes.send("t", b"new")
        await nodes.until(lambda: nodes.in_sync(2, "t") == {1, 2})
        assert nodes.partition(1, "t").log.log_end_offset == KEPT + 1

    play(body, log_flush_interval_messages=str(flush_messages))


@pytest.mark.parametrize("count", [10, 30])
def test_logs_that_are_cut_together_share_one_checkpoint_and_one_sync(count: int) -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", *[[1, 2]] * count)
        for index in range(count):
            await nodes.send("t", b"a", b"b", index=index)
        broker, disk = nodes.nodes[2].broker, nodes.nodes[2].machine.disk
        assert broker is not None
        partitions = [nodes.partition(2, "t", index) for index in range(count)]
        for partition in partitions:
            await nodes.nodes[2].machine.run(partition.sync())
        cuts = [Cut(partition, partition.followed, 1) for partition in partitions if partition.followed is not None]
        steps: list[tuple[str, str]] = []
        disk.on_step = lambda operation, path, what: steps.append((operation, path))
        await nodes.nodes[2].machine.run(truncate(broker.partitions, cuts))
        disk.on_step = lambda operation, path, what: None
        assert {partition.log.log_end_offset for partition in partitions} == {1}
        assert len(cuts) == count
        checkpoints = [path for operation, path in steps if operation == "rename" and "recovery-point" in path]
        assert len(checkpoints) == 1, steps
        assert [operation for operation, _ in steps].count("sync_file_system") == 1
        synced = [path for operation, path in steps if operation in ("sync", "sync_dir") and "/t-" in path]
        assert synced == []
        assert len([path for operation, path in steps if operation == "truncate" and "/t-" in path]) == count

    play(body)


def test_a_sync_beside_a_cut_does_not_move_the_recovery_point_past_it() -> None:
    """Housekeeping syncs a log whose checkpoint has just been lowered; the crash comes before the cut."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])
        await nodes.send("t", b"a", b"b")
        broker, partition = nodes.nodes[2].broker, nodes.partition(2, "t")
        assert broker is not None
        await nodes.nodes[2].machine.run(partition.sync())
        assert partition.log.recovery_point == 2
        assert partition.log.begin_truncation(1)
        await nodes.nodes[2].machine.run(partition.sync())
        assert partition.log.recovery_point == 0
        partition.log.durability.truncation_ended()
        await nodes.nodes[2].machine.run(partition.sync())
        assert partition.log.recovery_point == 2

    play(body)


def test_nothing_is_appended_before_a_cut_is_durable() -> None:
    """What was cut might come back after it. What was asked for meanwhile was asked for at an end that was not known."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])
        await nodes.send("t", b"a", b"b")
        broker, partition = nodes.nodes[2].broker, nodes.partition(2, "t")
        followed = partition.followed
        assert broker is not None
        assert followed is not None
        part = await nodes.partition(1, "t").log.read(1, max_bytes=1000, end_offset=2)
        assert part is not None
        await nodes.nodes[2].machine.run(truncate(broker.partitions, [Cut(partition, followed, 1)]))
        partition.role.begin_cut()
        records = memoryview(part.region.read())
        machine = nodes.nodes[2].machine
        assert not await machine.run(append(broker.partitions, partition, followed, 1, records, now_ms=1))
        await asyncio.sleep(1)
        assert partition.log.log_end_offset == 1, "nor is it fetched"
        partition.role.end_cut()
        assert not await machine.run(append(broker.partitions, partition, followed, 2, records, now_ms=1)), "asked for at another end"
        assert await machine.run(append(broker.partitions, partition, followed, 1, records, now_ms=1))
        assert partition.log.log_end_offset == 2

    play(body)


def test_a_cut_that_could_not_be_prepared_is_prepared_again() -> None:
    """The disk had no room for the checkpoints, which still have the recovery point of before."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])
        await nodes.send("t", b"a", b"b")
        broker, partition = nodes.nodes[2].broker, nodes.partition(2, "t")
        followed, machine = partition.followed, nodes.nodes[2].machine
        assert broker is not None
        assert followed is not None
        await machine.run(partition.sync())
        machine.disk.faults.append(Fault("append", "recovery-point-offset-checkpoint.tmp", errno.ENOSPC))
        with pytest.raises(KafkaError):
            await machine.run(truncate(broker.partitions, [Cut(partition, followed, 1)]))
        assert partition.log.log_end_offset == 2
        steps: list[str] = []
        machine.disk.on_step = lambda operation, path, what: steps.append(path)
        await machine.run(truncate(broker.partitions, [Cut(partition, followed, 1)]))
        machine.disk.on_step = lambda operation, path, what: None
        assert partition.log.log_end_offset == 1
        assert any("recovery-point" in path for path in steps)

    play(body)


def _opened_since(nodes: SimNodes, partition: Partition) -> Partition | None:
    """The replica that node 2 has in its place."""
    broker = nodes.nodes[2].broker
    assert broker is not None
    found = broker.partitions.find(partition.topic, partition.index)
    return None if found is partition else found


@pytest.mark.parametrize(("code", "is_directory_lost"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_a_replica_whose_log_was_cut_in_part_is_offline_and_its_directory_where_the_disk_is_at_fault(
    code: int, is_directory_lost: bool
) -> None:
    """The error ended the follower's fetch before, and the log was taken for sound."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])
        await nodes.create("other", [1, 2])
        await nodes.send("t", b"a", b"b")
        broker, partition = nodes.nodes[2].broker, nodes.partition(2, "t")
        followed, machine = partition.followed, nodes.nodes[2].machine
        assert broker is not None
        assert followed is not None
        machine.disk.faults.append(Fault("truncate", ".log", code))
        with pytest.raises(StorageError):
            await machine.run(truncate(broker.partitions, [Cut(partition, followed, 1)]))
        assert partition.log.is_failed
        assert nodes.partition(2, "other").log.is_failed == is_directory_lost
        assert partition.role.cutting is None
        if not is_directory_lost:  # it is opened again, and follows
            await nodes.until(lambda: _opened_since(nodes, partition) is not None)
            await nodes.send("t", b"c")
            await nodes.until(lambda: (opened := _opened_since(nodes, partition)) is not None and opened.high_watermark == 3)
            assert not [path for path in machine.disk.directories if "-stray" in path], "it is not fetched anew"

    play(body)


def test_waiting_requests_get_a_storage_error_when_a_log_is_opened_again() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])
        await nodes.send("t", b"a")
        broker, partition, machine = nodes.nodes[1].broker, nodes.partition(1, "t"), nodes.nodes[1].machine
        assert broker is not None
        answers: list[KafkaError | None] = []

        class Waiter:
            def on_commit(self, what: Any, error: KafkaError | None) -> None:
                answers.append(error)

        partition.wait_for_commit(partition.log.log_end_offset + 1, Waiter(), None)
        assert answers == [], "it waits"
        partition.log.health.broken_off(OSError(errno.EMFILE, "too many open files"))
        await machine.run(broker.partitions.on_image(ImageDelta(broker.image, broker.image)))
        assert [error and error.code for error in answers] == [ErrorCode.KAFKA_STORAGE_ERROR]

    play(body)


@pytest.mark.parametrize("count", [4, 20])
def test_a_log_that_cannot_be_cut_keeps_none_of_the_others_from_it(count: int) -> None:
    """Those after it kept what the leader does not have, and were held back for an error that was not theirs."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", *[[1, 2]] * count)
        for index in range(count):
            await nodes.send("t", b"a", b"b", index=index)
        broker, machine = nodes.nodes[2].broker, nodes.nodes[2].machine
        assert broker is not None
        partitions = [nodes.partition(2, "t", index) for index in range(count)]
        cuts = [Cut(partition, partition.followed, 1) for partition in partitions if partition.followed is not None]
        machine.disk.faults.append(Fault("truncate", ".log", errno.EMFILE))
        failed = await machine.run(truncate_each(broker.partitions, cuts))
        assert list(failed) == partitions[:1]
        assert isinstance(failed[partitions[0]], StorageError)
        assert [partition.log.log_end_offset for partition in partitions[1:]] == [1] * (count - 1)
        assert {partition.role.cutting for partition in partitions} == {None}

    play(body)


@pytest.mark.parametrize("error", [StorageError("no"), RuntimeError("a mistake")])
def test_only_the_replica_whose_log_could_not_be_cut_waits_for_the_backoff(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    truncate_to = PartitionLog.truncate_to

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2], [1, 2], [1, 2])
        for index in range(3):
            await nodes.send("t", b"a", b"b", index=index)
        broker, machine = nodes.nodes[2].broker, nodes.nodes[2].machine
        assert broker is not None
        partitions = [nodes.partition(2, "t", index) for index in range(3)]
        fetcher = broker.part(ReplicaFetchers)._of[partitions[0]]
        cuts = [Cut(partition, partition.followed, 1) for partition in partitions if partition.followed is not None]
        before = [cut.followed.wait_until_ms for cut in cuts]

        async def refuse(log: PartitionLog, offset: int, *, is_durable: bool = True) -> None:
            if log is partitions[0].log:
                raise error
            await truncate_to(log, offset, is_durable=is_durable)

        monkeypatch.setattr(PartitionLog, "truncate_to", refuse)
        await machine.run(fetcher._cut(cuts))
        after = [cut.followed.wait_until_ms for cut in cuts]
        assert after[0] > before[0]
        assert after[1:] == before[1:]

    play(body)


def test_a_disk_that_is_lost_by_the_first_of_many_cuts_is_not_written_by_the_others() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", *[[1, 2]] * 20)
        for index in range(20):
            await nodes.send("t", b"a", b"b", index=index)
        broker, machine = nodes.nodes[2].broker, nodes.nodes[2].machine
        assert broker is not None
        partitions = [nodes.partition(2, "t", index) for index in range(20)]
        cuts = [Cut(partition, partition.followed, 1) for partition in partitions if partition.followed is not None]
        machine.disk.faults.append(Fault("truncate", ".log"))
        steps: list[str] = []
        machine.disk.on_step = lambda operation, path, what: steps.append(path)
        failed = await machine.run(truncate_each(broker.partitions, cuts))
        machine.disk.on_step = lambda operation, path, what: None
        assert list(failed) == partitions
        assert len([path for path in steps if "/t-" in path and path.endswith(".log")]) <= 1, "of the cut that failed"
        assert {partition.role.cutting for partition in partitions} == {None}

    play(body)
