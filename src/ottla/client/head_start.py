"""Several addresses, of which one has to answer: a silent one delays a client by its head start, not by its time limit.

The addresses are tried in their order. The next one is tried when an attempt fails, or has lasted for HEAD_START_MS, and at most
AT_ONCE_MAX at a time. The first connection wins; the others end. Source: RFC 8305, section 5, which does so for the addresses of a name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from ottla.client.background import background, end
from ottla.client.connection import ClientConnection
from ottla.errors import KafkaError

HEAD_START_MS: Final = 250
AT_ONCE_MAX: Final = 3
Attempt = Callable[[], Coroutine[Any, Any, ClientConnection]]


async def first_of(
    attempts: Sequence[Attempt], *, dispose: Callable[[ClientConnection], object] = ClientConnection.close
) -> tuple[int, ClientConnection]:
    """Returns the connection that was open first, with the index of its attempt. KafkaError of the last attempt when all fail.

    ``dispose`` gets the connections of other attempts that came about meanwhile.
    """
    assert attempts, "there is an address at least"
    running: dict[asyncio.Task[ClientConnection], int] = {}
    started = 0
    problem: KafkaError | None = None
    try:
        while started < len(attempts) or running:
            if started < len(attempts) and len(running) < AT_ONCE_MAX:
                running[background(attempts[started]())] = started
                started += 1
            has_next = started < len(attempts) and len(running) < AT_ONCE_MAX
            limit = HEAD_START_MS / 1000 if has_next else None
            done, _ = await asyncio.wait(running, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=running.__getitem__):
                try:
                    opened = task.result()
                except KafkaError as error:
                    problem = error
                    del running[task]
                else:
                    return running.pop(task), opened
    finally:
        for task in running:
            await end(task)
            if not task.cancelled() and task.exception() is None:
                dispose(task.result())
    assert problem is not None, "no attempt succeeded"
    raise problem
