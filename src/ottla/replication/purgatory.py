"""Requests that cannot be answered yet, by deadline.

One heap for the broker instead of a timer each: the shell keeps a single timer for ``next_deadline_ms`` and takes
what ``expired`` returns. What is done before its deadline stays in the heap as a cancelled entry and is skipped.
"""

from __future__ import annotations

import heapq
from typing import Final, Protocol

HUSKS_MAX: Final = 1000
"""So many are kept without a look; with more, they are cleared out as soon as they are the larger part."""


class Waiter(Protocol):
    @property
    def is_done(self) -> bool: ...

    def expire(self) -> None:
        """Answers with what there is, for the deadline has passed."""
        ...


class Purgatory:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Waiter]] = []
        self._sequence = 0  # keeps waiters of one deadline in the order in which they came
        self._husk_count = 0  # at most: one that expired meanwhile may be counted

    def __len__(self) -> int:
        return len(self._heap)

    def done_early(self) -> None:
        """Counts a waiter that is done. A far deadline must not keep it in memory: clients choose their deadlines."""
        self._husk_count += 1
        if self._husk_count > HUSKS_MAX and 2 * self._husk_count > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].is_done]
            heapq.heapify(self._heap)
            self._husk_count = 0

    def park(self, waiter: Waiter, deadline_ms: int) -> bool:
        """True when the deadline is now the earliest: the timer must be moved."""
        self._sequence += 1
        heapq.heappush(self._heap, (deadline_ms, self._sequence, waiter))
        return self._heap[0][2] is waiter

    def next_deadline_ms(self) -> int | None:
        heap = self._heap
        while heap and heap[0][2].is_done:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def expired(self, now_ms: int) -> list[Waiter]:
        """Takes the waiters whose deadline is not later than ``now_ms`` out of the heap."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            waiter = heapq.heappop(self._heap)[2]
            if not waiter.is_done:
                due.append(waiter)
        return due
