"""The way to the voters of the metadata log: their addresses are in the configuration, what they are asked is Kafka's messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from ottla.broker.peers.peers import Address, Peers
from ottla.broker.tasks import eager
from ottla.consensus.calls import Answer, Request
from ottla.consensus.wire_form import from_answer_message, to_message
from ottla.errors import DecodeError
from ottla.loggers import get_logger
from ottla.ports import Connection, World
from ottla.wire.schema import Response

log = get_logger(__name__)

PROBE_DELAYS_MS: Final = (0, 5, 10, 20, 40, 80, 160)
"""When a voter is tried that seems to be gone: its port may still accept for some milliseconds after its process has ended."""


class Voters:
    """A ``replica.Transport``."""

    def __init__(self, world: World, addresses: Mapping[int, Address], peers: Peers) -> None:
        self._world = world
        self._addresses = addresses
        self._peers = peers

    def address_of(self, voter: int) -> Address | None:
        """Where the voter's controller listens; None for a node that is no voter."""
        return self._addresses.get(voter)

    def send(self, peer: int, request: Request, on_answer: Callable[[Answer | None], None]) -> None:
        def answered(response: Response | None) -> None:
            try:
                answer = None if response is None else from_answer_message(response)
            except DecodeError as error:
                log.warning("voter_answer_not_understood", voter=peer, reason=error.message)
                answer = None
            on_answer(answer)

        self._peers.send(self._addresses[peer], to_message(request), answered)

    def probe(self, peer: int, on_proof: Callable[[bool | None], None]) -> None:
        """Dead is who refuses twice, 5 ms apart or more, and accepts nothing in between; what is silent proves nothing."""
        eager.run(self._probe(peer), lambda proof, error: on_proof(None if error is not None else proof))

    async def _probe(self, peer: int) -> bool | None:
        refused_ms: list[int] = []
        for delay_ms in PROBE_DELAYS_MS:
            await asyncio.sleep(delay_ms / 1000)
            try:
                await self._world.network.connect(*self._addresses[peer], _Ignored)
            except ConnectionRefusedError:
                refused_ms.append(self._world.clock.monotonic_ms())
                if refused_ms[-1] - refused_ms[0] >= PROBE_DELAYS_MS[1]:
                    return False
            except OSError:
                return None
            else:
                refused_ms.clear()
        return None


class _Ignored:
    """Owns a connection whose only purpose was to be made."""

    def __init__(self, transport: Connection) -> None:
        transport.abort()

    def on_data(self, data: memoryview) -> bool:
        return False

    def on_drain(self) -> None:
        pass

    def on_close(self, error: Exception | None) -> None:
        pass
