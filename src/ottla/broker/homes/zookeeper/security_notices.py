"""ACLs and delegation tokens that tools, or brokers of Kafka, write into ZooKeeper: the controller takes them over.

That one has changed is said by a sequential znode of its own (``/kafka-acl-changes`` and the like), which is written after the change, or
should be: what a notice was about is watched from then on, which makes up for one that came too early.
Source: Kafka 3.9 (AclAuthorizer, DelegationTokenManagerZk).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.homes.zookeeper.loading import each
from ottla.broker.homes.zookeeper.notices import KEPT_MS, report_problems, settled
from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.tree import children
from ottla.broker.homes.zookeeper.watch_list import WatchList
from ottla.coordination import NoNodeError
from ottla.errors import DecodeError
from ottla.loggers import get_logger
from ottla.metadata import security_znodes
from ottla.metadata.image import ClusterImage
from ottla.metadata.known_znodes import Known
from ottla.metadata.znode_reader import acl_records, token_records
from ottla.ports import World
from ottla.wire.schema import Stored

log = get_logger(__name__)

WATCHED_MAX: Final = 10_000
"""Znodes that are watched beside the notices."""
SubjectOf = Callable[[bytes, str], str]
"""The path of what a notice is about, from its data and its path. DecodeError where it says nothing that is known."""


class SecurityNotices:
    """The reader of these notices, at work while this node's controller is active. ``in_flight_max`` requests wait at a time."""

    def __init__(self, world: World, controller: ActiveController, in_flight_max: int) -> None:
        self._world = world
        self._controller = controller
        self._in_flight_max = in_flight_max

    async def follow_literal_acls(self, reign: Reign) -> None:
        """Takes changes of ACLs whose pattern is a literal name."""
        await self._follow(reign, security_znodes.LITERAL_CHANGES, _of_acls)

    async def follow_prefixed_acls(self, reign: Reign) -> None:
        """Takes changes of ACLs whose pattern is a prefix."""
        await self._follow(reign, security_znodes.PREFIXED_CHANGES, _of_acls)

    async def follow_tokens(self, reign: Reign) -> None:
        """Takes changes of delegation tokens."""
        await self._follow(reign, security_znodes.TOKEN_CHANGES, security_znodes.decode_token_change)

    async def _follow(self, reign: Reign, changes: str, subject_of: SubjectOf) -> None:
        """Takes each notice once, at first all that the last controller may not have taken; deletes old ones."""
        made_ms: dict[str, int] = {}
        due = WatchList(WATCHED_MAX)
        while True:
            due.wakes.clear()
            if due.lists:
                due.lists = False
                names = await children(reign.session, changes, due.listed)
                made_ms = {name: made_ms[name] for name in names if name in made_ms}
                fresh = [name for name in names if name not in made_ms]
                read = partial(self._read, reign, subject_of, due)
                found = await each([f"{changes}/{name}" for name in fresh], read, self._in_flight_max)
                made_ms |= zip(fresh, found, strict=True)
                for name, at_ms in made_ms.items():
                    if self._world.clock.now_ms() - at_ms > KEPT_MS:
                        await reign.delete(f"{changes}/{name}")
            await each(due.take(), partial(self._adopt, reign, due), self._in_flight_max)
            await due.wakes.wait()

    async def _read(self, reign: Reign, subject_of: SubjectOf, due: WatchList, path: str) -> int:
        """Notes that what the notice is about is to be looked at. Returns when the notice was made."""
        try:
            data, stat = await reign.session.get(path)
        except NoNodeError:
            return self._world.clock.now_ms()
        try:
            due.add(subject_of(data, path))
        except DecodeError as error:
            log.error("security_notice_unreadable", path=path, reason=error.message)
        return stat.ctime_ms

    async def _adopt(self, reign: Reign, due: WatchList, path: str) -> None:
        """Puts what the znode says into the image."""

        async def watched() -> None:
            watch = due.watch_of(path)
            if watch is not None:  # of a znode that is not there, too
                await reign.session.exists(path, watch)

        found = await settled(reign, self._controller, path, watched)
        if found is None:
            return
        data, version = found
        known = reign.writer.known
        known.note(path, version)
        records = _records(path, data, known, self._controller.replica.draft)
        report_problems(known)
        if records:
            log.info("security_znode_taken", path=path, changes=len(records))
            reign.append(records, is_known=True)


def _records(path: str, data: bytes, known: Known, image: ClusterImage) -> list[Stored]:
    pattern = security_znodes.pattern_at(path)
    return token_records(path, data, known, image) if pattern is None else acl_records(pattern, data, known, image)


def _of_acls(data: bytes, path: str) -> str:
    return security_znodes.acl_path(security_znodes.decode_acl_change(data, path))
