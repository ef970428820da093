"""Producer ids of producers without transactions."""

from __future__ import annotations

from typing import Final

from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_CONTROLLER: Final = "there is no producer id, which the active controller gives: no majority of the controllers seems to run"

NO_RIGHT: Final = "there is no producer id, which takes WRITE on a topic, or IDEMPOTENT_WRITE on the cluster"
_REASONS: Final = {ErrorCode.COORDINATOR_NOT_AVAILABLE: NO_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED: NO_RIGHT}


async def new_producer_id(cluster: Cluster) -> int:
    """Returns an id that no other producer has, of epoch 0."""
    response = await cluster.ask(None, InitProducerIdRequest(None, 2**31 - 1), InitProducerIdResponse)
    if response.error_code:
        raise KafkaError(response.error_code, _REASONS.get(ErrorCode(response.error_code), "no producer id"))
    assert response.producer_epoch == 0, "a new idempotent producer begins at epoch 0"
    return response.producer_id
