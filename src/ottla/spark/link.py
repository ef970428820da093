"""A cluster, for code that has no event loop of its own.

The loop runs in a daemon thread, so that requests go out and responses come in while the caller decodes. One link is made for
each cluster in a process and stays: Spark uses its Python workers again, and a task then finds its connections open.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, TypeVar

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.security import SecuritySettings
from ottla.runtime.world import real_world
from ottla.spark.options import number_of
from ottla.spark.security import security_of, settings_of

T = TypeVar("T")
_WAITING: Final[dict[int, Future[Any]]] = {}  # by the thread that waits
_INTERRUPTED: Final[set[int]] = set()
_LINKS: Final[dict[tuple[int, str, str, int, int, SecuritySettings], Link]] = {}


_BREAKABLE: Final[list[Callable[[], AbstractContextManager[None]]]] = []  # of the process's command, if it has one


@contextmanager
def broken_off_in(block: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Lets the main thread wait for others than the JVM in such a block, which a Ctrl-C breaks off."""
    _BREAKABLE.append(block)
    try:
        yield
    finally:
        _BREAKABLE.remove(block)


def breakable() -> AbstractContextManager[None]:
    """Returns the block of a wait that a Ctrl-C may break off; nothing of the kind where the process has none, or on another thread."""
    is_main = bool(_BREAKABLE) and threading.current_thread() is threading.main_thread()
    return _BREAKABLE[-1]() if is_main else nullcontext()


class WaitInterruptedError(RuntimeError):
    """The error of a thread whose wait was ended by another one, since its query is being stopped."""


def interrupt(thread: int) -> None:
    """Ends the wait of the thread, and each later one until ``resume``, with a WaitInterruptedError."""
    _INTERRUPTED.add(thread)
    waiting = _WAITING.get(thread)
    if waiting is not None:
        waiting.cancel()


def resume(thread: int) -> None:
    """Lets the thread wait again."""
    _INTERRUPTED.discard(thread)


def is_interrupted(thread: int) -> bool:
    return thread in _INTERRUPTED


class Link:
    """``cluster`` and ``admin`` belong to the loop: they are used in coroutines given to ``run`` and ``start`` only."""

    def __init__(
        self, bootstrap: str, client_id: str, request_timeout_ms: int, metadata_max_age_ms: int, settings: SecuritySettings
    ) -> None:
        security = security_of(settings)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="ottla-spark", daemon=True).start()

        def connect() -> Cluster:
            return Cluster(
                real_world(),
                bootstrap,
                client_id=client_id,
                request_timeout_ms=request_timeout_ms,
                metadata_max_age_ms=metadata_max_age_ms,
                security=security,
            )

        async def begin() -> Cluster:
            return connect()

        self.connect = connect  # on the loop: a cluster for one more client of these settings, which owns it
        self.cluster = self.run(begin())
        self.admin = Admin(self.cluster)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns the coroutine's result; it is cancelled when the caller is interrupted meanwhile.

        WaitInterruptedError where another thread ends the wait (``interrupt``).
        """
        thread = threading.get_ident()
        future = self.start(coroutine)
        _WAITING[thread] = future
        try:
            if thread in _INTERRUPTED:  # looked at after the entry above, and changed before that is looked at
                raise WaitInterruptedError
            with breakable():
                return future.result()
        except CancelledError:
            if thread in _INTERRUPTED:
                raise WaitInterruptedError from None
            raise
        finally:
            future.cancel()
            _WAITING.pop(thread, None)


def link_for(options: Mapping[str, str]) -> Link:
    """Returns the process's link to the cluster of these options, with their credentials."""
    key = (
        os.getpid(),  # a forked worker has its parent's objects, but not its threads
        options["kafka.bootstrap.servers"],
        options.get("kafka.client.id", "ottla-spark"),
        number_of(options, "kafka.request.timeout.ms"),
        number_of(options, "kafka.metadata.max.age.ms"),
        settings_of(options),
    )
    found = _LINKS.get(key)
    if found is None:
        found = _LINKS[key] = Link(*key[1:])
    return found
