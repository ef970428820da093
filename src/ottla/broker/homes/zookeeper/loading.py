"""Reading the znodes of a cluster: by a controller that has just been elected, and by any broker that starts.

Many requests are on their way at a time (``zookeeper.max.in.flight.requests``). A znode that is deleted meanwhile was not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from ottla.config import BrokerConfig
from ottla.coordination import Access, NodeExistsError, NoNodeError, Session
from ottla.metadata import security_znodes, znodes

A = TypeVar("A")
R = TypeVar("R")
AclOf = Callable[[str], Sequence[Access]]


class Loader:
    """The reader of znodes in one session."""

    def __init__(self, session: Session, in_flight_max: int) -> None:
        self._session = session
        self._in_flight_max = in_flight_max

    async def cluster(self) -> dict[str, tuple[bytes, int]]:
        """Returns every znode that makes the cluster's image: data and version. Znodes that only hold others have no useful version."""
        found: dict[str, tuple[bytes, int]] = {}
        topics = await self.children(znodes.TOPICS)
        await self._get([znodes.topic_path(topic) for topic in topics], found)
        topics = [topic for topic in topics if znodes.topic_path(topic) in found]
        lists = await self._each(topics, lambda topic: self._children_or_none(znodes.partitions_path(topic)))
        states: list[str] = []
        for topic, partitions in zip(topics, lists, strict=True):
            if partitions is None:
                continue
            found[znodes.partitions_path(topic)] = b"", -1
            for index in (number for name in partitions if (number := znodes.number_of(name)) is not None):
                found[znodes.partition_path(topic, index)] = b"", -1
                states.append(znodes.state_path(topic, index))
        await self._get(states, found)
        await self._get(await self._config_paths(found), found)
        deleting = await self.children(znodes.DELETE_TOPICS)
        found |= {f"{znodes.DELETE_TOPICS}/{topic}": (b"", -1) for topic in deleting}
        await self._get([znodes.PRODUCER_IDS, znodes.FEATURE], found)
        await self._get(await self._security_paths(found), found)
        return found

    async def _security_paths(self, found: dict[str, tuple[bytes, int]]) -> list[str]:
        """Returns the paths of ACLs and tokens; the znodes that only hold them are looked up."""
        directories = [f"{root}/{kind}" for root in security_znodes.ACL_ROOTS.values() for kind in security_znodes.TYPE_NAMES.values()]
        directories.append(security_znodes.TOKENS)
        paths: list[str] = []
        for directory, names in zip(directories, await self._each(directories, self._children_or_none), strict=True):
            paths += [f"{directory}/{name}" for name in names or ()]
        holding = (*directories, security_znodes.LITERAL_CHANGES, security_znodes.PREFIXED_CHANGES, security_znodes.TOKEN_CHANGES)
        parents = with_parents(holding)
        for parent, stat in zip(parents, await self._each(parents, self._session.exists), strict=True):
            if stat is not None:
                found[parent] = b"", -1
        return paths

    async def _config_paths(self, found: dict[str, tuple[bytes, int]]) -> list[str]:
        paths: list[str] = []
        for kind in ("topics", "brokers", "clients", "ips", "users"):
            directory = f"{znodes.CONFIG}/{kind}"
            paths += [f"{directory}/{name}" for name in await self.children(directory)]
        users = [path for path in paths if path.startswith(f"{znodes.CONFIG}/users/")]
        for user, clients in zip(users, await self._each(users, lambda user: self._children_or_none(f"{user}/clients")), strict=True):
            if clients is not None:
                found[f"{user}/clients"] = b"", -1
                paths += [f"{user}/clients/{client}" for client in clients]
        return paths

    async def children(self, path: str) -> list[str]:
        """Returns the children; none where there is no such znode."""
        return await self._children_or_none(path) or []

    async def _children_or_none(self, path: str) -> list[str] | None:
        try:
            return await self._session.children(path)
        except NoNodeError:
            return None

    async def _get(self, paths: Iterable[str], found: dict[str, tuple[bytes, int]]) -> None:
        async def get(path: str) -> None:
            try:
                data, stat = await self._session.get(path)
            except NoNodeError:
                return
            found[path] = data, stat.version

        await self._each(list(paths), get)

    async def _each(self, given: Sequence[A], ask: Callable[[A], Awaitable[R]]) -> list[R]:
        return await each(given, ask, self._in_flight_max)


async def each(given: Sequence[A], ask: Callable[[A], Awaitable[R]], in_flight_max: int) -> list[R]:
    """Returns the answers, in order; so many questions are on their way at a time."""
    results: list[R] = []
    for start in range(0, len(given), in_flight_max):
        results += await asyncio.gather(*(ask(one) for one in given[start : start + in_flight_max]))
    return results


def security_paths(config: BrokerConfig) -> list[str]:
    """Returns what a cluster has that goes by ACLs, and one that has delegation tokens; as with Kafka, others have none of it."""
    acls = security_znodes.PERSISTENT_OF_ACLS if config["authorizer.class.name"] else ()
    tokens = security_znodes.PERSISTENT_OF_TOKENS if config["delegation.token.secret.key"] is not None else ()
    return [*acls, *tokens]


def with_parents(paths: Iterable[str]) -> list[str]:
    """Returns each path after its parents, once."""
    wanted: dict[str, None] = {}
    for path in paths:
        parts = path.split("/")[1:]
        for count in range(1, len(parts) + 1):
            wanted["/" + "/".join(parts[:count])] = None
    return list(wanted)


async def make_persistent(session: Session, acl_of: AclOf, more: Iterable[str] = ()) -> None:
    """Creates what every cluster has, and what this one has ``more``, with all parents."""
    for path in with_parents([*znodes.PERSISTENT, "/admin", "/cluster", *more]):
        if await session.exists(path) is None:
            try:
                await session.create(path, acl=acl_of(path))
            except NodeExistsError:  # another broker starts, too
                pass


async def cluster_id(session: Session, new_id: str, acl_of: AclOf) -> str:
    """Returns the cluster's id: the new one for a new cluster."""
    while True:
        try:
            data, _ = await session.get(znodes.CLUSTER_ID)
            return znodes.decode_cluster_id(data)
        except NoNodeError:
            try:
                await session.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(new_id), acl=acl_of(znodes.CLUSTER_ID))
            except NodeExistsError:
                pass
