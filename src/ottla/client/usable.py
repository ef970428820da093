"""Whether a client may be called: it is not closed, and its caller is on the loop that it was made on.

``on_own_loop`` decorates the classes of ``ottla.aio``. A call on another loop would wait for ever: what it waits for is on the client's.
``send`` is called for each record: it looks at its loop by itself, and at ``is_closed`` where it looks at the rest.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

from ottla.client.other_keywords import refuse_send
from ottla.errors import ErrorCode, KafkaError

C = TypeVar("C", bound=type[Any])
_BY_THEMSELVES: Final = frozenset({"send", "send_and_wait"})
_PLAIN: Final = frozenset({"subscribe", "assign"})
"""They ask no broker, and have an effect that a closed client could not have."""


class ClientClosedError(KafkaError):
    """The client was closed: before the call, or by another thread during it."""


def closed() -> ClientClosedError:
    """Returns the error of a call of a client that was closed."""
    return ClientClosedError(ErrorCode.INVALID_REQUEST, "this client is closed")


def other_loop() -> RuntimeError:
    """Returns the error of a call on another loop than the client's."""
    return RuntimeError(
        "this client was made on another event loop: make a client on each loop, as in each asyncio.run(); "
        "clients of ottla.sync work from every thread"
    )


def on_own_loop(kind: C) -> C:
    """Returns the class; its coroutine methods raise RuntimeError on another loop, and INVALID_REQUEST once the client is closed."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        is_coroutine = inspect.iscoroutinefunction(method)
        if name in _PLAIN or name == "_fetch" or (is_coroutine and not name.startswith("_") and name not in _BY_THEMSELVES):
            setattr(kind, name, _checking(method, is_coroutine=is_coroutine))
    return kind


def _check(client: Any, name: str) -> None:
    if asyncio.get_running_loop() is not client._loop:
        raise other_loop()
    if name != "close" and client._cluster.is_closed:
        raise closed()


def _checking(method: Callable[..., Any], *, is_coroutine: bool) -> Callable[..., Any]:
    name = method.__name__

    @functools.wraps(method)
    def plain(self: Any, *args: Any, **kwargs: Any) -> Any:
        _check(self, name)
        return method(self, *args, **kwargs)

    @functools.wraps(method)
    async def coroutine(self: Any, *args: Any, **kwargs: Any) -> Any:
        _check(self, name)
        return await method(self, *args, **kwargs)

    return coroutine if is_coroutine else plain


def refuse_call(positional: tuple[Any, ...], others: Mapping[str, Any]) -> NoReturn:
    """Raises what is wrong with a ``send``: its arguments, or else the loop that it runs on."""
    if positional or others:
        refuse_send(positional, others)
    raise other_loop()
