"""What the readers of a partition that is led here were sent last: who asks for the same again and again may find it damaged.

A leader sends records without reading them, so only its readers see that they are damaged: a follower does not take them, a consumer stays
where it is. A follower asks at once, so a few times are enough. A consumer is known by its client id, since one that ends with an error
and is started again comes on another connection: to the same offset, or to an earlier one, from which it gets as far as before. Consumers
of one id may ask for the same at the same time, so theirs must be some time apart, too, and one suspicion is enough for a while.
Programs that read a small topic once and again look the same, and many of them have one id: a place that was verified and is suspicious
again is left alone for twice as long each time.
"""

from __future__ import annotations

from typing import Final

from ottla.ports import Clock

SUSPECT_COUNT: Final = 5
RETURN_COUNT: Final = 3
"""So often a consumer has gone back from the same offset to earlier ones when it is suspicious."""
SUSPECT_MS: Final = 2_000
"""From a consumer's second question for the same, or its first return from there, until it may be suspicious."""
PAUSE_MS: Final = 600_000
"""From one suspicion of consumers to the next: each has a segment read."""
PAUSE_MS_MAX: Final = 86_400_000
"""From one to the next of the same offset, after each of which the pause is twice as long."""
READERS_MAX: Final = 64
CLIENT_ID_LENGTH_MAX: Final = 64
"""Of a longer one the start is remembered."""


class _Sent:
    __slots__ = ("count", "left_at", "left_count", "left_since_ms", "offset", "since_ms")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.count = 1
        self.since_ms = 0  # when it was asked for a second time
        self.left_at = -1  # from where the reader has gone back the last time, how often in a row, and when for the first time
        self.left_count = self.left_since_ms = 0

    def leave(self, now_ms: int) -> None:
        """Notes that the reader goes back from where it is."""
        if self.offset != self.left_at:
            self.left_at, self.left_count, self.left_since_ms = self.offset, 0, now_ms
        self.left_count += 1


class Resent:
    """The offsets that the last readers of one partition were sent records from."""

    __slots__ = ("_clock", "_pause_ms", "_sent", "_suspect", "_suspected_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[int | str, _Sent] = {}
        self._suspect = -1  # the last offset that consumers made suspicious, when that was, and for how long it is left alone
        self._suspected_ms = self._pause_ms = 0

    def to_follower(self, node: int, offset: int) -> bool:
        """True when the follower was sent the same for the ``SUSPECT_COUNT``th time in a row."""
        return self._count(node, offset) == SUSPECT_COUNT

    def to_consumer(self, client_id: str, offset: int) -> int | None:
        """Returns the offset that consumers of the id do not get past, if others were not suspicious just now; else None.

        They were sent the same as often in a row, or went back from there to earlier ones, and not all at one time.
        """
        if len(client_id) > CLIENT_ID_LENGTH_MAX:
            client_id = client_id[:CLIENT_ID_LENGTH_MAX]
        sent = self._sent.get(client_id)
        if sent is not None and offset < sent.offset:
            sent.leave(self._clock.monotonic_ms())
            if sent.left_count >= RETURN_COUNT and self._is_suspicious(sent.left_at, sent.left_since_ms):
                return sent.left_at
        if self._count(client_id, offset) >= SUSPECT_COUNT and self._is_suspicious(offset, self._sent[client_id].since_ms):
            return offset
        return None

    def _is_suspicious(self, offset: int, since_ms: int) -> bool:
        """True when that is ``SUSPECT_MS`` ago, and no suspicion was near; the next one has to wait then."""
        now_ms, is_same = self._clock.monotonic_ms(), offset == self._suspect
        pause_ms = self._pause_ms if is_same else min(self._pause_ms, PAUSE_MS)
        if now_ms < max(since_ms + SUSPECT_MS, self._suspected_ms + pause_ms):
            return False
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX) if is_same else PAUSE_MS
        self._suspect, self._suspected_ms = offset, now_ms
        return True

    def _count(self, reader: int | str, offset: int) -> int:
        sent = self._sent.get(reader)
        if sent is None:
            if len(self._sent) >= READERS_MAX:
                del self._sent[next(iter(self._sent))]
            self._sent[reader] = _Sent(offset)
            return 1
        if offset != sent.offset:
            sent.offset, sent.count = offset, 1
        else:
            sent.count += 1
            if sent.count == 2:
                sent.since_ms = self._clock.monotonic_ms()
        return sent.count
