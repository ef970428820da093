"""Who leads a partition instead, for clients that asked the wrong broker or with an old leader epoch (KIP-951).

The newest image says it, which may be ahead of what this broker follows already; the endpoint is that of the listener on which the
client asked.
"""

from __future__ import annotations

from msgspec import Struct

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext


class LeaderHint(Struct, frozen=True):
    """``endpoint`` is the leader's id, host, port and rack; None while it is fenced, or not reached through that listener."""

    leader: int
    leader_epoch: int
    endpoint: tuple[int, str, int, str | None] | None


def hint_of(parts: Parts, context: RequestContext, topic: str, index: int) -> LeaderHint | None:
    """Returns the hint; None for a partition that the cluster does not have."""
    image = parts.image
    known = image.topics.get(topic)
    partition = known.partitions.get(index) if known is not None else None
    if partition is None:
        return None
    broker = image.brokers.get(partition.leader)
    end = broker.endpoints.get(context.connection.listener) if broker is not None and not broker.is_fenced else None
    endpoint = (partition.leader, end.host, end.port, broker.rack) if broker is not None and end is not None else None
    return LeaderHint(partition.leader, partition.leader_epoch, endpoint)
