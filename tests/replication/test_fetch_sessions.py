"""Fetch sessions (KIP-227)."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from ottla.replication.fetch_sessions import (
    EVICTION_MS,
    PARTITIONS_MAX,
    SORTED_SHARE,
    FetchPlan,
    FetchSession,
    FetchSessions,
    PartitionKey,
    TopicKey,
)


def request(session_id: int, epoch: int, *partitions: int, forgotten: tuple[int, ...] = (), offset: int = 0) -> FetchRequest:
    topics = [FetchTopic("t", partitions=[FetchPartition(index, fetch_offset=offset) for index in partitions])] if partitions else []
    gone = [ForgottenTopic("t", partitions=list(forgotten))] if forgotten else []
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=gone)


def sessions(slots: int = 10) -> FetchSessions:
    return FetchSessions(random.Random(1), slot_count=slots)


def answer(plan: FetchPlan, *partitions: PartitionData) -> list[FetchableTopicResponse]:
    topics: dict[TopicKey, FetchableTopicResponse] = {}
    for data in partitions:
        plan.answer_partition("t", data, topics)
    return list(topics.values())


def answered(plan: FetchPlan, **high_watermarks: int) -> list[int]:
    """The partitions that the answer carries, when each has this high watermark and no records."""
    results = [PartitionData(int(index[1:]), high_watermark=mark, records=b"") for index, mark in high_watermarks.items()]
    return [data.partition_index for topic in answer(plan, *results) for data in topic.partitions]


def test_without_a_session_everything_is_answered() -> None:
    plan = sessions().plan(request(0, -1, 0, 1), uses_topic_ids=False, now_ms=0)
    assert plan.session_id == 0
    assert answered(plan, p0=0, p1=0) == [0, 1]


def test_a_session_answers_in_full_first_and_then_only_what_is_news() -> None:
    cache = sessions()
    first = cache.plan(request(0, 0, 0, 1), uses_topic_ids=False, now_ms=0)
    assert first.session_id > 0
    assert answered(first, p0=5, p1=5) == [0, 1]
    second = cache.plan(request(first.session_id, 1), uses_topic_ids=False, now_ms=0)
    assert [wanted.partition for _, wanted in second.partitions()] == [0, 1]
    assert answered(second, p0=5, p1=6) == [1]
    third = cache.plan(request(first.session_id, 2), uses_topic_ids=False, now_ms=0)
    assert answered(third, p0=5, p1=6) == []


def test_an_error_is_returned_and_so_is_its_end() -> None:
    cache = sessions()
    first = cache.plan(request(0, 0, 0), uses_topic_ids=False, now_ms=0)
    answer(first, PartitionData(0, high_watermark=5, records=b""))
    second = cache.plan(request(first.session_id, 1), uses_topic_ids=False, now_ms=0)
    assert answer(second, PartitionData(0, error_code=3, high_watermark=5, records=b""))
    third = cache.plan(request(first.session_id, 2), uses_topic_ids=False, now_ms=0)
    assert answer(third, PartitionData(0, high_watermark=5, records=b""))


def test_partitions_are_added_changed_and_forgotten() -> None:
    cache = sessions()
    first = cache.plan(request(0, 0, 0, 1), uses_topic_ids=False, now_ms=0)
    plan = cache.plan(request(first.session_id, 1, 1, 2, forgotten=(0,), offset=7), uses_topic_ids=False, now_ms=0)
    assert [(wanted.partition, wanted.fetch_offset) for _, wanted in plan.partitions()] == [(1, 7), (2, 7)]


def test_a_session_begins_with_what_its_first_request_also_forgets() -> None:
    plan = sessions().plan(request(0, 0, 0, 1, forgotten=(1,)), uses_topic_ids=False, now_ms=0)
    assert answered(plan, p0=0, p1=0) == [0, 1]
    assert [wanted.partition for _, wanted in plan.partitions()] == [0, 1]


def test_a_session_ends_with_its_last_partition() -> None:
    cache = sessions()
    first = cache.plan(request(0, 0, 0), uses_topic_ids=False, now_ms=0)
    last = cache.plan(request(first.session_id, 1, forgotten=(0,)), uses_topic_ids=False, now_ms=0)
    assert (last.session_id, list(last.partitions()), len(cache)) == (0, [], 0)


def test_a_partition_that_gave_data_moves_to_the_end_of_the_queue() -> None:
    cache = sessions()
    first = cache.plan(request(0, 0, 0, 1), uses_topic_ids=False, now_ms=0)
    answer(first, PartitionData(0, high_watermark=5, records=b"data"), PartitionData(1, high_watermark=5, records=b""))
    plan = cache.plan(request(first.session_id, 1), uses_topic_ids=False, now_ms=0)
    assert [wanted.partition for _, wanted in plan.partitions()] == [1, 0]


@pytest.mark.parametrize(
    ("session_id", "epoch", "by_id", "code"),
    [
        (12345, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_session_that_is_not_what_the_client_thinks(session_id: int | None, epoch: int, by_id: bool, code: ErrorCode) -> None:
    cache = sessions()
    first = cache.plan(request(0, 0, 0), uses_topic_ids=False, now_ms=0)
    with pytest.raises(KafkaError) as caught:
        cache.plan(request(first.session_id if session_id is None else session_id, epoch), uses_topic_ids=by_id, now_ms=0)
    assert caught.value.code == code


def test_ending_a_session_frees_its_slot() -> None:
    cache = sessions(1)
    first = cache.plan(request(0, 0, 0), uses_topic_ids=False, now_ms=0)
    assert cache.plan(request(0, 0, 0), uses_topic_ids=False, now_ms=1).session_id == 0
    ended = cache.plan(request(first.session_id, -1, 0), uses_topic_ids=False, now_ms=1)
    assert (ended.session_id, len(cache)) == (0, 0)


def test_a_full_cache_gives_way_only_to_those_after_long_silence() -> None:
    cache = sessions(1)
    cache.plan(request(0, 0, 0), uses_topic_ids=False, now_ms=0)
    assert cache.plan(request(0, 0, 0), uses_topic_ids=False, now_ms=EVICTION_MS - 1).session_id == 0
    assert cache.plan(request(0, 0, 0), uses_topic_ids=False, now_ms=EVICTION_MS).session_id > 0
    assert len(cache) == 1


def test_epochs_wrap_to_one() -> None:
    cache = sessions()
    first = cache.plan(request(0, 0, 0), uses_topic_ids=False, now_ms=0)
    assert first.session is not None
    first.session.epoch = 2**31 - 1
    cache.plan(request(first.session_id, 2**31 - 1), uses_topic_ids=False, now_ms=0)
    assert first.session.epoch == 1


def test_a_session_may_change_while_an_earlier_answer_is_still_read() -> None:
    """A client that pipelines one session changes it while a read of the request before waits for the disk."""
    cache = sessions()
    plan = cache.plan(request(0, 0, 0, 1, 2), uses_topic_ids=False, now_ms=0)
    reading = plan.partitions()
    seen = [next(reading)[1].partition]
    cache.plan(request(plan.session_id, 1, 7, forgotten=(1,)), uses_topic_ids=False, now_ms=1)
    seen += [partition.partition for _, partition in reading]
    assert seen == [0, 1, 2]


def test_a_fetch_of_more_partitions_than_a_session_holds_has_no_session() -> None:
    cache = sessions()
    assert cache.plan(request(0, 0, *range(PARTITIONS_MAX + 1)), uses_topic_ids=False, now_ms=0).session_id == 0
    plan = cache.plan(request(0, 0, *range(PARTITIONS_MAX)), uses_topic_ids=False, now_ms=0)
    assert plan.session_id > 0
    changed = cache.plan(request(plan.session_id, 1, *range(PARTITIONS_MAX), offset=5), uses_topic_ids=False, now_ms=0)
    assert sum(1 for _ in changed.partitions()) == PARTITIONS_MAX, "all of them may change"
    cache.plan(request(plan.session_id, 2, PARTITIONS_MAX), uses_topic_ids=False, now_ms=0)
    with pytest.raises(KafkaError) as caught:
        cache.plan(request(plan.session_id, 3), uses_topic_ids=False, now_ms=0)
    assert caught.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


class Watch:
    """Who notes what a session says, and looks once at what is due."""

    def __init__(self, session: FetchSession | None = None) -> None:
        self.session = session
        self.gone: list[int] = []
        self.has_ended = False

    def begin_pass(self) -> Iterable[PartitionKey]:
        return () if self.session is None else self.session.take_due()

    def forgotten(self, key: PartitionKey) -> None:
        self.gone.append(key[1])

    def ended(self) -> None:
        self.has_ended = True


def looked_at(plan: FetchPlan) -> list[int]:
    return [wanted.partition for _, wanted in plan.partitions()]


def test_only_due_partitions_of_a_watched_session_are_looked_at() -> None:
    cache = sessions()
    first = cache.plan(request(0, 0, *range(5)), uses_topic_ids=False, now_ms=0)
    session = first.session
    assert session is not None
    watch = Watch(session)
    session.watched_by(watch)
    assert looked_at(first) == [0, 1, 2, 3, 4], "the first answer is complete"
    assert looked_at(cache.plan(request(first.session_id, 1), uses_topic_ids=False, now_ms=0)) == []
    session.due["t", 3] = None
    third = cache.plan(request(first.session_id, 2, 1, 7, forgotten=(2,)), uses_topic_ids=False, now_ms=0)
    assert looked_at(third) == [3, 1, 7], "what has changed, and what the request names"
    assert looked_at(third) == [], "once"
    assert watch.gone == [2]
    session.due["t", 2] = None
    assert looked_at(third) == [], "it is in the session no more"
    session.watched_by(None)
    assert looked_at(cache.plan(request(first.session_id, 3), uses_topic_ids=False, now_ms=0)) == [0, 1, 3, 4, 7]


def test_a_partition_that_becomes_due_during_a_look_is_due_in_the_next_one() -> None:
    cache = sessions()
    first = cache.plan(request(0, 0, 0, 1), uses_topic_ids=False, now_ms=0)
    assert first.session is not None
    first.session.watched_by(Watch(first.session))
    second = cache.plan(request(first.session_id, 1), uses_topic_ids=False, now_ms=0)
    looking = second.partitions()
    assert next(looking)[1].partition == 0
    first.session.due["t", 0] = None
    assert [wanted.partition for _, wanted in looking] == [1]
    assert looked_at(second) == [0]


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_watch_ends_with_its_session(epoch: int) -> None:
    cache, watch = sessions(), Watch()
    first = cache.plan(request(0, 0, 0), uses_topic_ids=False, now_ms=0)
    assert first.session is not None
    first.session.watched_by(watch)
    cache.plan(request(first.session_id, epoch, 0), uses_topic_ids=False, now_ms=0)
    assert watch.has_ended


def test_a_watch_ends_when_its_session_is_evicted() -> None:
    cache, watch = sessions(1), Watch()
    first = cache.plan(request(0, 0, 0), uses_topic_ids=False, now_ms=0)
    assert first.session is not None
    first.session.watched_by(watch)
    cache.plan(request(0, 0, 0), uses_topic_ids=False, now_ms=EVICTION_MS)
    assert watch.has_ended


@pytest.mark.parametrize("count", [2, SORTED_SHARE * 10])
def test_what_is_due_is_in_the_order_of_the_session(count: int) -> None:
    """Few among many are sorted, many are found by going through all: the order is the same."""
    session = FetchSession(1, uses_topic_ids=False, now_ms=0)
    session.add(request(1, 1, *range(count)))
    for index in (0, 1):
        session.move_to_end(("t", index))
    for index in (1, 0, count - 1):
        session.due["t", index] = None
    assert session.due_in_order() == [key for key in session.partitions if key in session.due]
    assert session.due_in_order()[-1] == ("t", 1)
