"""How many bytes of a partition of several replicas consumers have not been woken for: written, and committed since, or not yet."""

from __future__ import annotations

from ottla.broker.replicas.waiting import AT_ONCE


class Unread:
    """A count of one partition's unread bytes.

    What is between the high watermark and the log's end when a role starts counts as ``AT_ONCE``.
    """

    __slots__ = ("_bytes", "_end", "_start")

    def __init__(self) -> None:
        self._start = self._end = self._bytes = 0

    def begin(self, high_watermark: int, end_offset: int) -> None:
        """Starts over: the replica has another role, or another epoch."""
        self._start, self._end = high_watermark, end_offset
        self._bytes = AT_ONCE if high_watermark < end_offset else 0

    def grew(self, end_offset: int, size_bytes: int) -> None:
        """Notes that the log ends there now, and has so many bytes more."""
        self._end, self._bytes = end_offset, min(self._bytes + size_bytes, AT_ONCE)

    def take(self, high_watermark: int) -> int:
        """Returns how many bytes more can be read; an estimate, where several appends grew the log together."""
        start, end, unread = self._start, self._end, self._bytes
        if high_watermark >= end:
            self._start = self._end = high_watermark
            self._bytes = 0
            return unread
        if high_watermark <= start or not unread:
            return 0
        share = unread if unread >= AT_ONCE else max(1, unread * (high_watermark - start) // (end - start))
        self._start, self._bytes = high_watermark, max(1, unread - share)  # the rest is not nothing, whatever came before it
        return share
