"""Three shipped nodes as one cluster in the simulated world: a stream of changes, and nodes that are killed, cut off and paused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from structlog.typing import EventDict

from ottla.broker.formatting import format_log_dirs
from ottla.broker.node import Broker
from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.sim.cluster import DATA_FOLDER, PORT, SimBroker, SimClient, Simulation
from ottla.sim.loop import run
from ottla.sim.process import PowerCut

NODES = 3
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CONTROLLER_PORT = 9093
WORK_SECONDS = 30
MORE_SECONDS_MAX = 120
HEAL_SECONDS = 120
START_SECONDS_MAX = 60
KILLED, STOPPED, LEFT = "node_killed", "broker_stopping", "node_stopped"
STOP_SECONDS_MAX = 60
SUCCESSION_SECONDS_MAX = 1
log = get_logger(__name__)


@dataclass
class Run:
    """What one seed met and found."""

    findings: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    events: Sequence[Mapping[str, Any]] = ()


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
                "log.dirs": DATA_FOLDER,
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

    def kill(self, *, power_cut: bool, was_active: bool = False) -> None:
        """``was_active``: it was the active controller, and nothing keeps the others from noticing at once."""
        log.info(KILLED, node=self.node, was_active=was_active)
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
                self.present = self.broker
            except PowerCut:
                pass
            except Exception as error:
                log.error("node_not_started", node=self.node, reason=repr(error))
                raise

        self.starting = asyncio.get_running_loop().create_task(start())


def broker_alone(simulation: Simulation, node: int, host: str, properties: Mapping[str, str] = {}) -> SimBroker:
    """A node that is a broker of their cluster, and no controller."""
    given = {
        "node.id": str(node),
        "process.roles": "broker",
        "controller.quorum.voters": ",".join(f"{other}@node-{other}:{CONTROLLER_PORT}" for other in range(1, NODES + 1)),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{PORT}",
        "log.dirs": DATA_FOLDER,
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


def explore_quorum(seed: int) -> Run:
    """One run. ``findings`` is empty when no acknowledged change was lost, and all nodes agree in the end."""
    result = Run()
    simulation = Simulation(seed)

    async def main() -> None:
        nodes = [QuorumNode(simulation, node) for node in range(1, NODES + 1)]
        for node in nodes:
            await node.format()
            node.begin()
        is_over = asyncio.Event()
        bootstrap = ",".join(node.bootstrap for node in nodes)
        clients = [SimClient(simulation, f"admin-{number}", bootstrap, request_timeout_ms=5000) for number in range(2)]
        working = [
            asyncio.get_running_loop().create_task(client.machine.run(_create(result, number, is_over, client.cluster())))
            for number, client in enumerate(clients)
        ]
        rng = simulation.random("all at once")

        async def kill_all(_: QuorumNode) -> None:
            """Nothing that was acknowledged is lost: the metadata log is durable before it is."""
            power_cut = rng.random() < 0.5
            for node in nodes:
                node.kill(power_cut=power_cut)
            for node in rng.sample(nodes, NODES):
                await asyncio.sleep(rng.choice([0, rng.uniform(0, 2)]))
                node.begin()

        await trouble(simulation, nodes, result.states, more={"all at once": kill_all})
        is_over.set()
        async with asyncio.timeout(HEAL_SECONDS):
            await asyncio.gather(*working)
            for node in nodes:
                if node.starting is not None:
                    await node.starting
        await _judge(simulation, nodes, result)

    with structlog.testing.capture_logs(processors=[with_time]) as events:
        run(main())
    result.findings += needless_fences(events)
    result.findings += slow_successions(events)
    for event in events:
        if event["log_level"] in ("error", "critical"):
            result.findings.append(f"{event['event']}: {event.get('reason') or event.get('exc_info')!r}")
        result.states[f"{event['event']}: {event['reason']}" if "reason" in event else event["event"]] += 1
    result.digest = simulation.trace.digest
    return result


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
    """Active controllers that were killed, and had no successor within a second: nobody has to wait for a timeout."""
    found = []
    for index, event in enumerate(events):
        if event["event"] == KILLED and event["was_active"]:
            deadline = event["at"] + SUCCESSION_SECONDS_MAX
            if not any(later["event"] == "controller_active" and later["at"] <= deadline for later in events[index:]):
                found.append(f"no controller after that of node {event['node']} was killed at {event['at']:.3f}")
    return found


def with_time(_: object, __: str, event: EventDict) -> EventDict:
    event["at"] = asyncio.get_running_loop().time()
    return event


async def _create(result: Run, number: int, is_over: asyncio.Event, cluster: Cluster) -> None:
    admin = Admin(cluster)
    count = 0
    while not is_over.is_set():
        count += 1
        name = f"topic-{number}-{count}"
        try:
            [(_, outcome)] = (await admin.create_topics([NewTopic(name, 1, 1)])).items()
        except KafkaError:
            result.states["request without an answer"] += 1
            continue
        if outcome is None or outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            result.acknowledged.append(name)
        else:
            result.states[f"refused: {outcome.code.name}"] += 1
        await asyncio.sleep(0.2)
    await admin.close()


async def trouble(
    simulation: Simulation,
    nodes: list[QuorumNode],
    states: Counter[str],
    *,
    may_cut_power: Callable[[], bool] = lambda: True,
    more: Mapping[str, Callable[[QuorumNode], Awaitable[None]]] = {},
    is_enough: Callable[[], bool] = lambda: True,
) -> None:
    """A node at a time, so that a majority is left; all are whole again at the end. Where power may not be cut a process is killed.

    ``more`` are other kinds of trouble, which begin with some node. It goes on, within bounds, until it ``is_enough``.
    """
    rng, fabric = simulation.random("trouble"), simulation.fabric
    loop = asyncio.get_running_loop()
    end = loop.time() + WORK_SECONDS
    await asyncio.sleep(8)
    while loop.time() < (end if is_enough() else end + MORE_SECONDS_MAX):
        node = nodes[rng.randrange(NODES)]
        kinds = ["kill", "power cut", "pause", "dark", "one way", "rejected", "reset", "reset and paused", "slow, then killed", *more]
        kind = rng.choice(kinds)
        if kind == "power cut" and not may_cut_power():
            kind = "kill"
        states[f"trouble: {kind}"] += 1
        others = [other.machine.name for other in nodes if other is not node]
        for_seconds = rng.uniform(0.1, 6)
        links: list[tuple[str, str]] = []
        if kind == "slow, then killed":  # what it told its clients others hear of later
            links = [link for other in others for link in ((node.machine.name, other), (other, node.machine.name))]
            for link in links:
                fabric.slow_link(*link, rng.uniform(20, 300))
            await asyncio.sleep(rng.uniform(0.5, 1.5))
        if kind in more:
            await more[kind](node)
        elif kind in ("kill", "power cut", "slow, then killed"):
            was_active = kind == "kill" and node.broker is not None and node.broker.controller.is_active
            states["active controller killed"] += was_active
            node.kill(power_cut=kind == "power cut", was_active=was_active)
            await asyncio.sleep(rng.choice([0.02, for_seconds]))
            for link in links:
                fabric.slow_link(*link, 0)
            node.begin()
        elif kind == "pause":
            node.machine.pause_process()
            await asyncio.sleep(for_seconds)
            node.machine.resume_process()
        elif kind == "dark":
            fabric.darken(node.machine.name)
            await asyncio.sleep(for_seconds)
            fabric.lighten(node.machine.name)
        elif kind in ("rejected", "reset", "reset and paused"):  # by a firewall between another node and this one, or by a proxy
            other = rng.choice(others)
            if kind == "reset and paused":
                node.machine.pause_process()
            fabric.refuse(other, node.machine.name, refuses=kind == "rejected")
            fabric.break_connections(other, opened_to=node.machine.name)
            await asyncio.sleep(for_seconds)
            fabric.refuse(other, node.machine.name, refuses=False)
            node.machine.resume_process()
        else:
            cut = [(node.machine.name, other) for other in others]
            for link in cut:
                fabric.cut_link(*link)
            await asyncio.sleep(for_seconds)
            for link in cut:
                fabric.join_link(*link)
        await asyncio.sleep(rng.uniform(0.5, 3))


async def _judge(simulation: Simulation, nodes: list[QuorumNode], result: Run) -> None:
    deadline = asyncio.get_running_loop().time() + HEAL_SECONDS
    brokers = [node.broker for node in nodes]
    if any(broker is None for broker in brokers):
        result.findings.append("a node did not come back")
        return
    images = [broker.image for broker in brokers if broker is not None]
    while len({image.end_offset for image in images}) > 1 or any(len(image.live_brokers) < NODES for image in images):
        if asyncio.get_running_loop().time() > deadline:
            result.findings.append(f"the nodes do not agree: {[(image.end_offset, len(image.live_brokers)) for image in images]}")
            return
        await asyncio.sleep(0.5)
        images = [broker.image for broker in brokers if broker is not None]
    if not all(image == images[0] for image in images):
        result.findings.append("images of one offset differ")
    lost = [name for name in result.acknowledged if name not in images[0].topics]
    if lost:
        result.findings.append(f"acknowledged topics are lost: {lost}")
    result.states["leader epochs"] = images[0].epoch
