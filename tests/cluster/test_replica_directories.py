"""A replica's directory gets another name when it goes, and it may be gone and come back meanwhile: each name has one owner."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

import pytest
from tests.cluster.in_simulation import SimNodes, play
from tests.simulation.quorum_nodes import QuorumNode

from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.sim.disk import SimDisk
from ottla.sim.disk_faults import Fault, Slow
from ottla.types import TopicPartition, uuid_text

KEY = TopicPartition("t", 0)
RENAME, SYNC = "rename of t-0", "sync of its directory"
REFUSALS = {RENAME: Fault("rename", "t-0", errno.ENOSPC, lasts=True), SYNC: Fault("sync_dir", "/data", errno.ENOSPC, lasts=True)}
"""What a full disk may refuse of a renaming: all of it, or what comes after."""


async def move(nodes: SimNodes, *replicas: int) -> None:
    """The partition has these replicas, and no others."""

    async def change(cluster: Cluster) -> None:
        assert await Admin(cluster).alter_partition_reassignments({KEY: list(replicas)}) == {KEY: None}

    await nodes.act(change)


async def moved(nodes: SimNodes, *replicas: int) -> None:
    await move(nodes, *replicas)
    await nodes.until(lambda: nodes.in_sync(1, "t") == set(replicas) == set(replicas_of(nodes)))


def replicas_of(nodes: SimNodes) -> Sequence[int]:
    broker = nodes.broker(1)
    assert broker is not None
    return broker.image.topics["t"].partitions[0].replicas


async def holds(nodes: SimNodes, node: int, *values: bytes) -> None:
    """The replica there is in use, has these records, and its files are where they should be."""
    await nodes.until(lambda: nodes.has(node, "t") and nodes.partition(node, "t").high_watermark == len(values))
    assert (await nodes.nodes[node].logs())[KEY] == list(enumerate(values))
    assert files_of(nodes.nodes[node].machine.disk)


async def nothing_is_left(nodes: SimNodes, node: int) -> None:
    """What has gone from its disks is off them."""
    broker = nodes.broker(node)
    assert broker is not None
    await nodes.until(lambda: not broker.partitions.departures.has_some)


async def leave_behind(nodes: SimNodes, node: QuorumNode, topic_id: bytes = bytes(15) + b"x") -> None:
    """The node is away. It has a replica of a topic ``t``, by default an earlier one, that no metadata gives it, and checkpoints of it."""
    await node.stop()
    disk, checkpoint = node.machine.disk, "/data/recovery-point-offset-checkpoint"
    put_replica(disk, topic_id)
    version, count, *lines = bytes(disk.files[checkpoint].written).decode().splitlines()
    disk.put(checkpoint, "\n".join([version, str(int(count) + 1), *lines, "t 0 5", ""]).encode())


def put_replica(disk: SimDisk, topic_id: bytes) -> None:
    """Puts a replica of that topic there; its log holds nothing that is a record."""
    disk.put("/data/t-0/partition.metadata", f"version: 0\ntopic_id: {uuid_text(topic_id)}\n".encode())
    disk.put("/data/t-0/00000000000000000000.log", b"x" * 100)
    disk.directories["/data/t-0"] = None


def files_of(disk: SimDisk) -> list[str]:
    return [path for path in disk.files if path.startswith("/data/t-0/")]


def test_nothing_is_left_on_the_disk_of_a_replica_that_went() -> None:
    async def body(nodes: SimNodes) -> None:
        disk = nodes.nodes[3].machine.disk
        await nodes.create("t", [1, 3])
        await nodes.send("t", b"a")
        await moved(nodes, 1, 2)
        await nodes.until(lambda: not nodes.has(3, "t"))
        await nodes.until(lambda: not [path for path in [*disk.files, *disk.directories] if path.startswith("/data/t-0")])

    play(body)


@pytest.mark.parametrize("refused", REFUSALS)
def test_a_replica_that_could_not_be_removed_and_comes_back_while_that_is_tried_again_is_not_removed(refused: str) -> None:
    async def body(nodes: SimNodes) -> None:
        disk = nodes.nodes[3].machine.disk
        await nodes.create("t", [1, 3])
        await nodes.send("t", b"a")
        disk.faults.append(REFUSALS[refused])
        await moved(nodes, 1, 2)
        await nodes.until(lambda: not nodes.has(3, "t"))
        disk.slow.append(Slow("rename", "/data/t-0", 20_000))
        disk.faults.clear()
        await nodes.until(lambda: not disk.slow)
        await moved(nodes, 1, 3)
        await nothing_is_left(nodes, 3)
        await nodes.send("t", b"b")
        await holds(nodes, 3, b"a", b"b")

    events = play(body)
    assert "replica_not_deleted" in {event["event"] for event in events}


def test_a_replica_that_comes_back_while_its_disk_still_refuses_to_remove_the_earlier_one_waits_for_that() -> None:
    async def body(nodes: SimNodes) -> None:
        disk = nodes.nodes[3].machine.disk
        await nodes.create("t", [1, 3])
        await nodes.send("t", b"a")
        disk.faults.append(REFUSALS[RENAME])
        await moved(nodes, 1, 2)
        await nodes.until(lambda: not nodes.has(3, "t"))
        await move(nodes, 1, 3)
        broker = nodes.broker(3)
        assert broker is not None
        await nodes.until(lambda: KEY in broker.partitions.offline)
        disk.faults.clear()
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 3})
        await nothing_is_left(nodes, 3)
        await nodes.send("t", b"b")
        await holds(nodes, 3, b"a", b"b")

    play(body)


@pytest.mark.parametrize("refused", REFUSALS)
def test_a_topic_that_could_not_be_removed_keeps_no_later_one_of_its_name_offline(refused: str) -> None:
    async def again(cluster: Cluster) -> None:
        admin = Admin(cluster)
        assert await admin.delete_topics(["t"]) == {"t": None}
        assert await admin.create_topics([NewTopic("t", assignments={0: [1, 3]})]) == {"t": None}

    async def body(nodes: SimNodes) -> None:
        disk = nodes.nodes[3].machine.disk
        await nodes.create("t", [1, 3])
        await nodes.send("t", b"earlier")
        disk.faults.append(REFUSALS[refused])
        await nodes.act(again)
        await nodes.until(lambda: nodes.has(1, "t") and nodes.in_sync(1, "t") == {1})
        disk.faults.clear()
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 3})
        await nothing_is_left(nodes, 3)
        await nodes.send("t", b"later")
        await holds(nodes, 3, b"later")

    play(body)


@pytest.mark.parametrize("refused", ["sync_dir", "sync", "rename"])
def test_a_replica_that_was_made_halfway_keeps_no_later_topic_of_its_name_offline(refused: str) -> None:
    """The disk of node 3 is full when its directory has been made, or when it has the topic's id."""

    async def body(nodes: SimNodes) -> None:
        disk = nodes.nodes[3].machine.disk
        suffix = "/data/t-0" if refused == "sync_dir" else "partition.metadata.tmp"
        disk.faults.append(Fault(refused, suffix, errno.ENOSPC, lasts=True))
        await nodes.act(make)
        await nodes.until(lambda: (broker := nodes.broker(3)) is not None and KEY in broker.partitions.offline)
        await nodes.act(lambda cluster: Admin(cluster).delete_topics(["t"]))
        await nodes.until(lambda: (broker := nodes.broker(3)) is not None and "t" not in broker.image.topics)
        disk.faults.clear()
        await nodes.create("t", [1, 3])
        await nodes.send("t", b"a")
        await holds(nodes, 3, b"a")

    async def make(cluster: Cluster) -> None:
        assert await Admin(cluster).create_topics([NewTopic("t", assignments={0: [1, 3]})]) == {"t": None}

    play(body)


async def made_halfway(nodes: SimNodes) -> None:
    """Node 3 has a directory for its replica, with the topic's id and without a log, and was refused when it synced that."""
    disk = nodes.nodes[3].machine.disk
    disk.faults.append(Fault("sync_dir", "/t-0", errno.ENOSPC, lasts=True))

    async def make(cluster: Cluster) -> None:
        assert await Admin(cluster).create_topics([NewTopic("t", assignments={0: [1, 3]})]) == {"t": None}

    await nodes.act(make)
    await nodes.until(lambda: (broker := nodes.broker(3)) is not None and KEY in broker.partitions.offline)
    assert "/data/t-0/partition.metadata" in disk.files


def places_of(disk: SimDisk) -> list[str]:
    """The directories of the partition, whatever they are called."""
    return [path for path in disk.directories if re.fullmatch(r"/(data|more)/t-0[^/]*", path)]


def test_a_replica_that_was_made_halfway_is_made_in_the_same_log_directory() -> None:
    """The other one has fewer partitions when there is room again."""

    async def body(nodes: SimNodes) -> None:
        disk = nodes.nodes[3].machine.disk
        await made_halfway(nodes)
        await nodes.create("first", [3])
        disk.faults.clear()
        await nodes.until(lambda: nodes.has(3, "t"))
        await nodes.send("t", b"a")
        await holds(nodes, 3, b"a")
        assert places_of(disk) == ["/data/t-0"]

    play(body, log_dirs="/data,/more")


@pytest.mark.parametrize("ends", [False, True], ids=["runs", "is killed meanwhile"])
def test_a_half_made_replica_leaves_nothing_behind_when_its_topic_is_deleted(ends: bool) -> None:
    async def body(nodes: SimNodes) -> None:
        node = nodes.nodes[3]
        await made_halfway(nodes)
        if ends:
            node.kill(power_cut=False)
        await nodes.act(lambda cluster: Admin(cluster).delete_topics(["t"]))
        if ends:
            node.begin()
        await nodes.until(lambda: (broker := nodes.broker(3)) is not None and "t" not in broker.image.topics)
        node.machine.disk.faults.clear()
        await nodes.until(lambda: not places_of(node.machine.disk))

    play(body, log_dirs="/data,/more")


def test_a_replica_that_is_set_aside_at_the_start_while_it_comes_back_is_made_again() -> None:
    """Node 3 has a replica that no metadata gives it. It gets it while the start renames what nobody has claimed, on a slow disk."""

    async def body(nodes: SimNodes) -> None:
        node = nodes.nodes[3]
        await nodes.create("t", [1, 2])
        await nodes.send("t", b"a")
        await leave_behind(nodes, node, topic_id=nodes.partition(1, "t").topic_id)
        node.machine.disk.slow.append(Slow("rename", "/data/t-0", 20_000))
        node.begin()
        await nodes.until(lambda: not node.machine.disk.slow)
        await moved(nodes, 1, 2, 3)
        await nodes.send("t", b"b")
        await holds(nodes, 3, b"a", b"b")

    play(body)


def test_a_replica_that_was_put_there_while_the_node_runs_is_kept_under_another_name() -> None:
    async def body(nodes: SimNodes) -> None:
        disk = nodes.nodes[3].machine.disk
        put_replica(disk, bytes(15) + b"x")
        await nodes.create("t", [1, 3])
        await nodes.send("t", b"own")
        await holds(nodes, 3, b"own")
        kept = [path for path, file in disk.files.items() if path.endswith(".log") and bytes(file.written) == b"x" * 100]
        assert [path.startswith("/data/t-0.") and "-stray/" in path for path in kept] == [True]

    play(body)


def test_a_stray_replica_that_a_full_disk_cannot_rename_hinders_neither_start_nor_creation() -> None:
    async def body(nodes: SimNodes) -> None:
        node = nodes.nodes[3]
        await leave_behind(nodes, node)
        node.machine.disk.faults.append(REFUSALS[RENAME])
        node.begin()
        assert node.starting is not None
        await node.starting
        node.machine.disk.faults.clear()
        await nodes.create("t", [1, 3])
        await nodes.send("t", b"later")
        await holds(nodes, 3, b"later")

    events = play(body)
    assert "stray_replica_not_set_aside" in [event["event"] for event in events]


def test_a_replica_that_could_not_be_opened_is_gone_when_it_is_moved_away() -> None:
    async def body(nodes: SimNodes) -> None:
        node = nodes.nodes[3]
        await nodes.create("t", [1, 2, 3])
        await nodes.send("t", b"a")
        await node.stop()
        node.machine.disk.faults.append(Fault("open", ".log", errno.ENOENT, within="/data/t-0", lasts=True))
        node.begin()
        await nodes.until(lambda: (broker := nodes.broker(3)) is not None and KEY in broker.partitions.offline)
        await moved(nodes, 1, 2)
        node.machine.disk.faults.clear()
        broker = node.broker
        assert broker is not None
        await nodes.until(lambda: KEY not in broker.partitions.offline and not files_of(node.machine.disk))
        await moved(nodes, 1, 2, 3)
        await nodes.send("t", b"b")
        await holds(nodes, 3, b"a", b"b")

    play(body)


def test_checkpoints_that_cannot_be_written_keep_a_topic_offline_no_longer_than_that() -> None:
    """They name an earlier topic of that name, whose offsets the later one must not have after a crash."""

    async def body(nodes: SimNodes) -> None:
        node = nodes.nodes[3]
        await leave_behind(nodes, node)
        node.begin()
        assert node.starting is not None
        await node.starting
        node.machine.disk.faults.append(Fault("append", "-checkpoint.tmp", errno.ENOSPC, lasts=True))
        await nodes.act(lambda cluster: Admin(cluster).create_topics([NewTopic("t", assignments={0: [1, 3]})]))
        await nodes.until(lambda: (broker := nodes.broker(3)) is not None and KEY in broker.partitions.offline)
        node.machine.disk.faults.clear()
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 3})
        await nodes.send("t", b"later")
        await holds(nodes, 3, b"later")

    play(body)
