"""A leader suspects its own log where a reader asks again and again for what it was sent, and not before."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.replicas.leading import Leading
from ottla.broker.replicas.resent import CLIENT_ID_LENGTH_MAX, PAUSE_MS, READERS_MAX, RETURN_COUNT, SUSPECT_COUNT, SUSPECT_MS, Resent
from ottla.ports import Clock


class Suspecting:
    """A leader, and what it has suspected."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        self.now_ms = 0
        clock = cast("Clock", SimpleNamespace(monotonic_ms=lambda: self.now_ms))
        self.leading = cast("Any", Leading.__new__(Leading))
        self.leading._resent, self.leading._partition = Resent(clock), None
        self.leading._replication = SimpleNamespace(on_suspect=lambda partition, offset, reader: self.found.append((offset, reader)))

    def sent_to_consumer(self, client_id: str, offset: int, *, times: int = 1, each_ms: int = 0) -> None:
        for _ in range(times):
            self.leading.sent_to_consumer(client_id, offset)
            self.now_ms += each_ms


@pytest.mark.parametrize(
    ("fetches", "expected"),
    [
        ([(2, 7)] * (SUSPECT_COUNT - 1), []),
        ([(2, 7)] * SUSPECT_COUNT, [(7, "broker 2")]),
        ([(2, 7)] * 3 * SUSPECT_COUNT, [(7, "broker 2")]),
        ([(2, offset) for offset in range(4 * SUSPECT_COUNT)], []),
        ([(node, 7) for node in (2, 3) for _ in range(SUSPECT_COUNT - 1)], []),
        ([(2, 7), (3, 7)] * SUSPECT_COUNT, [(7, "broker 2"), (7, "broker 3")]),
        ([(2, 7)] * (SUSPECT_COUNT - 1) + [(2, 8)] + [(2, 7)] * (SUSPECT_COUNT - 1), []),
        ([(2, 7)] * SUSPECT_COUNT + [(2, 8)] + [(2, 9)] * SUSPECT_COUNT, [(7, "broker 2"), (9, "broker 2")]),
    ],
)
def test_what_a_follower_repeats(fetches: list[tuple[int, int]], expected: list[tuple[int, str]]) -> None:
    suspecting = Suspecting()
    for node, offset in fetches:
        suspecting.leading.sent(node, offset)
    assert suspecting.found == expected


def test_a_consumer_that_stays_where_it_is_makes_one_suspicion_for_a_while() -> None:
    suspecting = Suspecting()
    suspecting.sent_to_consumer("app", 7, times=SUSPECT_COUNT - 1, each_ms=SUSPECT_MS)
    assert suspecting.found == []
    suspecting.sent_to_consumer("app", 7, times=10)
    assert suspecting.found == [(7, "client 'app'")]
    suspecting.sent_to_consumer("other", 9, times=10, each_ms=SUSPECT_MS)
    assert len(suspecting.found) == 1
    suspecting.now_ms += PAUSE_MS
    suspecting.sent_to_consumer("other", 9)
    assert suspecting.found == [(7, "client 'app'"), (9, "client 'other'")]


def test_programs_that_read_a_small_topic_again_and_again_have_it_verified_ever_more_seldom() -> None:
    """Librdkafka's clients have one id, unless they are given another: five starts of any of them looked like a damaged record."""
    suspecting = Suspecting()
    minutes = []
    for minute in range(7 * 24 * 60):
        count = len(suspecting.found)
        suspecting.sent_to_consumer("rdkafka", 0, each_ms=60_000)
        if len(suspecting.found) > count:
            minutes.append(minute)
    pauses = [later - earlier for earlier, later in pairwise(minutes)]
    assert pauses[:4] == [10, 20, 40, 80]
    assert max(pauses) == 24 * 60
    suspecting.now_ms += PAUSE_MS
    suspecting.sent_to_consumer("app", 7, times=SUSPECT_COUNT, each_ms=SUSPECT_MS)
    assert suspecting.found[-1] == (7, "client 'app'"), "another place waits no longer than before"


def test_a_consumer_that_reads_from_the_start_and_gets_no_further_makes_the_place_suspicious_where_it_ends() -> None:
    """Each run asks from the first record on: what it asked for twice in a row was never the damaged batch."""
    suspecting = Suspecting()
    for _ in range(RETURN_COUNT):
        for offset in (0, 40, 55):
            suspecting.sent_to_consumer("app", offset, each_ms=SUSPECT_MS)
    assert suspecting.found == []
    suspecting.sent_to_consumer("app", 0)
    assert suspecting.found == [(55, "client 'app'")]


def test_consumers_of_an_id_that_read_different_parts_in_turn_are_not_suspicious() -> None:
    suspecting = Suspecting()
    for offset in range(0, 400, 10):
        suspecting.sent_to_consumer("app", 1000 + offset, each_ms=SUSPECT_MS)
        suspecting.sent_to_consumer("app", offset, each_ms=SUSPECT_MS)
    assert suspecting.found == []


def test_returns_at_one_time_are_not_suspicious() -> None:
    suspecting = Suspecting()
    for _ in range(4 * RETURN_COUNT):
        for offset in (0, 40):
            suspecting.sent_to_consumer("app", offset)
    assert suspecting.found == []


def test_consumers_that_share_an_id_and_read_the_same_at_the_same_time_are_not_suspicious() -> None:
    suspecting = Suspecting()
    for offset in range(100):
        suspecting.sent_to_consumer("app", offset, times=4 * SUSPECT_COUNT)
        suspecting.now_ms += SUSPECT_MS
    assert suspecting.found == []


def test_of_the_readers_of_a_partition_the_last_ones_are_known() -> None:
    suspecting = Suspecting()
    for number in range(10 * READERS_MAX):
        suspecting.sent_to_consumer(f"app-{number}", 7)
    suspecting.sent_to_consumer("x" * 32_000, 7)
    assert sum(map(len, suspecting.leading._resent._sent)) <= READERS_MAX * CLIENT_ID_LENGTH_MAX
    assert len(suspecting.leading._resent._sent) == READERS_MAX
    for _ in range(SUSPECT_COUNT - 1):
        suspecting.now_ms += SUSPECT_MS
        suspecting.sent_to_consumer(f"app-{10 * READERS_MAX - 1}", 7)
    assert suspecting.found == [(7, f"client 'app-{10 * READERS_MAX - 1}'")]
