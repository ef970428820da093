"""Three shipped nodes as one cluster in the simulated world, and what must hold of what they log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from structlog.typing import EventDict

from ottla.broker.formatting import format_log_dirs
from ottla.broker.node import Broker
from ottla.config import BrokerConfig
from ottla.loggers import get_logger
from ottla.sim.cluster import DATA_DIRECTORY, PORT, SimBroker, Simulation
from ottla.sim.loop import SimLoop
from ottla.sim.process import PowerCut
from ottla.sim.schedule.injector import BEGINS, ENDS

NODES = 3
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CONTROLLER_PORT = 9093
STATE_PARTITIONS = 3
REPLICATION = {
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),  # so few, as the watch looks at all of them all the time
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "metadata.log.max.record.bytes.between.snapshots": "100000000",  # so that the whole log is there to be judged
}
HEAL_SECONDS = 120
START_SECONDS_MAX = 60
KILLED, STOPPED, LEFT = "node_killed", "broker_stopping", "node_stopped"
STOP_SECONDS_MAX = 60
SUCCESSION_SECONDS_MAX = 1
log = get_logger(__name__)


class QuorumNode(SimBroker):
    """One of them. Its directory is formatted before its first start."""

    def __init__(self, simulation: Simulation, node: int, properties: Mapping[str, str] = {}, *, host: str = "") -> None:
        """On a host of that name, or of the node's."""
        name = host or f"node-{node}"
        voters = ",".join(f"{other}@node-{other}:{CONTROLLER_PORT}" for other in range(1, NODES + 1))
        super().__init__(
            simulation,
            {
                "node.id": str(node),
                "process.roles": "broker,controller",
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{name}:{PORT},CONTROLLER://{name}:{CONTROLLER_PORT}",
                "log.dirs": DATA_DIRECTORY,
                "metadata.log.max.record.bytes.between.snapshots": "400",
            }
            | dict(properties),
            name=name,
        )
        self.node = node
        self.starting: asyncio.Task[None] | None = None
        self.on_kill: Callable[[], None] = lambda: None
        self.present: Broker | None = None
        """As ``broker``, and while it stops, too."""

    async def format(self, features: Mapping[str, int] = {}) -> None:
        properties: Mapping[str, str] = self._properties
        world = self.machine.boot()
        await self.machine.run(format_log_dirs(world, BrokerConfig(properties), cluster_id=CLUSTER_ID, features=features))
        self.machine.end_process()

    async def start(self, **options: Any) -> None:
        await super().start(**options)
        self.present = self.broker

    def kill(self, *, power_cut: bool) -> None:
        was_active = self.broker is not None and self.broker.controller.is_active
        log.info(KILLED, node=self.node, was_active=was_active, power_cut=power_cut)
        self.on_kill()
        super().kill(power_cut=power_cut)
        self.present = None

    async def stop(self) -> None:
        began = asyncio.get_running_loop().time()
        await super().stop()
        log.info(LEFT, node=self.node, seconds=asyncio.get_running_loop().time() - began)
        self.on_kill()
        self.present = None

    def begin(self) -> None:
        """It starts, if it does: it waits for the others, and may be killed meanwhile."""

        async def start() -> None:
            try:
                await self.start()
            except PowerCut:
                pass
            except Exception as error:
                log.error("node_not_started", node=self.node, reason=repr(error))
                raise

        self.starting = asyncio.get_running_loop().create_task(start())


def nodes_in_quorum(properties: Mapping[str, str] = {}) -> Callable[[Simulation], list[QuorumNode]]:
    return lambda simulation: [QuorumNode(simulation, node, properties) for node in range(1, NODES + 1)]


def broker_alone(simulation: Simulation, node: int, host: str, properties: Mapping[str, str] = {}) -> SimBroker:
    """A node that is a broker of their cluster, and no controller."""
    given = {
        "node.id": str(node),
        "process.roles": "broker",
        "controller.quorum.voters": ",".join(f"{other}@node-{other}:{CONTROLLER_PORT}" for other in range(1, NODES + 1)),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{PORT}",
        "log.dirs": DATA_DIRECTORY,
    } | dict(properties)
    made = SimBroker(simulation, given, name=host)
    made._properties = given
    return made


async def format_broker(made: SimBroker) -> None:
    world = made.machine.boot()
    await made.machine.run(format_log_dirs(world, BrokerConfig(dict(made._properties)), cluster_id=CLUSTER_ID, features={}))
    made.machine.end_process()


async def started(nodes: Sequence[QuorumNode]) -> None:
    """They serve."""
    async with asyncio.timeout(START_SECONDS_MAX):
        for node in nodes:
            assert node.starting is not None, "it was begun"
            await node.starting


def needless_fences(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Brokers that were fenced because their process had ended, and it had not."""
    last_epochs: dict[int, int] = {}
    killed: set[tuple[int, int]] = set()
    found = []
    for event in events:
        if event["event"] == "broker_registered":
            last_epochs[event["broker_id"]] = event["broker_epoch"]
        elif event["event"] in (KILLED, STOPPED):
            node = event["node" if event["event"] == KILLED else "node_id"]
            killed.add((node, last_epochs.get(node, -1)))
        elif event["event"] == "broker_fenced" and event.get("reason") == "its process has ended":
            process = event["broker_id"], event["broker_epoch"]
            if process not in killed:
                found.append(f"broker {process[0]} of epoch {process[1]} was fenced, and lived")
    return found


def slow_stops(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Nodes that were to stop in order, and took too long for it."""
    slow = [event for event in events if event["event"] == LEFT and event["seconds"] > STOP_SECONDS_MAX]
    return [f"node {event['node']} took {event['seconds']:.1f} s to stop" for event in slow]


def slow_successions(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Active controllers that were killed, and had no successor within a second: a node that can be reached waits for no timeout."""
    found, active = [], 0
    for index, event in enumerate(events):
        active += (event["event"] == BEGINS) - (event["event"] == ENDS)
        if event["event"] == KILLED and event["was_active"] and not event["power_cut"] and active == 1:
            deadline = event["at"] + SUCCESSION_SECONDS_MAX
            soon = [later for later in events[index + 1 :] if later["at"] <= deadline]
            if not any(later["event"] in ("controller_active", BEGINS) for later in soon):
                found.append(f"no controller after that of node {event['node']} was killed at {event['at']:.3f}")
    return found


def all_errors(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """What nodes have logged as errors."""
    errors = [event for event in events if event["log_level"] in ("error", "critical")]
    return [f"{event['event']}: {event.get('reason') or event.get('error') or event.get('exc_info')!r}" for event in errors]


def with_time(_: object, __: str, event: EventDict) -> EventDict:
    event["at"] = cast(SimLoop, asyncio.get_running_loop()).now  # of the world: the clock of a process may drift
    return event
