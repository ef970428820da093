"""The addresses at which a client first asks for a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.errors import ErrorCode, KafkaError

PORT_MAX: Final = 65_535


def parse_bootstrap(servers: str | Sequence[str] | None) -> list[tuple[str, int]]:
    """Parses ``host:port`` texts, or one text with commas; the port defaults to 9092."""
    if servers is None:
        text = 'the brokers\' addresses are None, as of a variable that is not set: bootstrap_servers="localhost:9092", client_id="app"'
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    texts = servers.split(",") if isinstance(servers, str) else list(servers) if isinstance(servers, list | tuple) else []
    if len(texts) > 1 and isinstance(servers, str):
        texts = [text for text in texts if text.strip()]  # a comma at the end, as Java's client takes it
    if not texts and isinstance(servers, list | tuple):
        text = 'the list of the brokers\' addresses is empty: bootstrap_servers="localhost:9092", client_id="app"'
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    if not texts or not all(isinstance(text, str) for text in texts):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f'the brokers\' addresses come first, as "host:port" or a list of such, and not as {type(servers).__name__}; settings are '
            'keyword arguments with _ for .: bootstrap_servers="localhost:9092", client_id="app"',
        )
    addresses = []
    for text in texts:
        if "://" in text:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"bootstrap server {text!r} is a URL: host:port is expected, such as localhost:9092")
        host, colon, port = text.strip().rpartition(":")
        if not colon:
            host, port = text.strip(), "9092"
        if not host or not port.isdigit():
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"bootstrap server {text!r} is not of the form host:port")
        if not 0 < int(port) <= PORT_MAX:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"bootstrap server {text!r}: ports are numbers from 1 to {PORT_MAX}")
        addresses.append((host.strip("[]"), int(port)))
    return addresses
