"""Texts of brokers' keys that have a form of their own, checked where the key is parsed.

A value that the start alone looked at would be recorded when it is set while brokers run, and no broker would start with it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import Final

from ottla.config.definition import parse_list
from ottla.errors import ErrorCode, KafkaError

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PORT_MAX: Final = 65535
_HOST_AND_COUNT: Final = re.compile(r"(.+):([0-9]{1,9})")


def protocol_map(text: str) -> dict[str, str]:
    """Returns the security protocol by the listener's name, both in capitals, of ``listener.security.protocol.map``."""
    found = {}
    for pair in parse_list(text):
        name, _, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not name or protocol not in SECURITY_PROTOCOLS:
            form = f"is not of the form NAME:PROTOCOL, with {', '.join(SECURITY_PROTOCOLS)}"
            raise _refused(f"listener.security.protocol.map: {pair[:100]} {form}")
        found[name] = protocol
    return found


def connections_by_host(text: str) -> dict[str, int]:
    """Returns the limits of ``max.connections.per.ip.overrides`` by host, as it is written there without brackets."""
    found = {}
    for pair in parse_list(text):
        match = _HOST_AND_COUNT.fullmatch(pair)
        if match is None:
            raise _refused(f"max.connections.per.ip.overrides: {pair[:100]!r} is not of the form address:count")
        found[match[1].strip().strip("[]")] = int(match[2])
    return found


def admin_address(text: str) -> tuple[str, int]:
    """Returns host and port of ``ottla.admin.listener``: ``host:port``, ``port``, which means loopback, or ``https://host:port``."""
    host, _, port = text.removeprefix("https://").rpartition(":")
    if "/" in host or not (port.isascii() and port.isdigit() and len(port) <= len(str(PORT_MAX)) and int(port) <= PORT_MAX):
        raise _refused(f"ottla.admin.listener={text[:200]} is not of the form host:port or https://host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


def distinct_directories(key: str) -> Callable[[str], None]:
    """Returns the check of a list of directories: none comes twice, however it is written."""

    def check(text: str) -> None:
        seen = set()
        for path in parse_list(text):
            normal = posixpath.normpath(path)
            if normal in seen:
                raise _refused(f"{key}={text[:200]} lists {path[:200]} twice: leave one of them out")
            seen.add(normal)

    return check


def no_retention_of_zero(key: str) -> Callable[[str], None]:
    """Returns the check of an age after which records are deleted: 0 would delete them as they come. Kafka refuses it, too."""

    def check(text: str) -> None:
        if int(text) == 0:
            raise _refused(f"{key}={text} would delete records as soon as they are written: write at least 1, or -1 to keep them")

    return check


def at_least(key: str, low: int) -> Callable[[str], None]:
    """Returns the check of a bound that Kafka has, and its reference does not list."""

    def check(text: str) -> None:
        if int(text) < low:
            raise _refused(f"{key}={text} is below {low}")

    return check


def _refused(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)
