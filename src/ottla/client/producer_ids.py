"""Producer ids of producers without transactions."""

from __future__ import annotations

from ottla.client.cluster import Cluster
from ottla.errors import KafkaError
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def new_producer_id(cluster: Cluster) -> int:
    """Returns an id that no other producer has, of epoch 0."""
    response = await cluster.ask(None, InitProducerIdRequest(None, 2**31 - 1), InitProducerIdResponse)
    if response.error_code:
        raise KafkaError(response.error_code, "no producer id")
    assert response.producer_epoch == 0, "a new idempotent producer begins at epoch 0"
    return response.producer_id
