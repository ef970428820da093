"""The addresses of the hosts that ``max.connections.per.ip.overrides`` names.

Connections have addresses, so names are looked up: before the ports are bound, and when the key changes, as in Kafka. All addresses of a
name count, each with the limit of its own. An unknown host is logged, keeps the addresses that it had, and is looked up again at the next
change of any key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.config import BrokerConfig
from ottla.config.forms import connections_by_host
from ottla.loggers import get_logger
from ottla.net.admission import address_of, is_address
from ottla.ports import Network

log = get_logger(__name__)

OVERRIDES: Final = "max.connections.per.ip.overrides"


class NamedHosts:
    """The hosts in the configuration of one node, and their addresses as far as they are known."""

    def __init__(self, network: Network, config: BrokerConfig) -> None:
        self._network = network
        self._config = config
        self._found: dict[str, Sequence[str]] = {}
        self._looked_up = ""
        """The value whose names were looked up last."""

    @property
    def is_behind(self) -> bool:
        """True when the value has changed since, or has a name whose addresses have not been found."""
        return self._config[OVERRIDES] != self._looked_up or any(host not in self._found for host in self._names)

    @property
    def _names(self) -> list[str]:
        return [host for host in connections_by_host(self._config[OVERRIDES]) if not is_address(host)]

    async def look_up(self) -> None:
        """Finds the addresses that the names have now."""
        self._looked_up = self._config[OVERRIDES]
        for host in self._names:
            try:
                self._found[host] = await self._network.addresses_of(host)
            except OSError as error:
                log.warning("host_not_known", key=OVERRIDES, host=host, reason=error.strerror or str(error))

    def addresses_of(self, host: str) -> list[str]:
        """Returns the addresses, as connections have them; for an unknown name only the name, which no connection has."""
        return [address_of(one) for one in self._found.get(host, (host,))]
