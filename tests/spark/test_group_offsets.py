"""How far a stream has come, as a group's offsets, and how old what is left is: against a broker, without Spark."""

import asyncio
import json
import re
import warnings
from typing import Any

import pytest
from tests.spark.conftest import Topics

from ottla.client.admin import Admin as LoopAdmin
from ottla.client.group_metadata import OffsetAndMetadata
from ottla.spark.backlog import backlog_of, oldest_ms
from ottla.spark.checkpoint import PlannedBatch
from ottla.spark.group_offsets import GroupOffsets, Note, note_of, noted_of
from ottla.spark.link import link_for
from ottla.spark.marker import Marker, marker_of
from ottla.spark.progress import Progress, duration, progress_line
from ottla.sync import Admin, Producer
from ottla.types import TopicPartition

ENOUGH_S = 60.0

TIME = re.compile(r',"time":\d+')


def planned(topic: str, *ends: int, query: str = "q") -> PlannedBatch:
    return PlannedBatch(query, [json.dumps({topic: {str(index): end for index, end in enumerate(ends)}})], has_state=False)


def settings(bootstrap: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap}


def committed(topics: Topics, group: str) -> dict[str, tuple[int, str]]:
    with Admin(topics.bootstrap) as admin:
        return {str(key): (place.offset, TIME.sub("", place.metadata)) for key, place in admin.committed_offsets(group).items()}


def test_the_end_of_a_batch_is_committed_to_the_group_and_names_its_query(topics: Topics):
    topic = topics.create(2)
    offsets = GroupOffsets(settings(topics.bootstrap), "noted")
    offsets.commit(planned(topic, 3, 4), 7, wait_s=ENOUGH_S)
    offsets.commit(planned(topic, 5, 4, 9), 8, wait_s=ENOUGH_S)  # a partition that the cluster does not have is one of another cluster
    text = Note("q", 8).text()
    assert committed(topics, "noted") == {f"{topic}-0": (5, text), f"{topic}-1": (4, text)}
    assert note_of(text) == Note("q", 8)
    assert marker_of(text) is None
    assert note_of(Marker("q", 8, "h", 8).text()) is None
    assert note_of("by hand") is None
    timed = note_of(Note("q", 8, 1_700).text()), marker_of(Marker("q", 8, "h", 8, 1_700).text())
    assert [found and found.time_ms for found in timed] == [1_700, 1_700]


def test_offsets_of_more_partitions_than_one_request_may_have_are_committed(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ottla.spark.marker.COMMIT_BYTES_MAX", 600)
    sizes: list[int] = []
    set_offsets = LoopAdmin.set_offsets

    async def noted(admin: LoopAdmin, group: str, offsets: Any, **more: Any) -> Any:
        sizes.append(len(offsets))
        return await set_offsets(admin, group, offsets, **more)

    monkeypatch.setattr(LoopAdmin, "set_offsets", noted)
    topic = topics.create(5)
    GroupOffsets(settings(topics.bootstrap), "many").commit(planned(topic, 1, 2, 3, 4, 5), 0, wait_s=ENOUGH_S)
    assert {place: end for place, (end, _) in committed(topics, "many").items()} == {f"{topic}-{index}": index + 1 for index in range(5)}
    assert sizes == [3, 2]


def test_a_newer_commit_replaces_the_waiting_ones(topics: Topics):
    topic = topics.create()
    offsets = GroupOffsets(settings(topics.bootstrap), "newest")
    for number in range(20):
        offsets.commit(planned(topic, number), number, wait_s=0)
    offsets.commit(planned(topic, 20), 20, wait_s=0)

    async def until_done() -> None:
        while offsets._is_committing:
            await asyncio.sleep(0.001)

    link_for(settings(topics.bootstrap)).start(until_done()).result(ENOUGH_S)
    assert committed(topics, "newest") == {f"{topic}-0": (20, Note("q", 20).text())}


def test_the_marker_of_a_query_that_is_exactly_once_stays(topics: Topics):
    topic = topics.create()
    text = Marker("q", 1, "h", 1).text()
    with Admin(topics.bootstrap) as admin:
        admin.set_offsets("exact", {TopicPartition(topic, 0): 1}, metadata=text)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        GroupOffsets(settings(topics.bootstrap), "exact").commit(planned(topic, 5), 0, wait_s=ENOUGH_S)
    assert "those of a query that is written exactly once" in str(told[0].message)
    assert committed(topics, "exact") == {f"{topic}-0": (1, text)}


def test_a_cluster_that_is_away_is_a_warning():
    offsets = GroupOffsets(settings("127.0.0.1:1"), "away")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        offsets.commit(planned("t", 1), 0, wait_s=ENOUGH_S)
    assert "the offsets of group 'away' were not committed" in str(told[0].message)
    offsets.commit(PlannedBatch("q", ["not a topic", None], has_state=False), 1)


def test_the_offsets_of_a_former_query_do_not_count():
    old, new = Note("old", 90), Note("new", 3)
    places = {TopicPartition("t", 0): OffsetAndMetadata(9, old.text()), TopicPartition("t", 1): OffsetAndMetadata(4, old.text())}
    assert noted_of(places) == (old, {TopicPartition("t", 0): 9, TopicPartition("t", 1): 4})
    assert noted_of({TopicPartition("t", 0): OffsetAndMetadata(4, new.text()), TopicPartition("u", 0): OffsetAndMetadata(1)}) == (
        new,
        {TopicPartition("t", 0): 4},
    )
    assert noted_of({}) is None


def test_the_age_of_a_backlog_is_that_of_its_oldest_record(topics: Topics):
    topic = topics.create(3)
    with Producer(topics.bootstrap, linger_ms=0) as producer:
        for partition, times in ((0, (1_000, 2_000)), (1, (500, 3_000))):
            for time_ms in times:
                producer.send(topic, b"v", partition=partition, timestamp_ms=time_ms).result()
        with producer_of_one_batch(topics) as batched:
            for time_ms in (100, 900, 700):
                batched.send(topic, b"v", partition=2, timestamp_ms=time_ms)
            batched.flush()
    link = link_for(settings(topics.bootstrap))

    def oldest(*positions: tuple[int, int]) -> Any:
        backlog = {TopicPartition(topic, index): (position, 1) for index, position in positions}
        return link.start(oldest_ms(link.cluster, backlog)).result(ENOUGH_S)

    assert oldest((0, 0), (1, 1)) == 1_000
    assert oldest((0, 1), (1, 0)) == 500
    assert oldest((2, 0)) == 100
    assert oldest((2, 1)) == 900  # within a batch: its last time, for the age is never made larger than it is
    assert oldest((0, 2)) is None
    assert oldest() is None
    progress = {"batchId": 3, "sources": [{"endOffset": {topic: {"0": 1, "1": 2}}, "latestOffset": {topic: {"0": 2, "1": 2, "2": 0}}}]}
    assert (
        Progress({"kafka.bootstrap.servers": topics.bootstrap}, now_ms=lambda: 9_500).line("q", progress)
        == "q  #3  in 0/s  batch 0 ms  lag 1 (7.5 s)"
    )


def producer_of_one_batch(topics: Topics) -> Producer:
    return Producer(topics.bootstrap, linger_ms=10_000, batch_size=1_000_000)


def test_a_line_of_progress_has_the_rate_the_lag_and_the_state():
    source = {"endOffset": '{"in": {"0": 5, "1": 7}}', "latestOffset": {"in": {"0": 9, "1": 7, "2": 3}}}
    progress = {
        "batchId": 7,
        "processedRowsPerSecond": 1234.5,
        "batchDuration": 212,
        "sources": [source, {"endOffset": "1", "latestOffset": None}],
        "stateOperators": [{"numRowsTotal": 50_000}, {"numRowsTotal": 3}],
    }
    assert backlog_of(progress) == {TopicPartition("in", 0): (5, 4), TopicPartition("in", 2): (0, 3)}
    assert progress_line("app-totals", progress) == "app-totals  #7  in 1,234/s  batch 212 ms  lag 7  state 50,003 rows"
    assert progress_line("app-totals", progress, 0.04).endswith("lag 7 (0.0 s)  state 50,003 rows")
    for speed, said in ((0.19, "in 0.2/s"), (9.96, "in 10.0/s"), (0, "in 0/s")):
        assert said in progress_line("app-totals", progress | {"processedRowsPerSecond": speed}), "two rows in ten seconds are not none"
    late = [{"numRowsTotal": 3, "numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 1_000}, {"numRowsDroppedByWatermark": None}]
    assert progress_line("app-totals", progress | {"stateOperators": late}).endswith("state 3 rows  late rows 1,002")
    counted = {"ottla.bad_rows.0": (2,), "ottla.bad_rows.1": (1,), "ottla.changes.0": (5,), "own": ("x",)}
    assert progress_line("app-totals", progress | {"observedMetrics": counted}).endswith("state 50,003 rows  bad rows 3")
    assert progress_line("app-totals", progress | {"observedMetrics": {"ottla.bad_rows.0": (0,)}}).endswith("state 50,003 rows")


@pytest.mark.parametrize("none", [None, "null"])
def test_a_batch_that_was_planned_before_a_restart_has_an_unknown_lag(none: str | None):
    known = {"endOffset": {"in": {"0": 5}}, "latestOffset": {"in": {"0": 9}}}
    progress = {"batchId": 4, "sources": [known, {"endOffset": {"more": {"0": 5}}, "latestOffset": none}]}
    assert backlog_of(progress) is None, "Spark says what is left of one topic, not of the other"
    assert Progress({"kafka.bootstrap.servers": "127.0.0.1:1"}).line("q", progress) == "q  #4  in 0/s  batch 0 ms  lag -"


@pytest.mark.parametrize(("seconds", "said"), [(0.24, "0.2 s"), (42, "42 s"), (1000, "17 min"), (18_800, "5.2 h"), (267_000, "3.1 days")])
def test_durations_are_those_that_people_say(seconds: float, said: str):
    assert duration(seconds) == said
