"""A follower whose log is cut: it survives what comes next."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.replicas.following import truncate


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
        cutting = asyncio.ensure_future(nodes.nodes[2].machine.run(truncate(partition, followed, 1)))
        while not partition._is_cutting:
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
