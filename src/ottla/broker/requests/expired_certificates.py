"""Certificates of listeners that have expired when a node starts, or when its file is checked: no client that checks them connects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from ottla.broker.requests.listener_security import STORE_BYTES_MAX, get_of
from ottla.broker.requests.listeners import all_used
from ottla.config import BrokerConfig
from ottla.errors import DecodeError, KafkaError
from ottla.security.tls_settings import KEY_STORE, paths_of, server_of
from ottla.security.validity import ends_ms
from ottla.tls import TlsServer

CHAIN: Final = "ssl.keystore.certificate.chain"
WAY_OUT: Final = "put a valid certificate there; a broker that runs takes it within a minute"


def expired(servers: Mapping[str, TlsServer], now_ms: int) -> Iterator[tuple[str, str]]:
    """Yields each listener whose certificate has expired, and since when."""
    for listener, tls in servers.items():
        end_ms = ends_ms(tls.keys.chain)
        if end_ms is not None and end_ms <= now_ms:
            yield listener, f"{datetime.fromtimestamp(end_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def expired_by_key(config: BrokerConfig, now_ms: int) -> dict[str, str]:
    """Returns the keys that have certificates which have expired, with a sentence about each. A store that cannot be read has none."""
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
        for _, since in expired({listener: server}, now_ms):
            name = KEY_STORE if get(KEY_STORE) else CHAIN
            key = own + name if own + name in config.given else name
            text = f"the certificate expired at {since}: no client that checks it connects to listener {listener}; {WAY_OUT}"
            found.setdefault(key, text)
    return found


def _content(path: str) -> bytes:
    with open(path, "rb") as store:
        return store.read(STORE_BYTES_MAX)
