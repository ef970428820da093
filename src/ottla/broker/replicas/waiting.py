"""Who waits for a partition to grow: consumers for what is committed, followers for what is written."""

from __future__ import annotations

from typing import Any, Final, Protocol

AT_ONCE: Final = 2**62
"""In place of a size: there is something else that those who wait are to look at."""


class AppendWaiter(Protocol):
    def on_append(self, size_bytes: int) -> None:
        """Notes that the partition's readable part has grown."""
        ...


class FollowerWaiter(Protocol):
    def on_leader_progress(self, partition: Any, size_bytes: int) -> None:
        """Notes that the log of the partition (``Partition``), which is led here, has grown."""
        ...
