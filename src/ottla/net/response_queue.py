"""Responses leave in the order in which the requests came.

Each request takes a place in its connection's queue. A place is filled when its response is ready; filled places at the head of
the queue may leave. Source: the Kafka protocol guide, "Network".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec


class ResponseSlot(msgspec.Struct, eq=False):
    """One request's turn. ``answer`` is None while it is worked on; an empty one is for requests that get no answer (acks=0)."""

    answer: Sequence[Any] | None = None


class ResponseQueue:
    """The places of one connection."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: deque[ResponseSlot] = deque()

    def __len__(self) -> int:
        """Returns how many requests are not yet answered."""
        return len(self._places)

    def enter(self) -> ResponseSlot:
        place = ResponseSlot()
        self._places.append(place)
        return place

    def is_first(self, place: ResponseSlot) -> bool:
        """True when all earlier requests are answered."""
        return bool(self._places) and self._places[0] is place

    def leave(self, out: list[Any]) -> None:
        """Appends the buffers of all answers whose turn has come."""
        places = self._places
        while places:
            answer = places[0].answer
            if answer is None:
                return
            out.extend(answer)
            places.popleft()
