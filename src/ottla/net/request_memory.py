"""What requests that are not worked on yet may hold in memory, over all connections together.

A connection holds the part of a frame that has come, and complete frames that wait for their turn. Above ``bytes_max`` memory is short:
then those frames go on that miss the least, as many as miss at most ``bytes_max`` together, and one at least; the other connections
are not read until there is room. Small requests pass large ones so, and a peer that sends slowly holds up no other. A frame that goes on
has ``COMPLETE_MS`` to be complete; its connection ends then, and also while more than twice ``bytes_max`` and one frame of the largest kind
are held: first the connection that holds the most. (Twice, since the waiting connections hold a receive more than ``bytes_max`` together,
and a new connection brings another receive: that must not end the frame that goes on.) Requests in work, whose records wait for the disk,
are counted apart: above ``bytes_max`` nothing is read.

Source: Kafka's ``queued.max.request.bytes``, which has no default and waits for a slow client as long as it likes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

DEFAULT_BYTES_MAX: Final = 32 << 20
"""Where nothing is configured: peers are not known before they have authenticated."""
COMPLETE_MS: Final = 10_000


class Share:
    """The share of one connection. ``is_waiting``: its frame is not received further, for want of room."""

    __slots__ = ("_memory", "_on_end", "_on_wait", "allowed_ms", "has_ended", "is_waiting", "kept", "missing", "received", "work")

    def __init__(self, memory: RequestMemory, on_wait: Callable[[], None], on_end: Callable[[], None]) -> None:
        self._memory = memory
        self._on_wait = on_wait
        self._on_end = on_end
        self.received = 0
        """Bytes of the frame that is being received."""
        self.missing = 0
        """Those that are still to come; 0 while no frame is cut."""
        self.kept = 0
        """Bytes of complete frames that wait."""
        self.work = 0
        self.is_waiting = False
        self.has_ended = False
        self.allowed_ms = -1  # since when its frame goes on although memory is short

    @property
    def held(self) -> int:
        return self.received + self.kept

    def receive(self, received: int, missing: int) -> None:
        """Notes how much of the frame that is being received is there; a complete frame is no longer counted, with nothing missing."""
        if self.has_ended:
            return
        is_complete = missing == 0
        added = (0 if is_complete else received) - self.received
        self.received += added
        self.missing = missing
        if is_complete:
            self.allowed_ms = -1
        self._memory.changed(self, added, is_settled=not is_complete and self.allowed_ms >= 0)

    def keep(self, count: int) -> None:
        """Counts complete frames of so many bytes that wait; negative when they no longer do."""
        if self.has_ended:
            return
        self.kept += count
        self._memory.changed(self, count)

    def begin_work(self, count: int) -> None:
        """Counts requests of so many bytes in work; negative when they no longer are."""
        if self.has_ended:
            return
        self.work += count
        self._memory.worked(count)

    def end(self) -> None:
        """Ends the share: the connection holds nothing from now on, whatever is reported for it later."""
        self.begin_work(-self.work)
        self.has_ended = True
        held, self.received, self.missing, self.kept = self.held, 0, 0, 0
        self._memory.changed(self, -held)

    def wait(self, is_waiting: bool) -> None:
        if is_waiting != self.is_waiting and not self.has_ended:
            self.is_waiting = is_waiting
            self._on_wait()

    def give_up(self) -> None:
        self._on_end()


class RequestMemory:
    """The memory that requests of one node hold.

    ``now_ms`` is a clock that only goes forward; ``look`` is due every second while ``is_short``, from ``on_short`` on. ``on_full`` is
    called when ``is_full`` has changed.
    """

    def __init__(
        self,
        *,
        bytes_max: int,
        frame_bytes_max: int,
        now_ms: Callable[[], int],
        on_short: Callable[[], None] = lambda: None,
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        self.bytes_max = bytes_max if bytes_max > 0 else DEFAULT_BYTES_MAX
        self._hard_max = 2 * self.bytes_max + frame_bytes_max
        self._now_ms = now_ms
        self._shares: dict[Share, None] = {}  # of those that hold anything
        self.held = 0
        """Bytes of frames that are not worked on."""
        self.work = 0
        self.is_short = False
        self.is_full = False
        """Requests in work hold so much that nothing is read."""
        self.ended_count = 0
        """Connections that ended for want of memory."""
        self._on_short = on_short
        self._on_full = on_full

    def share(self, on_wait: Callable[[], None], on_end: Callable[[], None]) -> Share:
        """Returns a connection's share; ``on_wait`` is called when it is to be read or not, ``on_end`` when it is to end."""
        return Share(self, on_wait, on_end)

    def changed(self, share: Share, added: int, *, is_settled: bool = False) -> None:
        """Notes that what the share holds has changed by so much."""
        self.held += added
        if share.held:
            self._shares[share] = None
        else:
            self._shares.pop(share, None)
            share.allowed_ms = -1
            share.wait(False)
        if self.held > self.bytes_max:
            if not self.is_short:
                self.is_short = True
                self._on_short()
            if not is_settled or self.held > self._hard_max:
                self._settle()
        elif self.is_short and self.held <= self.bytes_max // 2:
            self.is_short = False
            for other in list(self._shares):
                other.allowed_ms = -1
                other.wait(False)
        elif self.is_short and not is_settled:
            self._settle()

    def worked(self, count: int) -> None:
        self.work += count
        is_full = self.work > (self.bytes_max // 2 if self.is_full else self.bytes_max)
        if is_full != self.is_full:
            self.is_full = is_full
            self._on_full()

    def look(self) -> None:
        """Ends connections that were let go on and have not completed their frame in time."""
        now_ms = self._now_ms()
        for share in list(self._shares):
            if share.allowed_ms >= 0 and now_ms - share.allowed_ms >= COMPLETE_MS:
                self._end(share)
        if self.is_short:
            self._settle()

    def _settle(self) -> None:
        while self.held > self._hard_max and self._shares:
            self._end(max(self._shares, key=lambda share: share.held))
        room, is_first, now_ms = self.bytes_max, True, self._now_ms()
        for share in sorted((share for share in self._shares if share.missing), key=lambda share: share.missing):
            may_go_on = is_first or share.missing <= room
            is_first = False
            room -= share.missing
            if not may_go_on:
                share.allowed_ms = -1
            elif share.allowed_ms < 0:
                share.allowed_ms = now_ms
            share.wait(not may_go_on)

    def _end(self, share: Share) -> None:
        self.ended_count += 1
        self._shares.pop(share, None)
        share.give_up()  # which ends the share
