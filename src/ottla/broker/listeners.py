"""Listeners: where the broker binds, and what it tells clients to connect to."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import EndpointImage


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
    """Where to bind. The controller's listener of a combined node is passed over: one voter needs no messages."""
    parsed = [parse_listener(text) for text in config["listeners"]]
    names = [listener.name for listener in parsed]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"listeners={','.join(config['listeners'])} has a name twice")
    return parsed


def advertised(config: BrokerConfig, bound: dict[str, tuple[str, int]]) -> list[EndpointImage]:
    """What clients are told. Port 0 stands for the bound port; a listener bound to every interface is told as localhost."""
    given = {listener.name: listener for listener in map(parse_listener, config["advertised.listeners"] or ())}
    endpoints = []
    for name, (host, port) in bound.items():
        listener = given.get(name)
        if listener is not None:
            endpoints.append(EndpointImage(name, listener.host, listener.port or port))
        else:
            endpoints.append(EndpointImage(name, "localhost" if host in ("0.0.0.0", "::", "") else host, port))
    unknown = sorted(set(given) - set(bound))
    if unknown:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"advertised.listeners names {unknown[0]}, which listeners does not have")
    return endpoints
