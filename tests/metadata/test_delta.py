"""What a broker has to look at of a newer image: the partitions of its own that are not as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.metadata.test_replay import histories

from ottla.messages.metadata_records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage
from ottla.metadata.replay import replay
from ottla.wire.schema import Stored

FIRST, LATER = bytes([1]) * 16, bytes([2]) * 16


def made(topic_id: bytes, hosts: list[list[int]]) -> list[Stored]:
    partitions = (PartitionRecord(number, topic_id, replicas, replicas, leader=replicas[0]) for number, replicas in enumerate(hosts))
    return [TopicRecord("t", topic_id), *partitions]


def changes(old: ClusterImage, new: ClusterImage, broker_id: int) -> list[tuple[str, list[int]]]:
    return [(topic.name, numbers) for topic, numbers in ImageDelta(old, new).changes_at(broker_id)]


def test_only_what_has_changed_of_a_broker_is_looked_at() -> None:
    old = replay(EMPTY_IMAGE, made(FIRST, [[1, 2], [2, 1], [2, 3], [2, 1]]))
    assert changes(EMPTY_IMAGE, old, 1) == [("t", [0, 1, 3])]
    new = replay(old, [PartitionChangeRecord(number, FIRST, leader=2, isr=[2]) for number in (1, 2)])
    assert changes(old, new, 1) == [("t", [1])]
    assert changes(old, new, 3) == [("t", [2])]
    assert changes(old, new, 4) == [], "a controller without replicas looks at none"


def test_what_has_moved_away_is_looked_at() -> None:
    old = replay(EMPTY_IMAGE, made(FIRST, [[1, 2], [2, 1]]))
    new = replay(old, [PartitionChangeRecord(0, FIRST, replicas=[2], isr=[2], leader=2)])
    assert changes(old, new, 1) == [("t", [0])]


def test_all_of_a_topic_that_was_made_anew_is_looked_at() -> None:
    old = replay(EMPTY_IMAGE, made(FIRST, [[1, 2], [1, 2]]))
    new = replay(old, [RemoveTopicRecord(FIRST), *made(LATER, [[1, 2]])])
    assert changes(old, new, 1) == [("t", [0])]
    assert [topic.topic_id for topic in ImageDelta(old, new).deleted_topics] == [FIRST]


@given(histories(), st.integers(0, 60), st.integers(0, 4))
def test_the_delta_of_a_broker_equals_a_search_of_all_partitions(records: list[Stored], split: int, broker_id: int) -> None:
    old = replay(EMPTY_IMAGE, records[:split])
    new = replay(old, records[split:])
    expected = []
    for name, topic in sorted(new.topics.items()):
        was = old.topics.get(name)
        known = was.partitions if was is not None and was.topic_id == topic.topic_id else {}
        found = []
        for number, partition in sorted(topic.partitions.items()):
            before = known.get(number)
            if partition != before and broker_id in (*partition.replicas, *(before.replicas if before is not None else ())):
                found.append(number)
        if found:
            expected.append((name, found))
    assert changes(old, new, broker_id) == expected
