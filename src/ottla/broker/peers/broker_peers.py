"""The other brokers, asked by their ids: what coordinators and partitions ask of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.broker.peers.caller_name import CallerName
from ottla.config import BrokerConfig
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.ports import World
from ottla.wire.schema import Request, Response

if TYPE_CHECKING:
    from ottla.broker.peers.peers import Address, Peers  # a lone broker starts without them

SILENCE_MS_MAX: Final = 3_000
"""What is asked here is answered within a second, or it is asked again of another broker."""


class BrokerPeers:
    """Connections are made when the first broker is asked. ``purpose`` is what they say of themselves."""

    def __init__(self, world: World, config: BrokerConfig, image: Callable[[], ClusterImage], purpose: str) -> None:
        name: str | None = config["inter.broker.listener.name"]
        self._listener = name.upper() if name else None
        self._world = world
        self._config = config
        self._image = image
        self._purpose = purpose
        self._peers: Peers | None = None
        self._is_closed = False

    def send(self, broker_id: int, request: Request, on_answer: Callable[[Response | None], None]) -> None:
        """Sends the request; the answer comes by callback: None, perhaps at once, when the broker does not answer, or is not there."""
        address = self._address(broker_id)
        if address is None or self._is_closed:
            on_answer(None)
            return
        if self._peers is None:
            self._peers = self._made()
        self._peers.send(address, request, on_answer)

    def _made(self) -> Peers:
        from ottla.broker.peers.peers import Peers, SetUp

        name = CallerName.of_node(self._config.node_id, self._purpose)
        return Peers(self._world, name, silence_ms_max=SILENCE_MS_MAX, set_up=SetUp.of(self._config))

    def _address(self, broker_id: int) -> Address | None:
        return address_of(self._image().brokers.get(broker_id), self._listener)

    def close(self) -> None:
        """Stops all sending; requests that wait for an answer get None."""
        self._is_closed = True
        if self._peers is not None:
            self._peers.close()


def address_of(broker: BrokerImage | None, listener: str | None) -> Address | None:
    """Returns where the broker is reached on that listener, or on its first one; None when it does not serve."""
    if broker is None or broker.is_fenced:
        return None
    end = next(iter(broker.endpoints.values()), None) if listener is None else broker.endpoints.get(listener)
    return None if end is None else (end.host, end.port)
