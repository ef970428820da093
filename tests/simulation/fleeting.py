"""A topic that is deleted and made again under its name, again and again, while others use it. At the end it is there."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from ottla.client.admin import Admin, NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimClient
from ottla.types import TopicPartition

FLEETING: Final = NewTopic("fleeting", 2, 3)
FLEETING_KEYS: Final = [TopicPartition(FLEETING.name, index) for index in range(2)]


Change = Callable[[Admin], Coroutine[Any, Any, None]]


async def change_meanwhile(client: SimClient, is_over: asyncio.Event, pause: Callable[[], float], change: Change) -> None:
    """The administrator asks for the change again and again, after pauses in seconds; what it refuses is left."""

    async def run() -> None:
        admin = Admin(client.cluster())
        while not is_over.is_set():
            await asyncio.sleep(pause())
            with suppress(KafkaError):
                await change(admin)
        await admin.close()

    await client.machine.run(run())


async def go_and_come(client: SimClient, rng: random.Random, is_over: asyncio.Event, states: Counter[str]) -> None:
    """Until the run is over."""

    async def change(admin: Admin) -> None:
        [outcome] = (await admin.delete_topics([FLEETING.name])).values()
        states["topics deleted in use"] += outcome is None
        await asyncio.sleep(rng.choice([0, rng.uniform(0, 2)]))
        await _make(admin)

    await change_meanwhile(client, is_over, lambda: rng.uniform(0.5, 5), change)


async def _make(admin: Admin) -> None:
    """Until it is there: brokers may be away for long, and too few for its replicas."""
    while True:
        try:
            [outcome] = (await admin.create_topics([FLEETING])).values()
        except KafkaError as error:
            outcome = error
        if outcome is None or outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return
        await asyncio.sleep(0.2)  # simulated; the run ends when its clients do not
