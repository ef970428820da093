"""The registry of groups of the classic kind, below ``/consumers``: a mirror, on request (``ottla.zookeeper.group.registry``).

Each coordinator writes what its groups are, once a second and only what has changed: ``ids`` has an ephemeral znode for each member,
``owners`` one for each partition, ``offsets`` what is committed. It is never read back here: the truth is in ``__consumer_offsets``, and
the group's own znode says so. A group that has offsets there and no such label was never ours: what it has is committed once, if it has
committed nothing here. Source: Kafka 0.8 (the layout).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Final

import msgspec

from ottla.broker.coordinators.groups import GroupShards
from ottla.broker.homes.zookeeper.loading import AclOf
from ottla.coordination import CoordinationError, NodeExistsError, NoNodeError, Session
from ottla.errors import DecodeError, KafkaError
from ottla.groups.classic.members import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from ottla.groups.commands import CommitOffsets, DescribedMember, DescribeGroup, FetchOffsets, ListGroups, OffsetToCommit
from ottla.loggers import get_logger
from ottla.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.metadata import znodes
from ottla.wire.compiler import decode_from
from ottla.wire.schema import DECLARATIONS

log = get_logger(__name__)

PERIOD_SECONDS: Final = 1.0
LABEL: Final = b'{"version":1,"mirror_of":"__consumer_offsets"}'
COMMITTED_AT_ONCE: Final = 500

Wanted = dict[str, tuple[bytes, bool]]
"""By path: data, and whether the znode is ephemeral."""


class GroupRegistry:
    """The registry of the groups that this broker coordinates."""

    def __init__(self, node_id: int, groups: GroupShards, acl_of: AclOf) -> None:
        self._node_id = node_id
        self._groups = groups
        self._acl_of = acl_of
        self._session: Session | None = None
        self._written: Wanted = {}  # in that session
        self._labelled: set[str] = set()

    async def round(self, session: Session) -> None:
        """Writes to the registry until it is as the groups are."""
        if session is not self._session:
            self._session, self._written = session, {}
            self._labelled.clear()
        try:
            await self._migrate(session)
            await self._write(session, await self._wanted())
        except (CoordinationError, KafkaError) as error:  # the next round does it
            log.debug("group_registry_not_written", reason=str(error))

    async def _wanted(self) -> Wanted:
        wanted: Wanted = {}
        for listed in await self._groups.ask_all(ListGroups):
            for group in listed.groups:
                if group.protocol_type not in (CONSUMER_PROTOCOL_TYPE, ""):
                    continue
                name, root = group.group_id, group_path(group.group_id)
                described = await self._groups.ask(name, lambda token, name=name: DescribeGroup(token, name))  # type: ignore[misc]
                fetched = await self._groups.ask(name, lambda token, name=name: FetchOffsets(token, name, None, False))  # type: ignore[misc]
                wanted[root] = LABEL, False
                for member in described.members:
                    wanted |= _of_member(root, member)
                for offset in fetched.offsets:
                    wanted[f"{root}/offsets/{offset.topic}/{offset.partition}"] = str(offset.offset).encode(), False
        return wanted

    async def _write(self, session: Session, wanted: Wanted) -> None:
        for path in [path for path in self._written if path not in wanted]:
            _, is_ephemeral = self._written.pop(path)
            if is_ephemeral or self._is_here(path):  # else the next coordinator has it
                await self._delete(session, path, is_ephemeral)
        for path, (data, is_ephemeral) in wanted.items():
            if self._written.get(path) != (data, is_ephemeral):
                await self._put(session, path, data, is_ephemeral)
                self._written[path] = data, is_ephemeral

    def _is_here(self, path: str) -> bool:
        group = znodes.unsanitized(path.removeprefix(f"{znodes.CONSUMERS}/").partition("/")[0])
        return self._groups.leader_of(group) == self._node_id

    async def _put(self, session: Session, path: str, data: bytes, is_ephemeral: bool) -> None:
        while True:
            try:
                await session.create(path, data, is_ephemeral=is_ephemeral, acl=self._acl_of(path))
                return
            except NoNodeError:
                await self._put(session, path.rpartition("/")[0], b"", False)
            except NodeExistsError:
                stat = await session.exists(path)
                if stat is None:
                    continue
                if stat.ephemeral_owner not in (0, session.session_id):  # of the coordinator before
                    await self._delete(session, path, False)
                elif data:
                    await session.set(path, data, -1)
                    return
                else:
                    return

    async def _delete(self, session: Session, path: str, is_own: bool) -> None:
        stat = await session.exists(path)
        if stat is not None and (not is_own or stat.ephemeral_owner == session.session_id):
            try:
                await session.delete(path, stat.version)
            except NoNodeError:
                pass

    async def _migrate(self, session: Session) -> None:
        for name in await session.children(znodes.CONSUMERS):
            group = znodes.unsanitized(name)
            if group in self._labelled:
                continue
            data, _ = await session.get(group_path(group))
            if data != LABEL:
                offsets = [offset async for offset in _offsets_of(session, group_path(group))]
                if offsets:
                    await self._groups.ensure_topic()
                    if self._groups.leader_of(group) != self._node_id:
                        continue
                    await self._commit(group, offsets)
                    await session.set(group_path(group), LABEL, -1)
            self._labelled.add(group)

    async def _commit(self, group: str, offsets: list[OffsetToCommit]) -> None:
        known = await self._groups.ask(group, lambda token: FetchOffsets(token, group, None, False))
        if known.offsets:
            return
        for start in range(0, len(offsets), COMMITTED_AT_ONCE):
            part = tuple(offsets[start : start + COMMITTED_AT_ONCE])
            await self._groups.ask(group, lambda token, part=part: CommitOffsets(token, group, -1, "", None, part))  # type: ignore[misc]
        log.info("group_offsets_migrated", group=group, partitions=len(offsets))


def group_path(group: str) -> str:
    return f"{znodes.CONSUMERS}/{znodes.sanitized(group)}"


def _of_member(root: str, member: DescribedMember) -> Wanted:
    topics = subscribed_topics(member.metadata) or frozenset()
    said = {"version": 1, "subscription": dict.fromkeys(sorted(topics), 1), "pattern": "static", "host": member.client_host}
    found: Wanted = {f"{root}/ids/{znodes.sanitized(member.member_id)}": (msgspec.json.encode(said), True)}
    for topic, partition in _assigned(member.assignment):
        found[f"{root}/owners/{topic}/{partition}"] = f"{member.member_id}-0".encode(), True
    return found


def _assigned(data: bytes) -> Iterable[tuple[str, int]]:
    """Returns the assigned partitions; none where the bytes are of another kind."""
    low, high = DECLARATIONS[ConsumerProtocolAssignment].versions
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < low:
        return []
    try:
        assignment, _ = decode_from(ConsumerProtocolAssignment, min(version, high), data, 2)
    except DecodeError:
        return []
    return list(_pairs(assignment))


def _pairs(assignment: ConsumerProtocolAssignment) -> Iterator[tuple[str, int]]:
    for topic in assignment.assigned_partitions:
        for partition in topic.partitions:
            yield topic.topic, partition


async def _offsets_of(session: Session, root: str) -> AsyncIterator[OffsetToCommit]:
    try:
        for topic in await session.children(f"{root}/offsets"):
            for partition in await session.children(f"{root}/offsets/{topic}"):
                data, _ = await session.get(f"{root}/offsets/{topic}/{partition}")
                if partition.isdigit() and data.isdigit():
                    yield OffsetToCommit(topic, int(partition), int(data), -1, "")
    except NoNodeError:
        return


async def keep(registry: GroupRegistry, session: Callable[[], Session]) -> None:
    """Keeps the registry until it is cancelled; ``session`` gives the present one."""
    while True:
        await asyncio.sleep(PERIOD_SECONDS)
        await registry.round(session())
