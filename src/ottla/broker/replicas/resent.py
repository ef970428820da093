"""What the readers of a partition that is led here were sent last: who asks for the same again and again may find it damaged.

A leader sends records without reading them, so only its readers see that they are damaged: a follower does not take them, a consumer stays
where it is. A follower asks at once, so a few times are enough. A consumer is known by its client id, since one that ends with an error
and is started again comes on another connection; consumers of one id may ask for the same at the same time, so theirs must be some time
apart, too, and one suspicion is enough for a while.
"""

from __future__ import annotations

from typing import Final

from ottla.ports import Clock

SUSPECT_COUNT: Final = 5
SUSPECT_MS: Final = 2_000
"""From a consumer's second question for the same until it may be suspicious."""
PAUSE_MS: Final = 600_000
"""From one suspicion of consumers to the next: each has a segment read."""
READERS_MAX: Final = 64
CLIENT_ID_LENGTH_MAX: Final = 64
"""Of a longer one the start is remembered."""


class _Sent:
    __slots__ = ("count", "offset", "since_ms")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.count = 1
        self.since_ms = 0  # when it was asked for a second time


class Resent:
    """The offsets that the last readers of one partition were sent records from."""

    __slots__ = ("_clock", "_pause_ends_ms", "_sent")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[int | str, _Sent] = {}
        self._pause_ends_ms = 0

    def to_follower(self, node: int, offset: int) -> bool:
        """True when the follower was sent the same for the ``SUSPECT_COUNT``th time in a row."""
        return self._count(node, offset) == SUSPECT_COUNT

    def to_consumer(self, client_id: str, offset: int) -> bool:
        """True when consumers of the id were sent the same as often in a row, not at one time, and others were not suspicious just now."""
        if len(client_id) > CLIENT_ID_LENGTH_MAX:
            client_id = client_id[:CLIENT_ID_LENGTH_MAX]
        if self._count(client_id, offset) < SUSPECT_COUNT:
            return False
        now_ms = self._clock.monotonic_ms()
        if now_ms < max(self._sent[client_id].since_ms + SUSPECT_MS, self._pause_ends_ms):
            return False
        self._pause_ends_ms = now_ms + PAUSE_MS
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
