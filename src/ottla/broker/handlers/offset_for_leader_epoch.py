"""OffsetForLeaderEpoch, versions 2-4: where a leader epoch ends in this log (KIP-101, KIP-320).

An epoch that this log never had gives the largest earlier one and its end; one that is newer than all gives -1, -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.replicas.access import led
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import service
from ottla.broker.tasks.slices import Slices
from ottla.errors import KafkaError
from ottla.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.parts import Parts


async def handle(parts: Parts, context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    topics = []
    slices = Slices(parts.world.clock)
    async for topic in slices.over(request.topics):
        results = []
        async for wanted in slices.over(topic.partitions):
            result = EpochEndOffset(partition=wanted.partition)
            try:
                partition = led(parts.partitions, parts.image, topic.topic, wanted.partition, wanted.current_leader_epoch)
                result.leader_epoch, result.end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        topics.append(OffsetForLeaderTopicResult(topic.topic, results))
    return OffsetForLeaderEpochResponse(topics=topics)


SERVICE = service(OffsetForLeaderEpochRequest, handle)
