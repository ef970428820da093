import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import KafkaError
from ottla.spark.checkpoint import topics_of
from ottla.spark.fair_limit import FairLimit
from ottla.spark.offsets import (
    EARLIEST,
    LATEST,
    as_json,
    batch_start,
    ending_bound,
    first_end_as_json,
    from_json,
    ids_of,
    made_again,
    parse,
    parse_partitions,
    starting_bound,
    with_ids,
)
from ottla.types import TopicPartition

partitions = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 5))
offsets = st.dictionaries(partitions, st.integers(0, 2**40), max_size=8)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@given(offsets)
def test_offsets_come_back_from_their_json(value):
    assert from_json(as_json(value)) == value


@given(offsets, st.dictionaries(st.sampled_from("abc"), st.sampled_from(["one", "other"])), offsets)
def test_ends_have_the_ids_of_their_topics_beside_their_offsets_and_their_start(value, ids, start):
    there = {topic: known for topic, known in ids.items() if any(partition.topic == topic for partition in value)}
    for plain in (as_json(value), first_end_as_json(value, start)):
        found = json.loads(json.dumps(with_ids(plain, ids)))
        assert (from_json(found), ids_of(found)) == (value, there)
        assert topics_of(json.dumps(found)) == (found or None), "a source's offset, for what reads checkpoints"
        assert batch_start({}, found) == batch_start({}, plain)


def test_topics_with_another_id_are_not_those_of_before():
    assert made_again({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "9"}) == {"b"}, "one whose id is not known may be the same"
    start, end = {"a": {"0": 5}, "b": {"0": 7}}, {"a": {"0": 6}, "b": {"0": 8}}
    before, after = with_ids(start, {"a": "1", "b": "2"}), with_ids(end, {"a": "1", "b": "9"})
    assert batch_start(before, after) == {A0: 5}


@given(st.dictionaries(partitions, st.tuples(st.integers(0, 1000), st.integers(0, 10**6)), max_size=8), st.integers(1, 10**6))
def test_a_limited_end_takes_as_much_as_it_may_and_leaves_nothing_after_its_start(waiting, rows_max):
    start = {partition: begin for partition, (begin, _) in waiting.items()}
    end = {partition: begin + count for partition, (begin, count) in waiting.items()}
    total = sum(count for _, count in waiting.values())
    result = FairLimit().end(start, end, rows_max)
    assert result.keys() == end.keys()
    assert all(start[partition] <= result[partition] <= end[partition] for partition in end)
    assert sum(result[partition] - start[partition] for partition in end) == min(total, rows_max)


def test_a_limit_is_divided_in_proportion():
    assert FairLimit().end({A0: 0, A1: 100, B0: 5}, {A0: 300, A1: 200, B0: 5}, 40) == {A0: 30, A1: 110, B0: 5}


@given(st.lists(st.integers(1, 10), min_size=2, max_size=8), st.integers(1, 20))
def test_every_partition_has_its_turn_however_much_another_has_waiting(counts, rows_max):
    small = {TopicPartition("t", index + 1): count for index, count in enumerate(counts)}
    position = dict.fromkeys([A0, *small], 0)
    limit = FairLimit()
    for batch in range(1 + len(small) * sum(small.values())):
        if all(position[partition] == count for partition, count in small.items()):
            return
        position = limit.end(position, {A0: (batch + 2) * 10**9} | small, rows_max)
    raise AssertionError(f"still waiting: {position} of {small}")


def test_records_left_over_by_a_fair_limit_go_to_each_partition_in_turn():
    limit = FairLimit()
    position = {A0: 0, A1: 0, B0: 0}
    given_to = []
    for _ in range(6):
        moved = limit.end(position, dict.fromkeys(position, 10**6), 1)
        given_to += [partition for partition in moved if moved[partition] > position[partition]]
        position = moved
    assert given_to == [A0, A1, B0] * 2


def test_the_default_bounds_are_latest_for_a_stream_and_everything_for_a_batch():
    assert starting_bound({}, is_stream=True).everywhere == LATEST
    assert starting_bound({}, is_stream=False).everywhere == EARLIEST
    assert ending_bound({}).everywhere == LATEST


def test_times_go_before_offsets_and_one_time_before_many():
    options = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a": {"0": 5}}'}
    assert starting_bound(options, is_stream=True).times_ms == {A0: 5}
    assert starting_bound(options | {"startingTimestamp": "7"}, is_stream=True).time_ms == 7


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("2026-01-01", 1_767_225_600_000),
        ("2026-01-01T00:00:00.5Z", 1_767_225_600_500),
        (" 2026-01-01 01:00:00+01:00", 1_767_225_600_000),
        ("1767225600000", 1_767_225_600_000),
        ("2026", 2026),  # milliseconds, as in Spark's connector
    ],
)
def test_a_time_is_milliseconds_or_an_iso_time(text: str, time_ms: int):
    assert starting_bound({"startingTimestamp": text}, is_stream=True).time_ms == time_ms
    assert ending_bound({"endingTimestamp": text}).time_ms == time_ms


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "1960-01-01", "0001-01-01", "1.5", ""])
def test_a_time_that_is_neither_is_refused(text: str):
    said = f"startingTimestamp={text} is not a time in milliseconds since 1970, nor an ISO time such as 2026-01-31"
    with pytest.raises(KafkaError, match=said):
        starting_bound({"startingTimestamp": text}, is_stream=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "earlyest"}, "startingOffsets=earlyest is not earliest, latest or JSON .*; did you mean earliest\\?$"),
        ({"startingOffsets": "5"}, 'startingOffsets=5 is not earliest, latest or JSON of the form {"topic": {"0": 23}}$'),
        ({"endingOffsets": "folow"}, "endingOffsets=folow is not latest, follow or JSON .*; did you mean follow\\?$"),
    ],
)
def test_a_misspelt_bound_is_refused_with_the_nearest_word(options: dict[str, str], said: str):
    with pytest.raises(KafkaError, match=said):
        ending_bound(options), starting_bound(options, is_stream=True)


@pytest.mark.parametrize("text", ["latest", '{"a": {"0": -1}}'])
def test_a_batch_cannot_start_at_the_end(text):
    with pytest.raises(KafkaError, match="startingOffsets"):
        starting_bound({"startingOffsets": text}, is_stream=False)


@pytest.mark.parametrize("text", ["earliest", '{"a": {"0": -2}}'])
def test_a_batch_cannot_end_at_its_start(text):
    with pytest.raises(KafkaError, match="endingOffsets"):
        ending_bound({"endingOffsets": text})


def test_a_bound_that_leaves_out_a_partition_is_refused_by_name():
    bound = starting_bound({"startingOffsets": '{"a": {"0": 3}}'}, is_stream=True)
    assert bound.of(A0) == 3
    with pytest.raises(KafkaError, match="a-1"):
        bound.of(A1)


@pytest.mark.parametrize("option", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_a_bound_for_a_partition_that_is_not_read_is_refused_by_name(option: str):
    bound = starting_bound({option: '{"a": {"0": 3, "1": 3}, "b": {"0": 3}}'}, is_stream=True)
    bound.check_read([A0, A1])  # another source reads b
    with pytest.raises(KafkaError, match=f"{option} names a-1, which does not exist or is not read: it must name a-0$"):
        bound.check_read([A0, B0])
    starting_bound({}, is_stream=True).check_read([A0])


@pytest.mark.parametrize("text", ["everything", "[1]", '{"a": 1}', '{"a": {"x": 1}}', '{"a": {"-1": 1}}'])
def test_offsets_that_cannot_be_read_are_refused(text):
    with pytest.raises(KafkaError, match="startingOffsets"):
        starting_bound({"startingOffsets": text}, is_stream=True)


@pytest.mark.parametrize("number", ["-3", "-9", "null", "9223372036854775808", "1.0", "true", '"5"'])
def test_a_number_that_is_no_offset_is_refused_with_its_partition(number):
    with pytest.raises(KafkaError, match=f"startingOffsets: {number} of a-1 is not an offset; -2 is the earliest one, -1 the latest"):
        starting_bound({"startingOffsets": f'{{"a": {{"0": -2, "1": {number}}}}}'}, is_stream=True)
    with pytest.raises(KafkaError, match=f"endingOffsets: {number} of a-1 is not an offset"):
        ending_bound({"endingOffsets": f'{{"a": {{"0": -1, "1": {number}}}}}'})


@pytest.mark.parametrize("number", ["-1", "-2", "1.5"])
def test_a_number_that_is_no_time_is_refused_with_its_partition(number):
    with pytest.raises(KafkaError, match=f"startingOffsetsByTimestamp: {number} of a-0 is not a time in milliseconds since 1970"):
        starting_bound({"startingOffsetsByTimestamp": f'{{"a": {{"0": {number}}}}}'}, is_stream=True)
    with pytest.raises(KafkaError, match=f"startingTimestamp={number} is not a time"):
        starting_bound({"startingTimestamp": number}, is_stream=True)


def test_assigned_partitions_are_sorted_and_each_there_once():
    assert parse_partitions('{"b": [0], "a": [1, 0, 1]}') == [A0, A1, B0]
    with pytest.raises(KafkaError, match="assign"):
        parse_partitions('{"a": 0}')
    with pytest.raises(KafkaError, match="assign"):
        parse_partitions('{"a": [-1]}')
    assert parse("x", "{}") == {}
