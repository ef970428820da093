"""Nodes in processes of their own, which can be killed and paused.

They are supervised as under ``ottla cluster start``: a node whose supervisor has ended, however that came about, ends by itself.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self
from weakref import WeakSet

from ottla.broker.formatting import format_log_dirs
from ottla.runtime.supervision.node_process import NodeFailed, NodeProcess, NodeSpec, NodeState, node_command
from ottla.runtime.supervision.supervised import NodeOrder
from ottla.runtime.world import real_world
from ottla.sync.loop_thread import LoopThread
from ottla.testing.layout import CLUSTER_ID, HOST, Layout, checked_count, too_few
from ottla.testing.served import Served

NODE_MODULE: Final = "ottla.cli.nodes.node"
STOP_SECONDS_MAX: Final = 30.0
START_TRIES: Final = 3
"""A port that was free may be taken before the node binds it."""
LOG_LINES: Final = 60

running: Final[WeakSet[ProcessNodes]] = WeakSet()
"""Those whose block has not ended."""


class ProcessNodes(Served):
    """Nodes in processes: ``ottla_cluster`` and ``cluster()``.

    They serve in the block of a ``with``; after it they are killed, and their data are deleted.
    """

    _elsewhere: ClassVar[Mapping[str, str]] = {
        "faults": "requests are disturbed at nodes in threads, of the fixtures ottla_broker and ottla_thread_cluster",
        "start": "restart(node_id) starts a node that was stopped or killed",
    }

    def __init__(self, count: int, properties: Mapping[str, str]) -> None:
        self._count = checked_count(count)
        self._properties = properties
        self._nodes: dict[int, NodeProcess] = {}
        self._paused: set[int] = set()
        self._owned = ExitStack()

    @property
    def bootstrap(self) -> str:
        self._check_begun(self._nodes)
        return ",".join(map(self.bootstrap_of, self._nodes))

    @property
    def node_ids(self) -> list[int]:
        return list(range(1, self._count + 1))

    def bootstrap_of(self, node_id: int) -> str:
        """Returns ``host:port`` of that node."""
        self.check(node_id)
        return f"{HOST}:{self._layout.ports[node_id][0]}"

    @property
    def log(self) -> str:
        """The last lines that each node has logged."""
        return self.log_since({})

    def log_positions(self) -> dict[int, int]:
        """Returns where the log of each node ends now, in bytes."""
        return {node_id: self.log_file(node_id).stat().st_size for node_id in self._nodes}

    def log_since(self, positions: Mapping[int, int]) -> str:
        """Returns the last lines of each node that has written some since it was there."""
        texts = []
        for node_id in self._nodes:
            written = self.log_file(node_id).read_bytes()[positions.get(node_id, 0) :]
            lines = written.decode(errors="replace").splitlines()[-LOG_LINES:]
            if lines:
                texts.append("\n".join([f"node {node_id}", *(f"  {line}" for line in lines), ""]))
        return "".join(texts)

    def log_file(self, node_id: int) -> Path:
        """Returns the path of the node's log."""
        self.check(node_id)
        return self._layout.directory / f"node-{node_id}.log"

    def is_running(self, node_id: int) -> bool:
        return self._node(node_id).state is NodeState.SERVING and node_id not in self._paused

    def kill(self, node_id: int) -> None:
        """Kills the node by SIGKILL; nothing of it is ended in order before."""
        node = self._node(node_id)
        self._paused.discard(node_id)
        self._thread.run(node.kill())

    def pause(self, node_id: int) -> None:
        """Pauses the node (SIGSTOP): its connections are open, and it does not answer."""
        self._signal(node_id, signal.SIGSTOP)
        self._paused.add(node_id)

    def resume(self, node_id: int) -> None:
        """Resumes the node after a pause (SIGCONT)."""
        self._signal(node_id, signal.SIGCONT)
        self._paused.discard(node_id)

    def stop(self, node_id: int) -> None:
        """Stops the node in order (SIGTERM); it is resumed for that, if it is paused."""
        node = self._node(node_id)
        if node_id in self._paused:
            self.resume(node_id)
        self._thread.run(node.stop(seconds_max=STOP_SECONDS_MAX))

    def restart(self, *node_ids: int) -> None:
        """Starts the nodes again with their data: after a kill or a stop; running ones are stopped in order before.

        Returns once they serve, for which a majority of the nodes must run: where too few do, several are started together. TimeoutError
        when they do not serve in time, or end.
        """
        nodes = [self._node(node_id) for node_id in node_ids]
        for node_id, node in zip(node_ids, nodes, strict=True):
            if node.is_running:
                self.stop(node_id)
        running_count = sum(node.is_running for node in self._nodes.values())
        try:
            self._thread.run(_together(nodes))
        except NodeFailed as error:
            raise TimeoutError(f"{error}{too_few(len(nodes), running_count, self._count)}") from error

    def __enter__(self) -> Self:
        with ExitStack() as owned:
            directory = Path(tempfile.mkdtemp(prefix="ottla-test-"))
            owned.callback(shutil.rmtree, directory, ignore_errors=True)
            self._thread = LoopThread("ottla-nodes")
            owned.callback(self._thread.stop)
            owned.callback(lambda: self._thread.run(self._kill_all()))
            for tries_left in range(START_TRIES - 1, -1, -1):
                try:
                    self._thread.run(self._start_all(directory / f"try-{tries_left}"))
                    break
                except NodeFailed as error:
                    if not tries_left or "cannot listen" not in str(error):
                        raise
            running.add(self)
            owned.callback(running.discard, self)
            self._owned = owned.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._has_ended = True
        self._owned.close()

    def _node(self, node_id: int) -> NodeProcess:
        return self._nodes[self.check(node_id)]

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        pid = self._node(node_id).pid
        if pid is None:
            raise ValueError(f"node {node_id} does not run; restart({node_id}) starts it")
        os.kill(pid, number)

    # On the loop

    async def _start_all(self, directory: Path) -> None:
        await self._kill_all()
        directory.mkdir()
        self._layout = layout = Layout.of(self._count, directory, self._properties)
        world = real_world(io_threads=1)
        self._nodes = {}
        for node_id in layout.ports:
            if not layout.is_alone:
                await format_log_dirs(world, layout.config_of(node_id), cluster_id=CLUSTER_ID, features={})
            order = NodeOrder(node_id, layout.properties_of(node_id))
            command = node_command(NODE_MODULE, f"node-{node_id}", str(directory))
            self._nodes[node_id] = NodeProcess(NodeSpec(order, command, str(self.log_file(node_id))), _let_end)
        await _together(self._nodes.values())

    async def _kill_all(self) -> None:
        self._paused.clear()
        await asyncio.gather(*(node.kill() for node in self._nodes.values()))


def _let_end(node: NodeProcess, _: str | None) -> None:
    """Lets a node end that has left its cluster; no other is stopped with it, for which it would have to wait."""
    if node.has_left:
        node.release()


async def _together(nodes: Iterable[NodeProcess]) -> None:
    await asyncio.gather(*(node.start() for node in nodes))
