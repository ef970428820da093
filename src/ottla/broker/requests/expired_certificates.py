"""Certificates of listeners that are not valid when a node starts, or when its file is checked: no client that checks them connects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ottla.broker.requests.listener_security import STORE_BYTES_MAX, get_of
from ottla.broker.requests.listeners import all_used
from ottla.config import BrokerConfig
from ottla.errors import DecodeError, KafkaError
from ottla.security.tls_settings import KEY_STORE, paths_of, server_of
from ottla.security.validity import fault_of
from ottla.tls import TlsServer

CHAIN: Final = "ssl.keystore.certificate.chain"
WAY_OUT: Final = "put a valid certificate there; a broker that runs takes it within a minute"


def not_valid(servers: Mapping[str, TlsServer], now_ms: int) -> Iterator[tuple[str, str]]:
    """Yields each listener whose certificate has expired, or is not valid yet, and which of the two: the end of a sentence."""
    for listener, tls in servers.items():
        fault = fault_of(tls.keys.chain, now_ms)
        if fault is not None:
            yield listener, fault


def not_valid_by_key(config: BrokerConfig, now_ms: int) -> dict[str, str]:
    """Returns the keys that have certificates which are not valid now, with a sentence about each. A store that cannot be read has none."""
    found: dict[str, str] = {}
    for listener, protocol in all_used(config).items():
        if not protocol.has_tls:
            continue
        get, own = get_of(config, listener, protocol), f"listener.name.{listener.lower()}."
        try:
            files = {path: _content(path) for path in paths_of(get)}
            server = server_of(get, files)
        except (KafkaError, DecodeError, OSError, ValueError):
            continue  # the file is on another machine, or a start says what is wrong with it
        for _, fault in not_valid({listener: server}, now_ms):
            name = KEY_STORE if get(KEY_STORE) else CHAIN
            key = own + name if own + name in config.given else name
            text = f"the certificate {fault}: no client that checks it connects to listener {listener}; {WAY_OUT}"
            found.setdefault(key, text)
    return found


def _content(path: str) -> bytes:
    with open(path, "rb") as store:
        return store.read(STORE_BYTES_MAX)
