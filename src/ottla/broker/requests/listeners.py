"""Listeners: where the broker binds, and which addresses it advertises."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ottla.broker.requests.listener_security import (
    Protocol,
    admin_protocols,
    check_listeners,
    check_protections,
    enabled_mechanisms,
    protocols,
    used_protocols,
)
from ottla.broker.roles import Role
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import EndpointImage
from ottla.security.scram import ScramMechanism

ADVERTISED: Final = "advertised.listeners"
EARLY: Final = "early.start.listeners"
PORT_MAX: Final = 65535
EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})


class ListenerAddress(Struct, frozen=True):
    """``NAME://host:port``. An empty host means every interface; port 0 means a free one."""

    name: str
    host: str
    port: int
    role: Role = Role.BROKER


def parse_listener(text: str, key: str = "listeners") -> ListenerAddress:
    """Parses NAME://host:port. INVALID_CONFIG, with the key's name, for anything else."""
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not name or not (port.isascii() and port.isdigit()):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key}: {text[:200]!r} is not of the form NAME://host:port")
    if len(port) > len(str(PORT_MAX)) or int(port) > PORT_MAX:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key}: {text[:200]!r} has a port above {PORT_MAX}")
    return ListenerAddress(name.upper(), host.strip("[]"), int(port))


def listeners(config: BrokerConfig) -> list[ListenerAddress]:
    """Returns where to bind for brokers' clients.

    INVALID_CONFIG for a listener whose security protocol is not served: it must not be open to all clients instead.
    """
    own = controller_names(config)
    parsed = [listener for listener in map(parse_listener, config["listeners"]) if listener.name not in own]
    used = used_protocols(config, [listener.name for listener in parsed])
    check_listeners(config, used)
    check_protections(config, all_used(config))
    if not parsed:
        text = f"listeners={','.join(config['listeners'])} has none for clients of a broker: add one, as in PLAINTEXT://localhost:9092"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    names = [listener.name for listener in parsed]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"listeners={','.join(config['listeners'])} lists a name twice")
    return parsed


def controller_listeners(config: BrokerConfig) -> list[ListenerAddress]:
    """Returns where to bind for nodes and tools that ask the controller (``--bootstrap-controller``, KIP-919).

    INVALID_CONFIG as for ``listeners``.
    """
    own = controller_names(config)
    parsed = [listener for listener in map(parse_listener, config["listeners"]) if listener.name in own]
    used = used_protocols(config, [listener.name for listener in parsed])
    check_listeners(config, used)
    check_protections(config, all_used(config))
    for name, protocol in used.items():
        if protocol.has_sasl and any(map(ScramMechanism.named, enabled_mechanisms(config, name))):
            why = "whose users controllers get from each other, on this very listener: offer PLAIN, or use SSL with client certificates"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"listener {name} of controllers offers SCRAM, {why}")
    return [replace(listener, role=Role.CONTROLLER) for listener in parsed]


def advertised(config: BrokerConfig, bound: dict[str, tuple[str, int]]) -> list[EndpointImage]:
    """Returns the advertised addresses: hosts as written. Port 0 means the bound port; a listener on every interface is localhost."""
    for fault in advertised_faults(config, bound.keys()):
        raise fault
    return _endpoints(config, listeners(config), _given_addresses(config), bound)


def advertised_faults(config: BrokerConfig, names: Set[str]) -> Iterator[KafkaError]:
    """Yields INVALID_CONFIG for each advertised listener that is none of these, nor one of the controller."""
    for name in sorted(_given_addresses(config).keys() - names - controller_names(config)):
        yield KafkaError(ErrorCode.INVALID_CONFIG, f"{ADVERTISED} names {name}, which listeners does not have")


def advertised_controller(config: BrokerConfig, bound: dict[str, tuple[str, int]]) -> list[EndpointImage]:
    """Returns the controller's advertised addresses; empty without a listener of its own."""
    return _endpoints(config, controller_listeners(config), _given_addresses(config), bound)


def _given_addresses(config: BrokerConfig) -> dict[str, ListenerAddress]:
    """Returns ``advertised.listeners`` by name."""
    parsed = [parse_listener(text, ADVERTISED) for text in config[ADVERTISED] or ()]
    return {listener.name: listener for listener in parsed}


def _endpoints(
    config: BrokerConfig, written: list[ListenerAddress], given: dict[str, ListenerAddress], bound: dict[str, tuple[str, int]]
) -> list[EndpointImage]:
    endpoints, known = [], list(Protocol)
    used = used_protocols(config, [own.name for own in written])
    for own in written:
        name, port = own.name, bound[own.name][1]
        listener, protocol = given.get(name), known.index(used[name])
        if listener is not None:
            if listener.host in EVERY_INTERFACE:
                address = f"advertised.listeners={name}://{listener.host}:{listener.port}"
                text = f"{address} is no address that a client can connect to: write this host's name"
                raise KafkaError(ErrorCode.INVALID_CONFIG, text)
            endpoints.append(EndpointImage(name, listener.host, listener.port or port, protocol))
        else:
            endpoints.append(EndpointImage(name, "localhost" if own.host in EVERY_INTERFACE else own.host, port, protocol))
    return endpoints


def all_used(config: BrokerConfig) -> dict[str, Protocol]:
    """Returns the protocols of this node's listeners, of other nodes' controllers, and of the admin pages."""
    names = {*controller_names(config), *(listener.name for listener in map(parse_listener, config["listeners"]))}
    return used_protocols(config, names) | admin_protocols(config)


def controller_names(config: BrokerConfig) -> set[str]:
    """Returns the names of the controller's listeners."""
    return {name.upper() for name in config["controller.listener.names"] or ()}


def early_faults(config: BrokerConfig) -> Iterator[KafkaError]:
    """Yields INVALID_CONFIG for each listener that would open before the users and the rights of the cluster are known.

    Controllers' listeners open early, named or not, as in Kafka: what they need is in the file.
    """
    names = {name.upper(): name for name in config[EARLY] or ()}
    for name in sorted(names.keys() - controller_names(config)):
        own = "a listener of clients opens when the cluster's users and ACLs are known" if name in _names(config) else "listeners has none"
        text = f"{EARLY}={names[name]}: {own}; leave it out, or name listeners of controller.listener.names"
        yield KafkaError(ErrorCode.INVALID_CONFIG, text)


def _names(config: BrokerConfig) -> set[str]:
    return {listener.name for listener in map(parse_listener, config["listeners"])}


def between_brokers(config: BrokerConfig) -> str:
    """Returns the name of the listener on which brokers reach each other: ``inter.broker.listener.name``, or the first listener."""
    name: str | None = config["inter.broker.listener.name"]
    return name.upper() if name else listeners(config)[0].name


def check_between_nodes(config: BrokerConfig) -> None:
    """Raises INVALID_CONFIG when brokers in ZooKeeper mode would need users to reach the controller, from whom they learn the users."""
    name = between_brokers(config)
    protocol = protocols(config).get(name)
    if protocol is not None and protocol.has_sasl and any(map(ScramMechanism.named, enabled_mechanisms(config, name))):
        why = "whose users brokers get from the controller, on this very listener, in ZooKeeper mode"
        way_out = "let it offer PLAIN, or speak SSL with client certificates, and give clients another listener"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"listener {name} of brokers offers SCRAM, {why}: {way_out}")
