"""A coordination service in memory, with ZooKeeper's promises and its failures.

Requests of a session are carried out in order; they and the answers take their time. A connection can be cut, the service can be away: what
was asked meanwhile may have been carried out, or not. A session that is not heard from for its timeout expires, however well its process
is. Nodes, versions and watches are as in ZooKeeper 3.9: what one suite of tests says of both is in ``tests/coordination``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextvars import Context

from ottla.coordination import Tls, Watch
from ottla.sim.znodes import Tree
from ottla.sim.zookeeper_session import RETRY_SECONDS, KnownSession, SimSession


class SimZooKeeper:
    """The service. ``delay_ms_max`` is how long a message may take."""

    def __init__(self, random_numbers: random.Random, *, delay_ms_max: float = 2.0) -> None:
        self._random = random_numbers
        self._delay_ms_max = delay_ms_max
        self.tree = Tree()
        self._known: dict[int, KnownSession] = {}
        self._cut: set[str] = set()
        self._is_up = True
        self.loses_answers = False
        """Requests are carried out, and their answers lost, until the connection ends."""
        self._last_session = 0x100000000
        self._sweep: asyncio.TimerHandle | None = None

    def coordination(self, host: str) -> SimCoordination:
        """Returns the connection to the service from that host."""
        return SimCoordination(self, host)

    # -- what may happen to it

    def cut(self, host: str) -> None:
        """Cuts the host off from the service."""
        self._cut.add(host)
        self._drop(lambda known: known.session.host == host)

    def heal(self, host: str) -> None:
        self._cut.discard(host)

    def stop(self) -> None:
        """Stops the service; sessions keep their time, as in an ensemble that elects."""
        self._is_up = False
        self._drop(lambda known: True)

    def start(self) -> None:
        self._is_up = True
        now = self.now()
        for known in self._known.values():  # a new leader gives each session its time again
            known.heard = now

    def expire(self, session_id: int) -> None:
        """Expires the session at the service at once."""
        known = self._known.pop(session_id, None)
        if known is not None:
            self.tree.forget(known)
            self.tell(self.tree.end_session(session_id))
            if known.session.is_connected:
                self.after(known.session.end_connection)

    def sessions_of(self, host: str) -> list[int]:
        """Returns the sessions that started on the host, and have not ended."""
        return [session_id for session_id, known in self._known.items() if known.session.host == host]

    def _drop(self, which: Callable[[KnownSession], bool]) -> None:
        for known in self._known.values():
            if which(known) and known.session.is_connected:
                known.session.end_connection()

    # -- for its sessions

    def reaches(self, host: str) -> bool:
        return self._is_up and host not in self._cut

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def after(self, callback: Callable[[], None]) -> None:
        """Calls back when a message has arrived; in no process, because its cause may be dead."""
        asyncio.get_running_loop().call_later(self.delay(), callback, context=Context())

    def delay(self) -> float:
        return self._random.uniform(0.05, self._delay_ms_max) / 1000

    def begin(self, session: SimSession, timeout_ms: int, credentials: Sequence[tuple[str, str]]) -> int:
        self._last_session += 1
        known = KnownSession(session, timeout_ms / 1000, self.now(), tuple(credentials), self._last_session)
        self._known[self._last_session] = known
        self._sweep_later()
        return self._last_session

    def hear(self, session_id: int) -> KnownSession | None:
        """Returns the session, which has sent a message; None when it is over."""
        known = self._known.get(session_id)
        if known is not None:
            known.heard = self.now()
        return known

    def end(self, session_id: int) -> None:
        known = self._known.pop(session_id, None)
        if known is not None:
            self.tree.forget(known)
            self.tell(self.tree.end_session(session_id))

    def _sweep_later(self) -> None:
        if self._sweep is None and self._known:
            self._sweep = asyncio.get_running_loop().call_later(0.1, self._expire_silent, context=Context())

    def _expire_silent(self) -> None:
        self._sweep = None
        now = self.now()
        if self._is_up:
            for session_id, known in list(self._known.items()):
                if now - known.heard > known.timeout:
                    self.expire(session_id)
        self._sweep_later()

    def tell(self, events: list[tuple[KnownSession, Watch]]) -> None:
        """Watches that were set there are called: each session learns of it before it reads anything newer."""
        for known, watch in events:
            known.session.receive(watch)


class SimCoordination:
    """A ``coordination.Coordination``, from one host. Whether there is TLS or not makes no difference in memory."""

    last_problem = None

    def __init__(self, service: SimZooKeeper, host: str) -> None:
        self._service = service
        self._host = host

    async def connect(
        self, servers: str, *, session_timeout_ms: int, credentials: Sequence[tuple[str, str]] = (), tls: Tls | None = None
    ) -> SimSession:
        _, slash, chroot = servers.partition("/")
        while not self._service.reaches(self._host):
            await asyncio.sleep(RETRY_SECONDS)
        await asyncio.sleep(self._service.delay())
        return SimSession(self._service, self._host, slash + chroot.rstrip("/") if chroot else "", session_timeout_ms, credentials)
