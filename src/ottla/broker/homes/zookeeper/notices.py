"""What tools write into ZooKeeper for the controller to take: configurations and preferred elections.

A configuration is in its own znode; that it has changed is said by a sequential one below ``/config/changes``. Its values are in force once
the controller has read them, on every broker. What is read is compared with the image when nothing of this controller's is on its way to
that znode: then a difference is of someone else, whatever the versions are, since a znode that was deleted and made again starts over.
Source: Kafka 3.9 (KIP-21, KIP-248).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.tree import children
from ottla.controller.decided import Recorded
from ottla.controller.elections import ElectionType, elect_leader
from ottla.coordination import NoNodeError
from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.metadata import znodes
from ottla.metadata.image import ClusterImage
from ottla.metadata.known_znodes import Known
from ottla.metadata.znode_reader import config_records
from ottla.ports import World

log = get_logger(__name__)

KEPT_MS: Final = 15 * 60 * 1000
"""How long a notice stays for those who read late."""
Decision = Callable[[ClusterImage], Any]


class Notices:
    """The reader of change notices, at work while this node's controller is active."""

    def __init__(self, world: World, controller: ActiveController) -> None:
        self._world = world
        self._controller = controller

    # -- configurations

    async def follow_configs(self, reign: Reign) -> None:
        """Takes each notice once, at first all that the last controller may not have taken; deletes old ones."""
        made_ms: dict[str, int] = {}
        while True:
            changed = asyncio.Event()
            names = await children(reign.session, znodes.CONFIG_CHANGES, changed.set)
            for name in names:
                path = f"{znodes.CONFIG_CHANGES}/{name}"
                if name not in made_ms:
                    made_ms[name] = await self._take(reign, path)
                if self._world.clock.now_ms() - made_ms[name] > KEPT_MS:
                    await reign.delete(path)
            made_ms = {name: made_ms[name] for name in names}
            await changed.wait()

    async def _take(self, reign: Reign, path: str) -> int:
        """Decides what the notice says. Returns when the notice was made."""
        try:
            data, stat = await reign.session.get(path)
        except NoNodeError:
            return self._world.clock.now_ms()
        try:
            entity_path = znodes.decode_config_change(data)
        except DecodeError as error:
            log.error("config_notice_unreadable", path=path, reason=error.message)
        else:
            await self._adopt(reign, f"{znodes.CONFIG}/{entity_path}")
        return stat.ctime_ms

    async def _adopt(self, reign: Reign, path: str) -> None:
        """Decides what the znode says, unless it is known."""
        found = await settled(reign, self._controller, path)
        if found is None:
            return
        data, version = found
        try:
            draft = self._controller.replica.draft
            records = config_records(path, data, reign.writer.known, draft, draft.topics)
        except DecodeError as error:
            log.error("config_znode_unreadable", path=path, reason=error.message)
            return
        report_problems(reign.writer.known)
        reign.writer.known.note(path, version)
        if records:
            log.info("config_taken", path=path, values=len(records))
            reign.append(records, is_known=True)

    # -- requests

    async def follow_elections(self, reign: Reign) -> None:
        """Follows ``/admin/preferred_replica_election``: the first replica of each partition leads, where it can. Then it is deleted."""
        path = znodes.PREFERRED_ELECTION
        while True:
            changed = asyncio.Event()
            if await reign.session.exists(path, changed.set) is None:
                await changed.wait()
                continue
            try:
                data, _ = await reign.session.get(path)
            except NoNodeError:
                continue
            try:
                wanted = znodes.decode_partitions(data, path)
            except DecodeError as error:
                log.error("request_znode_unreadable", path=path, reason=error.message)
                wanted = []
            log.info("request_taken", path=path, partitions=len(wanted))
            await self._decide([partial(self._elect, topic=topic, index=index) for topic, index in wanted])
            await reign.delete(path)

    def _elect(self, image: ClusterImage, *, topic: str, index: int) -> Recorded:
        return elect_leader(image, topic, index, ElectionType.PREFERRED, rules=self._controller.rules(image))

    async def _decide(self, decisions: list[Decision]) -> None:
        results: list[Recorded | KafkaError] = await self._controller.decide(decisions, is_followed=False)
        for result in results:
            if isinstance(result, KafkaError) and result.code != ErrorCode.ELECTION_NOT_NEEDED:
                log.warning("request_refused", reason=result.message)


async def settled(
    reign: Reign, controller: ActiveController, path: str, watched: Callable[[], Awaitable[None]] | None = None
) -> tuple[bytes, int | None] | None:
    """Returns data and version of the znode when all that this controller has decided on it is there; no version if it does not exist.

    ``watched`` sets a watch before each reading. None when the reign has ended.
    """
    known, replica = reign.writer.known, controller.replica
    while not reign.has_ended:
        change_count = known.change_counts.get(path, 0)
        await replica.committed(replica.draft.end_offset)
        if watched is not None:
            await watched()
        try:
            data, stat = await reign.session.get(path)
            version: int | None = stat.version
        except NoNodeError:
            data, version = b"", None
        if known.change_counts.get(path, 0) == change_count and not reign.has_ended:
            return data, version
    return None


def report_problems(known: Known) -> None:
    """Logs what could not be understood; nothing of what it said is logged."""
    for problem in known.problems:
        log.error("znode_not_understood", reason=problem)
    known.problems.clear()
