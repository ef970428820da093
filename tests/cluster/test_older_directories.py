"""A directory that is a copy made while its broker ran has lost what came later: its broker is not eligible to lead."""

from __future__ import annotations

import pytest
from tests.cluster.in_simulation import SimNodes, play

from ottla.controller.features import ELR_VERSION
from ottla.metadata.image import PartitionImage
from ottla.types import NO_LEADER


@pytest.mark.parametrize("is_older", [True, False])
def test_a_broker_with_an_older_copy_does_not_lead_and_a_killed_broker_does(is_older: bool) -> None:
    async def body(nodes: SimNodes) -> None:
        def image() -> PartitionImage:
            broker = nodes.broker(1)
            assert broker is not None
            return broker.image.topics["t"].partitions[0]

        await nodes.create("t", [4, 5, 6], min_insync_replicas="2")
        await nodes.send("t", b"a", b"b")
        disk = nodes.brokers[6].machine.disk
        backup = {path: bytes(inode.written) for path, inode in disk.files.items()}
        await nodes.send("t", b"acknowledged")
        for node in (5, 6, 4):
            nodes.brokers[node].kill(power_cut=False)
            await nodes.until(lambda node=node: node not in image().isr)  # type: ignore[misc]
        assert (image().isr, image().elr) == ((), (4, 6))
        if is_older:
            for path in [path for path in disk.files if path not in backup]:
                del disk.files[path]
            for path, data in backup.items():
                disk.put(path, data)
        await nodes.brokers[6].start()
        if is_older:
            assert image().leader == NO_LEADER
            assert 6 not in image().elr
        await nodes.brokers[4].start()
        await nodes.brokers[5].start()
        await nodes.until(lambda: set(image().isr) == {4, 5, 6})
        assert image().leader == (4 if is_older else 6)
        assert {nodes.partition(node, "t").log.log_end_offset for node in (4, 5, 6)} == {3}

    play(body, features={ELR_VERSION: 1}, broker_ids=(4, 5, 6))
