"""A session of the simulated coordination service, as its client and as the service knows it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from ottla.coordination import (
    OPEN_ACCESS,
    Access,
    ConnectionLostError,
    Create,
    Delete,
    Operation,
    SessionExpiredError,
    Set,
    Stat,
    Watch,
)
from ottla.sim.clock import EPOCH_MS
from ottla.sim.process import CURRENT
from ottla.sim.znodes import Tree

REQUEST_BYTES_MAX: Final = 0xFFFFF
RETRY_SECONDS: Final = 0.05
Ask = Callable[["KnownSession"], Any]


class Service(Protocol):
    """The service, as a session sees it."""

    tree: Tree
    loses_answers: bool

    def reaches(self, host: str) -> bool:
        """True when the host reaches the service."""
        ...

    def after(self, callback: Callable[[], None]) -> None:
        """Calls back when a message has arrived."""
        ...

    def now(self) -> float: ...

    def begin(self, session: SimSession, timeout_ms: int, credentials: Sequence[tuple[str, str]]) -> int:
        """Starts a session, and returns its id."""
        ...

    def hear(self, session_id: int) -> KnownSession | None:
        """Returns the session, which has sent a message; None when it is over."""
        ...

    def end(self, session_id: int) -> None:
        """Closes the session."""
        ...

    def tell(self, events: list[tuple[Any, Watch]]) -> None:
        """Watches that were set there are called."""
        ...


class KnownSession:
    """A session, as the service knows it."""

    def __init__(
        self, session: SimSession, timeout: float, heard: float, credentials: tuple[tuple[str, str], ...], session_id: int
    ) -> None:
        self.session = session
        self.timeout = timeout
        self.heard = heard
        self.credentials = credentials
        self.session_id = session_id


class SimSession:
    """A ``coordination.Session``."""

    def __init__(self, service: Service, host: str, chroot: str, timeout_ms: int, credentials: Sequence[tuple[str, str]]) -> None:
        self._service = service
        self.host = host
        self._chroot = chroot
        self._ping_seconds = timeout_ms / 3000
        self._waiting: deque[tuple[Ask, asyncio.Future[Any]]] = deque()  # not sent yet
        self._sent: dict[asyncio.Future[Any], None] = {}
        self._watches: dict[Watch, None] = {}
        self._process = CURRENT.get()
        self._requests = _Pipe(service, lambda message: message())
        self._replies = _Pipe(service, self._here)
        self._is_over = False
        self._is_closed = False
        self.is_connected = True
        self.on_connection: Callable[[bool], None] = lambda is_connected: None
        self.on_expired: Callable[[], None] = lambda: None
        self.session_id = service.begin(self, timeout_ms, credentials)
        self._ping()

    def _here(self, message: Callable[[], object]) -> None:
        """Runs the message in the process that has the session, if that lives."""
        if self._process is None:
            message()
        else:
            self._process.call(message)

    def _ping(self) -> None:
        if self._is_over or self._is_closed:
            return
        if self.is_connected:
            self._requests.send(lambda: self._service.hear(self.session_id))
        elif self._service.reaches(self.host):
            self._requests.send(self._connect_again)
        interval = self._ping_seconds if self.is_connected else RETRY_SECONDS
        asyncio.get_running_loop().call_later(interval, self._ping)

    def _connect_again(self) -> None:
        is_known = self._service.hear(self.session_id) is not None
        self._replies.send(lambda: self._connected(is_known))

    def _connected(self, is_known: bool) -> None:
        if self._is_closed or self.is_connected or self._is_over:
            return
        if not is_known:
            self._expire()
            return
        self.is_connected = True
        self.on_connection(True)
        waiting, self._waiting = self._waiting, deque()
        for ask, future in waiting:
            self._send(ask, future)

    def _expire(self) -> None:
        self._is_over = True
        self.is_connected = False
        self._fail(SessionExpiredError("session"), [*self._sent, *(future for _, future in self._waiting)])
        self._waiting.clear()
        self._call_watches()
        self.on_expired()

    def end_connection(self) -> None:
        """Loses what is on its way; the session tries to connect again."""
        self._here(self._connection_ended)

    def _connection_ended(self) -> None:
        if not self.is_connected:
            return
        self.is_connected = False
        self._requests.cut()
        self._replies.cut()
        self._fail(ConnectionLostError("connection"), list(self._sent))
        self._call_watches()
        if not self._is_closed:
            self.on_connection(False)
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._ping)

    def _fail(self, error: Exception, futures: list[asyncio.Future[Any]]) -> None:
        self._sent.clear()
        for future in futures:
            if not future.done():
                future.set_exception(error)

    def _call_watches(self) -> None:
        watches, self._watches = self._watches, {}
        known = self._service.hear(self.session_id) if self._service.reaches(self.host) else None
        if known is not None:
            self._service.tree.forget(known)
        for watch in watches:
            watch()

    def receive(self, watch: Watch) -> None:
        """Receives an event from the service at a znode where this watch was set."""
        self._replies.send(lambda: self._call(watch))

    def _call(self, watch: Watch) -> None:
        if watch in self._watches:
            del self._watches[watch]
            if not self._is_closed:
                watch()

    async def _ask(self, ask: Ask, size_bytes: int = 0) -> Any:
        if self._is_over or self._is_closed:
            raise SessionExpiredError("session")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if size_bytes > REQUEST_BYTES_MAX:
            ask = self._too_large
        if self.is_connected:
            self._send(ask, future)
        else:
            self._waiting.append((ask, future))
        return await future

    def _too_large(self, known: KnownSession) -> Any:
        """Ends the connection, as a server does after such a request."""
        self.end_connection()

    def _send(self, ask: Ask, future: asyncio.Future[Any]) -> None:
        self._sent[future] = None

        def arrive() -> None:
            known = self._service.hear(self.session_id)
            if known is None:
                self._replies.send(self._expire)
                return
            try:
                result, error = ask(known), None
            except Exception as raised:  # noqa: BLE001 - it is the answer
                result, error = None, raised
            self._replies.send(lambda: self._answered(future, result, error), is_lost=self._service.loses_answers)

        self._requests.send(arrive)

    def _answered(self, future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        self._sent.pop(future, None)
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def _watched(self, watch: Watch | None) -> Watch | None:
        """Returns a new watch for each call."""
        if watch is None:
            return None

        def call() -> None:
            watch()

        self._watches[call] = None
        return call

    def _path(self, path: str) -> str:
        if {".", ".."} & set(path.split("/")):  # as kazoo
            raise ValueError("relative paths not allowed")
        return (self._chroot + path).rstrip("/") or "/"

    # -- requests

    async def create(self, path: str, data: bytes = b"", *, is_ephemeral: bool = False, acl: Sequence[Access] = OPEN_ACCESS) -> None:
        operation = Create(path, data, is_ephemeral, acl=acl)
        await self._ask(lambda known: self._carry_out(known, [operation], is_multi=False), len(data))

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        call = self._watched(watch)
        found: tuple[bytes, Stat] = await self._ask(lambda known: self._service.tree.get(known, self._path(path), call))
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        call = self._watched(watch)
        found: Stat | None = await self._ask(lambda known: self._service.tree.exists(known, self._path(path), call))
        return found

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        call = self._watched(watch)
        found: list[str] = await self._ask(lambda known: self._service.tree.children(known, self._path(path), call))
        return found

    async def set(self, path: str, data: bytes, version: int) -> int:
        def ask(known: KnownSession) -> int:
            self._carry_out(known, [Set(path, data, version)], is_multi=False)
            return self._service.tree.version(self._path(path))

        changed: int = await self._ask(ask, len(data))
        return changed

    async def delete(self, path: str, version: int = -1) -> None:
        await self._ask(lambda known: self._carry_out(known, [Delete(path, version)], is_multi=False))

    async def multi(self, operations: Sequence[Operation]) -> None:
        size = sum(len(operation.path) + len(getattr(operation, "data", b"")) for operation in operations)
        await self._ask(lambda known: self._carry_out(known, list(operations), is_multi=True), size)

    def _carry_out(self, known: KnownSession, operations: list[Operation], *, is_multi: bool) -> None:
        now_ms = EPOCH_MS + int(self._service.now() * 1000)
        self._service.tell(self._service.tree.carry_out(known, operations, self._path, now_ms=now_ms, is_multi=is_multi))

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._fail(SessionExpiredError("session"), [*self._sent, *(future for _, future in self._waiting)])
        if self.is_connected:
            self.is_connected = False
            done = asyncio.get_running_loop().create_future()

            def arrive() -> None:
                self._service.end(self.session_id)
                self._replies.send(lambda: None if done.done() else done.set_result(None))

            self._requests.send(arrive)
            try:
                async with asyncio.timeout(1):
                    await done
            except TimeoutError:
                pass


class _Pipe:
    """Messages of one direction, which arrive in their order."""

    def __init__(self, service: Service, deliver: Callable[[Callable[[], object]], object]) -> None:
        self._service = service
        self._deliver_to = deliver
        self._queue: deque[Callable[[], object]] = deque()
        self._generation = 0

    def send(self, message: Callable[[], object], *, is_lost: bool = False) -> None:
        if is_lost:
            return
        self._queue.append(message)
        generation = self._generation
        self._service.after(lambda: self._deliver(generation))

    def _deliver(self, generation: int) -> None:
        if generation == self._generation and self._queue:
            self._deliver_to(self._queue.popleft())

    def cut(self) -> None:
        """Drops what is on its way."""
        self._generation += 1
        self._queue.clear()
