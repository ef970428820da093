"""Topics come and go: what CreateTopics and DeleteTopics decide over an image.

Each item of a request is judged by itself: one bad topic does not spoil the others. Nothing here changes anything; the
records returned do, once they are in the metadata log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, field

from ottla.config import BrokerConfig, parse_topic_configs
from ottla.controller.placement import assign_replicas
from ottla.controller.topic_rules import is_serving
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from ottla.metadata.image import RESOURCE_TOPIC, ClusterImage, PartitionImage, TopicImage, metric_name
from ottla.types import CLUSTER_METADATA_TOPIC, topic_name_problem
from ottla.wire.schema import Stored

PARTITIONS_PER_TOPIC_MAX = 10_000
"""More than this in one request is refused: it would open as many files at once."""


class NewTopic(Struct, frozen=True):
    """A topic that a client asks for. -1 means the broker's default; ``assignments`` excludes both counts."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, list[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


class TopicCreation(Struct, frozen=True):
    """Records for one topic."""

    name: str
    topic_id: bytes
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]
    records: tuple[Stored, ...]


def create_topic(
    image: ClusterImage, topic: NewTopic, *, config: BrokerConfig, topic_id: bytes, start: int, shift: int, absent: Collection[int] = ()
) -> TopicCreation:
    """Returns the creation, or raises a KafkaError with Kafka's code. ``absent`` brokers will return, and are not registered."""
    problem = topic_name_problem(topic.name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {topic.name[:80]!r}: {problem}")
    if topic.name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} is the name of the metadata log; choose another name")
    if topic.name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} already exists")
    collision = image.metric_names.get(metric_name(topic.name) or "")
    if collision is not None:
        text = f"topic {topic.name!r} collides with {collision!r}: '.' and '_' count as the same character in metric names"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    configs = parse_topic_configs(topic.configs)
    replicas = _assignment(image, topic, config, start, shift, absent)
    records: list[Stored] = [TopicRecord(topic.name, topic_id)]
    records += [ConfigRecord(RESOURCE_TOPIC, topic.name, name, value) for name, value in sorted(configs.items())]
    records += [new_partition(index, topic_id, nodes, image) for index, nodes in sorted(replicas.items())]
    return TopicCreation(topic.name, topic_id, len(replicas), len(replicas[0]), configs, tuple(records))


class TopicDeletion(Struct, frozen=True):
    """The record that takes a topic away, and the name that it had."""

    name: str
    records: tuple[RemoveTopicRecord]


def delete_topic(image: ClusterImage, *, name: str | None, topic_id: bytes, config: BrokerConfig) -> TopicDeletion:
    """Deletes the topic by name, or by id when the name is None."""
    if not config["delete.topic.enable"]:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker")
    if name is None:
        found = image.topic_names.get(topic_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
        return TopicDeletion(found, (RemoveTopicRecord(topic_id),))
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return TopicDeletion(name, (RemoveTopicRecord(topic.topic_id),))


def _assignment(
    image: ClusterImage, topic: NewTopic, config: BrokerConfig, start: int, shift: int, absent: Collection[int]
) -> dict[int, list[int]]:
    if topic.assignments:
        if topic.partition_count != -1 or topic.replication_factor != -1:
            text = f"topic {topic.name!r}: an assignment excludes a partition count and a replication factor; send -1 for both"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        return _checked_assignment(image, topic, absent)
    count = config["num.partitions"] if topic.partition_count == -1 else topic.partition_count
    factor = config["default.replication.factor"] if topic.replication_factor == -1 else topic.replication_factor
    if count > PARTITIONS_PER_TOPIC_MAX:
        text = f"{count} partitions in one topic; one request may create at most {PARTITIONS_PER_TOPIC_MAX}"
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    serving, fenced = brokers_for_replicas(image, absent)
    rows = assign_replicas(serving, fenced=fenced, partition_count=count, replication_factor=factor, start=start, shift=shift)
    return dict(enumerate(rows))


def brokers_for_replicas(image: ClusterImage, absent: Collection[int]) -> tuple[dict[int, str | None], dict[int, str | None]]:
    """Returns the brokers that serve, and the ones that are fenced, stopping or absent, with their racks."""
    fenced: dict[int, str | None] = dict.fromkeys(absent)
    fenced |= {broker.broker_id: broker.rack for broker in image.brokers.values()}
    serving = {node: fenced.pop(node) for node in list(fenced) if is_serving(image, node)}
    return serving, fenced


def _checked_assignment(image: ClusterImage, topic: NewTopic, absent: Collection[int]) -> dict[int, list[int]]:
    if len(topic.assignments) > PARTITIONS_PER_TOPIC_MAX:
        text = f"{len(topic.assignments)} partitions in one topic; one request may create at most {PARTITIONS_PER_TOPIC_MAX}"
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    factor = len(next(iter(topic.assignments.values())))
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"topic {topic.name!r}: partitions must be numbered from 0 without gaps")
    for index, nodes in topic.assignments.items():
        check_replicas(image, topic.name, index, nodes, factor=factor, absent=absent)
    return {index: list(nodes) for index, nodes in topic.assignments.items()}


def find_partition(image: ClusterImage, topic: str, index: int) -> tuple[TopicImage, PartitionImage]:
    """Returns the topic and its partition; UNKNOWN_TOPIC_OR_PARTITION when there is none."""
    found = image.topics.get(topic)
    partition = found.partitions.get(index) if found is not None else None
    if found is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic[:80]}-{index}")
    return found, partition


def check_replicas(image: ClusterImage, topic: str, index: int, nodes: Sequence[int], *, factor: int, absent: Collection[int] = ()) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT unless the replicas are ``factor`` distinct brokers, and at least one.

    Each is registered, or among the ``absent`` ones.
    """
    if not nodes or len(set(nodes)) != len(nodes) or len(nodes) != factor:
        text = f"partition {index} of {topic!r}: replicas {list(nodes)[:20]} must be distinct, and as many as those of the others"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    unknown = [node for node in nodes if node not in image.brokers and node not in absent]
    if unknown:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {index} of {topic!r}: no broker has the id {unknown[0]}")


def new_partition(index: int, topic_id: bytes, nodes: list[int], image: ClusterImage) -> PartitionRecord:
    """Returns the record of a partition that did not exist before: all its replicas that are up and stay are in sync.

    INVALID_REPLICA_ASSIGNMENT when there is none: it could never have a leader.
    """
    in_sync = [node for node in nodes if is_serving(image, node)]
    if not in_sync:
        text = f"all brokers that partition {index} is assigned to, {nodes[:20]}, are fenced or stopping"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return PartitionRecord(
        partition_id=index, topic_id=topic_id, replicas=nodes, isr=in_sync, leader=in_sync[0], leader_epoch=0, partition_epoch=0
    )
