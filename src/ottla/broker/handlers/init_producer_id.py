"""InitProducerId, versions 0-5: an id for an idempotent producer (KIP-98).

A transactional id is refused with INVALID_REQUEST, which every client takes as final: this broker has no transactions yet
(FindCoordinator, which comes first, says so in words). A producer that names its old id and epoch
(v3, KIP-360) gets a fresh id, which is always legal for an idempotent one. While no controller gives ids the answer is
COORDINATOR_NOT_AVAILABLE, after which clients ask again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import service
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.broker.parts import Parts


async def handle(parts: Parts, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        return InitProducerIdResponse(producer_id=await parts.controller.next_producer_id(), producer_epoch=0)
    except KafkaError as error:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if error.code == ErrorCode.NOT_CONTROLLER else error.code
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)


SERVICE = service(InitProducerIdRequest, handle)
