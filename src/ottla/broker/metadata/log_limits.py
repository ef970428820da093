"""When a segment of the metadata log is closed, and when a snapshot is written (KIP-630, KIP-876)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ottla.config import BrokerConfig


class LogLimits(Struct, frozen=True):
    """The sizes and ages at which something is done about the log. Sizes in bytes, times in milliseconds; defaults are Kafka's."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    bytes_between_snapshots: int = 20 << 20
    snapshot_interval_ms: int = 3_600_000
    """A snapshot is written after so long, too, if the log has grown; 0 for never."""

    @classmethod
    def of(cls, config: BrokerConfig) -> LogLimits:
        return cls(
            segment_bytes=config["internal.metadata.log.segment.bytes"] or config["metadata.log.segment.bytes"],
            segment_ms=config["metadata.log.segment.ms"],
            bytes_between_snapshots=config["metadata.log.max.record.bytes.between.snapshots"],
            snapshot_interval_ms=config["metadata.log.max.snapshot.interval.ms"],
        )


DEFAULT_LIMITS: Final = LogLimits()


class SnapshotDue:
    """A count of what has come since the newest snapshot, which says when the next one is due."""

    def __init__(self, limits: LogLimits, appended_bytes: int, written_ms: int) -> None:
        """Starts with ``appended_bytes``, which the log had taken at the last snapshot; below 0 if it was before the log was opened."""
        self._limits = limits
        self.written(appended_bytes, written_ms)

    def written(self, appended_bytes: int, now_ms: int) -> None:
        """Notes that a snapshot was written."""
        self._appended_bytes, self._written_ms = appended_bytes, now_ms

    def is_due(self, appended_bytes: int, now_ms: int) -> bool:
        limits, grown = self._limits, appended_bytes - self._appended_bytes
        is_old = 0 < limits.snapshot_interval_ms <= now_ms - self._written_ms
        return grown >= limits.bytes_between_snapshots or (is_old and grown > 0)
