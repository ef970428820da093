"""What holds for dynamic values of brokers beyond each key's own type and bounds, as Kafka checks it before it takes a change.

All of it is INVALID_REQUEST, with the text saying which value and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.config import BrokerConfig
from ottla.config.definition import parse_list
from ottla.config.jaas import SERVER_MECHANISMS
from ottla.config.keys.dynamic import CLEANER_THREADS, OF_LISTENERS, THREADS
from ottla.config.registry import SEGMENT_BYTES_MIN
from ottla.errors import ErrorCode, KafkaError

ENABLED_MECHANISMS: Final = "sasl.enabled.mechanisms"
LISTENERS: Final = "listeners"
PROTOCOLS: Final = "listener.security.protocol.map"
CLEANER_BUFFER: Final = "log.cleaner.dedupe.buffer.size"
CLEANER_BUFFER_BYTES_MIN: Final = 1 << 20  # for each thread


def check_broker_values(changed: Mapping[str, Any], config: BrokerConfig) -> None:
    """Checks ``changed``, the parsed values that a change sets; ``config`` has the present ones."""
    if LISTENERS in changed:
        raise _refused(f"{LISTENERS}: opened at a start alone; change this in the broker's file and restart it")
    bare = sorted(OF_LISTENERS & changed.keys())
    if bare:
        raise _refused(f"{', '.join(bare)}: set for one listener, as listener.name.<listener>.{bare[0]}")
    other = [pair for pair in parse_list(changed.get(PROTOCOLS, "")) if _is_other(pair, config)]
    if other:
        raise _refused(f"{PROTOCOLS}: {other[0]} is of a listener in use, whose protocol changes with a restart")
    for key, value in changed.items():
        if _is_of_tls(key):
            raise _refused(f"{key}: stores alone are read again while a broker runs; change this in its file and restart it")
        if key.endswith(ENABLED_MECHANISMS) and (not value or any(mechanism not in SERVER_MECHANISMS for mechanism in value)):
            raise _refused(f"{key}={','.join(value)}: some of {', '.join(SERVER_MECHANISMS)} are expected")
    for name in THREADS:
        if name in changed:
            _check_threads(name, changed[name], config[name])
    if changed.get("log.segment.bytes", SEGMENT_BYTES_MIN) < SEGMENT_BYTES_MIN:
        raise _refused(f"log.segment.bytes={changed['log.segment.bytes']} is below {SEGMENT_BYTES_MIN}")
    if changed.get("max.connections", 1) < 1:
        raise _refused("max.connections=0 would refuse every connection")
    threads, buffer = (changed.get(name, config[name]) for name in (CLEANER_THREADS, CLEANER_BUFFER))
    if {CLEANER_THREADS, CLEANER_BUFFER} & changed.keys() and buffer // threads < CLEANER_BUFFER_BYTES_MIN:
        raise _refused(f"{CLEANER_BUFFER}={buffer} is below {CLEANER_BUFFER_BYTES_MIN} for each of {threads} cleaner threads")


def _is_of_tls(key: str) -> bool:
    """True when the key is about TLS, and no store, which the node itself has looked at."""
    own = key.removeprefix("listener.name.").partition(".")[2] if key.startswith("listener.name.") else key
    return (own.startswith("ssl.") or ".ssl." in own) and own not in OF_LISTENERS


def _is_other(pair: str, config: BrokerConfig) -> bool:
    """True when the pair of listener and protocol is about a listener in use that has another protocol."""
    name, _, protocol = (part.strip().upper() for part in pair.partition(":"))
    used = {listener.partition("://")[0].upper() for listener in config["listeners"]}
    return name in used | {other.upper() for other in config["controller.listener.names"] or ()} and protocol != _protocol(name, config)


def _protocol(name: str, config: BrokerConfig) -> str:
    """Returns what the listener has spoken since the start."""
    pairs = (pair.partition(":") for pair in parse_list(config.static(PROTOCOLS)))
    return next((protocol.strip().upper() for other, _, protocol in pairs if other.strip().upper() == name), "PLAINTEXT")


def _check_threads(name: str, wanted: int, current: int) -> None:
    if wanted < 1:
        raise _refused(f"{name}={wanted} is below 1")
    if wanted < current // 2:
        raise _refused(f"{name}={wanted} is below half of {current}, the value in force")
    if wanted > current * 2:
        raise _refused(f"{name}={wanted} is above double of {current}, the value in force")


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
