"""Whether this broker's address leads to this process: it connects there under a unique name, and sees whether the connection arrives here.

A copy of a broker's machine may advertise the address of the original, which still lives.
"""

from __future__ import annotations

from ottla.broker.liveness.probe import Address, Probe
from ottla.broker.peers.caller_name import CallerName
from ottla.ports import World


class OwnAddress:
    """The address of one process, whose listeners are open."""

    def __init__(self, world: World, node_id: int) -> None:
        self._world = world
        self._name = CallerName(f"node-{node_id}-itself-{world.random.getrandbits(64):016x}")
        self._has_come = False

    def on_client(self, client_id: str | None) -> None:
        """Notes that a client of that name has connected to this process."""
        self._has_come |= client_id == self._name.client_id

    async def leads_here(self, address: Address) -> bool:
        """True when the address leads here; False as well where this process cannot reach its own address."""
        self._has_come = False
        probe = Probe(self._world, address, self._name)
        try:
            await probe.run()
        finally:
            probe.close()
        return self._has_come
