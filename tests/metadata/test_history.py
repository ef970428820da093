"""What is committed, and what a leader has decided beyond it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.messages.metadata_records import RemoveTopicRecord, TopicRecord
from ottla.metadata.delta import ImageDelta
from ottla.metadata.history import ImageHistory
from ottla.metadata.image import EMPTY_IMAGE
from ottla.metadata.replay import replay


def topic(number: int) -> TopicRecord:
    return TopicRecord(f"topic-{number}", number.to_bytes(16, "big"))


def test_nobody_sees_what_is_not_committed() -> None:
    history = ImageHistory(EMPTY_IMAGE)
    history.append([topic(1)], end_offset=1, epoch=4)
    history.seal()
    history.append([topic(2), topic(3)], end_offset=3, epoch=4)
    history.seal()
    history.append([topic(4)], end_offset=4, epoch=4)
    assert history.commit(0) is EMPTY_IMAGE
    assert set(history.commit(2).topics) == {"topic-1"}, "half a group is nothing"
    assert set(history.commit(3).topics) == {"topic-1", "topic-2", "topic-3"}
    assert (history.committed.end_offset, history.committed.epoch) == (3, 4)
    assert set(history.commit(4).topics) == {"topic-1", "topic-2", "topic-3"}, "what is not sealed may still change"
    assert "topic-4" in history.draft.topics


def test_a_leader_that_resigns_forgets_what_was_not_committed() -> None:
    history = ImageHistory(EMPTY_IMAGE)
    history.append([topic(1)], end_offset=1, epoch=1)
    history.commit(history.seal().end_offset)
    history.append([topic(2)], end_offset=2, epoch=1)
    history.seal()
    history.append([topic(3)], end_offset=3, epoch=1)
    history.drop_uncommitted()
    assert set(history.draft.topics) == set(history.committed.topics) == {"topic-1"}
    assert history.draft.end_offset == 1
    history.append([topic(3)], end_offset=2, epoch=2)
    assert set(history.commit(history.seal().end_offset).topics) == {"topic-1", "topic-3"}


def test_a_group_with_our_mistake_leaves_the_draft_as_it_was() -> None:
    history = ImageHistory(EMPTY_IMAGE)
    history.append([topic(1)], end_offset=1, epoch=1)
    with pytest.raises(AssertionError, match="created once"):
        history.append([topic(2), topic(1)], end_offset=3, epoch=1)
    assert set(history.draft.topics) == {"topic-1"}
    assert history.draft.end_offset == 1
    history.append([topic(2)], end_offset=2, epoch=1)
    assert set(history.seal().topics) == {"topic-1", "topic-2"}


@given(st.lists(st.sampled_from(["append", "seal", "commit", "drop"]), max_size=30))
def test_each_image_is_what_its_records_make(steps: list[str]) -> None:
    history, records, sealed, committed = ImageHistory(EMPTY_IMAGE), list[TopicRecord](), 0, 0
    for step in steps:
        if step == "append":
            records.append(topic(len(records) + 1))
            history.append(records[-1:], end_offset=len(records), epoch=1)
        elif step == "seal":
            sealed = len(records)
            assert history.seal().end_offset == sealed
        elif step == "commit":
            committed = sealed
            history.commit(sealed)
        else:
            del records[committed:]
            sealed = committed
            history.drop_uncommitted()
        assert history.committed == replay(EMPTY_IMAGE, records[:committed])
        assert history.draft == replay(EMPTY_IMAGE, records)


def test_a_delta_has_what_changed_and_nothing_else() -> None:
    old = replay(EMPTY_IMAGE, [topic(1), topic(2), topic(3)])
    again = TopicRecord("topic-2", b"2" * 16)
    new = replay(old, [RemoveTopicRecord(topic(1).topic_id), RemoveTopicRecord(topic(2).topic_id), again, topic(4)])
    delta = ImageDelta(old, new)
    assert [found.name for found in delta.changed_topics] == ["topic-2", "topic-4"]
    assert [found.topic_id for found in delta.deleted_topics] == [topic(1).topic_id, topic(2).topic_id]
    assert ImageDelta(new, new).changed_topics == ()
