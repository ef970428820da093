"""Counts and times as plain values. Who exposes them, and under which names, is not known here.

On the hot path a count is an integer in a slot, and a time one step in a table of buckets; everything else (rates,
quantiles, text) is computed by the caller.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Final

_SUB_BITS: Final = 2  # each power of two in four steps: a quantile is off by an eighth at most
_BUCKETS: Final = 40 << _SUB_BITS  # up to 2**40 us, twelve days


def _middle(bucket: int) -> float:
    step = 1 << _SUB_BITS
    if bucket < 2 * step:
        return float(bucket)
    bits = (bucket >> _SUB_BITS) - 1
    low = ((bucket & (step - 1)) + step) << bits
    return low + ((1 << bits) - 1) / 2


_MIDDLES: Final = tuple(map(_middle, range(_BUCKETS)))


class Timer:
    """A record of durations, in microseconds. Counts are of all time, quantiles of the last two periods."""

    __slots__ = ("_before", "_counts", "_earlier", "count", "total_us")

    def __init__(self) -> None:
        self.count = 0
        self.total_us = 0
        self._counts = [0] * _BUCKETS
        self._before = self._earlier = [0] * _BUCKETS  # as they were one and two periods ago

    def observe(self, us: int, count: int = 1) -> None:
        """Counts ``count`` things that took ``us`` each."""
        self.count += count
        self.total_us += us * count
        bits = us.bit_length() - _SUB_BITS - 1
        self._counts[us if bits < 0 else min(((bits + 1) << _SUB_BITS) + (us >> bits) - (1 << _SUB_BITS), _BUCKETS - 1)] += count

    def begin_period(self) -> None:
        """Starts a period: what is older than two periods no longer counts for quantiles."""
        self._earlier, self._before = self._before, list(self._counts)

    def quantiles(self, wanted: Sequence[float]) -> list[float]:
        """Returns quantiles in microseconds, in the order of ``wanted``, which rises; zeros when nothing was observed."""
        counts = [now - then for now, then in zip(self._counts, self._earlier, strict=True)]
        total = sum(counts)
        found: list[float] = []
        bucket, below = -1, 0
        for share in wanted:
            while bucket + 1 < _BUCKETS and (bucket < 0 or below < share * total):
                bucket += 1
                below += counts[bucket]
            found.append(_MIDDLES[bucket] if total else 0.0)
        return found

    def cumulative(self, bounds_us: Sequence[int]) -> list[int]:
        """Returns how many were not longer than each bound; bounds are met to within a bucket."""
        below = list(accumulate(self._counts, initial=0))
        return [below[bisect_right(_MIDDLES, bound)] for bound in bounds_us]


class IsrMeters:
    """Counts of the ISR changes that leaders asked for, by outcome."""

    __slots__ = ("expands", "failed", "shrinks")

    def __init__(self) -> None:
        self.shrinks = self.expands = self.failed = 0

    def changed(self, old: Sequence[int], new: Sequence[int]) -> None:
        """Counts a change that the controller has recorded; one that has lost and won members is both."""
        self.shrinks += any(node not in new for node in old)
        self.expands += any(node not in old for node in new)


class ReplicationMeters:
    """Counts of what brokers copy from each other: bytes of record batches fetched by this one, and from it.

    The bytes of replicas that a reassignment adds are also counted apart.
    """

    __slots__ = ("bytes_in", "bytes_out", "reassignment_bytes_in", "reassignment_bytes_out")

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.reassignment_bytes_in = self.reassignment_bytes_out = 0


class DamageMeters:
    """Counts of what was lost or found damaged in logs since the start: cuts by recoveries, with their bytes, and damaged segments.

    Missing replicas had records when the broker stopped, and their directories were gone at the start.
    """

    __slots__ = ("cut_bytes", "cuts", "damaged_segments", "missing_replicas")

    def __init__(self) -> None:
        self.cuts = self.cut_bytes = self.damaged_segments = self.missing_replicas = 0

    def cut(self, lost_bytes: int) -> None:
        """Counts what a recovery has cut off from a file."""
        self.cuts += 1
        self.cut_bytes += lost_bytes


class RequestMeters:
    """One API. ``pending`` are answers of the burst that is being worked on: their time is noted at its end, for all at once."""

    __slots__ = ("errors", "has_error_code", "nested", "pending", "requests", "timer")

    def __init__(self, version_max: int, *, has_error_code: bool, nested: Callable[[Any], Iterable[int]] | None = None) -> None:
        self.has_error_code = has_error_code  # its responses have a top-level one
        self.nested = nested  # finds the others of a response; None where the handler counts them
        self.requests = [0] * (version_max + 1)
        self.errors: dict[int, int] = {}
        self.timer = Timer()
        self.pending = 0

    def count_error(self, code: int) -> None:
        """Counts an error that a client was answered with: of a request, or of a partition or the like in it."""
        self.errors[code] = self.errors.get(code, 0) + 1


class TopicMeters:
    """One topic, over all its partitions here."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "messages_in",
        "produce_requests",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    bytes_in: int
    bytes_out: int
    bytes_rejected: int
    failed_fetch_requests: int
    failed_produce_requests: int
    fetch_requests: int
    messages_in: int
    produce_requests: int
