"""AssignReplicasToDirs, version 0, on the controllers' listener (KIP-858): NOT_CONTROLLER unless this one is active.

BROKER_ID_NOT_REGISTERED and STALE_BROKER_EPOCH for the whole request; else one code for each replica.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import CONTROLLER, service
from ottla.controller.brokers import check_epoch
from ottla.controller.replica_directories import Assigned, assign_directories
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryResult,
    PartitionResult,
    TopicResult,
)
from ottla.metadata.image import ClusterImage


async def handle(parts: Parts, context: RequestContext, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
    wanted = {
        (topic.topic_id, partition.partition_index): directory.id
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    }

    def decide(image: ClusterImage) -> Assigned:
        check_epoch(image, request.broker_id, request.broker_epoch)
        return assign_directories(image, request.broker_id, wanted, rules=parts.controller.rules(image))

    try:
        [assigned] = await parts.controller.decide([decide], is_followed=False)
    except KafkaError as error:
        assigned = error
    if isinstance(assigned, KafkaError):
        return AssignReplicasToDirsResponse(error_code=assigned.code)
    directories = []
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            codes = [
                PartitionResult(p.partition_index, assigned.refused.get((topic.topic_id, p.partition_index), ErrorCode.NONE))
                for p in topic.partitions
            ]
            topics.append(TopicResult(topic.topic_id, codes))
        directories.append(DirectoryResult(directory.id, topics))
    return AssignReplicasToDirsResponse(directories=directories)


SERVICE = service(AssignReplicasToDirsRequest, handle, roles=CONTROLLER, needs=Operation.CLUSTER_ACTION)
