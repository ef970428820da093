"""Work that goes on beside other work, through lost connections, for as long as it is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from ottla.coordination import ConnectionLostError
from ottla.errors import ErrorCode, KafkaError

RETRY_SECONDS: Final = 0.1


async def first_of(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Ends when the first of them does, as that does; the others are cancelled, and have ended."""
    tasks = [asyncio.get_running_loop().create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def despite_lost_connections(work: Callable[[], Awaitable[None]]) -> None:
    """Starts the work over when the connection is lost; its first request then waits for another one."""
    while True:
        try:
            await work()
            return
        except ConnectionLostError:
            await asyncio.sleep(RETRY_SECONDS)


async def while_controller(work: Coroutine[Any, Any, None]) -> None:
    """Runs the work. What it decides may be too late: this node's controller is no longer active, and the work is about to be cancelled."""
    try:
        await work
    except KafkaError as error:
        if error.code != ErrorCode.NOT_CONTROLLER:
            raise
        await asyncio.Event().wait()


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
