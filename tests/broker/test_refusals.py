"""Which of the clients that are turned away the log has a line for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ottla.broker.requests.refusals import ADDRESSES_MAX, COUNTS_MAX, LINES_MAX, LINES_OF_ALL_MAX, OTHERS, WINDOW_MS, Refusals
from ottla.loggers import send_to


class Clock:
    time_ms = 0

    def monotonic_ms(self) -> int:
        return self.time_ms

    now_ms = monotonic_us = monotonic_ms


@pytest.fixture
def logged() -> Iterator[list[Mapping[str, Any]]]:
    found: list[Mapping[str, Any]] = []
    send_to(lambda logger, method, event, values: found.append(values))
    try:
        yield found
    finally:
        send_to(None)


def taken(refusals: Refusals, address: str, count: int, event: str = "authentication_failed") -> int:
    return sum(refusals.take(event, address) for _ in range(count))


def test_an_address_has_its_lines_and_then_a_count(logged: list[Mapping[str, Any]]) -> None:
    clock = Clock()
    refusals = Refusals(clock)
    assert taken(refusals, "10.0.0.1", LINES_MAX + 5) == LINES_MAX
    assert taken(refusals, "10.0.0.2", 1) == 1, "another address has its own"
    assert taken(refusals, "10.0.0.1", 1, "connection_refused") == 1, "and another event"
    clock.time_ms = WINDOW_MS
    assert logged == []
    assert taken(refusals, "10.0.0.2", 1) == 1
    assert logged == [{"of": "authentication_failed", "peer": "10.0.0.1", "count": 5}]
    clock.time_ms = 2 * WINDOW_MS
    assert taken(refusals, "10.0.0.1", LINES_MAX + 5) == LINES_MAX
    assert len(logged) == 1, "nothing was left out in that minute"


def test_many_addresses_share_their_lines_and_their_counts_are_few(logged: list[Mapping[str, Any]]) -> None:
    clock = Clock()
    refusals = Refusals(clock)
    count = ADDRESSES_MAX + LINES_OF_ALL_MAX + 500
    assert sum(taken(refusals, f"address-{number}", 1) for number in range(count)) == LINES_OF_ALL_MAX
    assert taken(refusals, "address-0", 7) == 0
    assert len(refusals._untold) == ADDRESSES_MAX + 1
    clock.time_ms = WINDOW_MS
    assert taken(refusals, "address-0", 1) == 1
    assert len(logged) == COUNTS_MAX + 1
    assert sum(line["count"] for line in logged) == count + 7 - LINES_OF_ALL_MAX
    assert Counter(line["peer"] for line in logged)[OTHERS] == 2
