"""Transactions that have read from each other in a circle (G1c): whichever of them came first has read what was not there yet.

Only reads make edges: a transaction comes after each transaction whose record it polled. Which of two wrote first to a partition says
nothing here, since Kafka's transactions write to one partition side by side. Source: Adya (G1c), jepsen.tests.kafka (wr edges).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.history.operations import Value


class Read(NamedTuple):
    """The reason for which one transaction comes after another one."""

    partition: tuple[str, int]
    value: Value
    event: int


Reads = Mapping[str, Mapping[str, Read]]
"""By reader and writer: the first read of each pair."""


def circles(reads: Reads) -> Iterator[list[str]]:
    """Yields one shortest circle of each group of transactions that are all after each other; each has read from the next one."""
    for group in _groups(reads):
        if len(group) > 1:
            yield _shortest(reads, group)


def _groups(reads: Reads) -> Iterator[set[str]]:
    """Yields the strongly connected parts (Tarjan), without recursion: a history may have long chains."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    open_ones: set[str] = set()
    for start in reads:
        if start in order:
            continue
        path = [(start, iter(reads.get(start, ())))]
        order[start] = low[start] = len(order)
        stack.append(start)
        open_ones.add(start)
        while path:
            node, writers = path[-1]
            writer = next(writers, None)
            if writer is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == order[node]:
                    group = set()
                    while node not in group:
                        group.add(stack.pop())
                    open_ones -= group
                    yield group
            elif writer not in order:
                order[writer] = low[writer] = len(order)
                stack.append(writer)
                open_ones.add(writer)
                path.append((writer, iter(reads.get(writer, ()))))
            elif writer in open_ones:
                low[node] = min(low[node], order[writer])


def _shortest(reads: Reads, group: set[str]) -> list[str]:
    """Returns a shortest circle through the first of them by name, so that the same history gives the same circle."""
    start = min(group)
    came_from: dict[str, str] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for writer in reads[node]:
            if writer == start:
                circle = [node]
                while circle[-1] != start:
                    circle.append(came_from[circle[-1]])
                return circle[::-1]
            if writer in group and writer not in came_from:
                came_from[writer] = node
                queue.append(writer)
    raise AssertionError("each of a group is after every other one")
