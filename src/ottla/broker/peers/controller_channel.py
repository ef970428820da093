"""The way to the active controller of the moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from ottla.broker.peers.peers import Address, Peers
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import World
from ottla.wire.schema import Request, Response

RETRY_MS: Final = 20
RETRY_MS_MAX: Final = 320
NO_CONTROLLER: Final = "no controller is active: a majority of the controllers must run"
R = TypeVar("R", bound=Response)


class ControllerChannel:
    """``leader`` gives the address of the active controller as far as it is known; None while there is none."""

    def __init__(self, world: World, leader: Callable[[], Address | None], peers: Peers) -> None:
        self._world = world
        self._leader = leader
        self._peers = peers
        self._asked: dict[asyncio.Future[Response | None], Address] = {}

    def on_controller(self) -> None:
        """Stops waiting for answers of other nodes than the leader, which may have changed.

        The node that was asked may lead again after its machine lost power: a probe finds out whether it still knows the connection.
        """
        address = self._leader()
        for future, asked in list(self._asked.items()):
            if asked != address and not future.done():
                future.set_result(None)
        if address is not None:
            self._peers.probe(address)

    async def ask(self, request: Request, response_type: type[R]) -> R | None:
        """Returns the controller's answer to one request; None when no controller is known, or the known one has not answered."""
        address = self._leader()
        if address is None:
            return None
        future: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
        self._asked[future] = address
        try:
            self._peers.send(address, request, lambda answer: None if future.done() else future.set_result(answer))
            answer = await future
        finally:
            del self._asked[future]
        assert answer is None or isinstance(answer, response_type), "an API has one response type"
        return answer

    async def ask_until(
        self,
        request: Request,
        response_type: type[R],
        is_final: Callable[[R], bool],
        *,
        timeout_ms: int,
        leaderless_ms_max: int | None = None,
    ) -> R | None:
        """Returns the first answer that is final, asking the leader of the moment at growing intervals; None without one in time.

        KafkaError NOT_CONTROLLER when no leader was known for ``leaderless_ms_max``, and each one that was asked before refused.
        """
        clock, delay_ms = self._world.clock, RETRY_MS
        led_ms = clock.monotonic_ms()
        deadline_ms = led_ms + timeout_ms
        is_undecided = False  # a leader was asked, and may have decided without an answer
        while True:
            is_led = self._leader() is not None
            answer = await self.ask(request, response_type)
            if answer is not None and is_final(answer):
                return answer
            now_ms = clock.monotonic_ms()
            is_undecided = is_undecided or (is_led and answer is None)
            led_ms = now_ms if is_led else led_ms
            if leaderless_ms_max is not None and now_ms - led_ms >= leaderless_ms_max:
                if is_undecided:
                    return None
                raise KafkaError(ErrorCode.NOT_CONTROLLER, NO_CONTROLLER)
            if now_ms + delay_ms > deadline_ms:
                return None
            await asyncio.sleep(delay_ms / 1000)
            delay_ms = min(delay_ms * 2, RETRY_MS_MAX)
