"""How much one operation may ask of the controller: more is refused entirely, and nothing of it is carried out.

A request is one operation, whatever it lists. Counted is what it asks for, before it is known what of that can be done: a topic, a
partition, a value of a configuration are a record each. Source: Kafka's controller, which refuses the same with the same code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage

RECORDS_MAX: Final = 10_000
PARTITIONS_MAX: Final = 10_000


class WantedTopic(Protocol):
    """A topic that CreateTopics or automatic creation asks for."""

    @property
    def partition_count(self) -> int: ...
    @property
    def assignments(self) -> Collection[object]: ...
    @property
    def configs(self) -> Collection[object]: ...


def too_many_records(count: int) -> KafkaError | None:
    """Returns POLICY_VIOLATION when one operation would write more records than it may."""
    if count <= RECORDS_MAX:
        return None
    text = f"the request would write {count} records of metadata; one request may write at most {RECORDS_MAX}, so split it"
    return KafkaError(ErrorCode.POLICY_VIOLATION, text)


def too_many_topics(topics: Sequence[WantedTopic], *, partitions_default: int) -> KafkaError | None:
    """Returns POLICY_VIOLATION when there are too many topics, partitions or configs in one creation."""
    if len(topics) > RECORDS_MAX:  # without a look at each
        return too_many_records(len(topics))
    partitions = others = 0
    for topic in topics:
        asked = partitions_default if topic.partition_count == -1 else max(0, topic.partition_count)
        partitions += len(topic.assignments) or asked
        others += 1 + len(topic.configs)
    return _too_many_partitions(partitions) or too_many_records(partitions + others)


def too_much_growth(image: ClusterImage, counts: Iterable[tuple[str, int]]) -> KafkaError | None:
    """Returns POLICY_VIOLATION when topics get too many partitions in one request; ``counts`` pairs each topic with its new count."""
    added = 0
    for name, count in counts:
        topic = image.topics.get(name)
        added += max(0, count - len(topic.partitions)) if topic is not None else 0
    return _too_many_partitions(added)


def _too_many_partitions(count: int) -> KafkaError | None:
    if count <= PARTITIONS_MAX:
        return None
    return KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
