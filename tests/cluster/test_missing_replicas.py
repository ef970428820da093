"""A replica whose directory is gone at a start, while its log directory is there: it does not lead, so that none follows what is empty."""

from __future__ import annotations

import posixpath

import pytest
from tests.cluster.in_simulation import SimNodes, play
from tests.cluster.test_slow_writes import check_replicas_are_equal, records_of
from tests.simulation.quorum_nodes import started

from ottla.broker.replicas.damaged_replicas import counted_on
from ottla.client.admin import Admin
from ottla.metadata.image import PartitionImage
from ottla.metrics import DamageMeters
from ottla.storage.directory.checkpoint import HIGH_WATERMARK
from ottla.types import TopicPartition

RECORDS = [b"%d" % number for number in range(20)]
KEY = TopicPartition("t", 0)


async def restart_without(nodes: SimNodes, topic: str, *losing: int, with_empty_one: bool = False) -> None:
    """All nodes are killed at once; they start, those that are losing it without the topic's directory, or with an empty one."""
    for node in nodes.nodes.values():
        node.kill(power_cut=False)
    for number in losing:
        remove(nodes, number, topic, with_empty_one=with_empty_one)
    for node in nodes.nodes.values():
        node.begin()
    await started(list(nodes.nodes.values()))


def is_kept(nodes: SimNodes, number: int) -> bool:
    """The checkpoint of the node says where its log of the topic ends."""
    files = nodes.nodes[number].machine.disk.files
    kept = [bytes(inode.written) for path, inode in files.items() if path.endswith(f"/{HIGH_WATERMARK}")]
    return any(b"t 0 %d\n" % len(RECORDS) in text for text in kept)


def is_offline(nodes: SimNodes, number: int) -> bool:
    broker = nodes.nodes[number].broker
    return broker is not None and KEY in broker.partitions.offline


def image_of(nodes: SimNodes, number: int) -> PartitionImage:
    broker = nodes.nodes[number].broker
    assert broker is not None
    return broker.image.topics["t"].partitions[0]


def is_given_up(nodes: SimNodes) -> bool:
    """All that have what was committed, as far as the controller knows, are offline."""
    counted = counted_on(image_of(nodes, 3))
    return len(counted) > 0 and all(is_offline(nodes, node) for node in counted)


def remove(nodes: SimNodes, number: int, topic: str, *, with_empty_one: bool = False) -> None:
    disk = nodes.nodes[number].machine.disk
    [metadata] = [path for path in disk.directories if path.endswith("/__cluster_metadata-0")]
    path = f"{posixpath.dirname(metadata)}/{topic}-0"
    disk.files.drop(path)
    disk.directories.drop(path)
    if with_empty_one:
        disk.directories[path] = None


def leads(nodes: SimNodes, node: int) -> bool:
    return nodes.has(node, "t") and nodes.partition(node, "t").led_epoch >= 0


def meters(nodes: SimNodes, number: int) -> DamageMeters:
    broker = nodes.nodes[number].broker
    assert broker is not None
    return broker.partitions.replication.damage


@pytest.mark.parametrize("lost", [1, 2])
def test_what_others_in_sync_have_is_not_cut_off_for_one_that_is_gone(lost: int) -> None:
    """The first replica led again, empty, and the records of the others were gone."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        await nodes.send("t", *RECORDS)
        await nodes.until(lambda: is_kept(nodes, lost))
        await restart_without(nodes, "t", lost)
        await nodes.until(lambda: all(nodes.has(node, "t") for node in (1, 2, 3)))
        kept = await check_replicas_are_equal(nodes, 1, 2, 3)
        assert list(kept.values()) == RECORDS
        assert [meters(nodes, node).missing_replicas for node in (1, 2, 3)] == [int(node == lost) for node in (1, 2, 3)]
        await nodes.send("t", b"after")

    play(body)


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_only_replica_starts_from_nothing_and_that_is_counted(is_killed: bool) -> None:
    """After a kill the checkpoints said nothing of records that were not synced yet."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [2])
        await nodes.send("t", *RECORDS)
        if is_killed:
            await nodes.until(lambda: is_kept(nodes, 2))
            nodes.nodes[2].kill(power_cut=False)
        else:
            await nodes.nodes[2].stop()
        remove(nodes, 2, "t")
        nodes.nodes[2].begin()
        await started([nodes.nodes[2]])
        await nodes.until(lambda: leads(nodes, 2))
        assert meters(nodes, 2).missing_replicas == 1
        await nodes.send("t", b"after")
        assert [value for *_, value in await records_of(nodes.partition(2, "t"))] == [b"after"]

    play(body)


def test_where_every_replica_is_gone_an_empty_directory_has_one_made_anew() -> None:
    """Nothing else said that the records are given up."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])
        await nodes.send("t", *RECORDS)
        await nodes.until(lambda: is_kept(nodes, 1) and is_kept(nodes, 2))
        await restart_without(nodes, "t", 1, 2)
        await nodes.until(lambda: is_given_up(nodes))
        await restart_without(nodes, "t", 1, 2)
        await nodes.until(lambda: is_given_up(nodes))
        assert not any(leads(nodes, node) for node in (1, 2)), "the one that was left in sync is not made anew by a second restart"
        await restart_without(nodes, "t", 1, 2, with_empty_one=True)
        await nodes.until(lambda: any(leads(nodes, node) for node in (1, 2)))
        await nodes.until(lambda: any(leads(nodes, node) and nodes.in_sync(node, "t") == {1, 2} for node in (1, 2)))

    play(body)


def test_a_topic_that_is_made_after_the_start_lacks_nothing() -> None:
    """The checkpoints had a topic of its name, which was deleted just before the broker ended."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await nodes.send("t", *RECORDS)
        await nodes.until(lambda: is_kept(nodes, 2))
        disk = nodes.nodes[2].machine.disk
        old = {path: bytes(inode.written) for path, inode in disk.files.items() if path.endswith("-checkpoint") and "t-0" not in path}
        assert old
        await nodes.act(lambda cluster: Admin(cluster).delete_topics(["t"]))
        await nodes.until(lambda: not any(nodes.has(node, "t") for node in (1, 2, 3)))
        nodes.nodes[2].kill(power_cut=False)
        for path, data in old.items():
            disk.put(path, data)
        nodes.nodes[2].begin()
        await started([nodes.nodes[2]])
        await nodes.until(lambda: not nodes.nodes[1].broker.image.brokers[2].is_fenced)  # type: ignore[union-attr]
        await nodes.create("t", [2, 1, 3])
        await nodes.until(lambda: nodes.in_sync(2, "t") == {1, 2, 3})
        assert meters(nodes, 2).missing_replicas == 0
        assert not is_offline(nodes, 2)

    play(body)


def test_the_last_one_in_sync_does_not_lead_when_it_is_gone() -> None:
    """It led again, empty, and the others cut off all that they had."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])
        await nodes.send("t", *RECORDS)
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 2})
        await nodes.nodes[2].stop()
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1})
        await nodes.nodes[1].stop()
        remove(nodes, 1, "t")
        for number in (1, 2):
            nodes.nodes[number].begin()
        await started([nodes.nodes[1], nodes.nodes[2]])
        await nodes.until(lambda: is_offline(nodes, 1) and image_of(nodes, 2).lost_replicas == {1})
        assert not any(leads(nodes, node) for node in (1, 2))
        assert await nodes.act(lambda cluster: Admin(cluster).elect_leaders([KEY], unclean=True)) == {KEY: None}
        await nodes.until(lambda: nodes.has(1, "t"))
        assert list((await check_replicas_are_equal(nodes, 2, 1)).values()) == RECORDS

    play(body)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_directory_that_is_removed_under_a_broker_is_noticed_within_a_minute(lost: int) -> None:
    """Its files took records that were acknowledged, and were freed at the next stop."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        await nodes.create("alone", [lost])
        await nodes.send("t", *RECORDS)
        for topic in ("t", "alone"):
            remove(nodes, lost, topic)
        if lost == 2:
            nodes.partition(lost, "alone").fail()  # a read was first, and had no word for it
        await nodes.until(lambda: nodes.partition(lost, "alone").log.health.reason == "its directory was removed: /data/alone-0")
        assert meters(nodes, lost).missing_replicas in (1, 2), "a write there may have failed before"
        await nodes.until(lambda: nodes.in_sync(3, "t") == {1, 2, 3})
        assert list((await check_replicas_are_equal(nodes, *((1, 2, 3) if lost == 2 else (2, 3, 1)))).values()) == RECORDS
        assert nodes.partition(lost, "alone").log.is_failed, "nothing more is acknowledged there"
        await nodes.send("t", b"after")

    play(body)
