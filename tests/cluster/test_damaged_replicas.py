"""A replica whose log is damaged while its disk is well: others lead, and it is fetched again from the beginning."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.admin_http.test_troubles import value
from tests.cluster.in_simulation import SimNodes, play
from tests.cluster.loop_clients import asking
from tests.cluster.one_loop import LoopCluster, cluster_on_loop
from tests.waiting import eventually_is

from ottla.aio import Consumer, NewTopic, Producer
from ottla.broker.homes.quorum.directory_reports import DirectoryReports
from ottla.broker.replicas import resent
from ottla.broker.replicas.partition import Partition
from ottla.broker.upkeep.scrubber import Scrubber
from ottla.client.admin import Admin, Topic
from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.records.batch import HEADER_SIZE
from ottla.runtime.zookeeper_server import ZooKeeperServer
from ottla.sim.disk_faults import Fault
from ottla.storage.directory.directory import CLEAN_SHUTDOWN_NAME
from ottla.types import TopicPartition

RECORDS = 40
SEGMENT_BYTES = "2048"
WAIT_SECONDS_MAX = 60
MAGIC_AT = 16
"""Where a batch has its version."""


def replica(cluster: LoopCluster, node: int) -> Partition:
    found = cluster.nodes[node].partitions.find("t", 0)
    assert found is not None
    return found


async def filled(cluster: LoopCluster) -> None:
    """A partition of many segments, led by node 1."""
    async with asking(cluster, 1) as admin:
        new = NewTopic("t", assignments={0: [1, 2, 3]}, configs={"min.insync.replicas": "2"})
        assert await admin.create_topics([new]) == {"t": None}
    await send(cluster, RECORDS)


async def send(cluster: LoopCluster, count: int) -> None:
    async with Producer(cluster.bootstrap, acks="all", linger_ms=0) as producer:
        for number in range(count):
            await (await producer.send("t", b"%100d" % number, partition=0))


def damage(directory: Path, *, segment: int = 0, after: int = 0) -> None:
    """A bit of the segment is another one: so many bytes after its middle."""
    path = sorted(directory.glob("*.log"))[segment]
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + after] ^= 1
    path.write_bytes(data)


def counts(cluster: LoopCluster, node: int) -> tuple[int, int]:
    """The damaged segments and the missing replicas that the node has found."""
    found = cluster.nodes[node].partitions.replication.damage
    return found.damaged_segments, found.missing_replicas


def logs_of(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


async def are_equal(cluster: LoopCluster, directory: Path, end_offset: int) -> None:
    """Each node has the partition, up to the offset, byte for byte, and is in sync."""

    async def state() -> object:
        partitions = [node.partitions.find("t", 0) for node in cluster.nodes.values()]
        ends = {-1 if found is None or found.log.is_failed else found.log.log_end_offset for found in partitions}
        return ends, {frozenset(node.image.topics["t"].partitions[0].isr) for node in cluster.nodes.values()}

    await eventually_is(state, ({end_offset}, {frozenset({1, 2, 3})}))
    assert len({logs_of(place(directory, node)) for node in (1, 2, 3)}) == 1


def place(directory: Path, node: int) -> Path:
    return directory / f"node-{node}" / "t-0"


def strays(directory: Path, node: int) -> list[str]:
    return [name for name in os.listdir(directory / f"node-{node}") if name.endswith("-stray")]


def test_a_damaged_leader_steps_down_first_and_is_fetched_again(tmp_path: Path) -> None:
    """Found by the scrubber while the partition is led."""
    steps_down(tmp_path, "")


def test_a_damaged_leader_in_zookeeper_mode_is_fetched_again(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    steps_down(tmp_path, f"{zookeeper.address}/{tmp_path.name}")


def steps_down(tmp_path: Path, zookeeper: str) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path, zookeeper=zookeeper, log_segment_bytes=SEGMENT_BYTES) as cluster:
            await filled(cluster)
            before = replica(cluster, 1)
            damage(place(tmp_path, 1))
            await cluster.nodes[1].part(Scrubber)._scrub_all()
            assert before.log.is_failed
            assert await value(cluster.nodes[1], "/metrics", "ottla_damaged_segments_total") == 1
            [segment] = {before.log.health.reason}
            assert segment.startswith(f"damaged: {place(tmp_path, 1)}/")

            async def is_led_elsewhere() -> bool:
                return cluster.nodes[2].image.topics["t"].partitions[0].leader in (2, 3)

            await eventually_is(is_led_elsewhere, True)
            await are_equal(cluster, tmp_path, RECORDS)
            assert len(strays(tmp_path, 1)) == 1, "what is damaged is kept"
            await send(cluster, 5)
            await are_equal(cluster, tmp_path, RECORDS + 5)
            assert not strays(tmp_path, 2)

    asyncio.run(body())


def test_a_follower_that_is_found_to_be_damaged_at_the_start_is_fetched_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path, log_segment_bytes=SEGMENT_BYTES) as cluster:
            await filled(cluster)
            await cluster.stop(3)
            [*_, newest] = sorted(place(tmp_path, 3).glob("*.log"))
            oldest = min(place(tmp_path, 3).glob("*.log"))
            damage(place(tmp_path, 3))
            assert oldest != newest
            (oldest.with_suffix(".damaged")).write_text("-1\nfound by the scrubber\n")
            await cluster.start(3)
            await are_equal(cluster, tmp_path, RECORDS)
            assert len(strays(tmp_path, 3)) == 1
            assert counts(cluster, 3) == (1, 0), "it is damaged, and not missing"

    asyncio.run(body())


def test_damage_that_a_start_after_a_kill_finds_is_counted_as_damage_and_not_as_a_missing_replica(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path, log_segment_bytes=SEGMENT_BYTES) as cluster:
            await filled(cluster)
            await cluster.stop(1)
            (tmp_path / "node-1" / CLEAN_SHUTDOWN_NAME).unlink()
            damage(place(tmp_path, 1), segment=-1)
            newest = str(max(place(tmp_path, 1).glob("*.log")))
            with capture_logs() as logs:
                await cluster.start(1)
                await are_equal(cluster, tmp_path, RECORDS)
            [said] = [line for line in logs if line["event"] == "segment_damaged"]
            assert said["file"] == newest
            assert "is damaged: it is intact up to offset" in said["reason"]
            assert not [line for line in logs if line["event"] == "replica_missing"]
            assert len(strays(tmp_path, 1)) == 1
            assert counts(cluster, 1) == (1, 0)

    asyncio.run(body())


def test_damage_that_a_read_finds_is_counted_and_named(tmp_path: Path) -> None:
    """It was set aside, and nothing said why."""

    async def body() -> None:
        async with cluster_on_loop(tmp_path, ottla_log_scrub_interval_ms="-1", log_segment_bytes=SEGMENT_BYTES) as cluster:
            await filled(cluster)
            before = replica(cluster, 1)
            path = min(place(tmp_path, 1).glob("*.log"))
            data = bytearray(path.read_bytes())
            data[MAGIC_AT] = 9
            path.write_bytes(data)
            with capture_logs() as logs, pytest.raises(StorageError, match="cannot be read"):
                await before.log.read(0, max_bytes=1, end_offset=RECORDS)
            assert [line["directory"] for line in logs if line["event"] == "segment_damaged"] == [str(place(tmp_path, 1))]
            assert before.log.health.reason.startswith("damaged: ")
            await are_equal(cluster, tmp_path, RECORDS)
            assert len(strays(tmp_path, 1)) == 1
            assert counts(cluster, 1) == (1, 0)

    asyncio.run(body())


def test_what_a_start_cuts_off_is_counted(tmp_path: Path) -> None:
    """Lost records were a line of the log, and raised no alarm."""

    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            await filled(cluster)
            assert await value(cluster.nodes[3], "/metrics", "ottla_log_cut_bytes_total") == 0
            await cluster.stop(3)
            (tmp_path / "node-3" / CLEAN_SHUTDOWN_NAME).unlink()
            [newest] = place(tmp_path, 3).glob("*.log")
            with newest.open("ab") as log:
                log.write(b"x" * 100)
            await cluster.start(3)
            await are_equal(cluster, tmp_path, RECORDS)
            assert await value(cluster.nodes[3], "/metrics", "ottla_log_cuts_total") == 1
            assert await value(cluster.nodes[3], "/metrics", "ottla_log_cut_bytes_total") == 100

    asyncio.run(body())


def test_the_only_replica_in_sync_is_kept_whatever_is_wrong_with_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path, log_segment_bytes=SEGMENT_BYTES) as cluster:
            await filled(cluster)
            async with asking(cluster, 1) as admin:
                await admin.create_topics([NewTopic("u", assignments={0: [1]})])

            async def is_there() -> bool:
                found = cluster.nodes[1].partitions.find("u", 0)
                return found is not None and found.led_epoch >= 0

            await eventually_is(is_there, True)
            alone = cluster.nodes[1].partitions.find("u", 0)
            assert alone is not None
            alone.fail()
            cluster.nodes[1].made.list.on_offline()

            async def leader() -> int:
                return cluster.nodes[2].image.topics["u"].partitions[0].leader

            await eventually_is(leader, -1)
            await send(cluster, 1)  # the image goes on
            assert cluster.nodes[1].partitions.find("u", 0) is alone
            assert not strays(tmp_path, 1)

    asyncio.run(body())


def test_a_damaged_replica_that_the_disk_cannot_rename_is_not_served_not_deleted_and_tried_again() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        await nodes.send("t", b"before")
        broker, disk = nodes.nodes[3].broker, nodes.nodes[3].machine.disk
        assert broker is not None
        damaged = nodes.partition(3, "t")
        disk.faults.append(Fault("rename", "t-0", errno.ENOSPC, lasts=True))
        damaged.fail()
        broker.made.list.on_offline()
        key = TopicPartition("t", 0)
        await nodes.until(lambda: key in broker.partitions.offline)
        began = asyncio.get_running_loop().time()
        await nodes.send("t", b"meanwhile")
        assert asyncio.get_running_loop().time() - began < 5, "of the simulated clock: it is not waited for"
        assert any(path.startswith("/data/t-0/") for path in disk.files)
        disk.faults.clear()

        async def change(cluster: Cluster) -> None:
            await Admin(cluster).alter_configs({Topic("t"): {"retention.ms": -1}})
            assert await Admin(cluster).alter_partition_reassignments({key: [2, 1, 3]}) == {key: None}

        await nodes.act(change)
        await nodes.until(lambda: nodes.has(3, "t") and nodes.in_sync(1, "t") == {1, 2, 3})
        assert nodes.partition(3, "t").log.log_end_offset == 2
        assert key not in broker.partitions.offline

    play(body)


def test_what_is_reported_last_of_a_damaged_replica_is_that_there_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In ZooKeeper mode a controller asks after each report. If it asked a moment too early, it has the replica as lost."""
    is_there: list[bool] = []
    on_offline = DirectoryReports.on_offline

    def noted(reports: DirectoryReports) -> None:
        found = reports._partitions.find("t", 0)
        if reports._node_id == 3:
            is_there.append(found is not None and not found.log.is_failed)
        on_offline(reports)

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        await nodes.send("t", b"before")
        broker = nodes.nodes[3].broker
        assert broker is not None
        monkeypatch.setattr(DirectoryReports, "on_offline", noted)
        nodes.partition(3, "t").fail()
        broker.made.list.on_offline()
        await nodes.until(lambda: nodes.has(3, "t") and not nodes.partition(3, "t").log.is_failed and nodes.in_sync(1, "t") == {1, 2, 3})
        assert (is_there[0], is_there[-1]) == (False, True)

    play(body)


def test_a_leader_whose_growing_segment_is_damaged_is_suspected_by_a_follower_that_repeats_itself(tmp_path: Path) -> None:
    """It went on to lead, and neither noticed nor said anything, while a good copy was in sync."""

    async def body() -> None:
        properties: dict[str, Any] = {
            "replica_fetch_backoff_ms": "20",
            "ottla_log_scrub_interval_ms": "-1",
            "log_segment_bytes": SEGMENT_BYTES,
        }
        async with cluster_on_loop(tmp_path, **properties) as cluster:
            await filled(cluster)
            await cluster.stop(3)
            damage(place(tmp_path, 1), segment=-1, after=HEADER_SIZE + 50)  # of a value: the leader would notice a bent header
            shutil.rmtree(place(tmp_path, 3))
            await cluster.start(3)
            await are_equal(cluster, tmp_path, RECORDS)
            assert cluster.nodes[2].image.topics["t"].partitions[0].leader in (2, 3)
            assert len(strays(tmp_path, 1)) == 1, "what is damaged is kept"

    asyncio.run(body())


def test_a_leader_that_is_damaged_steps_down_when_a_consumer_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resent, "SUSPECT_MS", 0)

    async def body() -> None:
        async with cluster_on_loop(tmp_path, ottla_log_scrub_interval_ms="-1", log_segment_bytes=SEGMENT_BYTES) as cluster:
            await filled(cluster)
            damage(place(tmp_path, 1), segment=-1, after=HEADER_SIZE + 50)
            async with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition("t", 0)])
                read, errors = 0, set[ErrorCode]()
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    while read < RECORDS:
                        try:
                            read += len(await consumer.poll(100))
                        except KafkaError as error:
                            errors.add(error.code)
            assert errors == {ErrorCode.CORRUPT_MESSAGE}
            assert cluster.nodes[2].image.topics["t"].partitions[0].leader in (2, 3)
            await are_equal(cluster, tmp_path, RECORDS)

    asyncio.run(body())


def test_consumers_that_read_from_the_start_each_time_and_end_at_the_same_record_make_a_leader_step_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does who looks with ``ottla consume -o earliest``: nothing was found before the weekly look."""
    monkeypatch.setattr(resent, "SUSPECT_MS", 0)

    async def read(cluster: LoopCluster) -> int:
        """How many records a new consumer gets before the damaged one."""
        async with Consumer(cluster.bootstrap, auto_offset_reset="earliest", client_id="look") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            count = 0
            while count < RECORDS:
                try:
                    count += len(await consumer.poll(100))
                except KafkaError as error:
                    if error.code != ErrorCode.CORRUPT_MESSAGE:
                        raise
                    break
            return count

    async def body() -> None:
        async with cluster_on_loop(tmp_path, ottla_log_scrub_interval_ms="-1", log_segment_bytes=SEGMENT_BYTES) as cluster:
            await filled(cluster)
            damage(place(tmp_path, 1), segment=-1, after=HEADER_SIZE + 50)
            counts = [await read(cluster) for _ in range(resent.RETURN_COUNT + 1)]
            assert set(counts) < set(range(1, RECORDS)), "each ends where it is damaged"
            await eventually_is(lambda: read(cluster), RECORDS)
            assert cluster.nodes[2].image.topics["t"].partitions[0].leader in (2, 3)
            await are_equal(cluster, tmp_path, RECORDS)

    asyncio.run(body())


def test_what_grows_is_scrubbed_too(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            await filled(cluster)
            before = replica(cluster, 1)
            await cluster.nodes[1].part(Scrubber)._scrub_all()
            assert not before.log.is_failed
            damage(place(tmp_path, 1))
            await cluster.nodes[1].part(Scrubber)._scrub_all()
            assert before.log.is_failed

    asyncio.run(body())
