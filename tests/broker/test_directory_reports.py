"""What a broker tells of its directories when answers are lost, and when it begins before its replicas are open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.homes.quorum.directory_reports import RETRY_MS, DirectoryReports
from ottla.controller.partition_change import UNASSIGNED
from ottla.controller.topic_rules import LOST
from ottla.errors import ErrorCode
from ottla.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.partition_index import index_of
from ottla.ports import World
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run
from ottla.types import uuid_text

NODE = 1
DIRECTORY = uuid_text(b"d" * 16)
LED = PartitionImage((2, NODE), (2, NODE), 2, 3, 4, directories=(UNASSIGNED, UNASSIGNED))
ELSEWHERE = replace(LED, directories=(UNASSIGNED, b"e" * 16))
GIVEN_UP = replace(LED, isr=(2,), directories=(UNASSIGNED, LOST))


def image(partition: PartitionImage) -> ClusterImage:
    topics = {"t": TopicImage("t", b"t" * 16, {0: partition})}
    return ClusterImage(topics=topics, index=index_of(topics))


class Told:
    """A broker with one directory and one replica, and the controller that it reports to: ``answers`` first, then it has recorded all."""

    def __init__(self, world: World) -> None:
        self.image = image(LED)
        self.room = SimpleNamespace(is_full=False)
        self.is_open = True
        self.answers: list[AssignReplicasToDirsResponse | None] = []
        self.told: list[bytes] = []
        directory = SimpleNamespace(room=self.room, identity=SimpleNamespace(directory_id=DIRECTORY))
        partition = SimpleNamespace(log=SimpleNamespace(is_failed=False))
        partitions: Any = SimpleNamespace(
            directories=[directory],
            directory_of=_Always(directory),
            find=lambda topic, index: partition if self.is_open else None,
            is_offline=lambda topic, index: False,
            replication=SimpleNamespace(node_id=NODE, is_live=lambda node: True),
        )
        channel: Any = SimpleNamespace(ask=self._ask)
        self.reports = DirectoryReports(world, NODE, channel, partitions, lambda: self.image, lambda: 5)

    async def _ask(self, request: AssignReplicasToDirsRequest, _: type) -> AssignReplicasToDirsResponse | None:
        [directory] = request.directories
        self.told.append(directory.id)
        return self.answers.pop(0) if self.answers else AssignReplicasToDirsResponse(error_code=ErrorCode.NONE)

    async def publish(self, partition: PartitionImage) -> None:
        before, self.image = self.image, image(partition)
        await self.reports.on_image(ImageDelta(before, self.image))
        await _settle()


class _Always(dict[Any, Any]):
    def __init__(self, value: object) -> None:
        self._value = value

    def __getitem__(self, key: object) -> object:
        return self._value


def playing(body: Callable[[Told], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        machine = Simulation(0).machine("node")
        await machine.run(body(Told(machine.boot())))

    run(main())


async def _settle() -> None:
    await asyncio.sleep(3 * RETRY_MS / 1000)


def test_a_broker_of_one_directory_says_nothing_while_all_is_well() -> None:
    async def body(told: Told) -> None:
        told.reports.registered()
        await told.publish(replace(LED, leader_epoch=4))
        await told.publish(replace(LED, leader_epoch=5, directories=(UNASSIGNED, b"d" * 16)))
        assert told.told == []

    playing(body)


@pytest.mark.parametrize("before", [GIVEN_UP, ELSEWHERE], ids=["given up", "in a directory that this one took the place of"])
@pytest.mark.parametrize("is_known_before", [True, False], ids=["the metadata is read before", "and after"])
def test_what_an_earlier_process_left_is_taken_back_once_it_is_open(is_known_before: bool, before: PartitionImage) -> None:
    async def body(told: Told) -> None:
        told.is_open = False
        told.image = image(before) if is_known_before else EMPTY_IMAGE
        told.reports.registered()
        await _settle()
        assert told.told == []
        told.is_open = True
        await told.publish(before)
        assert told.told == [b"d" * 16]

    playing(body)


def test_there_is_room_again_before_it_is_known_that_the_controller_took_the_replica_as_lost() -> None:
    """It did, and its answer did not arrive."""

    async def body(told: Told) -> None:
        told.reports.registered()
        told.answers = [None]
        told.room.is_full = True
        told.reports.look_soon()
        await asyncio.sleep(RETRY_MS / 2000)
        assert told.told == [LOST]
        told.room.is_full = False
        told.reports.look_soon()
        await _settle()
        assert told.told == [LOST], "by the newest image nothing is lost"
        await told.publish(GIVEN_UP)
        assert told.told == [LOST, b"d" * 16]

    playing(body)
