"""A topic that is deleted and made again under its name, again and again, while others use it. At the end it is there."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Final

from ottla.client.admin import Admin, NewTopic
from ottla.errors import KafkaError
from ottla.sim.cluster import SimClient
from ottla.types import TopicPartition

FLEETING: Final = NewTopic("fleeting", 2, 3)
FLEETING_KEYS: Final = [TopicPartition(FLEETING.name, index) for index in range(2)]


async def go_and_come(client: SimClient, rng: random.Random, is_over: asyncio.Event, states: Counter[str]) -> None:
    """Until the run is over."""

    async def run() -> None:
        admin = Admin(client.cluster())
        while not is_over.is_set():
            await asyncio.sleep(rng.uniform(0.5, 5))
            try:
                [outcome] = (await admin.delete_topics([FLEETING.name])).values()
            except KafkaError:
                continue
            states["topics deleted in use"] += outcome is None
            await asyncio.sleep(rng.choice([0, rng.uniform(0, 2)]))
            await _make(admin)
        await admin.close()

    await client.machine.run(run())


async def _make(admin: Admin) -> None:
    while True:
        try:
            await admin.create_topics([FLEETING])
            return
        except KafkaError:
            await asyncio.sleep(0.2)
