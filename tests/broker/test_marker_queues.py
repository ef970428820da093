"""What goes into one request of markers to a broker."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import structlog.testing

from ottla.broker.coordinators.end_markers import _Results
from ottla.broker.coordinators.marker_queues import MARKERS_MAX, _Due, _note_failure, _Queue, _request, _taken
from ottla.broker.coordinators.owed import note_end
from ottla.broker.coordinators.shard import Shard
from ottla.broker.tasks import eager
from ottla.transactions.effects import WriteMarkers
from ottla.types import TopicPartition


def due(producer_id: int, *indexes: int, is_closed: bool = False) -> _Due:
    partitions = tuple(TopicPartition("t", index) for index in indexes)
    shard = cast(Shard[Any], SimpleNamespace(leader_epoch=3, is_closed=is_closed))
    return _Due(shard, WriteMarkers(f"x-{producer_id}", producer_id, 1, True, 2, frozenset(partitions)), partitions)


def queue_of(*dues: _Due) -> _Queue:
    queue = _Queue()
    queue.due.extend(dues)
    return queue


def test_a_request_has_one_marker_of_a_producer_and_the_rest_keeps_its_order() -> None:
    """Answers name the producer alone: whose partitions they are of two markers, nobody could tell."""
    queue = queue_of(due(7, 0), due(8, 0), due(7, 1), due(7, 2), due(9, 0))
    request = _request(_taken(queue))
    assert [(marker.producer_id, marker.topics[0].partition_indexes) for marker in request.markers] == [(7, [0]), (8, [0]), (9, [0])]
    assert [found.partitions[0].partition for found in queue.due] == [1, 2]
    assert [found.partitions[0].partition for found in _taken(queue)] == [1]


def test_what_a_lost_coordinator_wanted_is_dropped() -> None:
    queue = queue_of(due(7, 0, is_closed=True), due(8, 0))
    assert [found.wanted.producer_id for found in _taken(queue)] == [8]


def test_a_request_has_its_limit() -> None:
    queue = queue_of(*(due(producer_id, 0) for producer_id in range(MARKERS_MAX + 5)))
    assert (len(_taken(queue)), len(_taken(queue))) == (MARKERS_MAX, 5)


def test_what_the_end_of_the_process_breaks_off_is_no_failure() -> None:
    """On a slow disk a marker is still being written when the broker has stopped."""

    async def unanswered() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        for note in (partial(_Results(1).note, [0]), _note_failure, note_end):
            eager.run(unanswered(), note)

    with structlog.testing.capture_logs() as events:
        asyncio.run(main())
    assert events == []
