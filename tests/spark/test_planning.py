from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.offsets import Offsets
from ottla.spark.planning import ROWS_PER_TASK_MIN, TASKS_VARIABLE, OffsetRange, Weights, packed, planned, ranges_between
from ottla.types import TopicPartition

sizes = st.lists(st.integers(1, 100_000), min_size=1, max_size=20)


def ranges(sizes):
    return [OffsetRange(TopicPartition("t", index), 10, 10 + size) for index, size in enumerate(sizes)]


def covered(tasks):
    """(partition, offset range) of everything, joined where pieces touch."""
    pieces = sorted((piece.partition, piece.start, piece.end) for task in tasks for piece in task)
    joined: list = []
    for partition, start, end in pieces:
        if joined and joined[-1][0] == partition and joined[-1][2] == start:
            joined[-1] = (partition, joined[-1][1], end)
        else:
            joined.append((partition, start, end))
    return joined


@given(sizes, st.integers(1, 8))
def test_packing_keeps_each_range_whole_and_the_tasks_nearly_equal(sizes, task_count):
    groups = packed(ranges(sizes), task_count)
    assert covered(groups) == covered([ranges(sizes)])
    assert len(groups) == min(task_count, len(sizes))
    loads = [sum(piece.size for piece in group) for group in groups]
    assert max(loads) - min(loads) <= max(sizes)


@given(sizes, st.integers(1, 30), st.integers(100, 50_000))
def test_every_offset_is_planned_once_whatever_the_options(sizes, wanted, rows_max):
    for options in ({}, {"minPartitions": str(wanted)}, {"maxRecordsPerPartition": str(rows_max)}):
        tasks = [task.ranges for task in planned(ranges(sizes), options)]
        assert covered(tasks) == covered([ranges(sizes)])
        if "maxRecordsPerPartition" in options:
            assert max(sum(piece.size for piece in task) for task in tasks) <= rows_max


def test_many_partitions_are_packed_into_one_task_per_core(monkeypatch):
    monkeypatch.setenv(TASKS_VARIABLE, "2")
    assert len(planned(ranges([ROWS_PER_TASK_MIN] * 48), {})) == 2


def test_few_rows_are_one_task(monkeypatch):
    monkeypatch.setenv(TASKS_VARIABLE, "8")
    assert len(planned(ranges([10] * 48), {})) == 1
    assert len(planned(ranges([ROWS_PER_TASK_MIN * 3]), {})) == 1


def test_few_rows_of_many_bytes_have_a_task_for_each_core(monkeypatch):
    monkeypatch.setenv(TASKS_VARIABLE, "4")
    few = ranges([20] * 8)
    heavy = {piece.partition: 900_000 for piece in few}
    assert len(planned(few, {}, lambda starts: heavy)) == 4
    assert len(planned(few, {}, lambda starts: dict.fromkeys(heavy, 100))) == 1
    assert len(planned(few, {}, lambda starts: {})) == 1
    assert len(planned(few, {"defaultTasks": "6"}, lambda starts: heavy)) == 6


def test_tasks_are_nearly_equal_in_bytes(monkeypatch):
    monkeypatch.setenv(TASKS_VARIABLE, "2")
    few = ranges([100, 100, 100, 1])
    tasks = planned(few, {}, lambda starts: {few[3].partition: 30_000_000})
    assert sorted(len(task.ranges) for task in tasks) == [1, 3]


def test_bytes_are_asked_for_only_where_rows_leave_a_core_without_a_task(monkeypatch):
    monkeypatch.setenv(TASKS_VARIABLE, "2")
    asked: list[Offsets] = []

    def weigh(starts: Offsets) -> Weights:
        asked.append(starts)
        return {}

    planned(ranges([ROWS_PER_TASK_MIN * 2] * 2), {}, weigh)
    planned(ranges([10]), {}, weigh)
    assert asked == []
    planned(ranges([10, 20]), {}, weigh)
    assert asked == [{TopicPartition("t", 0): 10, TopicPartition("t", 1): 10}]


def test_a_cluster_s_cores_are_the_default_and_min_partitions_takes_precedence(monkeypatch):
    monkeypatch.setenv(TASKS_VARIABLE, "2")
    many = ranges([ROWS_PER_TASK_MIN] * 48)
    assert len(planned(many, {"defaultTasks": "16"})) == 16
    assert len(planned(many, {"defaultTasks": "16", "minPartitions": "20"})) == 20


def test_min_partitions_cuts_the_larger_ranges(monkeypatch):
    monkeypatch.setenv(TASKS_VARIABLE, "1")
    tasks = planned(ranges([900, 100]), {"minPartitions": "10"})
    assert len(tasks) == 10
    assert max(sum(piece.size for piece in task.ranges) for task in tasks) == 100


def test_partitions_without_news_are_left_out():
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert ranges_between({a: 3, b: 5}, {a: 3, b: 9}) == [OffsetRange(b, 5, 9)]
