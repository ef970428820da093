"""``flush.messages`` of a topic is lowered, and a replica comes to lead that has yet to sync what it has."""

from __future__ import annotations

from tests.cluster.in_simulation import SimNodes, play

from ottla.client.admin import Admin, Topic
from ottla.client.cluster import Cluster


def test_what_a_new_leader_has_yet_to_sync_is_synced_and_read_though_nobody_writes() -> None:
    async def lower(cluster: Cluster) -> None:
        await Admin(cluster).alter_configs({Topic("t"): {"flush.messages": 1}})

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        await nodes.send("t", b"0", b"1", b"2")
        assert nodes.partition(2, "t").log.durability.recovery_point < 3
        await nodes.act(lower)
        await nodes.until(lambda: nodes.partition(2, "t").log.durability.owes_sync)
        nodes.nodes[1].kill(power_cut=False)
        await nodes.until(lambda: any(nodes.partition(node, "t").led_epoch >= 0 for node in (2, 3)))
        [leader] = [node for node in (2, 3) if nodes.partition(node, "t").led_epoch >= 0]
        await nodes.until(lambda: nodes.partition(leader, "t").high_watermark == 3)
        leading = nodes.partition(leader, "t").leading
        assert leading is not None
        await nodes.until(lambda: leading.machine.knows_what_is_committed)
        assert nodes.partition(leader, "t").log.durability.recovery_point == 3

    play(body)
