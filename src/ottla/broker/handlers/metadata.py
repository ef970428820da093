"""Metadata, versions 0-13: brokers, and the topics asked for.

All topics: an empty list in v0, null from v1 on. v4 says whether unknown topics may be created; v10 answers with
topic ids, v12 also asks by them: where one topic has an id, ids alone are looked at, as Kafka does. A topic
that has just been created is answered with its partitions at once. All is as the image has it: what a fenced broker led has another leader,
or none. While a broker fails the answer waits a moment for the new leaders (``liveness/failing_brokers.py``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from ottla.broker.authorization import NOT_ASKED
from ottla.broker.handlers.partition_states import LISTENER_NOT_FOUND_SINCE, code_of_absent, offline_replicas, shown_leader
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.controller.topics import NewTopic
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.metadata import (
    TOPIC_IDS_SINCE,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.metadata.image import TopicImage
from ottla.types import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, topic_name_problem
from ottla.wire.schema import ZERO_UUID

UNSEEN: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_REQUEST})
"""Of topics of which the client learns nothing; what it may do with others is in the answer, whether they exist or not."""


async def handle(parts: Parts, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    if request.topics is None or request.topics:
        await parts.home.failing.settled(parts.gate.router)
    slices, listener = Slices(parts.world.clock), context.connection.listener
    brokers = {end[0]: end for end in parts.endpoints_for(listener, with_just_fenced=True)}
    topics = []
    async for topic in _topics(parts, context, request, slices):
        if request.include_topic_authorized_operations and topic.error_code not in UNSEEN:
            topic.topic_authorized_operations = context.allowed(ResourceType.TOPIC, topic.name or "")
        topics.append(topic)
    # What led a topic when that was described may be fenced by the end: every leader that the answer names is listed, too.
    brokers |= {end[0]: end for end in parts.endpoints_for(listener, with_just_fenced=True)}
    is_asked = request.include_cluster_authorized_operations
    may_ask = is_asked and context.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(*end) for end in brokers.values()],
        cluster_id=parts.cluster_id,
        controller_id=parts.controller_id,
        topics=topics,
        cluster_authorized_operations=(context.allowed(ResourceType.CLUSTER, CLUSTER) if may_ask else 0) if is_asked else NOT_ASKED,
    )


async def _topics(parts: Parts, context: RequestContext, request: MetadataRequest, slices: Slices) -> AsyncIterator[MetadataResponseTopic]:
    wanted, version = request.topics, context.version
    if wanted is None or (version == 0 and not wanted):
        async for name, topic in slices.over(sorted(parts.image.topics.items())):
            if context.may_quietly(Operation.DESCRIBE, ResourceType.TOPIC, name):
                yield _describe(parts, context, topic)
        return
    names = [name or "" async for name in slices.over(topic.name for topic in wanted)]
    ids = [topic.topic_id async for topic in slices.over(wanted) if topic.topic_id != ZERO_UUID]
    if version < TOPIC_IDS_SINCE and (ids or any(topic.name is None for topic in wanted)):
        async for name in slices.over(names):
            yield MetadataResponseTopic(ErrorCode.INVALID_REQUEST, name)
    elif ids:
        async for topic_id in slices.over_distinct(ids):
            yield _look_up_id(parts, context, topic_id)
    else:
        shown = {name async for name in slices.over_distinct(names) if context.may(Operation.DESCRIBE, ResourceType.TOPIC, name)}
        if request.allow_auto_topic_creation or version < 4:
            await _create_missing(parts, context, shown, slices)
        async for name in slices.over_distinct(names):
            yield _look_up(parts, context, name) if name in shown else MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)


async def _create_missing(parts: Parts, context: RequestContext, names: set[str], slices: Slices) -> None:
    """Creates the missing topics. Names that may not be created leave ``names``."""
    if not parts.config["auto.create.topics.enable"]:
        return
    absent = [name async for name in slices.over(names) if name not in parts.image.topics]
    if absent and not context.may_quietly(Operation.CREATE, ResourceType.CLUSTER, CLUSTER):
        names -= {name async for name in slices.over(absent) if not context.may(Operation.CREATE, ResourceType.TOPIC, name)}
    missing = [name async for name in slices.over(absent) if name in names and topic_name_problem(name) is None]
    if GROUP_METADATA_TOPIC in missing:
        await parts.groups.ensure_topic()
    ordinary = [NewTopic(name) async for name in slices.over_sorted(missing) if name not in INTERNAL_TOPICS]
    if ordinary:
        await parts.controller.create_topics(ordinary)


def _look_up_id(parts: Parts, context: RequestContext, topic_id: bytes) -> MetadataResponseTopic:
    name = parts.image.topic_names.get(topic_id)
    if name is None:
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name):  # ids are no secret, and names are
        return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return _describe(parts, context, parts.image.topics[name])


def _look_up(parts: Parts, context: RequestContext, name: str) -> MetadataResponseTopic:
    topic = parts.image.topics.get(name)
    if topic is None:
        return MetadataResponseTopic(code_of_absent(name), name, is_internal=name in INTERNAL_TOPICS)
    return _describe(parts, context, topic)


def _describe(parts: Parts, context: RequestContext, topic: TopicImage) -> MetadataResponseTopic:
    partitions = []
    for index, partition in sorted(topic.partitions.items()):
        leader, code = shown_leader(parts, context, partition, names_listener=context.version >= LISTENER_NOT_FOUND_SINCE)
        partitions.append(
            MetadataResponsePartition(
                error_code=code,
                partition_index=index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=offline_replicas(parts, context, topic.name, index, partition),
            )
        )
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
    )


SERVICE = service(MetadataRequest, handle, needs=Asks.HANDLER)
