"""Who follows the metadata is told of each newer image, until it is about to be closed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.metadata.publisher import Publisher
from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import EMPTY_IMAGE
from ottla.sim.loop import run
from ottla.types import TopicPartition


def test_what_is_followed_is_finished_before_the_end_and_nothing_is_followed_after_it() -> None:
    async def body() -> None:
        newest, followed = EMPTY_IMAGE, list[int]()
        may_go_on = asyncio.Event()

        async def follow(delta: ImageDelta) -> None:
            await may_go_on.wait()
            followed.append(delta.new.end_offset)

        publisher = Publisher(lambda: newest, follow)
        newest = replace(EMPTY_IMAGE, end_offset=1)
        first = asyncio.create_task(publisher.catch_up())
        await asyncio.sleep(0)
        newest = replace(EMPTY_IMAGE, end_offset=2)
        end = asyncio.create_task(publisher.end())
        await asyncio.sleep(0.1)
        assert not end.done()
        may_go_on.set()
        await asyncio.gather(first, end)
        newest = replace(EMPTY_IMAGE, end_offset=3)
        await publisher.catch_up()
        await publisher.repeat()
        assert followed == [1, 2]
        assert publisher.published.end_offset == 2

    run(body())


def test_a_broker_that_closes_its_logs_takes_none_of_them_for_damaged_when_others_change_the_topic_meanwhile() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        await nodes.send("t", b"kept")
        broker, disk = nodes.nodes[3].broker, nodes.nodes[3].machine.disk
        assert broker is not None
        write_checkpoints = broker.partitions.write_checkpoints

        async def change(cluster: Cluster) -> None:
            assert await Admin(cluster).alter_partition_reassignments({TopicPartition("t", 0): [2, 1, 3]}) == {TopicPartition("t", 0): None}
            assert await Admin(cluster).create_topics([NewTopic("new", assignments={0: [1, 2, 3]})]) == {"new": None}

        async def after_a_change() -> None:
            await nodes.act(change)
            await nodes.until(lambda: "new" in broker.image.topics)
            await write_checkpoints()

        broker.partitions.write_checkpoints = after_a_change  # type: ignore[method-assign]  # the logs are closed by then
        await nodes.nodes[3].stop()
        assert not [path for path in disk.files if "-stray" in path or path.startswith("/data/new-0/")]
        nodes.nodes[3].begin()
        await nodes.until(lambda: nodes.has(3, "new") and nodes.in_sync(1, "t") == nodes.in_sync(1, "new") == {1, 2, 3})
        assert nodes.partition(3, "t").log.log_end_offset == 1
        assert not [path for path in disk.files if "-stray" in path]

    play(body)


def test_an_image_that_a_part_could_not_follow_is_followed_though_no_other_comes() -> None:
    async def body(nodes: SimNodes) -> None:
        broker = nodes.nodes[3].broker
        assert broker is not None
        gate, publisher = broker.gate, broker.made.publisher
        follow, refused = gate.on_image, list[int]()

        async def refuse_once(delta: ImageDelta) -> None:
            gate.on_image = follow  # type: ignore[method-assign]
            refused.append(delta.new.end_offset)
            raise MemoryError

        gate.on_image = refuse_once  # type: ignore[method-assign]
        await nodes.create("t", [3, 1])
        await nodes.until(lambda: bool(refused))
        await nodes.until(lambda: publisher.published.end_offset >= refused[0])
        assert broker.image is publisher.published
        assert nodes.partition(3, "t").led_epoch >= 0, "the parts before it had followed"

    events = play(body)
    assert "metadata_not_followed" in [event["event"] for event in events]
