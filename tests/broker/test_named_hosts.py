"""The hosts that ``max.connections.per.ip.overrides`` names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from ottla.broker.requests.named_hosts import OVERRIDES, NamedHosts
from ottla.config import BrokerConfig
from ottla.net.passing import PassingNetwork
from ottla.ports import Network


class Names(PassingNetwork):
    """A network that knows some names, and opens no connection."""

    def __init__(self, known: dict[str, Sequence[str]]) -> None:
        super().__init__(cast(Network, None))
        self.known = known

    async def addresses_of(self, host: str) -> Sequence[str]:
        if host not in self.known:
            raise OSError(-2, "no such name")
        return self.known[host]


def test_a_name_has_the_addresses_of_the_last_change() -> None:
    """Once found, they stayed until a restart, also where the name was taken out and set again."""
    config, network = BrokerConfig({OVERRIDES: "host:9,192.0.2.9:1,later:3"}), Names({"host": ("192.0.2.1", "2001:DB8::1")})
    hosts = NamedHosts(network, config)
    assert hosts.is_behind
    asyncio.run(hosts.look_up())
    assert hosts.addresses_of("host") == ["192.0.2.1", "2001:db8::1"]
    assert hosts.is_behind, "one name was not found"

    network.known = {"host": ("192.0.2.7",), "later": ("192.0.2.8",)}
    config.set_dynamic(own={}, default={OVERRIDES: "host:10,later:3"})
    asyncio.run(hosts.look_up())
    assert (hosts.addresses_of("host"), hosts.addresses_of("later")) == (["192.0.2.7"], ["192.0.2.8"])
    assert not hosts.is_behind

    network.known = {}
    config.set_dynamic(own={}, default={OVERRIDES: "host:11"})
    assert hosts.is_behind
    asyncio.run(hosts.look_up())
    assert hosts.addresses_of("host") == ["192.0.2.7"], "it keeps the addresses that it had"
