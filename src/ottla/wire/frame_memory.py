"""Memory of large frames, used again: fresh memory costs a page fault for every 4 KiB, more than the copy into it.

A frame's memory is handed in while views of it may still be read. It is lent again when none is left: a bytearray with views
refuses to grow, which is how this is known.
"""

from __future__ import annotations

from typing import Final

SPARE_BYTES_MIN: Final = 1 << 15
SPARE_BYTES_MAX: Final = 2 << 20
SPARES_MAX: Final = 8
ANSWER_BYTES_MAX: Final = 11 << 20
"""What a follower fetches at most by default, and its head."""
ANSWER_SPARES_MAX: Final = 3
STEP_BYTES: Final = 1 << 18


class FrameMemory:
    """The spares of one loop, ``SPARES_MAX`` of ``SPARE_BYTES_MAX`` at most."""

    __slots__ = ("_bytes_max", "_spares", "_spares_max")

    def __init__(self, *, bytes_max: int = SPARE_BYTES_MAX, spares_max: int = SPARES_MAX) -> None:
        self._bytes_max = bytes_max
        self._spares_max = spares_max
        self._spares: list[bytearray] = []

    def lend(self, size: int) -> bytearray:
        """Returns at least ``size`` bytes with any content, or an empty bytearray where there is no such spare."""
        if size >= SPARE_BYTES_MIN:
            for index, spare in enumerate(self._spares):
                if len(spare) >= size and _has_no_views(spare):
                    del self._spares[index]
                    return spare
        return bytearray()

    def take_back(self, memory: bytearray) -> None:
        """Takes memory back, to be lent again once no view of it is left. Where there are too many spares, the oldest is dropped."""
        if SPARE_BYTES_MIN <= len(memory) <= self._bytes_max:
            self._spares.append(memory)
            if len(self._spares) > self._spares_max:
                del self._spares[0]


class AnswerMemory(FrameMemory):
    """The memory for answers that this node has asked for, up to ``ANSWER_BYTES_MAX``; it grows in steps, so that the next one fits too."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(bytes_max=ANSWER_BYTES_MAX, spares_max=ANSWER_SPARES_MAX)

    def lend(self, size: int) -> bytearray:
        return super().lend(size) or (bytearray(_in_steps(size)) if SPARE_BYTES_MIN <= size <= self._bytes_max else bytearray())


def _in_steps(size: int) -> int:
    return -(-size // STEP_BYTES) * STEP_BYTES


def _has_no_views(memory: bytearray) -> bool:
    try:
        memory.append(0)
    except BufferError:
        return False
    memory.pop()
    return True
