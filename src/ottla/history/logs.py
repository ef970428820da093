"""The log of one partition, as all that clients were answered says it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.history.operations import Value


class Acknowledged(NamedTuple):
    """A send that was ok."""

    value: Value
    offset: int
    process: str | int
    transaction: str
    event: int
    """That by which it was invoked."""
    answer_event: int


@dataclass(slots=True)
class LogView:
    """``values`` has what was acknowledged or polled at each offset, ``polled`` the offsets that a poll returned."""

    values: dict[int, Value] = field(default_factory=dict)
    places: dict[Value, int] = field(default_factory=dict)
    transactions: dict[int, str] = field(default_factory=dict)  # of acknowledged records
    polled: set[int] = field(default_factory=set)
    highest_polled: int = -1
    acknowledged: list[Acknowledged] = field(default_factory=list)

    def place(self, offset: int, value: Value) -> tuple[Value, int | None]:
        """Places the value at the offset. Returns another one that was said to be there (else the same), and another place of the value."""
        known = self.values.setdefault(offset, value)
        place = None if value is None else self.places.setdefault(value, offset)
        return known, None if place == offset else place
