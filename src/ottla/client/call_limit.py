"""The limit of one call, and what the call waits for when the limit ends it.

A call asks several brokers, one after the other or at once, and asks again; each request has a limit of its own. What is being waited for
is noted where the waiting is, so that the error of the call names it.  Source: KIP-533.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from ottla.client.wrong_calls import check_milliseconds
from ottla.errors import ErrorCode, KafkaError

DEFAULT_API_TIMEOUT_MS: Final = 60_000
ANSWER_MS: Final = 1_000
"""A call that was given ``timeout_ms`` may take so much longer: a broker answers at the end of that time which items it has done."""
TRY_MS: Final = 1_000
C = TypeVar("C", bound=type[Any])


class _Closable(Protocol):
    def close(self) -> None: ...


@dataclass(eq=False, slots=True)
class _Wait:
    """A wait of a call; ``outer`` is for the same by a more general name."""

    what: str
    connection: _Closable | None
    outer: _Wait | None


class _Call:
    """A call and what it, with all its tasks, waits for."""

    def __init__(self) -> None:
        self.waits: list[_Wait] = []

    def ended(self) -> str:
        """Returns what was waited for. Closes the connections that have not answered: later answers would wait for these."""
        for wait in self.waits:
            if wait.connection is not None:
                wait.connection.close()
        return self.named()

    def named(self) -> str:
        """Returns what is waited for."""
        outer = {wait.outer for wait in self.waits}
        return " and ".join(dict.fromkeys(wait.what for wait in self.waits if wait not in outer)) or "its own work"


_CALL: Final[ContextVar[_Call | None]] = ContextVar("call", default=None)
_WAIT: Final[ContextVar[_Wait | None]] = ContextVar("wait", default=None)
"""The innermost one; tasks that are made meanwhile are within it."""


@contextmanager
def waiting_for(what: str, connection: _Closable | None = None) -> Iterator[None]:
    """Notes for the call, if it has a limit, what the block waits for. A block that is cancelled leaves the note, for the error."""
    call = _CALL.get()
    if call is None:
        yield
        return
    wait = _Wait(what, connection, _WAIT.get())
    call.waits.append(wait)
    token = _WAIT.set(wait)
    is_cancelled = False
    try:
        yield
    except asyncio.CancelledError:
        is_cancelled = True
        raise
    finally:
        _WAIT.reset(token)
        if not is_cancelled:
            call.waits.remove(wait)


@asynccontextmanager
async def ended_by(limit_ms: float, what: str) -> AsyncIterator[None]:
    """Ends the block in this time: REQUEST_TIMED_OUT, with ``what`` and what it waited for. Connections stay: others wait for them, too.

    A try has ``TRY_MS`` at least, as where max.block.ms is 0.
    """
    noted = _Call()
    token = _CALL.set(noted)
    limit = asyncio.timeout(max(TRY_MS, limit_ms) / 1000)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{what}: it waited for {noted.named()}") from None
    finally:
        _CALL.reset(token)


def limited(kind: C) -> C:
    """Returns the class; each of its coroutine methods but ``close`` ends by ``default_api_timeout_ms`` of its object, REQUEST_TIMED_OUT.

    A ``timeout_ms`` of the call takes its place, longer or shorter, as in Java's admin client. A method that another one calls is within
    the limit of that one.
    """
    for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction):
        if not name.startswith("_") and name != "close":
            setattr(kind, name, _limited(method))
    return kind


def _limited(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _CALL.get() is not None:
            return await method(self, *args, **kwargs)
        noted = _Call()
        token = _CALL.set(noted)
        timeout_ms: int | None = kwargs.get("timeout_ms")
        if timeout_ms is None:
            limit_ms, limit_text = self.default_api_timeout_ms, f"default_api_timeout_ms={self.default_api_timeout_ms}"
        else:
            check_milliseconds(timeout_ms, "leave it out for default_api_timeout_ms")
            limit_ms, limit_text = timeout_ms + ANSWER_MS, f"timeout_ms={timeout_ms}"
        limit = asyncio.timeout(limit_ms / 1000)
        try:
            async with limit:
                return await method(self, *args, **kwargs)
        except TimeoutError:
            if not limit.expired():
                raise
            taken = f"{method.__name__}() has not ended in {limit_text}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{taken}: it waited for {noted.ended()}") from None
        finally:
            _CALL.reset(token)

    return call
