"""Produce, versions 3-13 (0-2 are listed and refused).

Each batch is checked (``storage/log/batch_rules.py``), gets its offsets in place, and is written with everything else that its
burst brought; then the answer leaves. v7 zstd (KIP-110); v9 flexible; v10 leader hints (KIP-951); v13 topic ids (KIP-516).

acks=0 gets no answer at all; when such a request fails, the connection is closed, so that the client looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sized
from typing import Any

from ottla.broker.handlers import transactional_produce
from ottla.broker.handlers.staged_produce import Held, StagedProduce
from ottla.broker.parts import Parts
from ottla.broker.replicas.access import absent
from ottla.broker.replicas.partition import Partition
from ottla.broker.requests.context import RequestContext, fail_loudly
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError, RecordsRefused
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.produce import (
    TOPIC_IDS_SINCE,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.records.batch import CODEC_MASK, MAGIC, TRANSACTIONAL
from ottla.records.compression import Codec
from ottla.storage.log.batch_rules import HeavyBatch, prepare_away
from ottla.storage.producers import NotPermitted
from ottla.types import INTERNAL_TOPICS

ZSTD_SINCE = 7
TOGETHER_MAX = 500  # batches of one request that are staged before they are written
ROUNDS_MAX = 10  # of waiting for a worker or a coordinator, which one batch may need in turn
_ACKS = (0, 1, -1)
_WRITE, _TOPIC = Operation.WRITE, ResourceType.TOPIC  # found in their enums once: that takes half as long as the question
MAGIC_AT = 16  # of a batch, as of the older message sets
ATTRIBUTES_AT = 22  # the lower byte of a batch's attributes


def handle(parts: Parts, context: RequestContext, request: ProduceRequest) -> Coroutine[Any, Any, None] | None:
    responses: list[TopicProduceResponse] = []
    response = ProduceResponse(responses)
    staged = StagedProduce(parts, context, response, request.acks, request.timeout_ms, request.transactional_id)
    problem = None if request.acks in _ACKS and request.transactional_id is None else _problem(parts, context, request)
    store, has_ids, asks = parts.partitions, context.version >= TOPIC_IDS_SINCE, problem is None and parts.authorizer.is_configured
    for topic in request.topic_data:
        partitions = store.by_id.get(topic.topic_id) if has_ids else store.by_name.get(topic.name)
        refusal = problem
        if asks:  # as _refusal asks; its call would cost more than the question
            name = _name_by_id(parts, topic, partitions) if has_ids else topic.name
            if name is not None and not context.connection.rights.may(_WRITE, _TOPIC, name):
                refusal = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        results = [_try_to_stage(parts, topic, partitions, data, staged, refusal) for data in topic.partition_data]
        responses.append(TopicProduceResponse(topic.name, topic.topic_id, results))
    waits = staged.heavy or staged.late or staged.unpermitted
    if waits:
        staged.wait_once_more()
        context.connection.hold()
        if staged.staged:
            staged.first_written = asyncio.get_running_loop().create_future()
    if staged.staged:
        parts.stage(staged)
    if parts.throttling.limits_produce:
        size_bytes = sum(len(data.records or b"") for topic in request.topic_data for data in topic.partition_data)
        response.throttle_time_ms = parts.throttling.on_produce(context, size_bytes)
    if not staged.staged:
        staged.finish(frozenset())
    return _append_rest(parts, staged, problem) if waits else None


async def handle_many(parts: Parts, context: RequestContext, request: ProduceRequest) -> None:
    """Handles a request as ``handle`` does, of so many partitions that others have their turns. The connection's later requests wait."""
    context.connection.hold()
    response = ProduceResponse([])
    staged = StagedProduce(parts, context, response, request.acks, request.timeout_ms, request.transactional_id)
    try:
        problem, size_bytes, slices = _problem(parts, context, request), 0, Slices(parts.world.clock)
        async for topic in slices.over(request.topic_data):
            has_id = context.version >= TOPIC_IDS_SINCE
            partitions = parts.partitions.by_id.get(topic.topic_id) if has_id else parts.partitions.by_name.get(topic.name)
            refusal = problem or _refusal(parts, context, topic, partitions)
            results: list[PartitionProduceResponse] = []
            response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, results))
            async for data in slices.over(topic.partition_data):
                size_bytes += len(data.records or b"")
                results.append(_try_to_stage(parts, topic, partitions, data, staged, refusal))
                if len(staged.staged) + len(staged.heavy) + len(staged.unpermitted) >= TOGETHER_MAX:
                    await _write(parts, staged)
        await _write(parts, staged)
        await _append_late(parts, staged, problem)
        if parts.throttling.limits_produce:
            response.throttle_time_ms = parts.throttling.on_produce(context, size_bytes)
        staged.finish(frozenset())
    finally:
        staged.all_were_asked()
        context.connection.release()


def _try_to_stage(
    parts: Parts,
    topic: TopicProduceData,
    partitions: dict[int, Partition] | None,
    data: PartitionProduceData,
    staged: StagedProduce,
    problem: KafkaError | None,
    result: PartitionProduceResponse | None = None,
) -> PartitionProduceResponse:
    """Returns what will be answered for the partition."""
    result = PartitionProduceResponse(data.index) if result is None else result
    try:
        if problem is not None:
            raise problem
        partition = None if partitions is None else partitions.get(data.index)
        if (partition is None or partition.led_epoch < 0) and staged.may_be_late and _is_early(parts, topic, data, staged):
            copied = None if data.records is None else memoryview(bytearray(data.records))  # type: ignore[arg-type]
            staged.late.append((topic, PartitionProduceData(data.index, copied), result))
            return result
        if partition is None:
            raise _absent(parts, topic, data.index, staged.context.version)
        _stage(parts, partition, data, staged, result)
    except KafkaError as error:
        staged.refuse(_name_of(parts, topic), result, error)
    except Exception as error:  # noqa: BLE001 - what was staged before is written and answered; Kafka answers so, too
        fail_loudly("Produce", error)
        staged.refuse(_name_of(parts, topic), result, _failed())
    return result


def _is_early(parts: Parts, topic: TopicProduceData, data: PartitionProduceData, staged: StagedProduce) -> bool:
    return parts.early_requests.hold_ms(_key_of(topic, staged), data.index) > 0


def _failed() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed to process this batch")


def _name_of(parts: Parts, topic: TopicProduceData) -> str:
    return topic.name or parts.image.topic_names.get(topic.topic_id, "")


def _key_of(topic: TopicProduceData, staged: StagedProduce) -> str | bytes:
    return topic.topic_id if staged.context.version >= TOPIC_IDS_SINCE else topic.name


async def _append_rest(parts: Parts, staged: StagedProduce, problem: KafkaError | None) -> None:
    """Appends the batches that a worker examines, that a coordinator permits, or that came early.

    The connection's later requests wait: none may overtake them.
    """
    try:
        if staged.first_written is not None:
            await staged.first_written
        await _write(parts, staged)
        await _append_late(parts, staged, problem)
        staged.finish(frozenset())
    finally:
        staged.all_were_asked()
        staged.connection.release()


async def _append_late(parts: Parts, staged: StagedProduce, problem: KafkaError | None) -> None:
    """Appends what came before this broker led its partition, or refuses it."""
    if not staged.late:
        return
    await parts.early_requests.wait([(_key_of(topic, staged), data.index) for topic, data, _ in staged.late])
    staged.may_be_late, store, late = False, parts.partitions, staged.late
    staged.late = []
    for topic, data, result in late:
        partitions = store.by_id.get(topic.topic_id) if isinstance(_key_of(topic, staged), bytes) else store.by_name.get(topic.name)
        refusal = problem or _refusal(parts, staged.context, topic, partitions)
        _try_to_stage(parts, topic, partitions, data, staged, refusal, result)
    await _write(parts, staged)


async def _write(parts: Parts, staged: StagedProduce) -> None:
    """Writes what is staged, and what waited for a worker or a coordinator first, to its logs, or refuses it."""
    failed = set()
    for _ in range(ROUNDS_MAX):
        if not staged.heavy and not staged.unpermitted:
            break
        await _stage_permitted(parts, staged)
        await _stage_examined(parts, staged)
    for held in (*staged.heavy, *staged.unpermitted):
        error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "one transaction after the other has ended meanwhile")
        _refuse(staged, held.partition, held.batch, held.result, error)
    staged.heavy.clear()
    staged.unpermitted.clear()
    for partition in dict.fromkeys(partition for partition, _, _ in staged.staged):
        try:
            await partition.flush()
        except KafkaError:
            failed.add(partition)
    staged.settle(frozenset(failed))


async def _stage_examined(parts: Parts, staged: StagedProduce) -> None:
    heavy, staged.heavy = staged.heavy, []
    for held in heavy:
        partition = held.partition
        try:
            held.batch = await prepare_away(parts.world.disk, bytes(held.batch), partition.log.tail.rules, parts.world.clock.now_ms())
            held.is_prepared = True
        except KafkaError as error:
            _refuse(staged, partition, held.batch, held.result, error)
        except Exception as error:  # noqa: BLE001 - the others of the request are written and answered
            fail_loudly("Produce", error)
            staged.refuse(held.partition.topic, held.result, _failed())
        else:
            _stage_held(parts, staged, held)


async def _stage_permitted(parts: Parts, staged: StagedProduce) -> None:
    unpermitted, staged.unpermitted = staged.unpermitted, []
    for epoch in dict.fromkeys(held.producer_epoch for held in unpermitted):
        asking = [held for held in unpermitted if held.producer_epoch == epoch]
        for held, error in await transactional_produce.ask(parts, staged, epoch, asking):
            if error is None:
                _stage_held(parts, staged, held)
            else:
                _refuse(staged, held.partition, held.batch, held.result, error)


def _stage_held(parts: Parts, staged: StagedProduce, held: Held) -> None:
    """Stages what has waited; or it waits for something else, or is refused."""
    is_permitted = transactional_produce.still_permits(held, staged.producer_id)
    try:
        batch = memoryview(held.batch) if held.is_prepared else memoryview(bytearray(held.batch))
        _append(parts, held.partition, batch, staged, held.result, is_prepared=held.is_prepared, is_permitted=is_permitted)
    except HeavyBatch:
        staged.heavy.append(held)
    except NotPermitted as asked:
        held.producer_epoch = asked.producer_epoch
        staged.unpermitted.append(held)
    except KafkaError as error:
        _refuse(staged, held.partition, held.batch, held.result, error)
    except Exception as error:  # noqa: BLE001 - the others of the request are written and answered
        fail_loudly("Produce", error)
        staged.refuse(held.partition.topic, held.result, _failed())


def _problem(parts: Parts, context: RequestContext, request: ProduceRequest) -> KafkaError | None:
    """Returns what is wrong with the request itself."""
    if request.acks not in _ACKS:
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}; 0, 1 and -1 (all) are known")
    transactional_id = request.transactional_id
    if transactional_id is None or not parts.authorizer.is_configured or not _has_transactional_batch(request):
        return None
    if context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return None
    return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _has_transactional_batch(request: ProduceRequest) -> bool:
    """True when a batch says so. The header does not count: clients send the id with plain batches, too."""
    return any(
        isinstance(data.records, memoryview) and len(data.records) > ATTRIBUTES_AT and data.records[ATTRIBUTES_AT] & TRANSACTIONAL
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _refusal(parts: Parts, context: RequestContext, topic: TopicProduceData, partitions: dict[int, Partition] | None) -> KafkaError | None:
    """Returns why the client may not write to the topic, if so. ``partitions`` are those that this node has of it."""
    name = _name_by_id(parts, topic, partitions) if context.version >= TOPIC_IDS_SINCE else topic.name
    if name is None or context.connection.rights.may(_WRITE, _TOPIC, name):
        return None
    return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _name_by_id(parts: Parts, topic: TopicProduceData, partitions: dict[int, Partition] | None) -> str | None:
    """Returns None for an id that no topic has: it reveals nothing, and its right is not checked."""
    return next(iter(partitions.values())).topic if partitions else parts.image.topic_names.get(topic.topic_id)


def _absent(parts: Parts, topic: TopicProduceData, index: int, version: int) -> KafkaError:
    image, name, code = parts.image, topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= TOPIC_IDS_SINCE:
        name = image.topic_names.get(topic.topic_id, "")
        code = code if name else ErrorCode.UNKNOWN_TOPIC_ID
    if name in INTERNAL_TOPICS and name in image.topics and index in image.topics[name].partitions:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} can be written by the broker only")
    return absent(parts.partitions, image, name, index, code)


def _stage(
    parts: Parts,
    partition: Partition,
    data: PartitionProduceData,
    staged: StagedProduce,
    result: PartitionProduceResponse,
) -> None:
    if partition.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} can be written by the broker only")
    if staged.acks == -1 and partition.leading is not None:
        partition.leading.machine.check_enough_in_sync()
    records = data.records
    if records is None or not len(records):
        partition.check_leads()
        raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
    assert isinstance(records, memoryview), "a request's records are a view of what was received"
    if staged.context.version < ZSTD_SINCE and _is_zstd(records):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{ZSTD_SINCE}")
    if len(records) > ATTRIBUTES_AT and records[ATTRIBUTES_AT] & TRANSACTIONAL:
        partition.check_leads()
        transactional_produce.check(staged, records)
    try:
        _append(parts, partition, records, staged, result)
    except HeavyBatch:
        staged.heavy.append(Held(partition, bytes(records), result))
    except NotPermitted as asked:
        held = Held(partition, bytes(records), result, asked.producer_epoch)
        if transactional_produce.is_free(parts, staged.context):
            held.permission = transactional_produce.permission_of(partition, asked.producer_id)
            _stage_held(parts, staged, held)
        else:
            staged.ask_first(held, asked)
    except KafkaError as error:
        _refuse(staged, partition, records, result, error)


def _is_zstd(records: memoryview) -> bool:
    return len(records) > ATTRIBUTES_AT and records[MAGIC_AT] == MAGIC and records[ATTRIBUTES_AT] & CODEC_MASK == Codec.ZSTD


def _append(
    parts: Parts,
    partition: Partition,
    records: memoryview,
    staged: StagedProduce,
    result: PartitionProduceResponse,
    *,
    is_prepared: bool = False,
    is_permitted: bool = False,
) -> None:
    now_ms = parts.world.clock.now_ms()
    if staged.transactional_id is None:
        appended = partition.stage(records, now_ms=now_ms, is_prepared=is_prepared)
    else:
        begins_at_zero = staged.context.version >= transactional_produce.ADDS_SINCE
        appended = partition.stage(
            records, now_ms=now_ms, is_prepared=is_prepared, is_permitted=is_permitted, begins_at_zero=begins_at_zero
        )  # fmt: skip
    result.base_offset = appended.base_offset
    result.log_append_time_ms = appended.append_time_ms
    log = partition.log
    result.log_start_offset = log.log_start_offset
    staged.staged.append((partition, log.tail.drop_count, result))


def _refuse(staged: StagedProduce, partition: Partition, records: Sized, result: PartitionProduceResponse, error: KafkaError) -> None:
    partition.meters.bytes_rejected += len(records)
    staged.refuse(partition.topic, result, error)
    if isinstance(error, RecordsRefused):
        result.record_errors = [BatchIndexAndErrorMessage(index, text) for index, text in error.record_errors]


_LISTED_FROM = 0  # old librdkafka looks for v0 before it compresses
SERVICE = service(ProduceRequest, handle, handle_many=handle_many, listed_from=_LISTED_FROM, needs=Asks.HANDLER)
