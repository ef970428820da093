"""A topic grows: what CreatePartitions decides over an image. Partitions are only ever added. Source: KIP-195."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ottla.controller.decided import Recorded
from ottla.controller.placement import assign_replicas
from ottla.controller.topics import PARTITIONS_PER_TOPIC_MAX, brokers_for_replicas, check_replicas, new_partition
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.types import INTERNAL_TOPICS


def create_partitions(
    image: ClusterImage,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    *,
    start: int,
    shift: int,
    absent: Collection[int] = (),
) -> Recorded:
    """Raises the topic to ``count`` partitions, the new ones placed as requested, or as ``placement`` does; KafkaError if refused."""
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name[:80]!r} does not exist")
    if name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"what is in {name} was placed by the number of its partitions")
    first = len(topic.partitions)
    if count <= first:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"topic {name!r} has {first} partitions; {count} would not be more")
    if count - first > PARTITIONS_PER_TOPIC_MAX:
        text = f"{count - first} more partitions; one request may create at most {PARTITIONS_PER_TOPIC_MAX}"
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    rows = _placed(image, topic, count, start, shift, absent) if assignments is None else _assigned(image, topic, count, assignments)
    return Recorded(tuple(new_partition(index, topic.topic_id, row, image) for index, row in enumerate(rows, first)))


def _placed(image: ClusterImage, topic: TopicImage, count: int, start: int, shift: int, absent: Collection[int]) -> list[list[int]]:
    first = len(topic.partitions)
    serving, fenced = brokers_for_replicas(image, absent)
    return assign_replicas(
        serving,
        fenced=fenced,
        partition_count=count - first,
        replication_factor=_replication_factor(topic),
        start=start,
        shift=shift,
        first_partition=first,
    )


def _assigned(image: ClusterImage, topic: TopicImage, count: int, assignments: Sequence[Sequence[int]]) -> list[list[int]]:
    first = len(topic.partitions)
    if len(assignments) != count - first:
        text = f"{count - first} more partitions of {topic.name!r} need as many assignments; there are {len(assignments)}"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    for index, nodes in enumerate(assignments, first):
        check_replicas(image, topic.name, index, nodes, factor=_replication_factor(topic))
    return [list(nodes) for nodes in assignments]


def _replication_factor(topic: TopicImage) -> int:
    return len(topic.partitions[0].replicas)
