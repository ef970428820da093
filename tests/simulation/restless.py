"""Replicas that move all the time: two or three nodes have them, of topics that are written to, of offsets and of transactions.

A move is replaced, taken back, or done within seconds; a replica that has just been removed is added again, and may lead, while its slow
disk has not yet let go of it. In the end all nodes have all replicas again.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from tests.simulation.fleeting import change_meanwhile
from tests.simulation.hard_nodes import HardWork
from tests.simulation.hard_transactions import HardTransactionalWork
from tests.simulation.quorum_nodes import NODES, STATE_PARTITIONS
from tests.simulation.replicated_work import PARTITION_COUNTS, REPLICATED, TRIMMED
from tests.simulation.transactional_nodes import KEYS

from ottla.client.admin import Admin
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimClient
from ottla.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition

EVERYWHERE: Final = tuple(range(1, NODES + 1))
MOVED: Final = [
    *(TopicPartition(REPLICATED, index) for index in range(PARTITION_COUNTS[REPLICATED])),
    TopicPartition(TRIMMED, 0),
    TopicPartition(GROUP_METADATA_TOPIC, 0),
]
MOVED_WITH_TRANSACTIONS: Final = [*MOVED, *KEYS, *(TopicPartition(TRANSACTION_STATE_TOPIC, index) for index in range(STATE_PARTITIONS))]
BACK_ATTEMPTS: Final = 25
NOT_THERE: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
"""Of an internal topic that no client has used."""
BUSY: Final = 3


class RestlessWork(HardWork):
    """Beside all that befalls records."""

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        rng = self._simulation.random("restless")
        return [*super().tasks(), _move(self._client("restless"), rng, self._is_over, self._states, MOVED)]


class RestlessTransactionalWork(HardTransactionalWork):
    """Beside all that befalls transactions."""

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        rng = self._simulation.random("restless")
        return [*super().tasks(), _move(self._client("restless"), rng, self._is_over, self._states, MOVED_WITH_TRANSACTIONS)]


async def _move(
    client: SimClient, rng: random.Random, is_over: asyncio.Event, states: Counter[str], partitions: Sequence[TopicPartition]
) -> None:
    """Moves some of the partitions at a time until the run is over, and all of them back then."""
    busy = rng.sample(partitions, BUSY)  # the others move now and then

    async def change(admin: Admin) -> None:
        moving = [*rng.sample(busy, rng.randint(1, BUSY)), *rng.sample(partitions, rng.randint(0, 1))]
        row = rng.choice([None, *(rng.sample(EVERYWHERE, count) for count in (2, 2, 3))])
        states["replicas moved"] += await _accepted(admin, dict.fromkeys(moving, row))
        if row is not None and rng.random() < 0.5:  # who is away is back before its slow disk has let go of all of them, and leads
            await asyncio.sleep(rng.uniform(0, 2))
            back = [*(set(EVERYWHERE) - set(row)), *row]
            states["replicas moved"] += await _accepted(admin, dict.fromkeys(moving, back))
            await asyncio.sleep(rng.uniform(0, 1))
            await admin.elect_leaders(moving)

    await change_meanwhile(client, is_over, lambda: rng.choice([rng.uniform(0, 0.1), rng.uniform(0, 2)]), change)
    await client.machine.run(_move_back(client, partitions))


async def _accepted(admin: Admin, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> int:
    """How many of the moves were accepted."""
    return sum(outcome is None for outcome in (await admin.alter_partition_reassignments(wanted)).values())


async def _move_back(client: SimClient, partitions: Sequence[TopicPartition]) -> None:
    """As it began: the judge looks for every replica on every node. AssertionError names the last refusal, if there is no end of them."""
    admin, left, refusal = Admin(client.cluster()), sorted(partitions), ""
    for attempt in range(BACK_ATTEMPTS):
        await asyncio.sleep(0.2 * attempt)  # of the simulated clock: nodes may still be starting, and a controller not yet be active
        try:
            outcomes = await admin.alter_partition_reassignments(dict.fromkeys(left, EVERYWHERE))
        except KafkaError as error:
            refusal = str(error)
            continue
        refused = {partition: error for partition, error in outcomes.items() if error is not None and error.code != NOT_THERE}
        if not refused:
            break
        left, refusal = sorted(refused), str(refused)
    else:
        raise AssertionError(f"replicas could not be moved back: {refusal}")
    await admin.close()
