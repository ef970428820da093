"""Reassignments that tools write into ``/admin/reassign_partitions``: the znode stays until the last of them is complete.

It is taken when it is made, and by each new controller. It has the partitions that still move: one that cannot be moved, has moved, was
deleted, or was given another target since is taken out. A tool sees there what is under way, and writes no other reassignment meanwhile.
Who deletes the znode cancels nothing. Source: Kafka 3.9 (KafkaController: ZkPartitionReassignment).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.waiting import wait_for
from ottla.controller.decided import Recorded
from ottla.controller.reassignment import is_moving, reassign
from ottla.coordination import Delete, MultiFailedError, NoNodeError, Set, Stat
from ottla.errors import DecodeError, KafkaError
from ottla.loggers import get_logger
from ottla.metadata import znodes
from ottla.metadata.image import ClusterImage

log = get_logger(__name__)

PROGRESS_SECONDS: Final = 0.2
"""Between two looks at which partitions have moved."""

Moves = Mapping[tuple[str, int], Sequence[int]]


class WrittenMoves:
    """The reader of that znode, at work while this node's controller is active."""

    def __init__(self, controller: ActiveController) -> None:
        self._controller = controller

    async def follow(self, reign: Reign) -> None:
        """Moves what is written there from now on, or was before."""
        taken, written = -1, 0
        moves: Moves = {}
        while True:
            changed = asyncio.Event()
            stat = await reign.session.exists(znodes.REASSIGN_PARTITIONS, changed.set)
            if stat is None:
                await changed.wait()
                continue
            if stat.czxid != taken:
                found = await self._take(reign)
                if found is None:
                    continue
                moves, written, stat = found
                taken = stat.czxid
            while not changed.is_set():
                moves = {key: nodes for key, nodes in moves.items() if _is_under_way(self._controller.image, *key, nodes)}
                if len(moves) < written or not moves:
                    written = len(moves)
                    await _write(reign, stat, moves)
                    break
                await wait_for(changed, PROGRESS_SECONDS)

    async def _take(self, reign: Reign) -> tuple[Moves, int, Stat] | None:
        """Starts what the znode says. Returns what was started, how much is written, and the znode's state; None when it is gone."""
        try:
            data, stat = await reign.session.get(znodes.REASSIGN_PARTITIONS)
        except NoNodeError:
            return None
        try:
            wanted = znodes.decode_reassignment(data)
        except DecodeError as error:
            log.error("request_znode_unreadable", path=znodes.REASSIGN_PARTITIONS, reason=error.message)
            wanted = {}
        log.info("request_taken", path=znodes.REASSIGN_PARTITIONS, partitions=len(wanted))
        image = self._controller.image
        begun = {key: nodes for key, nodes in wanted.items() if _is_under_way(image, *key, nodes)}  # a broker may be away by now
        others = {key: nodes for key, nodes in wanted.items() if key not in begun}
        decisions = [partial(self._move, topic=topic, index=index, nodes=nodes) for (topic, index), nodes in others.items()]
        results = await self._controller.decide(decisions, is_followed=False)
        for (key, nodes), result in zip(others.items(), results, strict=True):
            if isinstance(result, KafkaError):
                log.warning("request_refused", reason=result.message)
            else:
                begun[key] = nodes
        return begun, len(wanted), stat

    def _move(self, image: ClusterImage, *, topic: str, index: int, nodes: Sequence[int]) -> Recorded:
        return reassign(image, topic, index, nodes, keeps_factor=False, rules=self._controller.rules(image))


def _is_under_way(image: ClusterImage, name: str, index: int, nodes: Sequence[int]) -> bool:
    """Returns whether the partition moves to these replicas."""
    topic = image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(index)
    if partition is None or not is_moving(partition):
        return False
    return [node for node in partition.replicas if node not in partition.removing] == list(nodes)


async def _write(reign: Reign, stat: Stat, moves: Moves) -> None:
    """Writes what still moves, unless another writer has changed the znode; without any the znode is deleted."""
    path = znodes.REASSIGN_PARTITIONS
    change = Set(path, znodes.encode_reassignment(moves), stat.version) if moves else Delete(path, stat.version)
    try:
        await reign.session.multi([reign.check, change])
    except MultiFailedError as error:
        if error.index == 0:
            raise
