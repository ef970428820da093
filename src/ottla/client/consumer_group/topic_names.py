"""Names of topics by their ids: the coordinator assigns ids, and what the member subscribes to may be a pattern."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.cluster import Cluster
from ottla.messages.metadata import TOPIC_IDS_SINCE, MetadataRequest, MetadataRequestTopic, MetadataResponse


async def names_of(cluster: Cluster, topic_ids: Iterable[bytes]) -> dict[bytes, str]:
    """Returns the names that are known, or that a broker knows. KafkaError when none can be asked."""
    wanted = set(topic_ids)
    names = {topic_id: cluster.topic_names[topic_id] for topic_id in wanted if topic_id in cluster.topic_names}
    missing = sorted(wanted - names.keys())
    if missing:
        connection = await cluster.any_connection()
        connection.require(MetadataRequest, TOPIC_IDS_SINCE)
        request = MetadataRequest([MetadataRequestTopic(topic_id, None) for topic_id in missing], False)
        response = await connection.ask(request, MetadataResponse, timeout_ms=cluster.request_timeout_ms)
        names |= {topic.topic_id: topic.name for topic in response.topics if topic.name and not topic.error_code}
    return names
