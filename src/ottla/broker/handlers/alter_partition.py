"""AlterPartition, versions 2-3, on the controllers' listener (KIP-497, 841, 903): NOT_CONTROLLER unless this one is active.

BROKER_ID_NOT_REGISTERED and STALE_BROKER_EPOCH for the whole request; else one result for each partition: UNKNOWN_TOPIC_ID,
FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA, NOT_CONTROLLER when the leader knows more.
"""

from __future__ import annotations

from ottla.broker.controller.isr_alterations import alter_isrs
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import CONTROLLER, service
from ottla.controller.isr_changes import WantedIsr
from ottla.errors import KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse, PartitionData, PartitionResult, TopicResult

EPOCHS_SINCE = 3


async def handle(parts: Parts, context: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    has_epochs = context.version >= EPOCHS_SINCE
    wanted = [
        _wanted(request.broker_id, topic.topic_id, partition, has_epochs) for topic in request.topics for partition in topic.partitions
    ]
    try:
        outcomes = await alter_isrs(parts.controller, request.broker_id, request.broker_epoch, wanted)
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
    topics: dict[bytes, TopicResult] = {}
    for asked, outcome in zip(wanted, outcomes, strict=True):
        result = PartitionResult(asked.index)
        if isinstance(outcome, KafkaError):
            result.error_code = outcome.code
        else:
            result.leader_id, result.leader_epoch, result.partition_epoch = outcome.leader, outcome.leader_epoch, outcome.partition_epoch
            result.isr, result.leader_recovery_state = list(outcome.isr), int(outcome.is_recovering)
        topics.setdefault(asked.topic_id, TopicResult(asked.topic_id)).partitions.append(result)
    return AlterPartitionResponse(topics=list(topics.values()))


def _wanted(broker_id: int, topic_id: bytes, data: PartitionData, has_epochs: bool) -> WantedIsr:
    members = [(node, -1) for node in data.new_isr]
    if has_epochs:
        members = [(state.broker_id, state.broker_epoch) for state in data.new_isr_with_epochs]
    return WantedIsr(
        broker_id, topic_id, data.partition_index, data.leader_epoch, data.partition_epoch, members, data.leader_recovery_state == 1
    )  # fmt: skip


SERVICE = service(AlterPartitionRequest, handle, roles=CONTROLLER, needs=Operation.CLUSTER_ACTION)
