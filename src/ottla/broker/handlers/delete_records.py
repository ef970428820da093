"""DeleteRecords, versions 0-2: the logs begin at the offsets named (-1 means the high watermark).  v2 flexible.

The new start is on disk before the answer; the next round of retention deletes the segments below it. A partition whose topic is
only compacted keeps its records (POLICY_VIOLATION).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.replicas.access import led
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.loggers import get_logger
from ottla.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.types import INTERNAL_TOPICS

if TYPE_CHECKING:
    from ottla.broker.parts import Parts

log = get_logger(__name__)

TO_HIGH_WATERMARK = -1


async def handle(parts: Parts, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics = []
    advanced: list[DeleteRecordsPartitionResult] = []
    slices = Slices(parts.world.clock)
    async for topic in slices.over(request.topics):
        results = []
        async for wanted in slices.over(topic.partitions):
            result = DeleteRecordsPartitionResult(wanted.partition_index, -1)
            results.append(result)
            try:
                before, result.low_watermark = _advance(parts, topic.name, wanted)
                if result.low_watermark > before:
                    advanced.append(result)
            except KafkaError as error:
                result.error_code = error.code
        topics.append(DeleteRecordsTopicResult(topic.name, results))
    if advanced:
        await _make_durable(parts, advanced)
    return DeleteRecordsResponse(topics=topics)


def _advance(parts: Parts, topic: str, wanted: DeleteRecordsPartition) -> tuple[int, int]:
    """Where the log began, and where it begins now; KafkaError when it may not be changed."""
    if topic in INTERNAL_TOPICS and topic in parts.image.topics:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = led(parts.partitions, parts.image, topic, wanted.partition_index)
    if partition.log.config.cleanup_policy == "compact":
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    offset = partition.high_watermark if wanted.offset == TO_HIGH_WATERMARK else wanted.offset
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    before = partition.log.log_start_offset
    partition.log.advance_log_start_offset(offset)
    return before, partition.log.log_start_offset


async def _make_durable(parts: Parts, advanced: list[DeleteRecordsPartitionResult]) -> None:
    try:
        await parts.partitions.write_checkpoints()
    except (OSError, StorageError) as error:
        log.error("log_start_not_written", error=str(error))
        for result in advanced:
            result.error_code, result.low_watermark = ErrorCode.KAFKA_STORAGE_ERROR, -1


SERVICE = service(DeleteRecordsRequest, handle)
