"""A broker in this process: an event loop that runs until it is asked to stop.

SIGTERM, SIGINT and SIGHUP stop in order; the same one, after ``ONE_STOP_S`` or more, ends at once. ``BrokerThread`` runs one beside other
code: for tests and for commands that need a broker of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from ottla.broker.node import Broker
from ottla.config import BrokerConfig
from ottla.errors import StorageError
from ottla.loggers import get_logger
from ottla.ports import World
from ottla.runtime.descriptors import raise_limit
from ottla.runtime.loop import MeasuredLoop
from ottla.runtime.stops import ONE_STOP_S, pass_over_same_stop, stop_signals
from ottla.runtime.world import real_world

log = get_logger(__name__)

GC_THRESHOLDS = (3_000, 10, 1_700)
"""The request path frees itself by reference counts; what is left for the collector is rare (docs/performance.md).

The first two bound its turns: images of the metadata are tables of a thousand partitions, which it looks through with what is new.
"""


Beside = Callable[[Broker], AbstractAsyncContextManager[object]]
"""What runs on the broker's loop from before its start until it has stopped."""


OnStarted = Callable[[Broker], None] | None
OnLeft = Callable[[], Awaitable[None]] | None


def run_broker(config: BrokerConfig, *, on_started: OnStarted = None, beside: Beside | None = None, on_left: OnLeft = None) -> None:
    """Serves until SIGTERM, SIGINT or SIGHUP. KafkaError, StorageError or OSError when it cannot start, StorageError when its disks fail.

    ``on_left`` is awaited when the broker has left its cluster and before it ends: nodes that stop together wait there for each other.
    """
    raise_limit()
    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        runner.run(_serve_until_signal(config, on_started, beside, on_left))
    pass_over_same_stop()  # the loop has given up its handlers, and the caller has yet to remove what was temporary


async def _serve_until_signal(config: BrokerConfig, on_started: OnStarted, beside: Beside | None, on_left: OnLeft) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        stopping.set()
        loop.call_later(ONE_STOP_S, loop.remove_signal_handler, number)  # the next one does what it does by default

    for number in stop_signals():
        loop.add_signal_handler(number, stop, number)
    await _serve(config, stopping, on_started, beside or contextlib.nullcontext, on_left)


async def _serve(config: BrokerConfig, stopping: asyncio.Event, on_started: OnStarted, beside: Beside, on_left: OnLeft) -> None:
    broker = Broker(_world(config), config, stopping.set)
    async with beside(broker):
        if not await start_unless(broker, stopping):
            return
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()
        if on_started is not None:
            on_started(broker)
        await stopping.wait()
        if on_left is not None:
            await broker.leave()
            await on_left()
        try:
            await broker.stop()
        except OSError as error:  # of a node that has failed, the failure says why
            if broker.failure is None:
                raise
            log.warning("broker_not_stopped_in_order", error=str(error))
    if broker.failure is not None:
        raise StorageError(broker.failure)


async def start_unless(broker: Broker, stopping: asyncio.Event) -> bool:
    """Returns whether it serves. A broker that is asked to stop before, as while it waits for a quorum, ends like a killed one.

    StorageError when it cannot go on: it need not come to the end of its start then.
    """
    starting, stopped = asyncio.create_task(broker.start()), asyncio.create_task(stopping.wait())
    await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    await asyncio.wait({starting})
    if broker.failure is not None:
        raise StorageError(broker.failure)
    log.warning("broker_stopped_while_it_started", node_id=broker.node_id)
    return False


def _world(config: BrokerConfig) -> World:
    return real_world(io_threads=config["num.io.threads"], network_threads=config["num.network.threads"])


class BrokerThread:
    """A broker on a loop of its own, in a thread; a context manager that stops it in order."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._config = BrokerConfig(properties)
        self._started = threading.Event()
        self._problem: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._broker: Broker | None = None
        self._thread = threading.Thread(target=self._run, name="ottla-broker", daemon=True)

    def start(self) -> Self:
        """Starts, and returns when clients are served; whatever kept the broker from starting is raised."""
        self._thread.start()
        self._started.wait()
        if self._problem is not None:
            raise self._problem
        return self

    def stop(self) -> None:
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host and port of each listener."""
        assert self._broker is not None, "the broker was started"
        return self._broker.addresses

    @property
    def bootstrap(self) -> str:
        """``host:port`` of the first listener."""
        host, port = next(iter(self.addresses.values()))
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - the thread's edge: start() raises it in the caller
            self._problem = error
            self._started.set()

    async def _main(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        broker = Broker(_world(self._config), self._config)
        await broker.start()
        self._broker = broker
        self._started.set()
        await self._stopping.wait()
        await broker.stop()
