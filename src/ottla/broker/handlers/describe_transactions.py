"""DescribeTransactions, version 0: transactions by their ids, as their coordinator on this broker knows them (KIP-664).

Of one that is decided, the partitions are those that lack their end marker. A coordinator that cannot commit describes what it has.
"""

from __future__ import annotations

from ottla.broker.coordinators.runtime import Patience
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.describe_transactions import (
    DescribedTransactionState,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from ottla.transactions.commands import DescribeTransaction
from ottla.transactions.transaction import STATE_NAMES, by_topic


async def handle(parts: Parts, context: RequestContext, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    patience = Patience(parts.world.clock)
    ids = Slices(parts.world.clock).over_distinct(request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=[await _described(parts, context, one, patience) async for one in ids])


async def _described(parts: Parts, context: RequestContext, transactional_id: str, patience: Patience) -> DescribedTransactionState:
    if not transactional_id:
        return DescribedTransactionState(ErrorCode.INVALID_REQUEST, transactional_id)
    if not context.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return DescribedTransactionState(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id)
    try:
        result = await parts.transactions.look_up(transactional_id, lambda token: DescribeTransaction(token, transactional_id), patience)
    except KafkaError as error:
        return DescribedTransactionState(error.code, transactional_id)
    found = result.transaction
    if found is None:
        return DescribedTransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    partitions = by_topic(found.partitions).items()
    topics = [TopicData(topic, indexes) for topic, indexes in partitions if context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)]
    return DescribedTransactionState(
        ErrorCode.NONE,
        transactional_id,
        STATE_NAMES[found.state],
        found.timeout_ms,
        found.start_ms,
        found.producer_id,
        found.producer_epoch,
        topics,
    )


SERVICE = service(DescribeTransactionsRequest, handle, needs=Asks.HANDLER)
