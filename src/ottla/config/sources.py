"""A broker's values in variables of the environment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from ottla.config.registry import BROKER_KEYS, find_broker_key

_KAFKA: Final = "KAFKA_"
_OTTLA: Final = "OTTLA_"
NOT_KEYS: Final = frozenset(
    {
        *("KAFKA_DEBUG", "KAFKA_GC_LOG_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_HOME", "KAFKA_JMX_HOSTNAME", "KAFKA_JMX_OPTS", "KAFKA_JMX_PORT"),
        *("KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_LOG4J_CMD_OPTS", "KAFKA_LOG4J_LOGGERS", "KAFKA_LOG4J_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL"),
        *("KAFKA_MODE", "KAFKA_OPTS", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_VERSION"),
    }
)
"""Variables of Kafka's start scripts and images that are no keys."""


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns values from variables: in KAFKA_LOG_DIRS ``_`` stands for ``.``, ``__`` for ``_``, ``___`` for ``-``; CLUSTER_ID is
    cluster.id.

    A KAFKA_ variable that is no key comes along, to be warned about, where it starts as a key does; an OTTLA_ variable, which wins, may be
    something else.
    """
    values = {"cluster.id": environ["CLUSTER_ID"]} if "CLUSTER_ID" in environ else {}
    values |= {key_name(name, _KAFKA): value for name, value in environ.items() if name.startswith(_KAFKA) and _may_be_a_key(name)}
    own = {key_name(name, _OTTLA): value for name, value in environ.items() if name.startswith(_OTTLA)}
    return values | {name: value for name, value in own.items() if find_broker_key(name) is not None}


def _may_be_a_key(variable: str) -> bool:
    """True when the variable may be a mistyped key: KAFKA_LIBS is none, KAFKA_LOG_DIRZ is one."""
    return variable not in NOT_KEYS and key_name(variable, _KAFKA).partition(".")[0] in _first_words()


@cache
def _first_words() -> frozenset[str]:
    """Returns the first words of all keys; where a key has others inside, as a listener has, of these, too."""
    return frozenset(name.partition(".")[0] for name in BROKER_KEYS) | {"listener", "metrics", "ottla"}


def key_name(variable: str, prefix: str) -> str:
    """Returns the key that a variable names."""
    return variable[len(prefix) :].lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
