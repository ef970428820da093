"""AddPartitionsToTxn, versions 0-5: partitions become part of a transaction, before anything is written to them.

Versions 0-3 are clients': all partitions are added, or none; with one that is not known the others get OPERATION_NOT_ATTEMPTED. Versions
4-5 are brokers', of many transactions at once: the leader of a partition asks for what a producer has sent, to add it or only to verify it
(KIP-890); ClusterAction is needed. These are decided beside each other: one that waits must not hold the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.coordinators.permits import decide
from ottla.broker.coordinators.transaction_codes import code_for
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.transactions.commands import AddPartitions
from ottla.types import TRANSACTION_STATE_TOPIC, TopicPartition

OF_BROKERS_SINCE = 4


async def handle(parts: Parts, context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    slices = Slices(parts.world.clock)
    if context.version < OF_BROKERS_SINCE:
        keys = await _keys(slices, request.v3_and_below_topics)
        codes = await _add(parts, context, request, keys)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _results(slices, keys, codes))
    if not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    context.is_of_node = True
    asked = []
    async for transaction in slices.over(request.transactions):
        keys = await _keys(slices, transaction.topics)
        asked.append((transaction.transactional_id, keys, eager.start(_decided(parts, context, transaction, keys))))
    results = [AddPartitionsToTxnResult(name, await _results(slices, keys, await codes)) for name, keys, codes in asked]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add(parts: Parts, context: RequestContext, request: AddPartitionsToTxnRequest, keys: list[TopicPartition]) -> Sequence[int]:
    transactional_id = request.v3_and_below_transactional_id
    if not transactional_id:
        return [ErrorCode.INVALID_REQUEST] * len(keys)
    if not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * len(keys)
    problems: list[int] = []
    async for key in Slices(parts.world.clock).over(keys):
        topic = parts.image.topics.get(key.topic)
        problem = ErrorCode.OPERATION_NOT_ATTEMPTED
        if key.topic == TRANSACTION_STATE_TOPIC or not context.may(Operation.WRITE, ResourceType.TOPIC, key.topic):
            problem = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or key.partition not in topic.partitions:
            problem = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        problems.append(problem)
    if problems.count(ErrorCode.OPERATION_NOT_ATTEMPTED) < len(problems):
        return problems

    def command(token: int) -> AddPartitions:
        return AddPartitions(token, transactional_id, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch, tuple(keys))

    try:
        result = await parts.transactions.ask(transactional_id, command)
        return _said(context, result.error_codes)
    except KafkaError as error:
        return [error.code] * len(keys)


async def _decided(
    parts: Parts, context: RequestContext, transaction: AddPartitionsToTxnTransaction, keys: list[TopicPartition]
) -> Sequence[int]:
    if not transaction.transactional_id:
        return [ErrorCode.INVALID_REQUEST] * len(keys)
    codes = await decide(
        parts.transactions, transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, keys,
        adds=not transaction.verify_only,
    )  # fmt: skip
    return _said(context, codes)


def _said(context: RequestContext, codes: Sequence[int]) -> Sequence[int]:
    """Returns the codes as the request's version says them."""
    said = {code: code_for("AddPartitionsToTxn", context.version, code) for code in set(codes)}
    return list(map(said.__getitem__, codes))


async def _keys(slices: Slices, topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    """Returns each partition once."""
    keys: dict[TopicPartition, None] = {}
    async for topic in slices.over(topics):
        async for index in slices.over(topic.partitions):
            keys[TopicPartition(topic.name, index)] = None
    return list(keys)


async def _results(slices: Slices, keys: list[TopicPartition], codes: Sequence[int]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    async for key, code in slices.over(zip(keys, codes, strict=True)):
        result = AddPartitionsToTxnPartitionResult(key.partition, code)
        topics.setdefault(key.topic, AddPartitionsToTxnTopicResult(key.topic)).results_by_partition.append(result)
    return list(topics.values())


SERVICE = service(AddPartitionsToTxnRequest, handle, needs=Asks.HANDLER)
