"""This broker's znode below ``/brokers/ids``: made, watched, made again.

It is ephemeral, and its creation's zxid is the broker's epoch. One that is there already is another session's. When it names this broker's
address, and that leads to this process, then its process is gone, or it is this one's own session of before: it is deleted. Else another
broker has the id, and this one waits until that ends, for so long as two sessions last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla.broker.homes.zookeeper.loading import AclOf
from ottla.coordination import BadVersionError, NodeExistsError, NoNodeError, Session
from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.metadata import znodes
from ottla.metadata.image import BrokerImage
from ottla.metadata.znodes import BrokerZnode
from ottla.ports import World

log = get_logger(__name__)


class Registration:
    """``own`` returns this broker's addresses, and ``leads_here`` whether a connection to them reaches this process.

    ``on_epoch`` receives its epoch, -1 when it no longer has one.
    """

    def __init__(
        self,
        world: World,
        broker_id: int,
        own: Callable[[], BrokerImage],
        acl_of: AclOf,
        *,
        leads_here: Callable[[], Awaitable[bool]],
        wait_ms_max: int,
        on_epoch: Callable[[int], None],
    ) -> None:
        self._world = world
        self._broker_id = broker_id
        self._own = own
        self._path = znodes.broker_path(broker_id)
        self._acl_of = acl_of
        self._leads_here = leads_here
        self._wait_ms_max = wait_ms_max
        self._on_epoch = on_epoch
        self._epoch = -1
        self._has_epoch = asyncio.Event()

    async def epoch(self) -> int:
        """Returns the broker's epoch, once it is registered."""
        while self._epoch < 0:
            self._has_epoch.clear()
            await self._has_epoch.wait()
        return self._epoch

    async def keep(self, session: Session, registered: asyncio.Event) -> None:
        """Keeps the broker registered, whatever becomes of its znode, until the session ends. KafkaError when another one has its id."""
        while True:
            changed = asyncio.Event()
            epoch = await self._register(session)
            stat = await session.exists(self._path, changed.set)
            if stat is None or stat.czxid != epoch:
                continue
            if epoch != self._epoch:
                log.info("broker_znode_made", path=self._path, broker_epoch=epoch, session=hex(session.session_id))
                self._epoch = epoch
                self._has_epoch.set()
                self._on_epoch(epoch)
            registered.set()
            await changed.wait()

    def lost(self) -> None:
        """Notes that the session has ended, and the znode with it."""
        self._epoch = -1
        self._on_epoch(-1)

    async def _register(self, session: Session) -> int:
        deadline_ms = self._world.clock.monotonic_ms() + self._wait_ms_max
        own = self._own()
        data = BrokerZnode(list(own.endpoints.values()), own.rack, self._world.clock.now_ms(), own.features).encode()
        while True:
            try:
                await session.create(self._path, data, is_ephemeral=True, acl=self._acl_of(self._path))
            except NodeExistsError:
                pass
            gone = asyncio.Event()
            try:
                found, stat = await session.get(self._path, gone.set)
            except NoNodeError:
                continue
            if stat.ephemeral_owner == session.session_id:
                return stat.czxid
            if self._is_ours(found, own) and await self._leads_here():
                log.info("broker_znode_of_an_earlier_session", path=self._path, session=hex(stat.ephemeral_owner))
                await _delete(session, self._path, stat.version)
                continue
            log.warning("broker_id_taken", path=self._path, registered=found.decode("utf-8", errors="replace"))
            try:
                async with asyncio.timeout(max(0, deadline_ms - self._world.clock.monotonic_ms()) / 1000):
                    await gone.wait()
            except TimeoutError:
                text = f"another broker is registered with the id {self._broker_id}: {found.decode('utf-8', errors='replace')}"
                raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text) from None

    def _is_ours(self, data: bytes, own: BrokerImage) -> bool:
        try:
            ends = BrokerZnode.decode(data, self._broker_id).endpoints
        except DecodeError:
            return False
        return {(end.host, end.port) for end in ends} == {(end.host, end.port) for end in own.endpoints.values()}


async def _delete(session: Session, path: str, version: int) -> None:
    try:
        await session.delete(path, version)
    except (NoNodeError, BadVersionError):
        pass
