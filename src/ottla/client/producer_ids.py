"""Producer ids of producers without transactions."""

from __future__ import annotations

from typing import Final

from ottla.client.cluster import Cluster
from ottla.errors import KafkaError
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_CONTROLLER: Final = "the broker gives no producer id, as when no controller is active: a majority of the controllers must run"


async def new_producer_id(cluster: Cluster) -> int:
    """Returns an id that no other producer has, of epoch 0."""
    response = await cluster.ask(None, InitProducerIdRequest(None, 2**31 - 1), InitProducerIdResponse)
    if response.error_code:
        problem = KafkaError(response.error_code, "the broker gives no producer id")
        raise KafkaError(problem.code, NO_CONTROLLER) if problem.is_transient else problem
    assert response.producer_epoch == 0, "a new idempotent producer begins at epoch 0"
    return response.producer_id
