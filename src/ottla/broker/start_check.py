"""The check of a configuration that a start makes before it touches a file or a socket, and tools, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ottla.broker.requests.listeners import ListenerAddress, advertised, check_between_nodes, check_early, controller_listeners, listeners
from ottla.broker.roles import HomeKind, NodeRoles, read_roles
from ottla.config import BrokerConfig
from ottla.errors import KafkaError

T = TypeVar("T")


def problems(config: BrokerConfig) -> list[KafkaError]:
    """Returns all that no node starts with, each once. A check that needs what another one has refused is left out."""
    found: dict[str, KafkaError] = {}

    def tried(check: Callable[[], T]) -> T | None:
        try:
            return check()
        except KafkaError as error:
            found.setdefault(error.message, error)
            return None

    roles = tried(lambda: read_roles(config))
    is_broker = roles is None or roles.is_broker
    of_brokers = tried(lambda: listeners(config)) if is_broker else None
    tried(lambda: check_early(config))
    if roles is not None and roles.home is HomeKind.ZOOKEEPER:
        tried(lambda: check_between_nodes(config))
    tried(lambda: controller_listeners(config))  # also on a node without: what would protect nothing is refused
    if of_brokers is not None:
        bound = {listener.name: (listener.host, listener.port) for listener in of_brokers}
        tried(lambda: advertised(config, bound))
    return list(found.values())


def check_start(config: BrokerConfig) -> tuple[NodeRoles, list[ListenerAddress]]:
    """Returns the node's roles, and the listeners that it opens. INVALID_CONFIG for what no node starts with."""
    for problem in problems(config):
        raise problem
    roles = read_roles(config)
    of_brokers = listeners(config) if roles.is_broker else []
    return roles, [*of_brokers, *(controller_listeners(config) if roles.is_controller else [])]
