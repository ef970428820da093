"""What holds for dynamic values of brokers beyond each key's own type and bounds, as Kafka checks it before it takes a change.

All of it is INVALID_REQUEST, with the text saying which value and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.config import BrokerConfig
from ottla.config.definition import UNPROTECTED, parse_list
from ottla.config.keys.dynamic import CLEANER_THREADS, OF_LISTENERS, THREADS
from ottla.config.registry import SEGMENT_BYTES_MIN
from ottla.errors import ErrorCode, KafkaError

PROTOCOLS: Final = "listener.security.protocol.map"
CLEANER_BUFFER: Final = "log.cleaner.dedupe.buffer.size"
CLEANER_BUFFER_BYTES_MIN: Final = 1 << 20  # for each thread


def check_broker_values(changed: Mapping[str, Any], config: BrokerConfig) -> None:
    """``changed`` are the parsed values that a change sets; ``config`` has those in force."""
    bare = sorted(OF_LISTENERS & changed.keys())
    if bare:
        raise _refused(f"{', '.join(bare)}: set for one listener, as listener.name.<listener>.{bare[0]}")
    guarded = [pair for pair in parse_list(changed.get(PROTOCOLS, "")) if _is_guarded(pair, config)]
    if guarded:
        raise _refused(f"{PROTOCOLS}: {guarded[0]} would protect nothing: {UNPROTECTED}")
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


def _is_guarded(pair: str, config: BrokerConfig) -> bool:
    """Whether the pair of listener and protocol is about a listener that is in use, and has it guarded."""
    name, _, protocol = (part.strip().upper() for part in pair.partition(":"))
    used = {listener.partition("://")[0].upper() for listener in config["listeners"]}
    return protocol != "PLAINTEXT" and name in used | {other.upper() for other in config["controller.listener.names"] or ()}


def _check_threads(name: str, wanted: int, current: int) -> None:
    if wanted < 1:
        raise _refused(f"{name}={wanted} is below 1")
    if wanted < current // 2:
        raise _refused(f"{name}={wanted} is below half of {current}, the value in force")
    if wanted > current * 2:
        raise _refused(f"{name}={wanted} is above double of {current}, the value in force")


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
