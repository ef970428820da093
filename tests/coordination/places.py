"""Two services that keep the same promises, and what a test may do to each: Apache ZooKeeper behind a proxy, and the simulated one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from tests.cluster.proxy import Proxy
from tests.foreign_clients.broker_process import lasting_port

from ottla.coordination import Session, Tls
from ottla.runtime.zookeeper import KazooSession, ZooKeeper
from ottla.runtime.zookeeper_server import ZooKeeperServer
from ottla.sim.loop import run
from ottla.sim.zookeeper import SimZooKeeper
from ottla.sim.zookeeper_session import SimSession

SESSION_MS = 3000


class Place(Protocol):
    async def connect(self, chroot: str = "", *, timeout_ms: int = SESSION_MS, credentials: list[tuple[str, str]] | None = None) -> Session:
        """A session on a connection that the methods below can harm."""
        ...

    def break_connections(self) -> None:
        """Every connection ends; new ones are made."""
        ...

    def lose_answers(self) -> None:
        """Requests arrive, and are not answered any more, until ``break_connections``."""
        ...

    def take_away(self) -> None:
        """The service is not reached any more."""
        ...

    def bring_back(self) -> None: ...

    async def expire(self, session: Session) -> None:
        """The service ends the session."""
        ...

    async def stored(self, path: str) -> bytes:
        """What the service has at the path, asked past whatever was done to connections."""
        ...


Case = Callable[[Place], Coroutine[Any, Any, None]]


class RealPlace:
    """``chroot`` is this test's own part of the tree."""

    def __init__(self, server: ZooKeeperServer, proxy: Proxy, chroot: str, tls: Tls | None = None) -> None:
        self._server = server
        self._proxy = proxy
        self._chroot = chroot
        self._tls = tls
        self._sessions: list[Session] = []

    async def connect(self, chroot: str = "", *, timeout_ms: int = SESSION_MS, credentials: list[tuple[str, str]] | None = None) -> Session:
        servers = f"127.0.0.1:{self._proxy.port}{self._chroot}{chroot}"
        session = await ZooKeeper().connect(servers, session_timeout_ms=timeout_ms, credentials=credentials or [], tls=self._tls)
        self._sessions.append(session)
        return session

    def break_connections(self) -> None:
        self._proxy.swallow()
        self._proxy.reset()

    def lose_answers(self) -> None:
        self._proxy.swallow("back")

    def take_away(self) -> None:
        self._proxy.refuse()
        self._proxy.reset()

    def bring_back(self) -> None:
        self._proxy.accept()

    async def expire(self, session: Session) -> None:
        """Another client takes the session over, and closes it."""
        from kazoo.client import KazooClient

        assert isinstance(session, KazooSession)
        client_id = session._client.client_id

        def take_over() -> None:
            other = KazooClient(hosts=self._server.address, client_id=client_id)
            other.start()
            other.stop()
            other.close()

        await asyncio.to_thread(take_over)

    async def stored(self, path: str) -> bytes:
        session = await ZooKeeper().connect(self._server.address + self._chroot, session_timeout_ms=SESSION_MS)
        try:
            return (await session.get(path))[0]
        finally:
            await session.close()

    async def close(self) -> None:
        self._proxy.swallow()
        for session in self._sessions:
            await session.close()


class SimPlace:
    def __init__(self) -> None:
        self._service = SimZooKeeper(random.Random(7))
        self._is_deaf = False

    async def connect(self, chroot: str = "", *, timeout_ms: int = SESSION_MS, credentials: list[tuple[str, str]] | None = None) -> Session:
        return await self._service.coordination("host").connect(
            f"sim:2181{chroot}", session_timeout_ms=timeout_ms, credentials=credentials or []
        )

    def break_connections(self) -> None:
        self._service.loses_answers = False
        self._service.cut("host")
        self._service.heal("host")

    def lose_answers(self) -> None:
        self._service.loses_answers = True

    def take_away(self) -> None:
        self._service.cut("host")

    def bring_back(self) -> None:
        self._service.heal("host")

    async def expire(self, session: Session) -> None:
        assert isinstance(session, SimSession)
        self._service.expire(session.session_id)

    async def stored(self, path: str) -> bytes:
        await asyncio.sleep(0.01)  # on the simulated clock, which stands still until somebody waits
        return self._service.tree.paths()[path]


def run_on_sim(case: Case) -> None:
    async def main() -> None:
        await case(SimPlace())

    run(main())


def run_on_zookeeper(server: ZooKeeperServer, name: str, case: Case, *, port: int = 0, tls: Tls | None = None) -> None:
    """``port`` is the one where the server is reached as ``tls`` says."""

    async def main() -> None:
        whole = await ZooKeeper().connect(server.address, session_timeout_ms=SESSION_MS)
        await whole.create(f"/{name}")
        await whole.close()
        with Proxy(lasting_port(), port or server.port) as proxy:
            place = RealPlace(server, proxy, f"/{name}", tls)
            try:
                await case(place)
            finally:
                await place.close()

    asyncio.run(main())
