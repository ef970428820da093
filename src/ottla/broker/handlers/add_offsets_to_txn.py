"""AddOffsetsToTxn, versions 0-4: the offsets of a group are going to be part of the transaction (KIP-98).

Added is the partition of ``__consumer_offsets`` that the group belongs to.
"""

from __future__ import annotations

from ottla.broker.coordinators.transaction_codes import code_for
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.transactions.commands import AddPartitions
from ottla.types import GROUP_METADATA_TOPIC


async def handle(parts: Parts, context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    transactional_id = request.transactional_id
    if not transactional_id or not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST if not transactional_id else ErrorCode.INVALID_GROUP_ID)
    if not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        if GROUP_METADATA_TOPIC not in parts.image.topics:
            await parts.groups.ensure_topic()
        key = parts.groups.partition_for(request.group_id)

        def command(token: int) -> AddPartitions:
            return AddPartitions(token, transactional_id, request.producer_id, request.producer_epoch, (key,))

        result = await parts.transactions.ask(transactional_id, command)
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    return AddOffsetsToTxnResponse(error_code=code_for("AddOffsetsToTxn", context.version, result.error_codes[0]))


SERVICE = service(AddOffsetsToTxnRequest, handle, needs=Asks.HANDLER)
