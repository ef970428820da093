"""A Fetch request for partitions of one leader, and its response by partition: for the consumer and for Spark's reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.client.cluster import Cluster
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.types import NO_EPOCH, TopicPartition


def fetch_topics(
    cluster: Cluster, positions: Mapping[TopicPartition, int], *, partition_bytes_max: int, epochs: Mapping[TopicPartition, int] = {}
) -> list[FetchTopic]:
    """Returns the partitions with their offsets, in the form of requests; without partitions that the metadata no longer has.

    ``epochs`` are the leader epochs of what was fetched before: a leader whose log differs there says so (KIP-320).
    """
    topics: dict[str, FetchTopic] = {}
    for partition, position in positions.items():
        known = cluster.topics.get(partition.topic)
        if known is None or partition.partition not in known.partitions:
            continue
        topic = topics.setdefault(partition.topic, FetchTopic(partition.topic, known.topic_id))
        wanted = FetchPartition(partition.partition, fetch_offset=position)
        wanted.partition_max_bytes = partition_bytes_max
        wanted.current_leader_epoch = known.partitions[partition.partition].leader_epoch
        wanted.last_fetched_epoch = epochs.get(partition, NO_EPOCH)
        topic.partitions.append(wanted)
    return list(topics.values())


def by_partition(request: FetchRequest, response: FetchResponse) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """Yields what came of each partition, whether the response names topics or, from v13 on, their ids."""
    names = {topic.topic_id: topic.topic for topic in request.topics}
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for data in topic.partitions:
            yield TopicPartition(name, data.partition_index), data
