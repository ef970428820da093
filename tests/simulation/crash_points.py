"""One death at one step of the protocol of transactions: who dies, of what, and in which moment of which exchange.

Three nodes, a producer that is driven request by request and an application with ottla's own client. In the n-th exchange of an API the
coordinator, a partition's leader, the group's coordinator or the application's process is killed, paused or loses its power; it comes back
while the others go on. In the end it is judged as ``transactional_nodes`` judges.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import structlog
from tests.simulation.exchanges import Moment, Watched
from tests.simulation.quorum_nodes import HEAL_SECONDS, NODES, QuorumNode, Run, needless_fences, with_time
from tests.simulation.replicated_nodes import REPLICATION, STATE_PARTITIONS, _not_yet, all_errors
from tests.simulation.transactional_application import Application
from tests.simulation.transactional_client import Transactor
from tests.simulation.transactional_nodes import ATOMIC, KEYS, TransactionalWork
from tests.simulation.transactional_watch import TransactionWatch

from ottla.broker.coordinators.runtime import partition_of
from ottla.client.admin import NewTopic
from ottla.controller.features import TRANSACTION_VERSION
from ottla.messages.api_keys import ApiKey
from ottla.metadata.image import ClusterImage
from ottla.ports import World
from ottla.sim.cluster import SimClient, Simulation
from ottla.sim.loop import run
from ottla.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

ALONE: Final = "alone"
WORK_SECONDS: Final = 4.0
AFTER_SECONDS: Final = 12.0
"""Longer than a transaction's timeout."""
SPRUNG_SECONDS_MAX: Final = 60.0
"""Producers stall for longer than their transactions may last, now and then."""
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


class Victim(Enum):
    COORDINATOR = "coordinator"
    LEADER = "leader"
    GROUP_COORDINATOR = "group coordinator"
    APPLICATION = "application"


class Fault(Enum):
    KILL = "kill"
    PAUSE = "pause"
    POWER_CUT = "power cut"


@dataclass(frozen=True, slots=True)
class CrashPoint:
    api: ApiKey
    moment: Moment
    victim: Victim
    fault: Fault

    def __str__(self) -> str:
        return f"{self.api.name} {self.moment.value}, {self.victim.value}: {self.fault.value}"


def all_points() -> Iterator[CrashPoint]:
    """Every combination. An application is a process, whose machine keeps its power."""
    for api, moment, victim, fault in itertools.product(APIS, Moment, Victim, Fault):
        if victim is not Victim.APPLICATION or fault is not Fault.POWER_CUT:
            yield CrashPoint(api, moment, victim, fault)


class Trap:
    """Springs once: in the ``nth`` exchange of the API that it sees once it is armed."""

    def __init__(self, point: CrashPoint, nth: int) -> None:
        self._point = point
        self._left = nth
        self.is_armed = False
        self.has_sprung = asyncio.Event()
        self.spring = lambda: ""
        """Makes the victim die, and returns the name of its machine."""

    def seen(self, name: str, key: int, moment: Moment) -> bool:
        """Whether the process of that name is no more."""
        if not self.is_armed or key != self._point.api or moment is not self._point.moment:
            return False
        self._left -= 1
        if self._left:
            return False
        self.is_armed = False
        victim = self.spring()
        self.has_sprung.set()
        return victim == name and self._point.fault is not Fault.PAUSE


class WatchedNode(QuorumNode):
    def __init__(self, simulation: Simulation, node: int, trap: Trap) -> None:
        super().__init__(simulation, node, REPLICATION)
        self._trap = trap

    def boot(self) -> World:
        return watched(super().boot(), self.machine.name, self._trap)


class WatchedClient(SimClient):
    """Its process may be killed, and another begins."""

    def __init__(self, simulation: Simulation, name: str, bootstrap: str, trap: Trap) -> None:
        super().__init__(simulation, name, bootstrap, request_timeout_ms=3000)
        self._trap = trap
        self._world = watched(self._world, name, trap)

    def begin_again(self) -> None:
        self._world = watched(self.machine.boot(), self.machine.name, self._trap)


def watched(world: World, name: str, trap: Trap) -> World:
    return dataclasses.replace(world, network=Watched(world.network, lambda key, moment: trap.seen(name, key, moment)))


class Applications(TransactionalWork):
    """One producer that is driven request by request, and an application, whose process may die."""

    def __init__(
        self, simulation: Simulation, bootstrap: str, is_over: asyncio.Event, states: Counter[str], trap: Trap, *, level: int
    ) -> None:
        super().__init__(simulation, bootstrap, is_over, states, level=level)
        self.topics = [NewTopic(ATOMIC, len(KEYS), 3)]
        self.application = WatchedClient(simulation, "application", bootstrap, trap)
        self._transactor = WatchedClient(simulation, "transactor", bootstrap, trap)

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        rng = self._simulation.random("transactor")
        transactor = Transactor(
            self._transactor.cluster(), self.attempts, ALONE, KEYS, rng, self._is_over, self._states, level=self._oldest_level
        )
        return [self._transactor.machine.run(transactor.run()), self.apply(0)]

    async def apply(self, generation: int) -> None:
        rng = self._simulation.random(f"application-{generation}")
        application = Application(self.application.cluster, self.attempts, KEYS, rng, self._is_over, self._states)
        await self.application.machine.run(application.run())


def explore_crash_point(point: CrashPoint, seed: int) -> Run:
    """One run. ``findings`` is empty when every transaction was all or nothing, and everything ended; ``states`` says whether it died."""
    result = Run()
    simulation = Simulation(seed)
    level = 1 if point.api in OLD else 1 + seed % 2
    nth = 1 + seed // 2 % (2 if point.api is ApiKey.INIT_PRODUCER_ID else NTH_MAX)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        trap = Trap(point, nth)
        nodes = [WatchedNode(simulation, node, trap) for node in range(1, NODES + 1)]
        for node in nodes:
            await node.format({TRANSACTION_VERSION: level})
            node.begin()
        is_over = asyncio.Event()
        bootstrap = ",".join(node.bootstrap for node in nodes)
        work = Applications(simulation, bootstrap, is_over, result.states, trap, level=level)
        await work.create_topics()
        hit: list[WatchedNode] = []

        def spring() -> str:
            if point.victim is Victim.APPLICATION:
                machine = work.application.machine
                if point.fault is Fault.PAUSE:
                    machine.pause_process()
                else:
                    machine.kill_process()
                return machine.name
            node = _node_of(point.victim, nodes)
            hit.append(node)
            if point.fault is Fault.PAUSE:
                node.machine.pause_process()
            else:
                node.kill(power_cut=point.fault is Fault.POWER_CUT)
            return node.machine.name

        trap.spring = spring
        trap.is_armed = point.api is ApiKey.INIT_PRODUCER_ID  # which comes once, at the beginning
        working = [loop.create_task(task) for task in work.tasks()]
        await asyncio.sleep(simulation.random("trap").uniform(0, WORK_SECONDS))
        trap.is_armed = not trap.has_sprung.is_set()
        try:
            async with asyncio.timeout(SPRUNG_SECONDS_MAX):
                await trap.has_sprung.wait()
            result.states["died"] += 1
        except TimeoutError:
            trap.is_armed = False
        await asyncio.sleep(simulation.random("pause").choice([0.05, 2.0, 10.0]))
        for node in hit:
            if point.fault is Fault.PAUSE:
                node.machine.resume_process()
            else:
                node.begin()
        if trap.has_sprung.is_set() and point.victim is Victim.APPLICATION:
            if point.fault is Fault.PAUSE:
                work.application.machine.resume_process()
            else:
                working.pop().cancel()
                work.application.begin_again()
                working.append(loop.create_task(work.apply(1)))
        await asyncio.sleep(AFTER_SECONDS)
        is_over.set()
        async with asyncio.timeout(HEAL_SECONDS):
            await asyncio.gather(*working)
            for node in nodes:
                if node.starting is not None:
                    await node.starting
        await _judge(nodes, work, result)

    watch = TransactionWatch(result.findings, result.states)
    with structlog.testing.capture_logs(processors=[with_time]) as events, watch.watching():
        run(main())
    result.events = events
    result.findings += needless_fences(events)
    result.findings += all_errors(events)
    result.digest = simulation.trace.digest
    return result


def _node_of(victim: Victim, nodes: list[WatchedNode]) -> WatchedNode:
    image: ClusterImage = next(node.broker.image for node in nodes if node.broker is not None)
    place = {
        Victim.COORDINATOR: (TRANSACTION_STATE_TOPIC, partition_of(ALONE, STATE_PARTITIONS)),
        Victim.LEADER: (ATOMIC, 0),
        Victim.GROUP_COORDINATOR: (GROUP_METADATA_TOPIC, 0),
    }
    topic, index = place[victim]
    found = image.topics.get(topic)
    leader = found.partitions[index].leader if found is not None else 1
    return nodes[max(leader, 1) - 1]


async def _judge(nodes: list[WatchedNode], work: Applications, result: Run) -> None:
    deadline = asyncio.get_running_loop().time() + HEAL_SECONDS
    while (problem := await _not_yet(list(nodes))) is not None:
        if asyncio.get_running_loop().time() > deadline:
            result.findings.append(problem)
            return
        await asyncio.sleep(0.5)
    result.findings += await work.judge({node.node: node.broker for node in nodes if node.broker is not None})
