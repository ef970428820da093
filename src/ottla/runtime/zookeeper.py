"""ZooKeeper through kazoo: its threads on one side, the event loop on the other.

kazoo calls back in threads of its own; every callback crosses to the loop by ``call_soon_threadsafe``, and nothing else is shared. A client
of kazoo goes on with a new session when its old one has expired; here a session that has expired is over, and so is its client.
kazoo is imported when the first session is made.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ottla import coordination as port
from ottla.coordination import OPEN_ACCESS, Access, Operation, Stat, Watch
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.runtime.zookeeper_hosts import hosts_of, unknown_names
from ottla.runtime.zookeeper_tls import tls_context, tls_handler

log = get_logger(__name__)

_RETRY: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
_PERMISSIONS: Final[Mapping[str, int]] = {"r": 1, "w": 2, "c": 4, "d": 8, "a": 16}
CLOSE_SECONDS_MAX: Final = 5.0


class ZooKeeper:
    """A ``coordination.Coordination``."""

    def __init__(self) -> None:
        self.last_problem: str | None = None
        self._contexts: dict[port.Tls, ssl.SSLContext] = {}

    async def connect(
        self, servers: str, *, session_timeout_ms: int, credentials: Sequence[tuple[str, str]] = (), tls: port.Tls | None = None
    ) -> KazooSession:
        try:
            from kazoo.client import KazooClient
        except ImportError:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "ZooKeeper needs the package kazoo: pip install 'ottla[zookeeper]'") from None
        logging.getLogger("kazoo").setLevel(logging.ERROR)  # the owner of the session reports a lost connection
        hosts_of(servers)  # a name that can be none would end kazoo's thread
        client = KazooClient(
            hosts=servers,
            timeout=session_timeout_ms / 1000,
            connection_retry=_RETRY,
            auth_data=[(scheme, secret) for scheme, secret in credentials],
            randomize_hosts=True,
            handler=None if tls is None else self._tls_handler(tls),
        )
        session = KazooSession(client)
        looking = asyncio.ensure_future(self._look_at_names(servers))
        try:
            await session.opened()
        except BaseException:
            await session.close()
            raise
        finally:
            looking.cancel()
        return session

    async def _look_at_names(self, servers: str) -> None:
        if (unknown := await unknown_names(servers)) is not None:
            self._note(unknown, "zookeeper_name_unknown")  # and kazoo asks again: a machine that starts may know the names later

    def _tls_handler(self, tls: port.Tls) -> Any:
        """Reads the files for each session: they may have been replaced. While they cannot be used, the former ones are."""
        try:
            self._contexts[tls] = tls_context(tls)
        except KafkaError as error:
            if tls not in self._contexts:
                raise
            log.warning("zookeeper_tls_files_not_replaced", reason=error.message)
        loop = asyncio.get_running_loop()

        def on_problem(text: str) -> None:
            try:
                loop.call_soon_threadsafe(self._note, text)
            except RuntimeError:  # the loop has ended
                pass

        return tls_handler(self._contexts[tls], on_problem)

    def _note(self, problem: str, event: str = "zookeeper_connection_refused") -> None:
        if problem != self.last_problem:
            self.last_problem = problem
            log.warning(event, reason=problem)


class KazooSession:
    """A ``coordination.Session``. ``client`` has not been started."""

    def __init__(self, client: Any) -> None:
        from kazoo import exceptions
        from kazoo.protocol.states import KazooState

        self._client = client
        self._states = KazooState
        self._loop = asyncio.get_running_loop()
        self._open: asyncio.Future[None] = self._loop.create_future()
        self._is_over = False  # set in kazoo's thread, so that nothing is sent in the session that kazoo would start next
        self._is_closed = False
        self._is_expiry_known = False
        self._close_task: asyncio.Task[None] | None = None
        self.session_id = 0
        self.is_connected = False
        self.on_connection: Callable[[bool], None] = lambda is_connected: None
        self.on_expired: Callable[[], None] = lambda: None
        self._errors: Mapping[type[BaseException], type[port.CoordinationError]] = {
            exceptions.NoNodeError: port.NoNodeError,
            exceptions.NodeExistsError: port.NodeExistsError,
            exceptions.BadVersionError: port.BadVersionError,
            exceptions.NotEmptyError: port.NotEmptyError,
            exceptions.NoChildrenForEphemeralsError: port.NoChildrenForEphemeralsError,
            exceptions.NoAuthError: port.NotAuthorizedError,
            exceptions.AuthFailedError: port.NotAuthorizedError,
            exceptions.ConnectionLoss: port.ConnectionLostError,
            exceptions.OperationTimeoutError: port.ConnectionLostError,
            exceptions.SessionExpiredError: port.SessionExpiredError,
            exceptions.ConnectionClosedError: port.SessionExpiredError,
        }
        self._rolled_back = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
        client.add_listener(self._on_state)

    async def opened(self) -> None:
        """Waits until the session has started. NotAuthorizedError when the credentials are refused."""
        self._client.start_async()
        await self._open

    # -- in kazoo's threads

    def _on_state(self, state: Any) -> None:
        is_connected = state == self._states.CONNECTED
        is_lost = state == self._states.LOST
        if is_lost:
            self._is_over = True
        session_id = self._client.client_id[0] if is_connected else 0
        self._cross(lambda: self._on_state_here(is_connected, is_lost, session_id))

    def _cross(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop has ended, and so have all that wait
            pass

    # -- on the loop

    def _on_state_here(self, is_connected: bool, is_lost: bool, session_id: int) -> None:
        if self._is_closed or self._is_expiry_known:
            return
        if is_lost:
            self.is_connected = False
            self._is_expiry_known = True
            if not self._open.done():
                self._open.set_exception(port.NotAuthorizedError("ZooKeeper refused the session"))
            self._close_task = self._loop.create_task(self._stop())
            self.on_expired()
        elif is_connected and not self._is_over:
            is_first, self.is_connected = not self.session_id, True
            self.session_id = self.session_id or session_id
            if is_first and not self._open.done():
                self._open.set_result(None)
            elif not is_first:
                self.on_connection(True)
        elif not is_connected:
            self.is_connected = False
            self.on_connection(False)

    async def _ask(self, path: str, send: Callable[..., Any], *arguments: Any) -> Any:
        if self._is_over or self._is_closed:
            raise port.SessionExpiredError(path)
        future: asyncio.Future[Any] = self._loop.create_future()

        def answered(result: Any) -> None:
            error = result.exception
            value = None if error is not None else result.value
            self._cross(lambda: _settle(future, value, error))

        send(*arguments).rawlink(answered)
        try:
            return await future
        except Exception as error:  # noqa: BLE001 - it is translated
            raise self._translated(error, path) from None

    def _translated(self, error: BaseException, path: str) -> BaseException:
        known = next((self._errors[cls] for cls in type(error).__mro__ if cls in self._errors), None)
        if known is port.ConnectionLostError and self._is_over:
            known = port.SessionExpiredError
        return error if known is None else known(path)

    def _watcher(self, watch: Watch | None) -> Callable[[Any], None] | None:
        """Returns a watcher of its own for each call: kazoo keeps them in a set."""
        return None if watch is None else lambda event: self._cross(lambda: None if self._is_closed else watch())

    async def create(self, path: str, data: bytes = b"", *, is_ephemeral: bool = False, acl: Sequence[Access] = OPEN_ACCESS) -> None:
        await self._ask(path, self._client.create_async, path, data, _acl(acl), is_ephemeral)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        data, stat = await self._ask(path, self._client.get_async, path, self._watcher(watch))
        return data, _stat(stat)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._ask(path, self._client.exists_async, path, self._watcher(watch))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return sorted(await self._ask(path, self._client.get_children_async, path, self._watcher(watch)))

    async def set(self, path: str, data: bytes, version: int) -> int:
        return int((await self._ask(path, self._client.set_async, path, data, version)).version)

    async def delete(self, path: str, version: int = port.ANY_VERSION) -> None:
        await self._ask(path, self._client.delete_async, path, version)

    async def multi(self, operations: Sequence[Operation]) -> None:
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case port.Create():
                    transaction.create(
                        operation.path, operation.data, _acl(operation.acl), operation.is_ephemeral, operation.is_sequential
                    )  # fmt: skip
                case port.Set():
                    transaction.set_data(operation.path, operation.data, operation.version)
                case port.Delete():
                    transaction.delete(operation.path, operation.version)
                case port.Check():
                    transaction.check(operation.path, operation.version)
        results = await self._ask(operations[0].path, transaction.commit_async)
        for index, (operation, result) in enumerate(zip(operations, results, strict=True)):
            if isinstance(result, Exception) and not isinstance(result, self._rolled_back):
                reason = self._translated(result, operation.path)
                raise port.MultiFailedError(index, reason if isinstance(reason, port.CoordinationError) else port.CoordinationError(reason))
        assert not any(isinstance(result, Exception) for result in results), "of a multi that fails, one operation says why"

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.is_connected = False
            if self._close_task is None:
                self._close_task = self._loop.create_task(self._stop())
        if self._close_task is not None:
            await asyncio.shield(self._close_task)

    async def _stop(self) -> None:
        """Stops kazoo, which waits for its threads: not on the loop."""
        done: asyncio.Future[None] = self._loop.create_future()

        def stop() -> None:
            try:
                self._client.stop()
                self._client.close()
            finally:
                self._cross(lambda: _settle(done, None, None))

        threading.Thread(target=stop, name="ottla-zookeeper-close", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await done
        except TimeoutError:
            pass


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _stat(stat: Any) -> Stat:
    return Stat(stat.czxid, stat.version, stat.ctime, stat.ephemeralOwner, stat.numChildren)


def _acl(acl: Sequence[Access]) -> Any:
    from kazoo.security import ACL, Id

    return [ACL(sum(_PERMISSIONS[letter] for letter in access.permissions), Id(access.scheme, access.id)) for access in acl]
