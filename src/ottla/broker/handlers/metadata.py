"""Metadata, versions 0-13: brokers, and the topics asked for.

All topics: an empty list in v0, null from v1 on (trap T8). v4 says whether unknown topics may be created; v10 answers with
topic ids, v12 also asks by them. A topic that has just been created is answered with its partitions at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.controller.topics import NewTopic
from ottla.errors import ErrorCode
from ottla.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.metadata.image import TopicImage
from ottla.types import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, NO_LEADER, topic_name_problem
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.node import Broker

TOPIC_OPERATIONS_ALL = 0b0000_1101_1111_1000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: without an authorizer all are allowed."""
CLUSTER_OPERATIONS_ALL = 0b0001_1111_1011_0000
OPERATIONS_NOT_ASKED = -(2**31)


async def handle(broker: Broker, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    wanted = request.topics
    if wanted is None or (context.version == 0 and not wanted):
        image = broker.image
        topics = [_describe(broker, topic, request) for _, topic in sorted(image.topics.items())]
    else:
        if request.allow_auto_topic_creation or context.version < 4:
            await _create_missing(broker, wanted)
        image = broker.image
        topics = [_look_up(broker, topic, request) for topic in {(topic.name, topic.topic_id): topic for topic in wanted}.values()]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(broker_id, host, port, rack)
            for broker_id, host, port, rack in broker.endpoints_for(context.connection.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS_ALL if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED,
    )


async def _create_missing(broker: Broker, wanted: list[MetadataRequestTopic]) -> None:
    if not broker.config["auto.create.topics.enable"]:
        return
    names = {topic.name for topic in wanted if topic.name is not None}
    missing = sorted(name for name in names if name not in broker.image.topics and topic_name_problem(name) is None)
    internal = [name for name in missing if name in INTERNAL_TOPICS]
    if GROUP_METADATA_TOPIC in internal:
        await broker.groups.ensure_topic()
    ordinary = [NewTopic(name) for name in missing if name not in internal]
    if ordinary:
        await broker.controller.create_topics(ordinary)


def _look_up(broker: Broker, wanted: MetadataRequestTopic, request: MetadataRequest) -> MetadataResponseTopic:
    name, image = wanted.name, broker.image
    if name is None:
        found = image.topic_names.get(wanted.topic_id)
        if found is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        name = found
    elif wanted.topic_id != ZERO_UUID:
        return MetadataResponseTopic(ErrorCode.INVALID_REQUEST, name, wanted.topic_id)
    topic = image.topics.get(name)
    if topic is None:
        is_legal = topic_name_problem(name) is None
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    return _describe(broker, topic, request)


def _describe(broker: Broker, topic: TopicImage, request: MetadataRequest) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else ErrorCode.NONE,
            partition_index=index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=broker.partitions.offline_replicas(topic.name, index),
        )
        for index, partition in sorted(topic.partitions.items())
    ]
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS_ALL if request.include_topic_authorized_operations else OPERATIONS_NOT_ASKED,
    )
