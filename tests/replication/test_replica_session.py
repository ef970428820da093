"""What a follower asks of a leader, and what it believes that the leader remembers (KIP-227)."""

from __future__ import annotations

from ottla.messages.fetch import FetchRequest
from ottla.replication.replica_session import EPOCH_MAX, Asked, PartitionKey, ReplicaSession

TOPIC = bytes(range(16))
FIRST, SECOND, THIRD = ((TOPIC, index) for index in range(3))


def at(offset: int) -> Asked:
    return Asked(offset, leader_epoch=1, last_epoch=0, start_offset=0)


def request(session: ReplicaSession) -> FetchRequest:
    return session.request(broker_epoch=7, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, partition_max_bytes=1 << 20)


def asked(made: FetchRequest) -> dict[PartitionKey, int]:
    return {(topic.topic_id, found.partition): found.fetch_offset for topic in made.topics for found in topic.partitions}


def forgotten(made: FetchRequest) -> list[PartitionKey]:
    return [(topic.topic_id, index) for topic in made.forgotten_topics_data for index in topic.partitions]


def begun() -> ReplicaSession:
    """The leader remembers two partitions, both at 10."""
    session = ReplicaSession(2)
    session.want(FIRST, at(10))
    session.want(SECOND, at(10))
    assert asked(request(session)) == {FIRST: 10, SECOND: 10}
    session.on_answer(5)
    return session


def test_only_what_the_leader_does_not_remember_is_asked_for() -> None:
    session = begun()
    session.want(FIRST, at(10))
    session.want(SECOND, at(11))
    made = request(session)
    assert (made.session_id, made.session_epoch, asked(made)) == (5, 1, {SECOND: 11})
    session.on_answer(5)
    made = request(session)
    assert (made.session_epoch, asked(made), session.has_partitions) == (2, {}, True)


def test_a_partition_wanted_again_at_its_former_offset_is_not_due() -> None:
    session = begun()
    session.want(FIRST, at(11))
    session.want(FIRST, at(10))
    assert asked(request(session)) == {}


def test_a_new_session_knows_nothing_of_what_the_last_one_did() -> None:
    session = begun()
    session.reset()
    assert session.said == {}
    session.want(SECOND, at(10))  # as the leader that has no session any more was asked
    made = request(session)
    assert (made.session_id, made.session_epoch, asked(made)) == (0, 0, {FIRST: 10, SECOND: 10})
    session.on_answer(6)
    assert asked(request(session)) == {}


def test_an_answer_without_a_session_asks_for_all_again_and_keeps_what_has_moved_on() -> None:
    session = begun()
    session.want(FIRST, at(12))
    request(session)
    session.want(SECOND, at(20))
    session.on_answer(0)
    assert asked(request(session)) == {FIRST: 12, SECOND: 20}


def test_a_partition_that_is_given_up_leaves_the_session_and_is_not_in_the_next_one() -> None:
    session = begun()
    session.forget(FIRST)
    session.forget(THIRD)
    made = request(session)
    assert (forgotten(made), asked(made)) == ([FIRST], {})
    session.on_answer(5)
    session.forget(SECOND)
    assert not session.has_partitions
    session.reset()
    assert (asked(request(session)), session.has_partitions) == ({}, False)


def test_a_partition_that_is_given_up_and_wanted_again_stays_in_the_session() -> None:
    session = begun()
    session.forget(FIRST)
    session.want(FIRST, at(10))
    made = request(session)
    assert (forgotten(made), asked(made)) == ([], {})
    session.forget(FIRST)
    request(session)
    session.want(FIRST, at(10))
    assert asked(request(session)) == {FIRST: 10}


def test_the_epoch_after_the_largest_is_one() -> None:
    session = begun()
    session._epoch = EPOCH_MAX
    session.on_answer(5)
    assert request(session).session_epoch == 1
