"""One idle connection to each broker that serves, by whose end a controller notices within milliseconds that a process has died.

The connection itself proves nothing when it ends: the process is probed, and counts as dead only when its port refuses, and when it
had answered before under the same epoch, so that this is the port where it is to be found. Whatever else happens, silence above all, is
for the session timeout to judge. Controllers that are not active watch as well: the next active one knows at once which brokers to probe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from ottla.broker.liveness.address_holders import AddressHolders
from ottla.broker.liveness.callers import Callers
from ottla.broker.liveness.evidence import Evidence
from ottla.broker.liveness.failing_brokers import FailingBrokers
from ottla.broker.liveness.probe import Address, Probe, Proof
from ottla.broker.peers.caller_name import CallerName
from ottla.loggers import get_logger
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import BrokerImage
from ottla.ports import World

log = get_logger(__name__)

RETRY_MS: Final = 500
RETRY_MS_MAX: Final = 5_000


class Sentinels(Evidence):
    """Evidence by connections. ``listener`` is the name of the one between brokers; where it is None, each broker's first is used."""

    def __init__(self, world: World, node_id: int, listener: str | None, callers: Callers, failing: FailingBrokers) -> None:
        super().__init__()
        self._world = world
        self._node_id = node_id
        self._listener = listener
        self._sentinels: dict[int, Sentinel] = {}
        self._followed: object = None
        self._untrusted: frozenset[int] = frozenset()
        self._callers = callers
        self._holders = AddressHolders(world, CallerName.of_node(node_id, "sentinel"))
        self.failing = failing

    async def on_image(self, delta: ImageDelta) -> None:
        """Watches every other broker that serves, and no other."""
        image = delta.new
        if image.brokers is self._followed:
            return
        self._followed = image.brokers
        wanted = {broker.broker_id: broker for broker in image.live_brokers if self._is_wanted(broker)}
        for broker_id, sentinel in list(self._sentinels.items()):
            broker = wanted.get(broker_id)
            if broker is None or (broker.broker_epoch, self._address_of(broker)) != (sentinel.epoch, sentinel.address):
                del self._sentinels[broker_id]
                sentinel.close()
        for broker_id, broker in wanted.items():
            address = self._address_of(broker)
            if broker_id not in self._sentinels and address is not None:
                self._sentinels[broker_id] = Sentinel(self, self._world, self._node_id, broker, address)

    def _is_wanted(self, broker: BrokerImage) -> bool:
        return broker.broker_id != self._node_id and broker.broker_id not in self._untrusted

    def _address_of(self, broker: BrokerImage) -> Address | None:
        ends = broker.endpoints
        end = next(iter(ends.values()), None) if self._listener is None else ends.get(self._listener)
        return None if end is None else (end.host, end.port)

    def distrust(self, brokers: frozenset[int]) -> None:
        """Leaves these to the session timeout, from the next image on."""
        self._untrusted = brokers

    def check(self, brokers: Iterable[int] | None = None) -> None:
        """Lets these, or all, show whether they live: nothing is concluded from it, but a connection that has lost its end ends."""
        for broker_id in list(self._sentinels) if brokers is None else brokers:
            self._callers.probe(broker_id)
            if broker_id in self._sentinels:
                self._sentinels[broker_id].check()

    def hears(self, broker_id: int) -> bool:
        """True when a connection is open that the broker has made, or it has yet to make its first one."""
        return self._callers.hears(broker_id)

    def is_broken(self, broker_id: int, epoch: int) -> bool | None:
        """Returns whether the connection to the process has ended; None when there never was one."""
        sentinel = self._sentinels.get(broker_id)
        if sentinel is None or sentinel.epoch != epoch or not sentinel.has_answered:
            return None
        return not sentinel.is_connected

    def ask_address(self, broker: BrokerImage) -> None:
        """Asks who listens where the broker is registered, this node's own or another."""
        address = self._address_of(broker)
        if address is not None and broker.broker_id not in self._untrusted:
            self._holders.ask(broker.broker_id, broker.broker_epoch, address)

    def listens_for(self, broker: BrokerImage) -> bytes | None:
        """Returns the incarnation that was found there; None while none was."""
        return self._holders.found(broker.broker_id, broker.broker_epoch)

    @property
    def suspected(self) -> frozenset[int]:
        """Brokers whose connection has ended, and has not been made again."""
        return frozenset(
            broker_id for broker_id, sentinel in self._sentinels.items() if sentinel.has_answered and not sentinel.is_connected
        )

    async def stop(self) -> None:
        for sentinel in self._sentinels.values():
            sentinel.close()
        self._sentinels.clear()
        self._holders.close()


class Sentinel:
    """A connection to one broker in one broker epoch, which reconnects whenever it has ended."""

    def __init__(
        self,
        owner: Sentinels,
        world: World,
        node_id: int,
        broker: BrokerImage,
        address: Address,
    ) -> None:
        self._owner = owner
        self._world = world
        self.epoch = epoch = broker.broker_epoch
        self.address = address
        self._broker_id = broker_id = broker.broker_id
        name = CallerName.of_node(node_id, "sentinel")
        self._probe = Probe(world, address, name, is_heard=lambda: owner.is_heard(broker_id, epoch), on_ended=self._on_ended)
        self._wakes = asyncio.Event()
        self.has_answered = False
        """Only of a broker that has answered there do refusals say something."""
        self.is_connected = False
        self._task = asyncio.get_running_loop().create_task(self._watch())
        self._task.add_done_callback(_ended)

    async def _watch(self) -> None:
        retry_ms = RETRY_MS
        while True:
            proof = await self._probe.run()
            if proof is Proof.ALIVE:
                self.has_answered = self.is_connected = True
                retry_ms = RETRY_MS
                self._owner.failing.trust(self._broker_id)
                log.info("broker_watched", broker_id=self._broker_id, broker_epoch=self.epoch)
                await self._probe.ended.wait()
                self.is_connected = False
                log.info("broker_connection_ended", broker_id=self._broker_id, broker_epoch=self.epoch)
                continue
            if proof is Proof.DEAD and self.has_answered:
                self._owner.on_dead(self._broker_id, self.epoch)
            self._wakes.clear()
            try:
                async with asyncio.timeout(retry_ms / 1000):
                    await self._wakes.wait()
            except TimeoutError:
                retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    def _on_ended(self) -> None:
        if self.is_connected:
            self._owner.failing.doubt(self._broker_id)

    def check(self) -> None:
        """Sends a request on the connection, which a dead process's kernel resets; without a connection the next probe starts."""
        if self.is_connected:
            self._probe.ping()
        self._wakes.set()

    def close(self) -> None:
        self.is_connected = False
        self._task.cancel()
        self._probe.close()


def _ended(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("broker_not_watched", exc_info=error)
