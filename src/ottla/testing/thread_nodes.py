"""Nodes in a thread of this process: one, or several on one event loop, which share nothing else.

Each has sockets and files of its own, as in a process of its own. They cannot be killed, but stopped and started again, and what passes
between them and their clients can be disturbed (``faults``).
"""

from __future__ import annotations

import asyncio
import errno
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self
from weakref import WeakSet

from msgspec.structs import replace

from ottla.broker.formatting import format_log_dirs
from ottla.broker.node import Broker
from ottla.messages.metadata_records import UserScramCredentialRecord
from ottla.runtime.world import real_world
from ottla.sync.loop_thread import LoopThread
from ottla.testing.disturbed_network import DisturbedNetwork
from ottla.testing.faults import Faults
from ottla.testing.journal import JOURNAL
from ottla.testing.layout import CLUSTER_ID, HOST, Layout, checked_count, too_few
from ottla.testing.served import Served

START_SECONDS_MAX: Final = 60.0
START_TRIES: Final = 3
"""A port that was free may be taken before a node binds it."""
IO_THREADS: Final = 2

running: Final[WeakSet[ThreadNodes]] = WeakSet()
"""Those whose block has not ended."""


class ThreadNodes(Served):
    """Nodes in a thread: ``ottla_broker``, ``ottla_thread_cluster``, ``broker()`` and ``thread_cluster()``.

    They serve in the block of a ``with``, and their data are deleted after it.
    """

    _elsewhere: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("kill", "pause", "resume"),
        "nodes in a thread are stopped and started; those of the fixture ottla_cluster and of cluster() are processes, which have it",
    )

    _protocol: ClassVar[str] = "PLAINTEXT"

    def __init__(self, count: int, properties: Mapping[str, str]) -> None:
        self._count = checked_count(count)
        self._properties = properties
        self._nodes: dict[int, Broker] = {}
        self._addresses: dict[int, str] = {}
        self._owned = ExitStack()
        self._begun_at = JOURNAL.position
        self.faults: Faults = Faults(self.check)
        """What is to go wrong between clients and these nodes."""

    @property
    def bootstrap(self) -> str:
        self._check_begun(self._addresses)
        return ",".join(self._addresses.values())

    @property
    def node_ids(self) -> list[int]:
        return list(range(1, self._count + 1))

    def bootstrap_of(self, node_id: int) -> str:
        """Returns ``host:port`` of that node."""
        return self._addresses[self.check(node_id)]

    @property
    def log(self) -> str:
        return JOURNAL.since(self._begun_at)

    def is_running(self, node_id: int) -> bool:
        return self.check(node_id) in self._nodes

    def stop(self, node_id: int) -> None:
        """Stops the node in order; others lead what it led, if they can."""
        if self.check(node_id) not in self._nodes:
            raise ValueError(f"node {node_id} does not run; start({node_id}) starts it")
        self._thread.run(self._stop(self._nodes.pop(node_id)))

    def start(self, *node_ids: int) -> None:
        """Starts nodes that were stopped again, with their data.

        Returns once they serve, for which a majority of the nodes must run: where too few do, several are started together. TimeoutError
        when they do not serve in time.
        """
        for node_id in node_ids:
            if self.check(node_id) in self._nodes:
                raise ValueError(f"node {node_id} runs; restart({node_id}) stops it and starts it again")
        self._thread.run(self._start(*node_ids))

    def start_stopped(self) -> None:
        """Starts all nodes that were stopped; nothing changes where all run."""
        stopped = [node_id for node_id in self.node_ids if node_id not in self._nodes]
        if stopped:
            self._thread.run(self._start(*stopped))

    def restart(self, *node_ids: int) -> None:
        """Stops the nodes in order that run, and starts all of these again, as ``start`` does."""
        for node_id in node_ids:
            if self.check(node_id) in self._nodes:
                self.stop(node_id)
        self.start(*node_ids)

    def __enter__(self) -> Self:
        self._begun_at = JOURNAL.position
        with ExitStack() as owned:
            owned.enter_context(JOURNAL.kept())
            directory = Path(tempfile.mkdtemp(prefix="ottla-test-"))
            owned.callback(shutil.rmtree, directory, ignore_errors=True)
            self._thread = LoopThread("ottla-nodes")
            owned.callback(self._thread.stop)
            owned.callback(lambda: self._thread.run(self._stop_all()))
            for tries_left in range(START_TRIES - 1, -1, -1):
                self._layout = Layout.of(self._count, directory / f"try-{tries_left}", self._properties, self._protocol)
                try:
                    self._thread.run(self._begin())
                    break
                except OSError as error:
                    if not tries_left or error.errno != errno.EADDRINUSE:
                        raise
            running.add(self)
            owned.callback(running.discard, self)
            self._owned = owned.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._has_ended = True
        for fault in self.faults.clear():
            if error is None:
                fault.warn_if_idle()
        self._owned.close()

    def _credentials(self) -> list[UserScramCredentialRecord]:
        """Returns the users that the nodes know from the start."""
        return []

    # On the loop

    async def _begin(self) -> None:
        await self._prepared()
        await self._start(*self._layout.ports)

    async def _prepared(self) -> None:
        """Formats the directories, where the nodes need that."""
        layout, credentials = self._layout, self._credentials()
        if credentials or not layout.is_alone:
            world = real_world(io_threads=1)
            for node_id in layout.ports:
                await format_log_dirs(world, layout.config_of(node_id), cluster_id=CLUSTER_ID, features={}, credentials=credentials)

    async def _start(self, *node_ids: int) -> None:
        """Starts these nodes together, since they wait for a majority."""
        made = [self._made(node_id) for node_id in node_ids]
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                await asyncio.gather(*(node.start() for node in made))
        except TimeoutError:
            names = "node " + " and ".join(map(str, node_ids))
            text = f"{names} did not serve within {START_SECONDS_MAX} s{too_few(len(node_ids), len(self._nodes), self._count)}"
            raise TimeoutError(text) from None
        for node in made:
            self._nodes[node.node_id] = node
            self._addresses[node.node_id] = f"{HOST}:{node.addresses[self._protocol][1]}"
        self._addresses = dict(sorted(self._addresses.items()))

    def _made(self, node_id: int) -> Broker:
        world = real_world(io_threads=IO_THREADS, network_threads=1)
        network = DisturbedNetwork(world.network, self.faults, node_id, self._layout.ports[node_id][0])
        return Broker(replace(world, network=network), self._layout.config_of(node_id))

    async def _stop(self, node: Broker) -> None:
        await node.leave()
        await node.stop()

    async def _stop_all(self) -> None:
        """Stops all: every node leaves first; the active controller ends first, so that another one takes over and it need not wait."""
        nodes, self._nodes = list(self._nodes.values()), {}
        nodes.sort(key=lambda node: not node.controller.is_active)
        await asyncio.gather(*(node.leave() for node in nodes))
        await asyncio.gather(*(node.stop() for node in nodes[:1]))
        await asyncio.gather(*(node.stop() for node in nodes[1:]))
