"""What a topic's configuration says about its logs. Fields are Kafka's topic keys with ``_`` for ``.``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

LONG_MAX: Final = 2**63 - 1
LZ4_FAST: Final = 9  # Kafka's default level: the fast compressor, and no level of the thorough one
DECOMPRESSED_BYTES_MIN: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Defaults are Kafka's; sizes in bytes, times in milliseconds, -1 for "no limit" in ``retention_*``."""

    cleanup_policy: str = "delete"  # "delete", "compact" or "compact,delete"
    compression_gzip_level: int = -1
    compression_lz4_level: int = LZ4_FAST
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    fails_when_full: bool = False  # no topic's key: of a log whose owner cannot take back what it staged
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    opens_batches: bool = True  # ottla.produce.validation=records, a broker key
    producer_id_expiration_ms: int = 86_400_000  # a broker key; the log is who needs it
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    roll_ms: int = field(init=False)
    """How far apart the times in a segment may be, but for jitter: only closed ones are compacted, so max.compaction.lag.ms counts too."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "roll_ms", min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms)

    @property
    def decompressed_bytes_max(self) -> int:
        """What a batch may unpack to where the broker has to look inside: producers limit what they pack to about what they send."""
        return max(DECOMPRESSED_BYTES_MIN, 2 * self.max_message_bytes)

    @property
    def compression_level(self) -> int | None:
        """Of the topic's own codec; None for the codec's usual one."""
        match self.compression_type:
            case "gzip":
                return self.compression_gzip_level
            case "lz4":
                return None if self.compression_lz4_level == LZ4_FAST else self.compression_lz4_level
            case "zstd":
                return self.compression_zstd_level
        return None

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
