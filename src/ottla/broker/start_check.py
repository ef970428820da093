"""The check of a configuration that a start makes before it touches a file or a socket, and tools, too."""

from __future__ import annotations

from ottla.broker.requests.listeners import ListenerAddress, advertised, check_between_nodes, check_early, controller_listeners, listeners
from ottla.broker.roles import HomeKind, NodeRoles, read_roles
from ottla.config import BrokerConfig


def check_start(config: BrokerConfig) -> tuple[NodeRoles, list[ListenerAddress]]:
    """Returns the node's roles, and the listeners that it opens. INVALID_CONFIG for what no node starts with."""
    roles = read_roles(config)
    of_brokers = listeners(config) if roles.is_broker else []
    check_early(config)
    if roles.home is HomeKind.ZOOKEEPER:
        check_between_nodes(config)
    of_controllers = controller_listeners(config)  # also on a node without: what would protect nothing is refused
    if roles.is_broker:
        advertised(config, {listener.name: (listener.host, listener.port) for listener in of_brokers})
    return roles, [*of_brokers, *(of_controllers if roles.is_controller else [])]
