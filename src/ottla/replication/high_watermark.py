"""The high watermark of one partition on one broker: below it every record is committed, as far as this replica knows.

There is one object for the partition and for the machine of its role (``leader.py``, ``follower.py``), which moves it. A machine whose
epoch has ended lets go of it (``detached``), so that a late answer to it moves nothing. It goes back only where the log is cut.
"""

from __future__ import annotations


class HighWatermark:
    """An offset, ``0 <= offset <= log_end_offset``."""

    __slots__ = ("offset",)

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset

    def raise_to(self, offset: int) -> bool:
        """Moves up to ``offset``. Returns whether it has moved."""
        if offset <= self.offset:
            return False
        self.offset = offset
        return True

    def cut_to(self, end_offset: int) -> None:
        """Lowers the high watermark to the log's new end."""
        self.offset = min(self.offset, end_offset)

    def detached(self) -> HighWatermark:
        """Returns a copy, which moves nothing but itself."""
        return HighWatermark(self.offset)
