"""The supervisor's process: nodes are formatted, started, watched, and stopped by SIGTERM, Ctrl-C or an order.

The caller holds the place's lock. The first signal stops all nodes in order, a second one kills them. SIGTERM or SIGHUP twice within
``ONE_STOP_S`` is one stop.
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.cli.nodes.place import ClusterFile, NodeStatus, Place, PlaceError, PlaceState, wait_until_free
from ottla.cli.nodes.plan import NodePlan
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.runtime.stops import ONE_STOP_S, stop_signals
from ottla.runtime.supervision.control import Answer, Order, serve_control
from ottla.runtime.supervision.node_process import NodeSpec, node_command
from ottla.runtime.supervision.supervised import NodeOrder
from ottla.runtime.supervision.supervisor import Supervisor
from ottla.storage.directory.directory import META_NAME

if TYPE_CHECKING:
    from ottla.messages.metadata_records import UserScramCredentialRecord
    from ottla.runtime.zookeeper_server import ZooKeeperServer

NODE_MODULE: Final = "ottla.cli.nodes.node"
ZOOKEEPER_WATCH_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Manner:
    """The way in which nodes run: with log files of their own or on standard error, and started again after a failure or not."""

    log_level: str
    log_format: str
    has_log_files: bool
    is_restarting: bool


class Foreground:
    """``on_served`` is called once, when all nodes serve. ``plan_another`` makes one node more; None where no node can be added."""

    def __init__(
        self,
        place: Place,
        cluster: ClusterFile,
        plans: list[NodePlan],
        manner: Manner,
        *,
        on_served: Callable[[PlaceState], None],
        plan_another: Callable[[], NodePlan] | None = None,
        zookeeper: ZooKeeperServer | None = None,
    ) -> None:
        self._place = place
        self._cluster = cluster
        self._plans = {plan.node_id: plan for plan in plans}
        self._manner = manner
        self._on_served = on_served
        self._plan_another = plan_another
        self._zookeeper = zookeeper
        self._has_zookeeper_ended = False
        self._stopping = asyncio.Event()
        self._signalled_s = -math.inf
        self._adding = asyncio.Lock()
        self._supervisor = Supervisor(
            [self._spec(plan) for plan in plans], say=say, on_changed=self._write_state, is_restarting=manner.is_restarting
        )

    async def run(self) -> None:
        """Runs until all nodes have ended. NodeFailed when one did not start."""
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self._on_signal, number)
        control = await serve_control(self._place.path, self._carry_out)
        watch = asyncio.create_task(self._watch_zookeeper())
        try:
            await self._serve()
        finally:
            watch.cancel()
            await self._supervisor.stop()  # whatever went wrong, no node is left
            control.close()
            self._place.remove_state()

    async def _serve(self) -> None:
        starting, stopped = asyncio.create_task(self._supervisor.start()), asyncio.create_task(self._stopping.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            self._on_served(self._state())
        await stopped
        await self._supervisor.stop()
        await asyncio.wait({starting})
        starting.exception()  # a node that was stopped before it served is no failure

    async def _watch_zookeeper(self) -> None:
        """Reports the end of the ZooKeeper beside the nodes: without it they serve on, and nothing can be changed."""
        if (server := self._zookeeper) is None:
            return
        while (end := server.end) is None:
            await asyncio.sleep(ZOOKEEPER_WATCH_SECONDS)
        self._has_zookeeper_ended = True
        option = self._place.option
        again = f"`ottla cluster stop {option}`, then `ottla cluster start {option}` starts it again"
        say(f"the ZooKeeper at {server.address} has ended ({end}); nothing can be created or changed, and no leader elected: {again}")
        self._write_state()

    def _on_signal(self, number: signal.Signals) -> None:
        """Stops the nodes; kills them where they are being stopped: by a Ctrl-C at once, by another signal unless it is the same stop."""
        now_s = time.monotonic()
        if not self._stopping.is_set():
            self._signalled_s = now_s
            self._begin_stop()
        elif number is signal.SIGINT or now_s - self._signalled_s >= ONE_STOP_S:
            say("killing the nodes that still run")
            self._killing = asyncio.create_task(self._supervisor.kill())

    def _begin_stop(self) -> None:
        if not self._stopping.is_set():
            count = sum(node.is_running for node in self._supervisor.nodes.values())
            say(f"stopping {count} node{'' if count == 1 else 's'}; a second Ctrl-C kills them")
            self._stopping.set()

    async def _carry_out(self, order: Order) -> Answer:
        match order:
            case Order("status"):
                pass
            case Order("stop", None):
                self._begin_stop()
            case Order("stop", int(node_id)):
                await self._supervisor.stop_node(node_id)
            case Order("kill", int(node_id)):
                await self._supervisor.kill_node(node_id)
            case Order("restart", int(node_id)):
                self._check_directory(node_id)
                await self._supervisor.restart_node(node_id)
            case Order("add", None):
                await self._add()
            case Order("remove", int(node_id)):
                self._remove(node_id)
            case _:
                return Answer(f"unknown order {order.command}")
        return Answer(state=msgspec.Raw(msgspec.json.encode(self._state())))

    async def _add(self) -> None:
        """Adds a broker. One that does not start leaves nothing here, and its id is not given again: it may have registered itself."""
        if self._plan_another is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "this is `ottla broker start --cores`: start it with more cores to add brokers")
        if self._stopping.is_set():
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the cluster is being stopped")
        async with self._adding:
            before = {*self._cluster.nodes}
            try:
                plan = self._plan_another()
                self._plans[plan.node_id] = plan
                await format_nodes(self._place, self._cluster, [plan])
                await self._supervisor.add(self._spec(plan))
            except (OttlaError, OSError):
                for node_id in {*self._cluster.nodes} - before:
                    self._forget(node_id)
                    shutil.rmtree(self._place.directory_of(node_id), ignore_errors=True)
                raise
        say(f"node {plan.node_id} has joined and serves at {self._supervisor.nodes[plan.node_id].address}")

    def _check_directory(self, node_id: int) -> None:
        """Raises PlaceError where the node's log directory was lost, with the way to a new one, for which its properties are written."""
        plan = self._plans.get(node_id)
        if plan is None or self._cluster.kind != "cluster":
            return
        os.makedirs(self._place.directory_of(node_id), exist_ok=True)
        self._place.write_properties(node_id, plan.properties)
        is_lost = any(not os.path.exists(os.path.join(path, META_NAME)) for path in plan.log_dirs)
        if node_id not in self._cluster.formatted or not is_lost:
            return
        file = self._place.node_file(node_id, "server.properties")
        forgets = "" if "controller" not in plan.roles else " --replaces-lost-controller"
        again = f"`ottla storage format {file} --cluster-id {self._cluster.cluster_id}{forgets}`, then `ottla cluster restart {node_id}`"
        lost = f"the log directory of node {node_id} is lost: {', '.join(plan.log_dirs)}"
        if not forgets:
            raise PlaceError(f"{lost}; {again}: its replicas are then fetched from their leaders")
        votes = "with it the controller has lost its votes, so only while all others run, and lack nothing (`ottla quorum`)"
        raise PlaceError(f"{lost}; {votes}: {again} (docs/operating.md, Replace a lost controller)")

    def _remove(self, node_id: int) -> None:
        """Forgets a node that has stopped and left the cluster."""
        self._supervisor.remove(node_id)
        self._forget(node_id)
        say(f"node {node_id} was removed")

    def _forget(self, node_id: int) -> None:
        if node_id in self._supervisor.nodes:
            self._supervisor.remove(node_id)
        self._plans.pop(node_id, None)
        cluster = self._cluster
        cluster.nodes.remove(node_id)
        cluster.formatted = [each for each in cluster.formatted if each != node_id]
        cluster.ports.pop(node_id, None)
        cluster.removed.append(node_id)
        self._place.write(cluster)
        self._write_state()

    def _spec(self, plan: NodePlan) -> NodeSpec:
        manner = self._manner
        order = NodeOrder(plan.node_id, plan.properties, manner.log_level, manner.log_format)
        log_file = self._place.node_file(plan.node_id, "node.log") if manner.has_log_files else None
        return NodeSpec(order, node_command(NODE_MODULE, f"node-{plan.node_id}", self._place.path), log_file)

    def _state(self) -> PlaceState:
        nodes = []
        for node_id, node in sorted(self._supervisor.nodes.items()):
            plan = self._plans[node_id]
            address = node.address or (f"{plan.addresses[0][0]}:{plan.addresses[0][1]}" if plan.addresses[0][1] else None)
            nodes.append(NodeStatus(node_id, plan.roles, node.state.value, node.pid, address, plan.controller, node.spec.log_file))
        bootstrap = ",".join(node.address for node in nodes if node.address is not None)
        zookeeper = self._cluster.zookeeper
        home = "quorum" if zookeeper is None else f"zookeeper {zookeeper}{' (ended)' * self._has_zookeeper_ended}"
        client = self._place.client_file if self._cluster.is_secured else None
        return PlaceState(self._cluster.cluster_id, os.getpid(), bootstrap, nodes, home, client)

    def _write_state(self) -> None:
        """Writes the state, which a full disk may refuse: nodes are watched and stopped without it, too."""
        try:
            self._place.write_state(self._state())
        except OSError as error:
            say(f"the state of the nodes cannot be written: {error}")


async def format_nodes(
    place: Place, cluster: ClusterFile, plans: list[NodePlan], credentials: Sequence[UserScramCredentialRecord] = ()
) -> None:
    """Formats the log directories of new nodes. Known nodes' directories are left as they are, even where they are empty now."""
    new = [plan for plan in plans if plan.node_id not in cluster.formatted]
    if not new or cluster.zookeeper is not None:  # there, a node has promised nothing that it could forget
        return
    from ottla.broker.formatting import format_log_dirs
    from ottla.config import BrokerConfig
    from ottla.runtime.world import real_world

    place.write(cluster)  # with the id of the cluster, for another attempt
    for plan in new:
        await format_log_dirs(
            real_world(io_threads=1),
            BrokerConfig(plan.properties),
            cluster_id=cluster.cluster_id,
            features={},
            passes_over=True,
            credentials=credentials,
        )
    cluster.formatted = sorted({*cluster.formatted, *(plan.node_id for plan in new)})
    place.write(cluster)


def wait_for_orphans(plans: list[NodePlan]) -> None:
    """Waits until no node of an earlier run is left. PlaceError when one still runs."""
    log_dirs = [path for plan in plans for path in plan.log_dirs]
    if not wait_until_free(log_dirs):
        raise PlaceError(f"a log directory of {os.path.dirname(log_dirs[0])} and its neighbours is still in use by a broker; stop it first")


def run_foreground(make: Callable[[], Awaitable[Foreground]]) -> None:
    """Runs until all nodes have ended."""

    async def run() -> None:
        await (await make()).run()

    asyncio.run(run())


def say(text: str) -> None:
    """Writes one line on standard error, if there still is a reader: the nodes run on without one."""
    try:
        sys.stderr.write(f"ottla: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return
