"""Appends of some size are written on the loop as long as that is quick."""

from __future__ import annotations

import pytest

from ottla.runtime.append_pace import QUICK_NS, STALL_NS, STALLED_NS, AppendPace

SIZE = 256 * 1024


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [10**12]
    monkeypatch.setattr("ottla.runtime.append_pace.time.monotonic_ns", lambda: now[0])
    return now


def test_the_first_append_is_tried_on_the_loop() -> None:
    assert AppendPace().is_quick(SIZE)


def test_one_slow_append_sends_the_next_ones_of_its_size_to_threads() -> None:
    pace = AppendPace()
    pace.wrote(SIZE, QUICK_NS + 1000)
    assert not pace.is_quick(SIZE)
    assert pace.is_quick(SIZE // 2), "a smaller one is quick enough"


def test_quick_appends_by_threads_bring_them_back_after_some() -> None:
    pace = AppendPace()
    pace.wrote(SIZE, 4 * QUICK_NS)
    count = 0
    while not pace.is_quick(SIZE):
        pace.wrote(SIZE, QUICK_NS // 2)
        count += 1
        assert count < 100
    assert count > 4, "one quick append does not yet say that the next one is"


def test_an_append_that_stalled_the_loop_keeps_them_away_for_a_while(clock: list[int]) -> None:
    pace = AppendPace()
    pace.wrote_on_loop(SIZE, STALLED_NS + 1)
    for _ in range(100):
        pace.wrote(SIZE, 1000)  # the processor's share of a wait for the disk is small
    assert not pace.is_quick(SIZE)
    clock[0] += STALL_NS
    assert pace.is_quick(SIZE)
