"""Transactions over nodes whose disks are slow or full, while their replicas move, their topics go, and ``transaction.version`` changes.

A topic is deleted and made again under its name while a producer writes to it in transactions: what of them is read is nobody's promise,
but each of them ends. The level goes up and down while transactions are open; producers keep to what they began with.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final

from tests.simulation.fleeting import FLEETING, FLEETING_KEYS, change_meanwhile, go_and_come
from tests.simulation.hard_nodes import errors_beside_full_disks, trouble_of_disks
from tests.simulation.quorum_nodes import QuorumNode, Run
from tests.simulation.replicated_nodes import explore_replication
from tests.simulation.replicated_work import NODE_PAIRS
from tests.simulation.transactional_client import Attempts, Transactor
from tests.simulation.transactional_nodes import KEYS, RIVAL_SECONDS, TransactionalWork
from tests.simulation.transactional_watch import TransactionWatch

from ottla.client.admin import Admin, NewTopic, UpgradeType
from ottla.controller.features import TRANSACTION_VERSION
from ottla.sim.cluster import Simulation
from ottla.types import TopicPartition

ROAMING: Final = TopicPartition("roaming", 0)


class HardTransactionalWork(TransactionalWork):
    """Beside the transactions of others."""

    def __init__(self, simulation: Simulation, bootstrap: str, is_over: asyncio.Event, states: Counter[str], *, level: int) -> None:
        super().__init__(simulation, bootstrap, is_over, states, level=level)
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


def explore_hard_transactions(seed: int) -> Run:
    """One run, which begins at one of the levels."""
    level = 2 if seed % 3 else 1

    def work_of(simulation: Simulation, bootstrap: str, is_over: asyncio.Event, states: Counter[str]) -> HardTransactionalWork:
        return HardTransactionalWork(simulation, bootstrap, is_over, states, level=level)

    async def beside(simulation: Simulation, nodes: list[QuorumNode], result: Run) -> None:
        await trouble_of_disks(simulation, nodes, result)

    findings: list[str] = []
    states: Counter[str] = Counter()
    with TransactionWatch(findings, states).watching():
        result = explore_replication(
            seed, beside=beside, errors_of=errors_beside_full_disks, work_of=work_of, features={TRANSACTION_VERSION: level}
        )
    result.findings += findings
    result.states += states
    return result
