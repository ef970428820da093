"""The check of a configuration that a start makes before it touches a file or a socket, and tools, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final, TypeVar

from ottla.broker.requests.between_nodes import broker_listener
from ottla.broker.requests.listener_security import protection_faults, sasl_faults, used_protocols
from ottla.broker.requests.listeners import (
    ADVERTISED,
    ListenerAddress,
    advertised,
    advertised_faults,
    all_used,
    check_between_nodes,
    controller_listeners,
    controller_names,
    early_faults,
    listeners,
    parse_listener,
)
from ottla.broker.roles import HomeKind, NodeRoles, read_roles, roles_and_faults, voter_faults
from ottla.config import BrokerConfig
from ottla.config.definition import parse_list
from ottla.errors import KafkaError

T = TypeVar("T")
_OF_ROLES: Final = {"process.roles", "node.id", "broker.id", "zookeeper.connect"}


def all_problems(texts: Mapping[str, str], unread: Set[str] = frozenset()) -> list[KafkaError]:
    """Returns what ``problems`` has of a file's legal values, also where listeners cannot be read.

    A listener whose address is wrong counts as one of its name; what a listener without a name might change is not looked at.
    """
    found: list[KafkaError] = []
    readable = dict(texts)
    is_whole = True
    for key in ("listeners", ADVERTISED):
        listed = []
        for text in parse_list(texts.get(key, "")):
            try:
                parse_listener(text, key)
                listed.append(text)
            except KafkaError as error:
                found.append(error)
                name, separator, _ = text.partition("://")
                if name and separator:
                    listed.append(f"{name}://localhost:0")
                else:
                    is_whole &= key == ADVERTISED
        readable |= {key: ",".join(listed)} if listed else {}
    if is_whole:
        return [*found, *problems(BrokerConfig(readable), unread)]
    others = problems(BrokerConfig(texts), unread)
    return [*found, *(error for error in others if error.message not in {known.message for known in found})]


def problems(config: BrokerConfig, unread: Set[str] = frozenset()) -> list[KafkaError]:
    """Returns all that no node starts with, each once. A check that needs what another one has refused is left out.

    ``unread`` are keys whose values are illegal: the configuration has their defaults, which prove nothing.
    """
    found: dict[str, KafkaError] = {}

    def tried(check: Callable[[], T]) -> T | None:
        try:
            return check()
        except KafkaError as error:
            found.setdefault(error.message, error)
            return None

    def add(errors: Iterable[KafkaError]) -> None:
        found.update({error.message: error for error in errors if error.message not in found})

    add(voter_faults(config))
    of_roles = _OF_ROLES - {"broker.id"} if config.has_node_id else _OF_ROLES
    read = None if of_roles & unread else tried(lambda: roles_and_faults(config))
    roles = None if read is None else read[0]
    add([] if read is None else read[1])
    is_broker = roles is None or roles.is_broker
    add(_listener_faults(config, is_broker=is_broker))
    of_brokers = tried(lambda: listeners(config)) if is_broker else None
    if roles is not None and of_brokers is not None:
        tried(lambda: broker_listener(config, roles))
    if roles is not None and roles.home is HomeKind.ZOOKEEPER:
        tried(lambda: check_between_nodes(config))
    tried(lambda: controller_listeners(config))  # also on a node without: what would protect nothing is refused
    if of_brokers is not None:
        bound = {listener.name: (listener.host, listener.port) for listener in of_brokers}
        tried(lambda: advertised(config, bound))
    return [error for message, error in found.items() if not unread & {*re.split(r"[=:, ]", message)}]


def _listener_faults(config: BrokerConfig, *, is_broker: bool) -> Iterable[KafkaError]:
    """Yields what is wrong with each listener, and with each key of listeners; nothing of a controller's listeners for clients."""
    parsed: list[ListenerAddress] = []
    for text in config["listeners"]:
        try:
            parsed.append(parse_listener(text))
        except KafkaError as error:
            yield error
    own = controller_names(config)
    try:
        if is_broker and len(parsed) == len(config["listeners"]):
            yield from advertised_faults(config, {listener.name for listener in parsed})
    except KafkaError as error:
        yield error
    for listener in parsed:
        if is_broker or listener.name in own:
            try:
                yield from sasl_faults(config, used_protocols(config, [listener.name]))
            except KafkaError as error:
                yield error
    try:
        used = all_used(config)
    except KafkaError:
        return  # which listeners a key protects is not known; the fault was yielded above, or is by the checks of a start
    yield from early_faults(config)
    yield from protection_faults(config, used)


def check_start(config: BrokerConfig) -> tuple[NodeRoles, list[ListenerAddress]]:
    """Returns the node's roles, and the listeners that it opens. INVALID_CONFIG for what no node starts with."""
    for problem in problems(config):
        raise problem
    roles = read_roles(config)
    of_brokers = listeners(config) if roles.is_broker else []
    return roles, [*of_brokers, *(controller_listeners(config) if roles.is_controller else [])]
