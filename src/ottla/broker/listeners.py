"""Listeners: where the broker binds, and what it tells clients to connect to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.config import BrokerConfig
from ottla.config.definition import parse_list
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import EndpointImage

EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """``NAME://host:port``. An empty host means every interface; port 0 means a free one."""

    name: str
    host: str
    port: int


def parse_listener(text: str) -> ListenerAddress:
    """INVALID_CONFIG when the text is not of the form NAME://host:port."""
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not name or not port.isdigit() or int(port) > 65535:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"listener {text!r} is not of the form NAME://host:port")
    return ListenerAddress(name.upper(), host.strip("[]"), int(port))


def listeners(config: BrokerConfig) -> list[ListenerAddress]:
    """Where to bind. The controller's listener of a combined node is passed over: one voter needs no messages.

    INVALID_CONFIG for a listener whose security protocol is not served: it must not be open to everybody instead.
    """
    parsed = [listener for listener in map(parse_listener, config["listeners"]) if listener.name not in _of_controller(config)]
    protocols = _protocols(config)
    for listener in parsed:
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"listener.security.protocol.map has no protocol for the listener {listener.name}")
        if protocol != "PLAINTEXT":
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"listener {listener.name} speaks {protocol}; PLAINTEXT is what is served")
    names = [listener.name for listener in parsed]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"listeners={','.join(config['listeners'])} has a name twice")
    return parsed


def advertised(config: BrokerConfig, bound: dict[str, tuple[str, int]]) -> list[EndpointImage]:
    """What clients are told: hosts as they are written. Port 0 stands for the bound port; a listener on every interface is localhost."""
    told = map(parse_listener, config["advertised.listeners"] or ())
    given = {listener.name: listener for listener in told if listener.name not in _of_controller(config)}
    written = {listener.name: listener.host for listener in listeners(config)}
    endpoints = []
    for name, (_, port) in bound.items():
        listener = given.get(name)
        if listener is not None:
            endpoints.append(EndpointImage(name, listener.host, listener.port or port))
        else:
            endpoints.append(EndpointImage(name, "localhost" if written[name] in EVERY_INTERFACE else written[name], port))
    unknown = sorted(set(given) - set(bound))
    if unknown:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"advertised.listeners names {unknown[0]}, which listeners does not have")
    return endpoints


def _of_controller(config: BrokerConfig) -> set[str]:
    return {name.upper() for name in config["controller.listener.names"] or ()}


def _protocols(config: BrokerConfig) -> dict[str, str]:
    """Security protocol by listener name."""
    pairs = (pair.partition(":") for pair in parse_list(config["listener.security.protocol.map"]))
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
