"""The controllers of a quorum without a leader, which no node can describe: as a broker's configuration names them.

Which of them take connections is tried from here.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.sync import Admin

VOTERS: Final = "controller.quorum.voters"
CONNECT_SECONDS_MAX: Final = 1.0
REFUSE_SECONDS_MAX: Final = 0.5
"""A process that has ended refuses at once; without an answer nothing is known, for many cannot reach the controllers' network."""


def configured_voters(admin: Admin, brokers: Iterable[int]) -> dict[int, str]:
    """Returns the address of each voter, by the first of these brokers that answers; empty where none does, or none is configured."""
    from ottla.client.admin import Broker

    for broker in brokers:
        try:
            text = admin.describe_configs(Broker(broker))[VOTERS].value
        except (OttlaError, KeyError):
            continue
        return voters_in(text or "")
    return {}


def voters_in(text: str) -> dict[int, str]:
    """Returns the addresses in ``id@host:port,...``."""
    parted = [voter.strip().partition("@") for voter in text.split(",")]
    return {int(node): address for node, at, address in parted if at and node.isdecimal()}


def without_connection(voters: dict[int, str]) -> list[int]:
    """Returns the voters that take no connection from here."""
    return sorted(node for node, address in voters.items() if not takes_connections(address))


def refusing(voters: Mapping[int, str]) -> list[int]:
    """Returns the voters whose ports refuse: nothing listens there."""
    if not voters:
        return []
    with ThreadPoolExecutor(len(voters)) as threads:
        return sorted(node for node, refuses in zip(voters, threads.map(_refuses, voters.values())) if refuses)


def listening(addresses: Mapping[int, str]) -> dict[int, str]:
    """Returns the nodes at whose addresses a process takes connections."""
    if not addresses:
        return {}
    with ThreadPoolExecutor(len(addresses)) as threads:
        return {node: addresses[node] for node, takes in zip(addresses, threads.map(takes_connections, addresses.values())) if takes}


def _refuses(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REFUSE_SECONDS_MAX).close()
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError):
        return False
    return False


def takes_connections(address: str) -> bool:
    """Returns whether a process listens at ``host:port``, as far as can be seen from here."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS_MAX).close()
    except (OSError, ValueError):
        return False
    return True
