"""Listeners: where the broker binds, and which addresses it advertises."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ottla.broker.requests.listener_security import Protocol, check_listeners, enabled_mechanisms, protocols, used_protocols
from ottla.broker.roles import Role
from ottla.config import BrokerConfig
from ottla.config.definition import UNPROTECTED
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import EndpointImage
from ottla.security.scram import ScramMechanism

EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """``NAME://host:port``. An empty host means every interface; port 0 means a free one."""

    name: str
    host: str
    port: int
    role: Role = Role.BROKER


def parse_listener(text: str) -> ListenerAddress:
    """INVALID_CONFIG when the text is not of the form NAME://host:port."""
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not name or not port.isdigit() or int(port) > 65535:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"listener {text!r} is not of the form NAME://host:port")
    return ListenerAddress(name.upper(), host.strip("[]"), int(port))


def listeners(config: BrokerConfig) -> list[ListenerAddress]:
    """Where to bind for brokers' clients.

    INVALID_CONFIG for a listener whose security protocol is not served: it must not be open to everybody instead.
    """
    own = controller_names(config)
    parsed = [listener for listener in map(parse_listener, config["listeners"]) if listener.name not in own]
    used = used_protocols(config, [listener.name for listener in parsed])
    check_listeners(config, used)
    names = [listener.name for listener in parsed]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"listeners={','.join(config['listeners'])} lists a name twice")
    return parsed


def controller_listeners(config: BrokerConfig) -> list[ListenerAddress]:
    """Where to bind for nodes and tools that ask the controller (``--bootstrap-controller``, KIP-919).

    INVALID_CONFIG as for ``listeners``, also for the controllers' listeners of other nodes, which this one would connect to.
    """
    known, own = protocols(config), controller_names(config)
    for name in sorted(own):
        if known.get(name, Protocol.PLAINTEXT) is not Protocol.PLAINTEXT:
            raise _unprotected(name, known[name])
    parsed = [listener for listener in map(parse_listener, config["listeners"]) if listener.name in own]
    return [replace(listener, role=Role.CONTROLLER) for listener in parsed]


def advertised(config: BrokerConfig, bound: dict[str, tuple[str, int]]) -> list[EndpointImage]:
    """The advertised addresses: hosts as they are written. Port 0 means the bound port; a listener on every interface is localhost."""
    own = controller_names(config)
    given = {listener.name: listener for listener in map(parse_listener, config["advertised.listeners"] or ()) if listener.name not in own}
    unknown = sorted(given.keys() - bound.keys())
    if unknown:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"advertised.listeners names {unknown[0]}, which listeners does not have")
    return _endpoints(listeners(config), given, bound)


def advertised_controller(config: BrokerConfig, bound: dict[str, tuple[str, int]]) -> list[EndpointImage]:
    """The controller's advertised addresses; empty without a listener of its own."""
    given = {listener.name: listener for listener in map(parse_listener, config["advertised.listeners"] or ())}
    return _endpoints(controller_listeners(config), given, bound)


def _endpoints(written: list[ListenerAddress], given: dict[str, ListenerAddress], bound: dict[str, tuple[str, int]]) -> list[EndpointImage]:
    endpoints = []
    for own in written:
        name, port = own.name, bound[own.name][1]
        listener = given.get(name)
        if listener is not None:
            endpoints.append(EndpointImage(name, listener.host, listener.port or port))
        else:
            endpoints.append(EndpointImage(name, "localhost" if own.host in EVERY_INTERFACE else own.host, port))
    return endpoints


def controller_names(config: BrokerConfig) -> set[str]:
    """The listeners that are the controller's."""
    return {name.upper() for name in config["controller.listener.names"] or ()}


def check_between_nodes(config: BrokerConfig) -> None:
    """INVALID_CONFIG when brokers would reach each other by a listener that asks who they are."""
    name = config["inter.broker.listener.name"]
    for listener in listeners(config):
        protocol = protocols(config)[listener.name]
        if (name is None or listener.name == name.upper()) and protocol is not Protocol.PLAINTEXT:
            raise _unprotected(listener.name, protocol)
        if config["zookeeper.connect"] and protocol.has_sasl and any(map(ScramMechanism.named, enabled_mechanisms(config, listener.name))):
            text = f"listener {listener.name} offers SCRAM, whose users need a quorum: in ZooKeeper mode PLAIN is supported"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def _unprotected(name: str, protocol: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"listener {name} speaks {protocol}, which is not supported there: {UNPROTECTED}")
