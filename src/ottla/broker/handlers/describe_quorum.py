"""DescribeQuorum, versions 0-2: who holds the metadata log, and how far (KIP-595, KIP-836).  One voter: this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.metadata.log import LEADER_EPOCH
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode
from ottla.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionQuorum,
    ReplicaState,
    TopicQuorum,
)
from ottla.types import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from ottla.broker.parts import Parts


async def handle(parts: Parts, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    slices = Slices(parts.world.clock)
    topics = []
    async for topic in slices.over(request.topics):
        name = topic.topic_name
        partitions = [_quorum(parts, name, wanted.partition_index) async for wanted in slices.over(topic.partitions)]
        topics.append(TopicQuorum(name, partitions))
    own = parts.controller_endpoints or [end for _, end in sorted(parts.image.brokers[parts.node_id].endpoints.items())]
    listeners = [Listener(end.listener, end.host, end.port) for end in own]
    return DescribeQuorumResponse(topics=topics, nodes=[Node(parts.node_id, listeners)])


def _quorum(parts: Parts, topic: str, index: int) -> PartitionQuorum:
    if (topic, index) != (CLUSTER_METADATA_TOPIC, 0):
        return PartitionQuorum(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=None)
    now_ms, end_offset = parts.world.clock.now_ms(), parts.controller.high_watermark
    voter = ReplicaState(parts.node_id, log_end_offset=end_offset, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms)
    return PartitionQuorum(
        index,
        leader_id=parts.node_id,
        leader_epoch=LEADER_EPOCH,
        high_watermark=end_offset,
        current_voters=[voter],
    )


SERVICE = service(DescribeQuorumRequest, handle, roles=BROKER_AND_CONTROLLER)
