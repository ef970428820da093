"""One death at one step of the protocol of transactions: who dies, of what, and in which moment of which exchange.

Three nodes, a producer that is driven request by request and an application with ottla's own client. In the n-th exchange of an API the
coordinator, a partition's leader, the group's coordinator or the application's process is killed, paused or loses its power; it comes back
while the others go on. Each seed is one of these, and goes round all of them, with another n-th exchange and other delays each time.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.explorer import Trial
from tests.simulation.quorum_nodes import STATE_PARTITIONS
from tests.simulation.replicated_nodes import brokers_of, work_of
from tests.simulation.transactional_application import Application
from tests.simulation.transactional_client import Transactor
from tests.simulation.transactional_nodes import ATOMIC, KEYS, TransactionalWork

from ottla.broker.coordinators.runtime import partition_of
from ottla.client.admin import NewTopic
from ottla.messages.api_keys import ApiKey
from ottla.metadata.image import ClusterImage
from ottla.sim.cluster import SimClient, Simulation
from ottla.sim.exchanges import Moment
from ottla.sim.process import PowerCut
from ottla.sim.schedule.fault import Kind, ScheduledFault, Trigger
from ottla.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

ALONE: Final = "alone"
POINTS_MS: Final = 4000
AFTER_MS: Final = 12_000
"""Longer than a transaction's timeout."""
NTH_MAX: Final = 6
APIS: Final = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
)
OLD: Final = frozenset({ApiKey.ADD_OFFSETS_TO_TXN})
"""At level 2 there is no such request."""
APPLICATION: Final = "application"
VICTIMS: Final = {
    "coordinator": (TRANSACTION_STATE_TOPIC, partition_of(ALONE, STATE_PARTITIONS)),
    "leader": (ATOMIC, 0),
    "group-coordinator": (GROUP_METADATA_TOPIC, 0),
}
"""Each leads a partition."""


@dataclass(frozen=True, slots=True)
class CrashPoint:
    api: ApiKey
    moment: Moment
    victim: str
    fault: Kind


def all_points() -> Iterator[CrashPoint]:
    """Every combination. An application is a process, whose machine keeps its power."""
    for api, moment, victim, fault in itertools.product(APIS, Moment, (*VICTIMS, APPLICATION), (Kind.KILL, Kind.PAUSE, Kind.POWER)):
        if victim != APPLICATION or fault is not Kind.POWER:
            yield CrashPoint(api, moment, victim, fault)


POINTS: Final = tuple(all_points())


def point_of(seed: int) -> CrashPoint:
    return POINTS[seed % len(POINTS)]


def level_of_point(seed: int) -> int:
    return 1 if point_of(seed).api in OLD else 1 + seed % 2


def one_point(simulation: Simulation) -> list[ScheduledFault]:
    """An API that comes once, at the beginning, is waited for from then on."""
    seed, is_first = simulation.seed, point_of(simulation.seed).api is ApiKey.INIT_PRODUCER_ID
    point, rng = point_of(seed), simulation.random("trap")
    nth = 1 + seed // 2 % (2 if is_first else NTH_MAX)
    at_ms, for_ms = 0 if is_first else rng.randrange(POINTS_MS), rng.choice([50, 2000, 10_000])
    return [ScheduledFault(at_ms, point.fault, point.victim, for_ms=for_ms, when=Trigger(nth, point.api.name, point.moment))]


def role(name: str) -> Callable[[Trial], str]:
    topic, index = VICTIMS[name]

    def leader(trial: Trial) -> str:
        image: ClusterImage = next(node.broker.image for node in trial.nodes if node.broker is not None)
        found = image.topics.get(topic)
        leader = found.partitions[index].leader if found is not None else 1
        return trial.nodes[max(leader, 1) - 1].machine.name

    return leader


class ApplicationProcess(SimClient):
    """It may be killed, and another begins."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.simulation, APPLICATION, trial.bootstrap, request_timeout_ms=3000)
        self.generation = 0
        self.began = asyncio.Event()

    @property
    def is_up(self) -> bool:
        return self.machine.process is not None

    async def start(self) -> None:
        self._world = self.machine.boot()
        self.generation += 1
        self.began.set()

    async def stop(self) -> None:
        self.machine.end_process()

    def kill(self, *, power_cut: bool) -> None:
        assert not power_cut, "its machine keeps its power"
        self.began.clear()
        self.machine.kill_process()


class Applications(TransactionalWork):
    """One producer that is driven request by request, and an application, whose process may die."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial, level=level_of_point(trial.seed))
        self.topics = [NewTopic(ATOMIC, len(KEYS), 3)]
        self._application = ApplicationProcess(trial)
        trial.processes[APPLICATION] = self._application

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        rng, client = self._simulation.random("transactor"), self._client("transactor", 3000)
        transactor = Transactor(client.cluster(), self.attempts, ALONE, KEYS, rng, self._is_over, self._states, level=self._oldest_level)
        return [client.machine.run(transactor.run()), self._apply_again_and_again()]

    async def _apply_again_and_again(self) -> None:
        while True:
            process = self._application
            rng = self._simulation.random(f"application-{process.generation}")
            application = Application(process.cluster, self.attempts, KEYS, rng, self._is_over, self._states)
            try:
                await process.machine.run(application.run())
                return
            except PowerCut:
                await process.began.wait()


async def transactions_are_whole(trial: Trial) -> list[str]:
    return await work_of(trial).judge(brokers_of(trial))
