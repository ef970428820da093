"""InitProducerId, versions 0-5: an id and epoch for an idempotent producer, or for a transactional one (KIP-98).

Without a transactional id the answer is a fresh id, also for a producer that names its old one (v3, KIP-360), which is always legal. With
one it is the coordinator's: earlier producers of that id are fenced, and their open transaction is aborted first. While no controller gives
ids the answer is COORDINATOR_NOT_AVAILABLE, after which clients ask again.
"""

from __future__ import annotations

from ottla.broker.coordinators.transaction_codes import code_for
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.transactions.commands import InitProducerId
from ottla.transactions.transaction import NO_PRODUCER_ID
from ottla.types import NO_EPOCH


async def handle(parts: Parts, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        if request.transactional_id is None:
            if not _may_be_idempotent(context):
                raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        elif not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        _check_producer(request)
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=await parts.controller.next_producer_id(), producer_epoch=0)
        return await _begin(parts, context, request, request.transactional_id)
    except KafkaError as error:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if error.code == ErrorCode.NOT_CONTROLLER else error.code
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)


def _may_be_idempotent(context: RequestContext) -> bool:
    """True when the client may write to any topic (KIP-679), or has the right itself."""
    if context.connection.rights.may_anywhere(Operation.WRITE, ResourceType.TOPIC):
        return True
    return context.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER)


def _check_producer(request: InitProducerIdRequest) -> None:
    """Raises INVALID_REQUEST for a producer's id without its epoch, or an epoch without an id."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        text = f"producer id {request.producer_id} and epoch {request.producer_epoch}: both are given, or none is (-1)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


async def _begin(parts: Parts, context: RequestContext, request: InitProducerIdRequest, transactional_id: str) -> InitProducerIdResponse:
    def command(token: int) -> InitProducerId:
        return InitProducerId(token, transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch)

    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    result = await parts.transactions.ask(transactional_id, command)
    code = code_for("InitProducerId", context.version, result.error_code)
    return InitProducerIdResponse(error_code=code, producer_id=result.producer_id, producer_epoch=result.producer_epoch)


SERVICE = service(InitProducerIdRequest, handle, needs=Asks.HANDLER)
