"""The settings of a consumer's fetches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.client.settings import Settings, boolean, choice, integer, text
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

RESET_TIMESTAMPS: Final = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}


@dataclass(frozen=True)
class FetchSettings(Settings):
    """Kafka's consumer configuration, by its names."""

    fetch_min_bytes: int = integer(1)
    fetch_max_wait_ms: int = integer(500)
    fetch_max_bytes: int = integer(52_428_800)
    max_partition_fetch_bytes: int = integer(1_048_576)
    auto_offset_reset: str = choice("latest", (*RESET_TIMESTAMPS, "none"))
    isolation_level: str = choice("read_uncommitted", ("read_uncommitted", "read_committed"))
    check_crcs: bool = boolean(True)
    client_rack: str = text("")

    @property
    def isolation_level_number(self) -> int:
        """As requests have it."""
        return 1 if self.isolation_level == "read_committed" else 0
