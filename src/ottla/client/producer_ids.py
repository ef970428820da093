"""Producer ids of producers without transactions."""

from __future__ import annotations

from typing import Final

from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.api_keys import ApiKey
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_ID: Final = "there is no producer id, which the active controller gives"
NO_CONTROLLER: Final = f"{NO_ID}: no majority of the controllers seems to run"
NO_ZOOKEEPER: Final = f"{NO_ID}: none answers the broker, as when the brokers do not reach ZooKeeper"
NO_RIGHT: Final = "there is no producer id, which takes WRITE on a topic, or IDEMPOTENT_WRITE on the cluster"


async def new_producer_id(cluster: Cluster) -> int:
    """Returns an id that no other producer has, of epoch 0."""
    response = await cluster.ask(None, InitProducerIdRequest(None, 2**31 - 1), InitProducerIdResponse)
    if response.error_code:
        raise KafkaError(response.error_code, await _reason(cluster, ErrorCode(response.error_code)))
    assert response.producer_epoch == 0, "a new idempotent producer begins at epoch 0"
    return response.producer_id


async def _reason(cluster: Cluster, code: ErrorCode) -> str:
    """Returns why there is no id. The answer has a code alone; brokers with a quorum of controllers have an API that describes it."""
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return NO_RIGHT
    if code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return "no producer id"
    connection = await cluster.any_connection()
    return NO_CONTROLLER if connection.has(ApiKey.DESCRIBE_QUORUM) else NO_ZOOKEEPER
