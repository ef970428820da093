"""Transactions while their replicas move, their topics go, and ``transaction.version`` changes.

A topic is deleted and made again under its name while a producer writes to it in transactions: what of them is read is nobody's promise,
but each of them ends. The level goes up and down while transactions are open; producers keep to what they began with.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from tests.simulation.explorer import Trial
from tests.simulation.fleeting import FLEETING, FLEETING_KEYS, change_meanwhile, go_and_come
from tests.simulation.replicated_work import NODE_PAIRS
from tests.simulation.transactional_client import Attempts, Transactor
from tests.simulation.transactional_nodes import KEYS, RIVAL_SECONDS, TransactionalWork

from ottla.client.admin import Admin, NewTopic, UpgradeType
from ottla.controller.features import TRANSACTION_VERSION
from ottla.types import TopicPartition

ROAMING: Final = TopicPartition("roaming", 0)


class HardTransactionalWork(TransactionalWork):
    """Beside the transactions of others."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial)
        self._has_epochs_of_their_own = False  # a client that keeps to the level has them at times
        self.keys = [*KEYS[1:], ROAMING]
        self.topics = [*self.topics, NewTopic(ROAMING.topic, assignments={0: [1, 2]}), FLEETING]

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        going = go_and_come(self._client("deleting"), self._simulation.random("deleting"), self._is_over, self._states)
        return [*super().tasks(), self._roam(), self._write_to_what_goes(), self._change_level(), going]

    async def _roam(self) -> None:
        """A partition with open transactions gets other replicas."""
        rng = self._simulation.random("roaming")

        async def change(admin: Admin) -> None:
            [outcome] = (await admin.alter_partition_reassignments({ROAMING: rng.choice(NODE_PAIRS)})).values()
            self._states["transactions moved"] += outcome is None

        await change_meanwhile(self._client("roaming"), self._is_over, lambda: rng.uniform(0.3, 3), change)

    async def _write_to_what_goes(self) -> None:
        client, rng = self._client("fleeting", 3000), self._simulation.random("fleeting")
        transactor = Transactor(
            client.cluster(), Attempts(), "fleeting", FLEETING_KEYS, rng, self._is_over, self._states, level=self._oldest_level
        )
        await client.machine.run(transactor.run(waits_seconds=RIVAL_SECONDS / 4))

    async def _change_level(self) -> None:
        rng = self._simulation.random("leveling")

        async def change(admin: Admin) -> None:
            level = rng.choice([1, 2])
            kind = UpgradeType.UPGRADE if level == 2 else UpgradeType.SAFE_DOWNGRADE
            await admin.update_features({TRANSACTION_VERSION: level}, upgrade_type=kind)
            self._states[f"level {level} finalized"] += 1

        await change_meanwhile(self._client("leveling"), self._is_over, lambda: rng.uniform(1, 8), change)
