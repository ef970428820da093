"""Listeners: where the broker binds, and which addresses it advertises."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ottla.broker.roles import Role
from ottla.config import BrokerConfig
from ottla.config.definition import UNPROTECTED, parse_list
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import EndpointImage

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
    protocols = _protocols(config)
    for listener in parsed:
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"listener.security.protocol.map has no protocol for the listener {listener.name}")
        _check_plaintext(listener.name, protocol)
    names = [listener.name for listener in parsed]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"listeners={','.join(config['listeners'])} lists a name twice")
    return parsed


def controller_listeners(config: BrokerConfig) -> list[ListenerAddress]:
    """Where to bind for nodes and tools that ask the controller (``--bootstrap-controller``, KIP-919).

    INVALID_CONFIG as for ``listeners``, also for the controllers' listeners of other nodes, which this one would connect to.
    """
    protocols, own = _protocols(config), controller_names(config)
    for name in sorted(own):
        _check_plaintext(name, protocols.get(name, "PLAINTEXT"))
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


def _check_plaintext(name: str, protocol: str) -> None:
    if protocol != "PLAINTEXT":
        text = f"listener {name} speaks {protocol}, and only PLAINTEXT is supported: {UNPROTECTED}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def _protocols(config: BrokerConfig) -> dict[str, str]:
    """Security protocol by listener name."""
    pairs = (pair.partition(":") for pair in parse_list(config["listener.security.protocol.map"]))
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
