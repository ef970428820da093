from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metrics import Timer

QUANTILES = [0.5, 0.75, 0.95, 0.99, 0.999]


@given(st.lists(st.integers(0, 2**38), min_size=1, max_size=300))
def test_a_quantile_is_that_of_the_sorted_times_to_within_an_eighth(times: list[int]) -> None:
    timer = Timer()
    for us in times:
        timer.observe(us)
    ordered = sorted(times)
    for share, found in zip(QUANTILES, timer.quantiles(QUANTILES), strict=True):
        exact = ordered[max(0, math.ceil(share * len(ordered)) - 1)]
        assert found == pytest.approx(exact, rel=1 / 8, abs=0)
    assert (timer.count, timer.total_us) == (len(times), sum(times))


def test_many_at_once_count_as_many() -> None:
    one, other = Timer(), Timer()
    one.observe(7, 3)
    for _ in range(3):
        other.observe(7)
    assert (one.count, one.total_us, one.quantiles(QUANTILES)) == (other.count, other.total_us, other.quantiles(QUANTILES))


def test_quantiles_forget_after_two_periods_and_counts_do_not() -> None:
    timer = Timer()
    timer.observe(5)
    timer.begin_period()
    timer.observe(3)
    assert timer.quantiles([0.5, 0.99]) == [3, 5]
    timer.begin_period()
    assert timer.quantiles([0.99]) == [3]
    timer.begin_period()
    assert timer.quantiles([0.5]) == [0]
    assert timer.count == 2


def test_a_time_beyond_all_buckets_is_kept_in_the_last_one() -> None:
    timer = Timer()
    timer.observe(2**60)
    assert timer.quantiles([0.5])[0] > 2**39


def test_cumulative_counts_rise_to_all() -> None:
    timer = Timer()
    for us in (1, 10, 100, 1000, 10_000):
        timer.observe(us)
    assert timer.cumulative([0, 1, 50, 5000, 2**39]) == [0, 1, 2, 4, 5]
