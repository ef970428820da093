"""Frames: a 4-byte length, then that many bytes.

``FrameCutter`` is fed what arrived and yields complete frames as views. A frame that is entirely in what was fed is not
copied; one that is cut is collected in memory of its own, which was a frame's before (``FrameMemory``) or grows as bytes
arrive and never ahead of them, so that a peer who only declares a large frame costs nothing. The rest of a large one may be received
there, without a copy (``room``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from ottla.errors import DecodeError
from ottla.wire.frame_memory import FrameMemory

LENGTH_BYTES: Final = 4
ROOM_BYTES_MIN: Final = 1 << 17
"""Less is received with what follows it, in one call."""


class Account(Protocol):
    """The account of what frames hold while they are cut."""

    def receive(self, received: int, missing: int) -> None:
        """Counts bytes of the frame that have arrived; ``missing`` is 0 once it is complete."""
        ...


class FrameCutter:
    """Cuts one connection's bytes into frames. ``limit_bytes`` may be changed between calls (it is small before authentication).

    ``memory`` is that of all connections of a loop.
    """

    __slots__ = ("_account", "_collected", "_filled", "_head", "_length", "_memory", "limit_bytes")

    def __init__(self, limit_bytes: int, memory: FrameMemory | None = None, account: Account | None = None) -> None:
        self._account = account
        self.limit_bytes = limit_bytes
        self._memory = FrameMemory() if memory is None else memory
        self._head = b""  # up to three bytes of a length
        self._length = 0  # of the frame being collected; 0 when none is
        self._collected = bytearray()
        self._filled = 0

    @property
    def is_inside_frame(self) -> bool:
        return bool(self._head) or self._length > 0

    def room(self) -> memoryview | None:
        """Returns where the next bytes may be received, to be fed from there: memory of a frame that lacks many, else None."""
        if self._length - self._filled < ROOM_BYTES_MIN or len(self._collected) < self._length:
            return None
        return memoryview(self._collected)[self._filled : self._length]

    def close(self) -> None:
        """Drops the frame that was being collected, and frees its memory at once: the connection has ended."""
        self._head, self._length, self._filled, self._collected = b"", 0, 0, bytearray()

    def feed(self, data: memoryview) -> Iterator[tuple[memoryview, bool]]:
        """Yields each complete frame, and whether its memory belongs to ``data`` (True) or to the frame alone (False).

        DecodeError for a negative length or one above the limit: the connection cannot be read any further.
        """
        position, end = 0, len(data)
        if self._length:
            position = self._collect(data, 0)
            if self._filled < self._length:
                self._count()
                return
            yield self._take()
        elif self._head:
            need = LENGTH_BYTES - len(self._head)
            self._head += bytes(data[:need])
            if len(self._head) < LENGTH_BYTES:
                return
            length = self._checked(int.from_bytes(self._head, "big", signed=True))
            self._head = b""
            position = need
            if end - position < length:
                self._begin(length, data, position)
                return
            yield data[position : position + length], True
            position += length
        while end - position >= LENGTH_BYTES:
            length = self._checked(int.from_bytes(data[position : position + LENGTH_BYTES], "big", signed=True))
            position += LENGTH_BYTES
            if end - position < length:
                self._begin(length, data, position)
                return
            yield data[position : position + length], True
            position += length
        if position < end:
            self._head = bytes(data[position:])

    def _checked(self, length: int) -> int:
        if length < 0 or length > self.limit_bytes:
            raise DecodeError(f"a frame of {length} bytes; between 0 and {self.limit_bytes} are allowed")
        return length

    def _begin(self, length: int, data: memoryview, position: int) -> None:
        self._length = length
        self._collected = self._memory.lend(length)
        self._filled = 0
        self._collect(data, position)
        self._count()

    def _count(self) -> None:
        if self._account is not None:
            self._account.receive(self._filled, self._length - self._filled)

    def _collect(self, data: memoryview, position: int) -> int:
        """Takes what belongs to the frame; memory that is too short for it grows by an eighth more than that."""
        take = min(self._length - self._filled, len(data) - position)
        end = self._filled + take
        if end > len(self._collected):
            self._collected += data[position : position + take]
        elif data.obj is not self._collected:  # else it was received in its place
            memoryview(self._collected)[self._filled : end] = data[position : position + take]  # a bytearray would copy it twice
        self._filled = end
        return position + take

    def _take(self) -> tuple[memoryview, bool]:
        frame = memoryview(self._collected)[: self._length]
        if self._account is not None:
            self._account.receive(self._length, 0)
        self._memory.take_back(self._collected)
        self._length, self._filled, self._collected = 0, 0, bytearray()
        return frame, False
