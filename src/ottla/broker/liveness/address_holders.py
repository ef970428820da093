"""Which process listens where a broker is registered.

It is asked on several connections, one after the other, and must be the same each time: an address may lead to more than one. Who has
joined the cluster does not say; nor does a broker of another kind.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.connection import PeerConnection
from ottla.broker.peers.peers import Address
from ottla.loggers import get_logger
from ottla.messages.api_versions import ApiVersionsResponse
from ottla.ports import World
from ottla.wire.schema import ZERO_UUID, Response

log = get_logger(__name__)

ASKED_COUNT: Final = 3
ASK_MS_MAX: Final = 1_000
"""For all of them."""


class AddressHolders:
    """A cache of the process that listens at each broker's address, per broker epoch. A process that has ended never listens again."""

    def __init__(self, world: World, name: CallerName) -> None:
        self._world = world
        self._name = name
        self._found: dict[int, tuple[int, bytes]] = {}  # by broker: its epoch, and who listens at its address
        self._asking: dict[int, asyncio.Task[None]] = {}

    def ask(self, broker_id: int, epoch: int, address: Address) -> None:
        """Starts to search the process at the address of the broker of that epoch; one question at a time."""
        if broker_id not in self._asking:
            task = self._asking[broker_id] = asyncio.get_running_loop().create_task(self._ask(broker_id, epoch, address))
            task.add_done_callback(partial(self._asked, broker_id))

    def found(self, broker_id: int, epoch: int) -> bytes | None:
        """Returns the incarnation that listens there; None while that is not known."""
        of_epoch, incarnation_id = self._found.get(broker_id, (-1, None))
        return incarnation_id if of_epoch == epoch else None

    async def _ask(self, broker_id: int, epoch: int, address: Address) -> None:
        self._found.pop(broker_id, None)
        try:
            async with asyncio.timeout(ASK_MS_MAX / 1000):
                said = [await self._listens(address) for _ in range(ASKED_COUNT)]
        except OSError as error:  # TimeoutError is one
            log.debug("address_not_answered", broker_id=broker_id, address=address, reason=repr(error))
            return
        if said[0] != ZERO_UUID and len(set(said)) == 1:
            self._found[broker_id] = epoch, said[0]
            log.info("address_led_to_another_process", broker_id=broker_id, broker_epoch=epoch, address=address)

    async def _listens(self, address: Address) -> bytes:
        """Returns the incarnation that answers at the address; all zeros when the answer does not say. OSError without an answer."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def on_answer(response: Response | None) -> None:
            if not answer.done():
                answer.set_result(response.incarnation_id if isinstance(response, ApiVersionsResponse) else ZERO_UUID)

        hello, now_ms = self._name.hello(asks_incarnation=True), self._world.clock.monotonic_ms()
        question = PeerConnection(self._name, lambda: None)  # no other request: a process that has not joined yet answers none
        try:
            await self._world.network.connect(*address, lambda transport: question.open_with(hello, transport, on_answer, now_ms))
            return await answer
        finally:
            question.close()

    def _asked(self, broker_id: int, task: asyncio.Task[None]) -> None:
        del self._asking[broker_id]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("address_not_asked", exc_info=error)

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()
