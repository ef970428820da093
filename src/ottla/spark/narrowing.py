"""What a query's filters leave to be read: fewer partitions, and a part of their offsets.

Spark applies every filter again, so narrowing only has to be safe: it must never drop a row that a filter would keep. A lower bound of the
timestamp becomes an offset, for brokers find the first record that is not older. An upper bound does not, since producers' times need not
rise with offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

if TYPE_CHECKING:
    from ottla.spark.lookup import Lookup
    from ottla.spark.offsets import Offsets
    from ottla.types import TopicPartition

_MAX: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers from ``low`` to ``high``, both included; if ``among`` is given, only its members."""

    low: int = -_MAX
    high: int = _MAX
    among: frozenset[int] | None = None

    def __contains__(self, number: int) -> bool:
        return self.low <= number <= self.high and (self.among is None or number in self.among)

    def __and__(self, other: Numbers) -> Numbers:
        among = other.among if self.among is None else self.among if other.among is None else self.among & other.among
        return Numbers(max(self.low, other.low), min(self.high, other.high), among)


@dataclass(slots=True)
class Narrowing:
    """The part of the filters that can be decided before anything is read."""

    partitions: Numbers = field(default_factory=Numbers)
    offsets: Numbers = field(default_factory=Numbers)
    time_ms: int | None = None  # of the first record that is wanted

    def add(self, filter: Filter) -> None:
        """Leaves out what the filter does not admit, where that can be decided."""
        column = getattr(filter, "attribute", None)
        if column == ("timestamp",):
            low_ms = _first_ms(filter)
            if low_ms is not None:
                self.time_ms = low_ms if self.time_ms is None else max(self.time_ms, low_ms)
        elif column == ("partition",):
            self.partitions &= _numbers(filter)
        elif column == ("offset",):
            self.offsets &= _numbers(filter)

    def narrowed(self, start: Offsets, end: Offsets, lookup: Lookup) -> tuple[Offsets, Offsets]:
        """Returns the bounds of what is left. The ends were known before the times are looked up: a time that no record has, none needs."""
        end = {partition: min(offset, self.offsets.high + 1) for partition, offset in end.items() if partition.partition in self.partitions}
        start = {partition: max(start[partition], self.offsets.low) for partition in end}
        if self.time_ms is not None:
            wanted: list[TopicPartition] = [partition for partition in end if start[partition] < end[partition]]
            for partition, offset in lookup.at_times(dict.fromkeys(wanted, self.time_ms)).items():
                start[partition] = max(start[partition], offset) if offset >= 0 else end[partition]
        return start, end


def narrowing_of(filters: Iterable[Filter]) -> Narrowing:
    found = Narrowing()
    for each in filters:
        found.add(each)
    return found


def _numbers(filter: Filter) -> Numbers:
    """Returns the whole numbers that the filter admits; all for a filter that says nothing of whole numbers."""
    if isinstance(filter, In):
        among = frozenset(value for value in filter.value if _is_whole(value))
        return Numbers(min(among, default=0), max(among, default=-1), among)
    value: Any = getattr(filter, "value", None)
    if not _is_whole(value):
        return Numbers()
    if isinstance(filter, (EqualTo, EqualNullSafe)):
        return Numbers(value, value)
    if isinstance(filter, (GreaterThan, GreaterThanOrEqual)):
        return Numbers(low=value + isinstance(filter, GreaterThan))
    if isinstance(filter, (LessThan, LessThanOrEqual)):
        return Numbers(high=value - isinstance(filter, LessThan))
    return Numbers()


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _first_ms(filter: Filter) -> int | None:
    """Returns the earliest time that the filter admits, rounded down; None where it sets none."""
    value: Any = getattr(filter, "value", None)
    if not isinstance(filter, (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)):
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return max(0, (value - _EPOCH) // timedelta(milliseconds=1))
