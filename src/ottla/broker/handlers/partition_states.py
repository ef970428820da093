"""What clients are shown of a partition: its leader if they can reach it, and the replicas that are not up; or why there is none.

A replica is offline when its broker is fenced, not registered or not reached through the client's listener, or when that broker cannot
serve it: a broker knows that of its own at once, and of others by what they have reported to the controller.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.errors import ErrorCode
from ottla.metadata.image import PartitionImage
from ottla.types import NO_LEADER, topic_name_problem

LISTENER_NOT_FOUND_SINCE: Final = 6
"""Of Metadata; earlier versions get LEADER_NOT_AVAILABLE."""


def shown_leader(parts: Parts, context: RequestContext, partition: PartitionImage, *, names_listener: bool = True) -> tuple[int, ErrorCode]:
    """Returns the leader, or NO_LEADER and why."""
    broker = parts.image.brokers.get(partition.leader)
    if broker is None:
        return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
    if context.connection.listener not in broker.endpoints:
        return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND if names_listener else ErrorCode.LEADER_NOT_AVAILABLE
    return partition.leader, ErrorCode.NONE


def code_of_absent(name: str) -> ErrorCode:
    """Returns the code of a topic that is not there, or could never be."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_name_problem(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION


def offline_replicas(parts: Parts, context: RequestContext, topic: str, index: int, partition: PartitionImage) -> list[int]:
    """Returns the offline replicas, in the order of the replicas."""
    brokers, listener = parts.image.brokers, context.connection.listener
    failed = {*partition.lost_replicas, *((parts.node_id,) if parts.partitions.is_offline(topic, index) else ())}
    return [
        replica
        for replica in partition.replicas
        if replica in failed or (broker := brokers.get(replica)) is None or broker.is_fenced or listener not in broker.endpoints
    ]
