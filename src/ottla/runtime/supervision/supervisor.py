"""Starts, watches and ends the nodes of one machine.

A node that ends by itself is reported in a line. It is started again only where the supervisor restarts: after a pause that doubles with
each failure, and never after it ended with exit code 0, which is what a SIGTERM from outside does. A node that cannot start at first ends
them all: a cluster that lacks a node from its start is a mistake in a configuration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.supervision.node_process import NodeFailed, NodeProcess, NodeSpec, NodeState

STOP_SECONDS_MAX: Final = 50.0
"""Longer than a stop in order takes, and shorter than what systemd waits (``TimeoutStopSec`` of ``ottla generate systemd``)."""
PATIENCE_SECONDS: Final = 10.0
"""After which it is said which nodes are waited for."""
RESTART_SECONDS: Final = 1.0
RESTART_SECONDS_MAX: Final = 30.0
HEALTHY_SECONDS: Final = 60.0
"""A node that served so long starts again with the shortest pause."""


class Supervisor:
    """``say`` gets what people should read, ``on_changed`` is called after each change of a node's state."""

    def __init__(
        self, specs: Iterable[NodeSpec], *, say: Callable[[str], None], on_changed: Callable[[], None], is_restarting: bool = False
    ) -> None:
        self._say = say
        self._on_changed = on_changed
        self._is_restarting = is_restarting
        self._is_stopping = False
        self._all_served = False
        self._failures: dict[int, int] = {}
        self._served_at: dict[int, float] = {}
        self._restarts: dict[int, asyncio.Task[None]] = {}
        self._at_work: set[int] = set()
        self.nodes = {spec.node_id: NodeProcess(spec, self._changed) for spec in specs}

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes that have served."""
        return ",".join(node.address for _, node in sorted(self.nodes.items()) if node.address is not None)

    async def start(self) -> None:
        """Starts all nodes, until they serve clients. NodeFailed when one of them ended before that: none runs then."""
        starting = {node_id: asyncio.create_task(node.start()) for node_id, node in self.nodes.items()}
        patience = asyncio.create_task(self._name_the_slow())
        try:
            await asyncio.gather(*starting.values())
        except NodeFailed:
            await self.stop()
            await asyncio.gather(*starting.values(), return_exceptions=True)
            raise
        finally:
            patience.cancel()
        self._all_served = True

    async def stop(self) -> None:
        """Stops all nodes, each in order, or by a kill when that takes too long.

        All leave the cluster before any of them ends: only a majority of controllers lets a broker leave.
        """
        self._is_stopping = True
        for restart in self._restarts.values():
            restart.cancel()
        await asyncio.gather(*(self._stop(node) for node in self.nodes.values()))

    async def kill(self) -> None:
        """Kills all nodes, and waits for their ends."""
        self._is_stopping = True
        await asyncio.gather(*(node.kill() for node in self.nodes.values()))

    async def stop_node(self, node_id: int) -> None:
        """Stops the node in order. KafkaError when there is none, or it does not run."""
        node = self._running(node_id)
        with _Alone(self._at_work, node_id):
            await self._stop(node)

    async def kill_node(self, node_id: int) -> None:
        """Kills the node, as by kill -9. KafkaError when there is none, or it does not run."""
        await self._running(node_id).kill()

    async def restart_node(self, node_id: int) -> None:
        """Starts the node in a new process; one that runs is stopped in order. NodeFailed when it does not start."""
        node = self._known(node_id)
        with _Alone(self._at_work, node_id):
            await self._stop(node)
            await self._start_alone(node)

    async def add(self, spec: NodeSpec) -> None:
        """Adds a node and starts it. NodeFailed when it does not start; ``restart_node`` may try it again."""
        assert spec.node_id not in self.nodes, "a node is added once"
        node = self.nodes[spec.node_id] = NodeProcess(spec, self._changed)
        with _Alone(self._at_work, spec.node_id):
            await self._start_alone(node)

    def remove(self, node_id: int) -> None:
        """Forgets a node that does not run. KafkaError when there is none, or it runs."""
        node = self._known(node_id)
        with _Alone(self._at_work, node_id):
            if node.is_running:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"node {node_id} runs; stop it before it is removed")
            if (restart := self._restarts.pop(node_id, None)) is not None:
                restart.cancel()
            del self.nodes[node_id]

    async def _start_alone(self, node: NodeProcess) -> None:
        if self._is_stopping:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the cluster is being stopped")
        await node.start()

    async def _stop(self, node: NodeProcess) -> None:
        if not await node.stop(seconds_max=STOP_SECONDS_MAX):
            self._say(f"node {node.node_id} did not stop within {STOP_SECONDS_MAX:.0f} s and was killed")

    def _known(self, node_id: int) -> NodeProcess:
        if node_id not in self.nodes:
            known = ", ".join(map(str, sorted(self.nodes)))
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no node {node_id}; the nodes are {known}")
        return self.nodes[node_id]

    def _running(self, node_id: int) -> NodeProcess:
        node = self._known(node_id)
        if not node.is_running:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"node {node_id} does not run: it {node.exit_text or 'was not started'}")
        return node

    def _changed(self, node: NodeProcess, said: str | None) -> None:
        if node.state is NodeState.SERVING:
            self._served_at[node.node_id] = asyncio.get_running_loop().time()
        if said is not None and self._all_served and not self._is_stopping:
            self._report_end(node, said)
        self._release()
        self._on_changed()

    def _release(self) -> None:
        """Lets nodes that have left end: at once, or all together when all are stopped."""
        running = [node for node in self.nodes.values() if node.is_running]
        if not self._is_stopping or all(node.has_left for node in running):
            for node in running:
                if node.has_left:
                    node.release()

    def _report_end(self, node: NodeProcess, said: str) -> None:
        said += node.last_words() if node.state is NodeState.FAILED else ""
        if not self._is_restarting or node.state is NodeState.STOPPED:
            self._say(said)
            return
        delay = self._pause_before_restart(node.node_id)
        self._say(f"{said}; it is started again in {delay:.0f} s")
        self._restarts[node.node_id] = asyncio.create_task(self._restart_later(node, delay))

    def _pause_before_restart(self, node_id: int) -> float:
        lasted = asyncio.get_running_loop().time() - self._served_at.get(node_id, 0.0)
        count = 0 if lasted > HEALTHY_SECONDS else self._failures.get(node_id, 0)
        self._failures[node_id] = count + 1
        return min(RESTART_SECONDS * (1 << min(count, 10)), RESTART_SECONDS_MAX)

    async def _restart_later(self, node: NodeProcess, delay: float) -> None:
        while True:
            await asyncio.sleep(delay)
            if node.is_running or node.node_id in self._at_work:
                return
            try:
                with _Alone(self._at_work, node.node_id):
                    await node.start()
            except NodeFailed as error:
                delay = self._pause_before_restart(node.node_id)
                self._say(f"{error}; it is started again in {delay:.0f} s")
            else:
                self._say(f"node {node.node_id} serves again")
                return

    async def _name_the_slow(self) -> None:
        while True:
            await asyncio.sleep(PATIENCE_SECONDS)
            slow = [node for node in self.nodes.values() if node.state is NodeState.STARTING]
            names = ", ".join(f"node {node.node_id}" + (f" ({node.spec.log_file})" if node.spec.log_file else "") for node in slow)
            self._say(f"still waiting for {names}")


class _Alone:
    """One start or stop of a node at a time: KafkaError for a second one meanwhile."""

    def __init__(self, at_work: set[int], node_id: int) -> None:
        self._at_work = at_work
        self._node_id = node_id

    def __enter__(self) -> None:
        if self._node_id in self._at_work:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"node {self._node_id} is already being started or stopped; try again")
        self._at_work.add(self._node_id)

    def __exit__(self, *_: object) -> None:
        self._at_work.discard(self._node_id)
