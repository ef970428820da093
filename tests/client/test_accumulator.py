"""Batches of one partition on their way, as the sender moves them."""

from itertools import repeat

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.client.accumulator import RECORD_OVERHEAD_BYTES, PartitionQueue
from ottla.client.outgoing import Outgoing
from ottla.client.sent_record import SentRecord
from ottla.records.batch import HEADER_SIZE
from ottla.records.iteration import iterate_records
from ottla.sim.loop import run
from ottla.types import TopicPartition


def queue_of(*values: bytes) -> PartitionQueue:
    """One batch for each value."""

    async def fill() -> PartitionQueue:
        queue = PartitionQueue(TopicPartition("topic", 0))
        for value in values:
            record = Outgoing("topic", 0, None, value, (), 0, len(value))
            queue.add(record, SentRecord(), batch_bytes_max=1, now_ms=0, delivery_timeout_ms=1000)
        return queue

    return run(fill())


def test_a_batch_waits_while_earlier_ones_are_in_flight_over_a_connection_that_broke() -> None:
    queue = queue_of(b"a", b"b", b"c")
    old, new = object(), object()
    first = queue.take(old, producer_id=7)
    assert queue.may_go_over(old)
    assert not queue.may_go_over(new), "it would overtake the first one, which comes back and is sent again"

    queue.landed(first)
    queue.take_back(first)
    assert queue.may_go_over(new)
    assert queue.take(new, producer_id=7) is first


def test_batches_keep_their_numbers_when_they_go_out_again() -> None:
    queue = queue_of(b"a", b"b")
    first, second = queue.take("connection", producer_id=7), queue.take("connection", producer_id=7)
    for batch in (second, first):
        queue.landed(batch)
        queue.take_back(batch)
    assert list(queue.batches) == [first, second]
    assert [queue.take("another", producer_id=7).base_sequence for _ in range(2)] == [0, 1]


def test_batches_in_flight_after_a_refused_one_take_new_numbers_with_it() -> None:
    queue = queue_of(b"given up", b"refused", b"in flight", b"waiting")
    given_up, refused, flying = [queue.take("connection", producer_id=7) for _ in range(3)]
    queue.landed(given_up)
    queue.landed(refused)
    queue.take_back(refused)
    queue.renumber(7)
    queue.landed(flying)
    queue.take_back(flying)
    again = [queue.take("connection", producer_id=8) for _ in range(3)]
    assert again[:2] == [refused, flying]
    assert [(batch.numbered_for, batch.base_sequence) for batch in again] == [(8, 0), (8, 1), (8, 2)]


def test_a_second_batch_waits_until_the_broker_knows_its_producer() -> None:
    """A broker that does not know it takes a batch at any sequence, below version 12 of Produce: the second one before the first."""
    queue = queue_of(b"a", b"b", b"c")
    first = queue.take("connection", producer_id=7)
    assert not queue.may_follow(7)
    queue.landed(first)
    queue.acknowledged(first)
    queue.take("connection", producer_id=7)
    assert queue.may_follow(7)
    assert not queue.may_follow(8)


def test_no_batch_goes_out_that_would_make_the_broker_forget_the_oldest_in_flight() -> None:
    """One that failed is sent again when others were acknowledged behind it. If its answer is lost, it comes a third time."""
    queue = queue_of(*[b"%d" % number for number in range(8)])
    first, *others = [queue.take("connection", producer_id=7) for _ in range(4)]
    for batch in (first, *others):
        queue.landed(batch)
    for batch in others:
        queue.acknowledged(batch)
    queue.take_back(first)
    assert queue.is_known_again
    assert queue.take("connection", producer_id=7) is first
    assert queue.is_known_again
    fifth = queue.take("connection", producer_id=7)
    assert not queue.is_known_again, "a broker knows the last five"
    queue.landed(fifth)
    assert not queue.is_known_again
    queue.landed(first)
    assert queue.is_known_again


CONTENT = st.none() | st.binary(max_size=40)


@given(st.lists(st.tuples(CONTENT, CONTENT), min_size=1, max_size=60), st.integers(0, 200), st.integers(1, 60))
@example([(bytes(40), bytes(40))] * 30, 0, 30)
def test_rows_that_are_added_together_are_the_records_that_each_would_be(rows: list, room: int, at_once: int) -> None:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    longest = max(len(key or b"") for key in keys) + max(len(value or b"") for value in values)
    size_max = HEADER_SIZE + 2 * (RECORD_OVERHEAD_BYTES + longest) + room

    async def main() -> None:
        queue = PartitionQueue(TopicPartition("t", 0))
        future, start, told = SentRecord(), 0, []
        while start < len(rows):
            end = min(len(rows), start + at_once)
            batch, size, reached = queue.extend(
                keys, values, repeat(future), start=start, end=end, size_bytes_max=longest, timestamp_ms=7, batch_bytes_max=size_max,
                now_ms=0, delivery_timeout_ms=1_000,
            )  # fmt: skip
            assert start < reached <= end
            assert size > 0
            told += [] if batch is None else [batch]
            start = reached
        assert set(told) == set(queue.batches), "the sender knows of each"
        assert [batch.is_closed for batch in queue.batches][:-1] == [True] * (len(queue.batches) - 1)
        assert all(batch.builder.size_bytes <= size_max for batch in queue.batches)
        assert [batch.count for batch in queue.batches] == [len(batch.timestamps) for batch in queue.batches]
        found = [record for batch in queue.batches for record in iterate_records(batch.builder.build())]
        assert [(record.key, record.value, record.timestamp_ms) for record in found] == [(key, value, 7) for key, value in rows]

    run(main())
