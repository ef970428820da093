"""What holds for dynamic values of brokers beyond each key's own type and bounds, as Kafka checks it before it takes a change.

All of it is INVALID_REQUEST, with the text saying which value and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.config import BrokerConfig
from ottla.config.forms import SECURITY_PROTOCOLS, protocol_map
from ottla.config.jaas import SERVER_MECHANISMS
from ottla.config.keys.dynamic import CLEANER_THREADS, OF_LISTENERS, THREADS
from ottla.config.keys.server import PER_IP, PER_IP_OVERRIDES, check_per_ip
from ottla.config.registry import SEGMENT_BYTES_MIN
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage, EndpointImage

ENABLED_MECHANISMS: Final = "sasl.enabled.mechanisms"
LISTENERS: Final = "listeners"
PROTOCOLS: Final = "listener.security.protocol.map"
BETWEEN_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
LIMITS_OF_CONNECTIONS: Final = ("max.connections", "max.connection.creation.rate")  # of the broker, and of a listener
CLEANER_BUFFER: Final = "log.cleaner.dedupe.buffer.size"
CLEANER_BUFFER_BYTES_MIN: Final = 1 << 20  # for each thread


def check_broker_values(changed: Mapping[str, Any], config: BrokerConfig, endpoints: Mapping[str, EndpointImage]) -> None:
    """Checks ``changed``, the parsed values that a change sets; ``config`` has the present ones, ``endpoints`` the node's listeners."""
    if LISTENERS in changed:
        raise _refused(f"{LISTENERS}: opened at a start alone; change this in the broker's file and restart it")
    bare = sorted(OF_LISTENERS & changed.keys())
    if bare:
        raise _refused(f"{', '.join(bare)}: set for one listener, as listener.name.<listener>.{bare[0]}")
    if PROTOCOLS in changed:
        _check_protocols(protocol_map(changed[PROTOCOLS]), config, endpoints)
    for key, value in changed.items():
        if _is_of_tls(key):
            raise _refused(f"{key}: stores alone are read again while a broker runs; change this in its file and restart it")
        if key == BETWEEN_BROKERS and value not in SERVER_MECHANISMS:
            raise _refused(f"{key}={value}: one of {', '.join(SERVER_MECHANISMS)} is expected")
        if key.endswith(LIMITS_OF_CONNECTIONS) and value == 0:
            raise _refused(f"{key}=0 would refuse every connection")
        if key.endswith(ENABLED_MECHANISMS) and (not value or any(mechanism not in SERVER_MECHANISMS for mechanism in value)):
            raise _refused(f"{key}={','.join(value)}: some of {', '.join(SERVER_MECHANISMS)} are expected")
    for name in THREADS:
        if name in changed:
            _check_threads(name, changed[name], config[name])
    if changed.get("log.segment.bytes", SEGMENT_BYTES_MIN) < SEGMENT_BYTES_MIN:
        raise _refused(f"log.segment.bytes={changed['log.segment.bytes']} is below {SEGMENT_BYTES_MIN}")
    threads, buffer = (changed.get(name, config[name]) for name in (CLEANER_THREADS, CLEANER_BUFFER))
    if {CLEANER_THREADS, CLEANER_BUFFER} & changed.keys() and buffer // threads < CLEANER_BUFFER_BYTES_MIN:
        raise _refused(f"{CLEANER_BUFFER}={buffer} is below {CLEANER_BUFFER_BYTES_MIN} for each of {threads} cleaner threads")


def _check_protocols(wanted: Mapping[str, str], config: BrokerConfig, endpoints: Mapping[str, EndpointImage]) -> None:
    """Checks that each listener in use has the protocol that it has: the change replaces the whole map, and counts from the next start."""
    controllers = {name.upper() for name in config["controller.listener.names"] or ()}
    for name, endpoint in endpoints.items():
        protocol = wanted.get(name.upper(), "PLAINTEXT" if name.upper() in controllers else None)
        if protocol != SECURITY_PROTOCOLS[endpoint.security_protocol]:
            own = f"{name}:{SECURITY_PROTOCOLS[endpoint.security_protocol]}"
            raise _refused(f"{PROTOCOLS}: the listener {name} is in use, and its protocol changes with a restart alone: write {own}, too")


def _is_of_tls(key: str) -> bool:
    """True when the key is about TLS, and no store, which the node itself has looked at."""
    own = key.removeprefix("listener.name.").partition(".")[2] if key.startswith("listener.name.") else key
    return (own.startswith("ssl.") or ".ssl." in own) and own not in OF_LISTENERS


def check_addresses(image: ClusterImage, name: str, wanted: Mapping[str, str], config: BrokerConfig) -> None:
    """Checks that each node would let some address in, were ``wanted`` the values of the broker ``name``, or under the empty name of all.

    A value that is removed counts, too: no client could take that back. What a node has in its file is taken to be as in this one's.
    """
    default = image.broker_configs("") if name else wanted
    for node in (name,) if name else ("", *map(str, {*image.brokers, *image.controllers})):
        in_force = config.with_dynamic(own=wanted if node == name else image.broker_configs(node), default=default)
        try:
            check_per_ip(in_force[PER_IP], in_force[PER_IP_OVERRIDES])
        except KafkaError as error:
            raise _refused(error.message if node == name else f"broker {node} has values of its own: {error.message}") from None


def _check_threads(name: str, wanted: int, current: int) -> None:
    if wanted < 1:
        raise _refused(f"{name}={wanted} is below 1")
    if wanted < current // 2:
        raise _refused(f"{name}={wanted} is below half of {current}, the value in force")
    if wanted > current * 2:
        raise _refused(f"{name}={wanted} is above double of {current}, the value in force")


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
