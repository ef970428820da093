"""Brokers that were taken for dead, and lived."""

from __future__ import annotations

from ottla.controller.false_alarms import WITHIN_MS, FalseAlarms


def test_the_third_mistake_within_ten_minutes_is_the_last() -> None:
    alarms = FalseAlarms()
    for now_ms, is_last in ((0, False), (1000, False), (2000, True)):
        alarms.on_fenced(7, 5)
        assert alarms.on_unfenced(7, 5, now_ms) is is_last
    assert (set(alarms.untrusted), alarms.count) == ({7}, 3)
    alarms.on_fenced(7, 5)
    assert not alarms.on_unfenced(7, 5, 3000), "it is known already"


def test_mistakes_long_ago_or_of_other_brokers_do_not_count() -> None:
    alarms = FalseAlarms()
    for now_ms, broker in ((0, 7), (1, 7), (WITHIN_MS + 2, 7), (WITHIN_MS + 3, 8)):
        alarms.on_fenced(broker, 5)
        assert not alarms.on_unfenced(broker, 5, now_ms)
    assert alarms.untrusted == frozenset()


def test_a_process_that_came_after_the_dead_one_is_no_mistake() -> None:
    alarms = FalseAlarms()
    alarms.on_fenced(7, 5)
    assert not alarms.on_unfenced(7, 9, 0)
    assert not alarms.on_unfenced(7, 5, 0), "nor one that nobody suspected"
    assert alarms.count == 0
