"""Where a watched client finds its brokers, as far as it says so: a history that reads elsewhere takes all that it sent for lost.

ottla's clients, kafka-python's and aiokafka's keep what they were given; confluent-kafka's do not say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.client.bootstrap import parse_bootstrap
from ottla.client.cluster import Cluster
from ottla.errors import KafkaError

Address = tuple[str, int]


def addresses_of(client: Any) -> frozenset[Address]:
    """Returns the addresses that the client was made with; none where they are not known."""
    ours = getattr(getattr(client, "_inner", client), "_cluster", None)
    if isinstance(ours, Cluster):
        return addresses(ours.bootstrap_text)
    match getattr(client, "config", None):
        case {"bootstrap_servers": found}:  # of kafka-python
            return addresses(found)
    inner = getattr(client, "_client", None) or getattr(client, "client", None)  # of aiokafka
    return addresses(getattr(inner, "_bootstrap_servers", None))


def addresses(given: Any) -> frozenset[Address]:
    """Returns host and port of each; none of what is not of that form."""
    if not isinstance(given, str | list | tuple):
        return frozenset()
    try:
        return frozenset((host.replace("localhost", "127.0.0.1"), port) for host, port in parse_bootstrap(given))
    except KafkaError:
        return frozenset()


def elsewhere(clients: Mapping[str, frozenset[Address]], here: Iterable[Address], bootstrap: str) -> list[str]:
    """Returns a line for each client none of whose addresses is ``here``, where the history reads."""
    known = addresses(bootstrap) | {(host.replace("localhost", "127.0.0.1"), port) for host, port in here}
    return [
        f"{name} talks to {_text(found)}, and this history reads {bootstrap}: if that is another broker or cluster, "
        "make a History of ottla.testing with its bootstrap, and watch the client there"
        for name, found in clients.items()
        if found and not found & known
    ]


def _text(found: Iterable[Address]) -> str:
    return ",".join(f"{host}:{port}" for host, port in sorted(found))
