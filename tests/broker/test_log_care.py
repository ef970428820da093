"""Logs grow old in a running broker: retention, compaction, disks that are full or fail. In the simulated world."""

from __future__ import annotations

import asyncio
import errno
import gc
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.quiet import silence

from ottla.broker.homes.lone import LoneLife
from ottla.broker.replicas.full_directories import PROBE_MS
from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.records.batch import iterate_batches
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import Record, iterate_records
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.disk_faults import Fault
from ottla.sim.loop import run
from ottla.sim.trace import Trace
from ottla.storage.log.partition_log import PartitionLog
from ottla.types import GROUP_METADATA_TOPIC, TopicPartition

Act = Callable[[SimBroker], Awaitable[None]]
SMALL = {"log.segment.bytes": "1024", "log.retention.check.interval.ms": "1000", "log.cleaner.backoff.ms": "500"}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def play(act: Act, **properties: str) -> SimBroker:
    broker = SimBroker(Simulation(1), SMALL | {name.replace("_", "."): value for name, value in properties.items()})

    async def main() -> None:
        await broker.start()
        await act(broker)

    run(main())
    return broker


async def create(broker: SimBroker, topic: str, partitions: int = 1, **configs: str) -> None:
    admin = Admin(broker.client("admin"))
    await admin.create_topics([NewTopic(topic, partitions, configs={name.replace("_", "."): value for name, value in configs.items()})])
    await admin.close()


async def send(broker: SimBroker, topic: str, records: Sequence[tuple[bytes | None, bytes | None]], partition: int = 0) -> None:
    """Each record in a batch of its own, acknowledged."""
    producer = Producer(broker.client("producer"), ProducerSettings(linger_ms=0))
    for key, value in records:
        await (await producer.send(topic, value, key=key, partition=partition))
    await producer.close()


def log_of(broker: SimBroker, topic: str, partition: int = 0) -> PartitionLog:
    assert broker.broker is not None
    return broker.broker.partitions.by_name[topic][partition].log


async def records_of(log: PartitionLog) -> list[Record]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        part = await log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset)
        assert part is not None
        data = part.region.read()
        for position, header in iterate_batches(data, check_crc=True):
            found += iterate_records(data, position)
            offset = header.last_offset + 1
    return found


async def files_of(broker: SimBroker, partition: str, suffix: str) -> list[str]:
    return [name for name in await broker.machine.disk.list_dir(f"/data/{partition}") if name.endswith(suffix)]


def test_mechanism_51_segments_are_deleted_by_time_and_a_reader_that_lags_starts_again() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", retention_ms="10000", file_delete_delay_ms="5000")
        await send(broker, "t", [(None, b"x" * 300)] * 20)
        log = log_of(broker, "t")
        closed = len(log.segments)
        assert closed > 4
        await asyncio.sleep(9)
        assert log.log_start_offset == 0
        await asyncio.sleep(3)
        assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (20, 20, 1), "the last one was closed, and then deleted"
        assert len(await files_of(broker, "t-0", ".log.deleted")) == closed
        await asyncio.sleep(7)
        assert await files_of(broker, "t-0", ".deleted") == []
        with pytest.raises(KafkaError) as caught:
            await log.read(0, max_bytes=100, end_offset=20)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        await send(broker, "t", [(None, b"new")])
        consumer = Consumer(broker.client("consumer"), ConsumerSettings(fetch=FetchSettings(auto_offset_reset="earliest")))
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 0)
        values: list[bytes | None] = []
        while not values:
            values += [record.value for record in await consumer.poll(500)]
        assert values == [b"new"]
        await consumer.close()

    play(act)


def test_mechanism_51_segments_are_deleted_by_size_and_the_start_survives_a_power_cut() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", retention_bytes="3000", retention_ms="-1")
        await send(broker, "t", [(None, b"x" * 300)] * 40)
        await asyncio.sleep(3)
        log = log_of(broker, "t")
        start = log.log_start_offset
        assert start > 20
        assert 3000 <= log.size_bytes < 3000 + 1024
        assert log.segments[0].base_offset == start
        for power_cut in (False, True):
            broker.kill(power_cut=power_cut)
            await broker.start()
            assert log_of(broker, "t").log_start_offset == start
            assert await files_of(broker, "t-0", ".deleted") == []

    play(act)


class Events(Trace):
    """Every event, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[str] = []

    def add(self, event: str) -> None:
        super().add(event)
        self.all.append(event)


def test_mechanism_46_the_page_cache_is_written_and_flush_messages_and_flush_ms_force_it_to_the_disk() -> None:
    simulation = Simulation(1)
    events = simulation.trace = Events()
    broker = SimBroker(simulation)

    def syncs(topic: str) -> int:
        return sum(event.startswith(f"broker sync /data/{topic}-0/") and event.split()[2].endswith(".log") for event in events.all)

    async def main() -> None:
        await broker.start()
        await create(broker, "cached")
        await create(broker, "counted", flush_messages="3")
        await create(broker, "timed", flush_ms="5000")
        before = {topic: syncs(topic) for topic in ("cached", "counted", "timed")}
        for topic in before:
            await send(broker, topic, [(None, b"x")] * 7)
        assert [syncs(topic) - count for topic, count in before.items()] == [0, 2, 0]
        assert log_of(broker, "counted").recovery_point == 6
        await asyncio.sleep(4)
        assert syncs("timed") == before["timed"]
        await asyncio.sleep(4)
        assert syncs("timed") == before["timed"] + 1
        assert log_of(broker, "timed").recovery_point == 7
        await asyncio.sleep(60)
        assert syncs("cached") == before["cached"], "a log that is asked for nothing is left to the kernel"
        broker.kill(power_cut=False)
        await broker.start()
        assert [len(await records_of(log_of(broker, topic))) for topic in before] == [7, 7, 7], "the page cache outlives the process"

    run(main())


def test_a_log_without_limits_and_one_that_is_only_compacted_keep_what_is_old() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "kept", retention_ms="-1")
        await create(broker, "compacted", cleanup_policy="compact", retention_ms="1", retention_bytes="1")
        for topic in ("kept", "compacted"):
            await send(broker, topic, [(b"%d" % number, b"x" * 300) for number in range(20)])
        await asyncio.sleep(20)
        for topic in ("kept", "compacted"):
            assert log_of(broker, topic).log_start_offset == 0
            assert len(await records_of(log_of(broker, topic))) == 20

    play(act)


def test_mechanism_53_compaction_keeps_the_newest_of_each_key_at_its_offset() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.1", delete_retention_ms="5000")
        sent = [(b"key-%d" % (number % 7), b"%d" % number * 20) for number in range(120)]
        await send(broker, "t", sent)
        await send(broker, "t", [(b"key-3", None)])
        await send(broker, "t", [(b"filler", b"x" * 800)] * 2)  # so that all of the above is in closed segments
        await asyncio.sleep(3)
        log = log_of(broker, "t")
        newest = {key: offset for offset, (key, _) in enumerate(sent)} | {b"key-3": 120}
        found = [record for record in await records_of(log) if record.key != b"filler"]
        assert {record.key: record.offset for record in found} == newest
        assert [record.value for record in found if record.key != b"key-3"] == [
            sent[record.offset][1] for record in found if record.key != b"key-3"
        ]
        assert (log.log_start_offset, log.log_end_offset) == (0, 123)
        await asyncio.sleep(6)
        await send(broker, "t", [(b"filler", b"x" * 800)] * 2)
        await asyncio.sleep(3)
        assert {record.key for record in await records_of(log)} == newest.keys() - {b"key-3"} | {b"filler"}, "the tombstone's time is over"
        with pytest.raises(KafkaError) as caught:
            await send(broker, "t", [(None, b"keyless")])
        assert caught.value.code == ErrorCode.INVALID_RECORD
        before = await records_of(log)
        dirty = log.compaction.first_dirty_offset
        broker.kill(power_cut=True)
        await broker.start()
        log = log_of(broker, "t")
        assert (await records_of(log), log.compaction.first_dirty_offset) == (before, dirty)

    play(act, log_flush_interval_messages="1")


def test_a_log_that_is_compacted_and_deleted_does_both() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", cleanup_policy="compact,delete", retention_ms="20000", min_cleanable_dirty_ratio="0.1")
        await send(broker, "t", [(b"key-%d" % (number % 3), b"x" * 100) for number in range(60)])
        await asyncio.sleep(5)
        log = log_of(broker, "t")
        assert 3 <= len(await records_of(log)) < 20
        await asyncio.sleep(20)
        assert (log.log_start_offset, await records_of(log)) == (60, [])

    play(act)


def test_records_younger_than_min_compaction_lag_ms_are_left_alone_and_older_than_max_ones_are_not() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "young", cleanup_policy="compact", min_cleanable_dirty_ratio="0", min_compaction_lag_ms="10000")
        await create(broker, "old", cleanup_policy="compact", min_cleanable_dirty_ratio="1", max_compaction_lag_ms="10000")
        for topic in ("young", "old"):
            await send(broker, topic, [(b"key", b"x" * 200)] * 20)
        await asyncio.sleep(5)
        assert [len(await records_of(log_of(broker, topic))) for topic in ("young", "old")] == [20, 20]
        await asyncio.sleep(10)
        assert [len(await records_of(log_of(broker, topic))) < 10 for topic in ("young", "old")] == [True, True]

    play(act)


def test_the_offsets_topic_is_compacted_and_the_newest_commit_stays() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        for offset in range(1, 80):
            consumer = Consumer(broker.client("consumer"), ConsumerSettings(group_id="g", enable_auto_commit=False))
            consumer.assign([TopicPartition("t", 0)])
            await consumer.commit({TopicPartition("t", 0): offset})
            await consumer.close()
        assert broker.broker is not None
        logs = [partition.log for partition in broker.broker.partitions.by_name[GROUP_METADATA_TOPIC].values()]
        log = max(logs, key=lambda log: log.log_end_offset)
        written = log.log_end_offset
        await asyncio.sleep(5)
        assert written > 70
        assert len(await records_of(log)) < 30
        for power_cut in (False, True):
            broker.kill(power_cut=power_cut)
            await broker.start()
            admin = Admin(broker.client("admin"))
            assert (await admin.committed_offsets("g"))[TopicPartition("t", 0)].offset == 79
            await admin.close()

    play(act, offsets_topic_segment_bytes="1024", log_flush_interval_messages="1")


def directory_of(broker: SimBroker, topic: str, partition: int) -> str:
    return log_of(broker, topic, partition).segments[0].path.split("/")[1]


@pytest.mark.parametrize(("operation", "code"), [("sync", errno.EIO), ("sync", errno.ENOSPC), ("append", errno.EIO)])
def test_a_disk_error_takes_its_log_directory_offline_and_no_other(operation: str, code: int) -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 4, flush_messages="1")
        for partition in range(4):
            await send(broker, "t", [(None, b"before")], partition)
        bad = [partition for partition in range(4) if directory_of(broker, "t", partition) == "spare"]
        assert len(bad) == 2
        broker.machine.disk.faults.append(Fault(operation, log_of(broker, "t", bad[0]).segments[0].path, code))
        steps = broker.machine.disk.steps
        outcome = await attempt(broker, bad[0])
        assert outcome == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.machine.disk.steps - steps <= 2, "what failed is not tried again"
        assert broker.broker is not None
        assert broker.broker.failure is None
        for partition in range(4):
            assert await attempt(broker, partition) == (ErrorCode.KAFKA_STORAGE_ERROR if partition in bad else ErrorCode.NONE)
            with_error = broker.broker.partitions.by_name["t"][partition]
            if partition in bad:
                with pytest.raises(KafkaError) as caught:
                    with_error.check_leads()
                assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        await assert_offline(broker, "t", {partition: partition in bad for partition in range(4)})
        await broker.stop()
        assert await broker.machine.disk.exists("/data/.kafka_cleanshutdown")
        assert not await broker.machine.disk.exists("/spare/.kafka_cleanshutdown"), "its content is unknown"
        await broker.start()
        for partition in range(4):
            assert await attempt(broker, partition) == ErrorCode.NONE
            assert (await records_of(log_of(broker, "t", partition)))[0].value == b"before"
        await assert_offline(broker, "t", dict.fromkeys(range(4), False))
        assert {image.leader_epoch for image in broker.broker.image.topics["t"].partitions.values()} == {0, 2}

    play(act, log_dirs="/data,/spare")


async def attempt(broker: SimBroker, partition: int) -> int:
    """One record, tried once; the error code."""
    assert broker.broker is not None
    builder = BatchBuilder()
    builder.append(None, b"x", timestamp_ms=broker.machine.clock.now_ms())
    owner = broker.broker.partitions.by_name["t"][partition]
    try:
        owner.stage(memoryview(builder.build()), now_ms=broker.machine.clock.now_ms())
        await owner.flush()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_the_file_of_a_deleted_log_whose_last_write_failed_waits_for_no_garbage_collector() -> None:
    """Its room is what the disk lacked; and in a broker that does little the collector comes after minutes."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"x")])
        file = weakref.ref(log_of(broker, "t").segments[-1].file)
        broker.machine.disk.faults.append(Fault("append", ".log", errno.ENOSPC))
        gc.disable()
        try:
            assert await attempt(broker, 0) == ErrorCode.KAFKA_STORAGE_ERROR
            admin = Admin(broker.client("admin"))
            await admin.delete_topics(["t"])
            await admin.close()
            assert file() is None
        finally:
            gc.enable()

    play(act)


def test_a_segment_whose_name_cannot_be_made_durable_for_want_of_room_is_made_again() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 2)
        spare = next(index for index in range(2) if directory_of(broker, "t", index) == "spare")
        broker.machine.disk.faults.append(Fault("sync_dir", f"/t-{spare}", errno.ENOSPC))
        acknowledged = 0
        while await attempt(broker, spare) == ErrorCode.NONE:
            acknowledged += 1
        assert acknowledged > 5
        assert not log_of(broker, "t", spare).is_failed
        assert await attempt(broker, spare) == ErrorCode.KAFKA_STORAGE_ERROR, "until it is known that there is room"
        await asyncio.sleep(PROBE_MS / 1000)
        assert await attempt(broker, spare) == ErrorCode.NONE
        acknowledged += 1
        await broker.stop()
        await broker.start()
        assert len(await records_of(log_of(broker, "t", spare))) == acknowledged
        assert await attempt(broker, spare) == ErrorCode.NONE

    play(act, log_dirs="/data,/spare")


def test_the_broker_ends_with_the_directory_of_the_metadata_log() -> None:
    async def act(broker: SimBroker) -> None:
        assert broker.broker is not None
        broker.machine.disk.faults.append(Fault("sync", "__cluster_metadata-0/00000000000000000000.log"))
        with pytest.raises(KafkaError):
            await asyncio.wait_for(create(broker, "t"), 5)
        assert "metadata log" in (broker.broker.failure or "")
        assert broker.failure_count == 1
        await broker.stop()
        await broker.start()
        await create(broker, "u")

    play(act, log_dirs="/data,/spare")


def test_a_full_disk_refuses_what_comes_and_takes_it_when_there_is_room() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 2)
        await send(broker, "t", [(None, b"before")])
        broker.machine.disk.faults += [Fault("append", ".log", errno.ENOSPC)] * 6
        assert await attempt(broker, 0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert [record.value for record in await records_of(log_of(broker, "t"))] == [b"before"], "what is there is served"
        await send(broker, "t", [(None, b"%d" % number) for number in range(5)])  # tries again until there is room
        assert broker.machine.disk.faults == []
        assert [record.value for record in await records_of(log_of(broker, "t"))] == [b"before", *(b"%d" % number for number in range(5))]
        consumer = Consumer(broker.client("consumer"), ConsumerSettings(group_id="g", enable_auto_commit=False))
        consumer.assign([TopicPartition("t", 0)])
        await consumer.commit({TopicPartition("t", 0): 1})
        broker.machine.disk.faults += [Fault("append", ".log", errno.ENOSPC)] * 3
        committed = False
        for _ in range(20):
            try:
                await consumer.commit({TopicPartition("t", 0): 2})
                committed = True
                break
            except KafkaError:
                await asyncio.sleep(0.1)
        assert committed
        await consumer.close()
        broker.kill(power_cut=False)
        await broker.start()
        admin = Admin(broker.client("admin"))
        assert (await admin.committed_offsets("g"))[TopicPartition("t", 0)].offset == 2
        await admin.close()

    play(act)


def test_a_segment_is_not_begun_twice_when_the_disk_is_full_while_it_is_begun() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        for suffix in (".index", ".timeindex", ".snapshot", ".log"):
            operation = "create" if suffix == ".log" else "append"
            broker.machine.disk.faults += [Fault(operation, suffix, errno.ENOSPC)] * 2
        await send(broker, "t", [(None, b"%d" % number * 100) for number in range(60)])
        broker.machine.disk.faults.clear()
        for power_cut in (False, True):
            records = await records_of(log_of(broker, "t"))
            assert [record.offset for record in records] == list(range(60))
            assert len(log_of(broker, "t").segments) > 3
            broker.kill(power_cut=power_cut)
            await broker.start()

    play(act, log_flush_interval_messages="1")


def test_the_scrubber_takes_a_partition_with_a_damaged_segment_offline_and_no_other() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 2)
        for partition in range(2):
            await send(broker, "t", [(b"key", b"x" * 300)] * 20, partition)
        admin = Admin(broker.client("admin"))
        await admin.delete_records({TopicPartition("t", 1): 5})
        await admin.close()
        await asyncio.sleep(100)
        assert [await attempt(broker, partition) for partition in range(2)] == [ErrorCode.NONE, ErrorCode.NONE]
        file: Any = await log_of(broker, "t", 1).segments[1].opened()
        damaged = file.path.replace(".log", ".damaged")
        file.inode.written[200] ^= 1
        await asyncio.sleep(3700)
        assert [await attempt(broker, partition) for partition in range(2)] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        assert broker.broker is not None
        assert broker.broker.failure is None
        for _ in range(2):
            await assert_offline(broker, "t", {0: False, 1: True})
            await broker.stop()
            assert not await broker.machine.disk.exists("/data/.kafka_cleanshutdown"), "one log in it was not closed"
            await broker.start()
        assert await broker.machine.disk.exists(damaged)
        broker.kill(power_cut=False)
        file.inode.written[200] ^= 1  # the right bytes were restored
        await broker.start()
        await assert_offline(broker, "t", {0: False, 1: False})
        assert not await broker.machine.disk.exists(damaged)
        assert log_of(broker, "t", 1).log_start_offset == 5, "what was deleted before does not come back"
        assert [record.offset for record in await records_of(log_of(broker, "t", 1))][-16:] == list(range(5, 21))

    play(act, ottla_log_scrub_interval_ms="3600000")


def test_a_log_directory_that_cannot_be_opened_is_left_out_and_its_partitions_are_not_created_again() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t", 4)
        for partition in range(4):
            await send(broker, "t", [(None, b"before")], partition)
        bad = [partition for partition in range(4) if directory_of(broker, "t", partition) == "spare"]
        await broker.stop()
        disk: Any = broker.machine.disk
        whole, disk.make_dirs = disk.make_dirs, _failing(disk.make_dirs)
        await broker.start()
        disk.make_dirs = whole
        assert broker.broker is not None
        assert sorted(broker.broker.partitions.by_name["t"]) == [partition for partition in range(4) if partition not in bad]
        await assert_offline(broker, "t", {partition: partition in bad for partition in range(4)})
        await create(broker, "new", 2)
        assert {directory_of(broker, "new", partition) for partition in range(2)} == {"data"}
        await broker.stop()
        await broker.start()
        for partition in range(4):
            assert [record.value for record in await records_of(log_of(broker, "t", partition))] == [b"before"]

    play(act, log_dirs="/data,/spare")


async def assert_offline(broker: SimBroker, topic: str, expected: dict[int, bool]) -> None:
    """Metadata reports which replicas are offline and no leader for them; a request for their offsets gets KAFKA_STORAGE_ERROR."""
    assert broker.broker is not None
    await broker.broker.part(LoneLife)._reports._settle()  # the decision may still be on its way
    cluster = broker.client("asker")
    answer = await cluster.ask(None, MetadataRequest([MetadataRequestTopic(name=topic)]), MetadataResponse)
    [found] = answer.topics
    assert {partition.partition_index: bool(partition.offline_replicas) for partition in found.partitions} == expected
    for partition in found.partitions:
        is_offline = bool(partition.offline_replicas)
        led = (ErrorCode.LEADER_NOT_AVAILABLE, -1, [], 1) if is_offline else (ErrorCode.NONE, 1, [1], 0)
        assert (partition.error_code, partition.leader_id, partition.isr_nodes, partition.leader_epoch % 2) == led
    asked = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=-1) for partition in expected])
    told = await cluster.ask(None, ListOffsetsRequest(-1, topics=[asked]), ListOffsetsResponse)
    codes = {partition.partition_index: partition.error_code for partition in told.topics[0].partitions}
    assert codes == {partition: ErrorCode.KAFKA_STORAGE_ERROR if is_offline else 0 for partition, is_offline in expected.items()}
    await cluster.close()


def _failing(make_dirs: Callable[[str], Awaitable[None]]) -> Callable[[str], Awaitable[None]]:
    async def fails_for_the_spare_directory(path: str, *, is_private: bool = False) -> None:
        if path.startswith("/spare"):
            raise OSError(errno.EIO, "the disk fails", path)
        await make_dirs(path)

    return fails_for_the_spare_directory


def test_producers_that_are_silent_for_long_are_forgotten_and_others_are_not() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"x")])
        await asyncio.sleep(5)
        await send(broker, "t", [(None, b"y")])
        assert len(log_of(broker, "t").producers) == 2
        await asyncio.sleep(7)
        assert len(log_of(broker, "t").producers) == 1, "the first one was silent for longer than ten seconds"

    play(act, producer_id_expiration_ms="10000", producer_id_expiration_check_interval_ms="1000")


@pytest.mark.parametrize("step_ms", [24 * 3_600_000, -24 * 3_600_000])
def test_producers_grow_no_older_and_no_younger_when_the_wall_clock_is_set(step_ms: int) -> None:
    """An hour forward was enough to forget every idle producer: its next batch was taken wherever it began."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await send(broker, "t", [(None, b"x")])
        await asyncio.sleep(2)
        broker.machine.clock.step_ms += step_ms
        await asyncio.sleep(5)
        assert len(log_of(broker, "t").producers) == 1
        await asyncio.sleep(7)
        assert len(log_of(broker, "t").producers) == 0

    play(act, producer_id_expiration_ms="10000", producer_id_expiration_check_interval_ms="1000")
