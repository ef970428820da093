"""The index of partitions by broker says what the partitions say, whatever records make and change them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.metadata.test_replay import histories

from ottla.messages.metadata_records import ClearElrRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from ottla.metadata.history import ImageHistory
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage, partitions_at
from ottla.metadata.partition_index import PartitionIndex, index_of
from ottla.metadata.replay import ImageBuilder, replay
from ottla.types import NO_LEADER
from ottla.wire.schema import Stored


def plain(index: PartitionIndex) -> Any:
    """To be compared."""
    hosted = {node: {name: sorted(numbers) for name, numbers in places.items()} for node, places in index.hosted.items() if places}
    found = [{name: sorted(numbers) for name, numbers in places.items() if numbers} for places in (index.leaderless, index.with_elr)]
    return hosted, dict(index.led), dict(index.in_sync), dict(index.eligible), dict(index.displaced), *found


def expected(image: ClusterImage) -> Any:
    """Looked for in every partition."""
    hosted: dict[int, dict[str, list[int]]] = {}
    led, in_sync, eligible, displaced = Counter[int](), Counter[int](), Counter[int](), Counter[int]()
    leaderless: dict[str, list[int]] = {}
    with_elr: dict[str, list[int]] = {}
    for name, topic in image.topics.items():
        for number, partition in sorted(topic.partitions.items()):
            for node in partition.replicas:
                hosted.setdefault(node, {}).setdefault(name, []).append(number)
            led[partition.leader] += 1
            in_sync.update(partition.isr)
            eligible.update(partition.elr)
            displaced.update(node for node in partition.replicas[:1] if node != partition.leader)
            if partition.leader == NO_LEADER:
                leaderless.setdefault(name, []).append(number)
            if partition.elr or partition.last_known_elr:
                with_elr.setdefault(name, []).append(number)
    return hosted, dict(led), dict(in_sync), dict(eligible), dict(displaced), leaderless, with_elr


@given(histories(), st.lists(st.integers(0, 60), max_size=4))
def test_the_sealed_index_equals_one_built_from_the_partitions(records: list[Stored], sealed_at: list[int]) -> None:
    builder = ImageBuilder(EMPTY_IMAGE)
    given_away: list[tuple[ClusterImage, Any]] = []
    for number, record in enumerate(records):
        builder.add(record)
        if number in sealed_at:
            image = builder.image()
            given_away.append((image, plain(image.index)))
    image = builder.image()
    assert plain(image.index) == expected(image) == plain(index_of(image.topics))
    for earlier, said in given_away:
        assert plain(earlier.index) == expected(earlier) == said, "an index never changes"


ID, OTHER_ID = b"t" * 16, b"o" * 16


def history() -> ImageHistory:
    records: list[Stored] = [TopicRecord("t", ID), TopicRecord("other", OTHER_ID)]
    for number in range(3):
        records.append(PartitionRecord(number, ID, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0))
    records.append(PartitionRecord(0, OTHER_ID, [2, 3], [2], leader=2, leader_epoch=0, partition_epoch=0, eligible_leader_replicas=[3]))
    made = ImageHistory(EMPTY_IMAGE)
    made.append(records, end_offset=len(records), epoch=1)
    return made


def append(made: ImageHistory, *records: Stored) -> None:
    made.append(records, end_offset=made.draft.end_offset + len(records), epoch=1)
    assert plain(made.draft.index) == expected(made.draft), "of the draft, too"


def test_replicas_leaders_and_those_that_are_eligible_come_and_go() -> None:
    made = history()
    append(made, PartitionChangeRecord(1, ID, isr=[], leader=NO_LEADER, eligible_leader_replicas=[2], last_known_elr=[1]))
    sealed = made.seal()
    append(made, PartitionChangeRecord(1, ID, replicas=[2, 4], isr=[2], leader=2, eligible_leader_replicas=[], last_known_elr=[]))
    append(made, ClearElrRecord("other"), RemoveTopicRecord(ID))
    assert plain(sealed.index) == expected(sealed)
    assert plain(made.seal().index) == ({2: {"other": [0]}, 3: {"other": [0]}}, {2: 1}, {2: 1}, {}, {}, {}, {})


def test_uncommitted_records_leave_no_trace_in_the_index_once_dropped() -> None:
    made = history()
    committed = made.commit(made.seal().end_offset)
    append(made, PartitionChangeRecord(0, ID, isr=[2], leader=2))
    made.drop_uncommitted()
    assert plain(made.draft.index) == plain(committed.index) == expected(committed)
    append(made, PartitionChangeRecord(2, ID, isr=[2], leader=2))


def test_the_partitions_of_a_broker_are_looked_up_and_no_others() -> None:
    image = replay(history().draft, [])
    assert [(name, number) for name, _, number, _ in partitions_at(image.topics, image.index.of_broker(3))] == [("other", 0)]
    assert list(partitions_at(image.topics, image.index.of_broker(9))) == []
