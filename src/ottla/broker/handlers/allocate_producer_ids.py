"""AllocateProducerIds, version 0, on the controllers' listener (KIP-730): a block of ids for one broker."""

from __future__ import annotations

from functools import partial

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import CONTROLLER, service
from ottla.controller.producer_ids import allocate_block
from ottla.errors import KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


async def handle(parts: Parts, context: RequestContext, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    decision = partial(allocate_block, broker_id=request.broker_id, broker_epoch=request.broker_epoch)
    try:
        [result] = await parts.controller.decide([decision], is_followed=False)
    except KafkaError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    if isinstance(result, KafkaError):
        return AllocateProducerIdsResponse(error_code=result.code)
    return AllocateProducerIdsResponse(producer_id_start=result.block.start, producer_id_len=len(result.block))


SERVICE = service(AllocateProducerIdsRequest, handle, roles=CONTROLLER, needs=Operation.CLUSTER_ACTION)
