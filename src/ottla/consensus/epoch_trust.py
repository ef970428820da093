"""Which epochs are believed: a stranger who can reach a voter must not use up the numbers that elections need.

An epoch is 31 bits wide, an election takes one, and a replica that has believed the last one can never elect a leader again. Requests do
not prove who sent them, so an epoch that a request brings is believed only while it is no further ahead than elections can have come:
``AHEAD_MAX`` epochs at once, and ``PER_SECOND`` from there on, from any sender and however often. A voter that has really been away for
longer is not believed at once either, and need not be: it is asked, by the replica that looks for its leader, and an answer comes from
where the voter listens. Of answers an epoch is believed that is ``EPOCH_JUMP_MAX`` ahead, and any by a replica that has never been in one.
No epoch after ``EPOCH_LAST`` is believed, or started.
"""

from __future__ import annotations

from typing import Final

EPOCH_LAST: Final = 2**31 - 2**20
"""Far from what the wire and the file can say, and hundreds of years of elections away."""
EPOCH_JUMP_MAX: Final = 1_000_000
AHEAD_MAX: Final = 1_000
PER_SECOND: Final = 10
"""Faster than voters can hold elections for long."""


class EpochTrust:
    """A limit on how far requests may raise the epoch."""

    __slots__ = ("_limit", "_since_ms")

    def __init__(self, epoch: int) -> None:
        self._limit = epoch + AHEAD_MAX  # at that time
        self._since_ms = -1

    def copy(self) -> EpochTrust:
        made = EpochTrust(0)
        made._limit, made._since_ms = self._limit, self._since_ms
        return made

    def allows(self, wanted: int, epoch: int, now_ms: int) -> bool:
        """True when a replica in ``epoch`` believes a request that says ``wanted``."""
        if self._since_ms < 0:
            self._since_ms = now_ms
        gained = (now_ms - self._since_ms) * PER_SECOND // 1000
        if gained > 0:  # what is left of a step counts for the next one
            self._since_ms += gained * 1000 // PER_SECOND
            self._limit += gained
        self._limit = min(max(self._limit, epoch), epoch + AHEAD_MAX)
        return wanted <= min(self._limit, EPOCH_LAST)
